"""Which pairs an epoch has, where texts of different kinds are mixed with weights.

A weight says how often an epoch has each pair of a text. Of a fraction, every epoch takes the next pairs of an order
that the seed shuffles once, so that after any number of epochs no pair has been seen twice more than another of its
text. Like the batch plan, this is a pure function of its arguments, so that a run resumes without saved state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.config import DataConfig


def weights(config: DataConfig) -> list[float]:
    """The weight of the corpus's own text and of each that is mixed in, in the order of `EncodedCorpus.groups`."""
    return [config.weight, *(text.weight for text in config.mix.values())]


def epoch_rows(groups: Sequence[int], weights: Sequence[float], seed: int, epoch: int) -> NDArray[np.int64] | None:
    """The pairs of an epoch, some of them more than once; None is all of them once.

    Args:
        groups: how many pairs each text has; they follow one another.
        weights: times that an epoch has each pair of a text. At least one pair of each text is taken.
    """
    if all(weight == 1 for weight in weights):
        return None
    chosen = [np.zeros(0, np.int64)]
    start = 0
    for group, (size, weight) in enumerate(zip(groups, weights, strict=True)):
        if size:
            chosen += [np.arange(start, start + size)] * int(weight)
            count = round((weight - int(weight)) * size) or int(weight < 1)
            order = np.random.default_rng([seed, group]).permutation(size)
            chosen.append(start + order[(epoch * count + np.arange(count)) % size])
        start += size
    return np.concatenate(chosen)
