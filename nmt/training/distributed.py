"""Several processes that train one model, each on a share of every step, and how they stay of one mind.

A step is what the configuration says, however many processes compute it: its batches are dealt out, the gradients are
summed and divided by the tokens of the whole step, and chance belongs to the batch and not to the process. So a run
may be continued by another number of processes. With fewer batches in a step than processes, the batches are cut into
parts; then the draws of dropout, and nothing else, depend on the number of processes.

Whatever ends a run is agreed on: an error in one process is raised in all of them, a signal that one received stops
all after the same step, and the time is that of the first process. A process that dies closes its connections, which
the others notice at their next exchange. Only the first process writes and speaks.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch import Tensor

from nmt.errors import RequestError, WorkError
from nmt.launch import Launch
from nmt.models.base import TranslationModel
from nmt.training.interruption import Interrupted, ProcessLost, Stopped

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = timedelta(days=2)
"""How long the others wait for one that works alone, such as the first while it encodes a corpus."""

BUCKET_BYTES = 64 * 2**20
"""Gradients are sent in pieces of about this size: few messages, little memory."""


@dataclass(frozen=True)
class Piece:
    """What is computed at once: a batch of the step, or a part of one."""

    key: tuple[int, ...]
    """Number of the batch in the step and, where it was cut, of the part: what its chance is drawn from."""
    indices: NDArray[np.int64]


def pieces_of_step(batches: Sequence[NDArray[np.int64]], accumulate: int, processes: int) -> list[Piece]:
    """The batches of a step, cut where there are fewer than processes so that each process gets as many pieces.

    Args:
        batches: indices of their pairs. The last step of an epoch may have fewer than `accumulate`.

    Returns:
        pieces, for process `rank` those at [rank::processes]. A part takes every n-th pair of its batch, whose
        neighbours are of like lengths; a part without a pair is left out.
    """
    if accumulate >= processes:
        return [Piece((number,), indices) for number, indices in enumerate(batches)]
    parts = processes // math.gcd(processes, accumulate)
    return [
        Piece((number, part), indices[part::parts])
        for number, indices in enumerate(batches)
        for part in range(parts)
        if part < len(indices)
    ]


class Processes:
    """This process among all that train the model together. Alone, nothing here waits, copies or costs anything.

    All methods but `first` and `share` are exchanges: every process must call them, in the same order.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def share(self, batches: Sequence[NDArray[np.int64]], accumulate: int) -> list[Piece]:
        """This process's pieces of a step; none where the last step of an epoch has too few for all."""
        return pieces_of_step(batches, accumulate, self.size)[self.rank :: self.size]

    # Exchanges -------------------------------------------------------------------------------------------------

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors of one type, shaped alike in all processes, by their sums over the processes."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with exchanging():
                torch.distributed.all_reduce(flat)
            for tensor, total in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def greatest(self, *values: float) -> list[float]:
        """The greatest of what the processes have, value by value."""
        if self.size == 1:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64)
        with exchanging():
            torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return cast(list[float], found.tolist())

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in their order; any values that can be pickled."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with exchanging():
            torch.distributed.all_gather_object(found, value)
        return found

    def agree(self, seconds: float, signal: int | None) -> tuple[float, int | None]:
        """The time of the first process, and a signal that any has received: what decides when a run ends."""
        agreed, received = self.greatest(seconds if self.first else -math.inf, signal or 0)
        return agreed, int(received) or None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """An error of one process in this block is raised in all of them at its end. No exchanges in between."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            if self.size == 1:
                raise
            failure = error
        if self.greatest(failure is not None) == [0]:
            return
        reasons = self.gather(_Reason.of(self.rank, failure))
        rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason is not None)
        if rank == self.rank and failure is not None:
            raise _agreed(failure)
        raise _agreed(reason.error())

    def from_first(self, work: Callable[[], T]) -> T:
        """What the first process finds, in all of them."""
        found: list[T] = []
        with self.together():
            if self.first:
                found.append(work())
        if self.size == 1:
            return found[0]
        with exchanging():
            holder: list[Any] = found or [None]
            torch.distributed.broadcast_object_list(holder, src=0)
        return cast(T, holder[0])

    def in_turn(self, work: Callable[[], T]) -> T:
        """Each process's own result; the first works first, and leaves files that the others need not make again."""
        found: list[T] = []
        for turn in (True, False)[: self.size]:
            with self.together():
                if self.first is turn:
                    found.append(work())
        return found[0]

    def spread(
        self, items: Sequence[T], work: Callable[[T], R], should_stop: Callable[[], bool] = lambda: False
    ) -> list[R]:
        """`work` of every item, each process doing its share; all get all results, in the order of the items.

        Raises:
            Stopped: in all, when `should_stop` says so in one, asked before each item and at the end. `work` may
                raise it, too, to leave an item that takes long when `should_stop` has come true.
        """
        done: list[R] = []
        for begin in range(0, len(items), self.size):
            self._require_nobody(should_stop)
            with self.together(), contextlib.suppress(Stopped):  # raised below, in all of them
                done += map(work, items[begin:][self.rank : self.rank + 1])
        self._require_nobody(should_stop)
        shares = self.gather(done)
        return [shares[i % self.size][i // self.size] for i in range(len(items))]

    def _require_nobody(self, should_stop: Callable[[], bool]) -> None:
        if self.greatest(should_stop()) != [0]:
            raise Stopped


ALONE = Processes()


class Replicas:
    """Weights, averages and optimizer state are whole in every process, as with DistributedDataParallel."""

    def __init__(self, model: TranslationModel, processes: Processes) -> None:
        self.model = model
        self.processes = processes

    @contextlib.contextmanager
    def summed_gradients(self) -> Iterator[None]:
        """In the block each process computes the gradients of its pieces; after it all have those of the step.

        An error in the block of one process is raised in all.
        """
        with self.processes.together():
            yield
        if self.processes.size > 1:
            for parameter in self.model.parameters():
                if parameter.grad is None:  # this process had no piece
                    parameter.grad = torch.zeros_like(parameter)
            self.processes.sum([cast(Tensor, parameter.grad) for parameter in self.model.parameters()])

    @contextlib.contextmanager
    def whole_model(self) -> Iterator[None]:
        """In the block the model has all of its weights in every process, and may be used without the others."""
        yield

    def kept(self, tensor: Tensor) -> Tensor:
        """What this process keeps of a weight or of what belongs to it, as an ordinary tensor and not a copy."""
        return tensor.detach()

    def share(self, whole: Tensor, parameter: Tensor) -> Tensor:
        """What this process keeps of a tensor that all have, one that belongs to the parameter."""
        return whole

    def whole(self, tensor: Tensor) -> Tensor:
        """All of what is kept in shares, in every process."""
        return tensor.detach()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The whole state of the optimizer, in every process."""
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Takes what `optimizer_state` gave, whichever way and however many processes it came from."""
        optimizer.load_state_dict(state)


def replicas(model: TranslationModel, processes: Processes, sharding: str) -> Replicas:
    """How the processes keep the model, by `trainer.sharding`; the model is changed in place. Alone, one has all."""
    if sharding == "full" and processes.size > 1:
        from nmt.training.sharding import Shards

        return Shards(model, processes)
    return Replicas(model, processes)


@contextlib.contextmanager
def joined(launch: Launch, device: torch.device) -> Iterator[Processes]:
    """The processes that were launched together, connected while entered.

    Exchanges of tensors on a GPU are NCCL's, all others gloo's.

    Raises:
        WorkError: they do not find each other, or one has died.
    """
    if launch.size == 1:
        yield ALONE
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise WorkError(f"process {launch.rank} cannot connect to the others: {error}") from error
    try:
        yield Processes(launch.rank, launch.size)
    except ProcessLost:
        raise  # and leave the connections to the end of this process: closing them may wait for the lost one
    except Exception as error:
        if launch.rank and not isinstance(error, Interrupted) and not hasattr(error, _AGREED):
            # The first process cannot know this error, and says only that a process has ended.
            print(f"nmt: process {launch.rank}: {type(error).__name__}: {error}", file=sys.__stderr__, flush=True)
        torch.distributed.destroy_process_group()
        raise
    torch.distributed.destroy_process_group()


# Errors that travel ----------------------------------------------------------------------------------------------

_AGREED = "agreed_by_all_processes"


def _agreed(error: Exception) -> Exception:
    setattr(error, _AGREED, True)
    return error


@dataclass(frozen=True)
class _Reason:
    """An error in a form that another process can raise."""

    kind: type[RequestError] | type[WorkError]
    message: str

    @classmethod
    def of(cls, rank: int, error: Exception | None) -> _Reason | None:
        if error is None:
            return None
        kind = RequestError if isinstance(error, RequestError) else WorkError
        name = "" if isinstance(error, RequestError | WorkError) else f"{type(error).__name__}: "
        return cls(kind, f"process {rank}: {name}{error}")

    def error(self) -> Exception:
        return self.kind(self.message)


@contextlib.contextmanager
def exchanging() -> Iterator[None]:
    """Says in one line what gloo and NCCL say in many."""
    try:
        yield
    except RuntimeError as error:
        raise _agreed(ProcessLost("another process of this training has died; the last checkpoint is kept")) from error


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.numel() * tensor.element_size()
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket
