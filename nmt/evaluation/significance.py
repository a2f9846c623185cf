"""Intervals and paired tests: sacreBLEU's bootstrap, extended to systems that were trained several times.

A resample draws sentences of the test set with replacement (Koehn 2004); every system is scored on the same resamples.
For systems trained once, scores, intervals and p values are those of sacreBLEU's `PairedTest(..., test_type="bs")`:
the same resamples, the same formulas, its own functions. (One exception: two systems with the same score get p = 1,
where sacreBLEU's formula gives the smallest p there is.)

A system trained with n seeds has the mean of their scores, and each resample also draws n - 1 of the n trainings with
replacement. That is the number with which the variance of the mean comes out as s²/n, that of a mean of n independent
trainings (Rao and Wu 1988), so that the intervals and tests speak of the chance in the test set and in training.
Systems trained once cannot tell how much training varies: their intervals are of the test set alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric

from nmt.evaluation.metrics import check_counts

SAMPLES = 1_000
SEED = 12345  # sacreBLEU's


@dataclass(frozen=True)
class Estimate:
    """A score with its uncertainty; see `Bootstrap.estimate`."""

    score: float
    """0 to 100; the mean over trainings."""
    half_width: float
    """Half of the 95 % interval, as sacreBLEU prints it after ±."""
    resampled: NDArray[np.float64]
    """The score of each resample."""


class Bootstrap:
    """The resamples of one test set.

    Args:
        metric: sacreBLEU's BLEU or CHRF.
        references: one for each sentence.

    Raises:
        RequestError: no references.
    """

    def __init__(self, metric: Metric, references: Sequence[str], samples: int = SAMPLES, seed: int = SEED) -> None:
        check_counts(len(references), len(references))
        self.metric = metric
        self.references = references
        self.seed = seed
        size = len(references)
        drawn = np.random.default_rng(seed).choice(size, size=(samples, size), replace=True)
        # How often each sentence is in each resample: sums over a resample are then one matrix product.
        self.times = np.stack([np.bincount(row, minlength=size) for row in drawn]).astype(np.float64)

    def signature(self) -> str:
        """sacreBLEU's signature of the metric with that of the bootstrap."""
        signature = self.metric.get_signature()
        signature.update("bs", len(self.times))
        signature.update("seed", str(self.seed))
        return str(signature)

    def statistics(self, hypotheses: Sequence[str]) -> NDArray[np.float64]:
        """Per sentence, what the metric's score of any set of sentences is computed from.

        Raises:
            RequestError: another number of hypotheses than references.
        """
        check_counts(len(hypotheses), len(self.references))
        return np.array(self.metric._extract_corpus_statistics(hypotheses, [self.references]), dtype=np.float64)

    def sentence_scores(self, statistics: NDArray[np.float64]) -> list[float]:
        """The score of each sentence on its own."""
        return [self.score(row[None]) for row in statistics]

    def estimate(self, trainings: Sequence[NDArray[np.float64]], stream: int = 0) -> Estimate:
        """The score of a system, the mean over its trainings, and how it varies.

        Args:
            trainings: `statistics` of the translations of each training.
            stream: which random numbers choose the trainings; two systems that are compared need different ones, since
                their trainings have nothing to do with each other.
        """
        resampled = np.array([self._resampled(statistics) for statistics in trainings])
        count = len(trainings)
        if count == 1:
            means = resampled[0]
        else:
            generator = np.random.default_rng([self.seed, stream])
            chosen = generator.integers(count, size=(count - 1, resampled.shape[1]))
            means = np.take_along_axis(resampled, chosen, axis=0).mean(axis=0)
        score = float(np.mean([self.score(statistics) for statistics in trainings]))
        return Estimate(score, half_width(means), means)

    def _resampled(self, statistics: NDArray[np.float64]) -> list[float]:
        # sacreBLEU sums and computes in float32: so that even the last digits are its own.
        sums = (self.times @ statistics).astype(np.float32)
        return [float(self.metric._compute_score_from_stats(row).score) for row in sums]

    def score(self, statistics: NDArray[np.float64]) -> float:
        """The score of all sentences of `statistics` together."""
        whole = [int(value) for value in statistics.sum(axis=0)]
        return float(self.metric._compute_score_from_stats(whole).score)


def half_width(resampled: NDArray[np.float64]) -> float:
    """Half of the interval from the 2.5th to the 97.5th percentile of the resamples, cut as sacreBLEU cuts it."""
    ordered = np.sort(resampled)
    cut = len(ordered) // 40
    return float(0.5 * (ordered[len(ordered) - cut - 1] - ordered[cut]))


def p_value(system: Estimate, baseline: Estimate) -> float:
    """Two-sided p of the paired bootstrap: how often the difference strays from its mean by more than its size.

    At least 1/1001 with 1,000 resamples. 1 where the scores are equal.
    """
    difference = abs(system.score - baseline.score)
    if difference == 0:
        return 1.0
    differences = np.abs(system.resampled - baseline.resampled)
    exceeding = int(np.sum(differences - differences.mean() > difference))
    return (exceeding + 1) / (len(differences) + 1)
