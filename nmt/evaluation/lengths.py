"""Test sentences by source length (Bahdanau et al. 2014, Fig. 2), in buckets that hold enough to be scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LIMITS = (10, 20, 30, 40, 50, 60)
"""Greatest length of each bucket, in words separated by spaces; longer sentences are in one more."""
FEWEST = 20
"""Sentences below which a bucket is merged with its neighbour: BLEU of a handful says nothing."""

OF_LENGTH = "bleu_"
"""What the names of measurements of a bucket begin with."""


@dataclass(frozen=True)
class Bucket:
    """The sentences of some lengths."""

    shortest: int
    longest: int | None
    """None: any length from `shortest`."""
    indices: list[int]
    """Which sentences of the test set, in their order."""

    @property
    def metric(self) -> str:
        """The name of its BLEU among measurements, as in "bleu_1_to_10_words" or "bleu_over_60_words"."""
        longest = f"over_{self.shortest - 1}" if self.longest is None else f"{self.shortest}_to_{self.longest}"
        return f"{OF_LENGTH}{longest}_words"

    @property
    def label(self) -> str:
        """As in "1–10" or ">60"."""
        return f">{self.shortest - 1}" if self.longest is None else f"{self.shortest}–{self.longest}"


def length_buckets(lengths: Sequence[int], limits: Sequence[int] = LIMITS, fewest: int = FEWEST) -> list[Bucket]:
    """Sentences by length, shortest bucket first; blank ones (length 0) are in none.

    A bucket of fewer than `fewest` sentences is merged with the one before it, the first one with the one after it.
    Where there are fewer in all, they are one bucket.
    """
    bounds: list[tuple[int, int | None]] = list(
        zip([1, *(limit + 1 for limit in limits)], [*limits, None], strict=True)
    )
    longest = max(lengths, default=0)
    merged: list[Bucket] = []
    for low, high in bounds:
        if low > longest:
            break  # nothing is that long: the label of the last bucket does not claim it
        found = [i for i, length in enumerate(lengths) if low <= length and (high is None or length <= high)]
        if merged and (len(found) < fewest or len(merged[-1].indices) < fewest):
            found = sorted(merged[-1].indices + found)
            low = merged.pop().shortest
        merged.append(Bucket(low, high, found))
    return [bucket for bucket in merged if bucket.indices]
