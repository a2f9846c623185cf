"""The batches of an epoch on their way to the device, the next one made while the device computes with the one before.

A GPU computes while the host goes on. So the host, once it has asked for all of a step, makes the next batch in pinned
memory, which the GPU copies from by itself. Nothing here counts or keeps a place: which pairs come next is what the
caller says, twice, and a batch that was made and is not asked for is forgotten. So where a run stands remains what it
has taken, and what it is given is what it would have been given without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.data.batching import Batch

AHEAD = ("cuda",)
"""Types of devices that compute while the host goes on; on a CPU a batch is made when it is its turn."""


class Feed:
    """Batches of one epoch's text.

    Args:
        make: the batch of these pairs, on the host; always the same one.
        device: where it is needed.
    """

    def __init__(self, make: Callable[[NDArray[np.int64]], Batch], device: torch.device) -> None:
        self.make = make
        self.device = device
        self._next: tuple[NDArray[np.int64], Batch] | None = None

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """The batch of these pairs; it may still be on its way to the device."""
        following, self._next = self._next, None
        if following is not None and np.array_equal(following[0], indices):
            return following[1]
        return self._load(indices)

    def prepare(self, indices: NDArray[np.int64]) -> None:
        """Makes the batch that is probably taken next, where that costs the device no time."""
        if self.device.type in AHEAD:
            with contextlib.suppress(RuntimeError, MemoryError):  # what is wrong with it is said when it is taken
                self._next = indices, self._load(indices)

    def _load(self, indices: NDArray[np.int64]) -> Batch:
        batch = self.make(indices)
        return batch.pin_memory().to(self.device) if self.device.type == "cuda" else batch
