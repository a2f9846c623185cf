"""Minimum Bayes risk: not the likeliest translation, but the one most like all that the model would say.

The likeliest may be far from where the probability is (Eikema and Aziz 2020). So the model says a sentence N times; the
expected utility of a candidate is its mean chrF against all N, itself among them, each in the place of a reference; and
the candidate with the greatest is the answer. With `mbr_beam`, the hypotheses of a beam search are candidates as well,
but no references: the mean over samples alone is an estimate of an expectation (Eikema and Aziz 2022, section 4).

chrF is sacreBLEU's of sentences. N² of its calls would count the n-grams of each text N times; here they are counted
once, and of a text that was drawn k times as well, which has k times the weight.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from nmt.config import SearchConfig
from nmt.decoding.search import Hypothesis
from nmt.evaluation.metrics import chrf_metric

Found = Iterator[tuple[list[int], list[list[Hypothesis]]]]
"""Positions of sources, and the hypotheses of each."""


def least_risk(
    find: Callable[[SearchConfig], Found], search: SearchConfig, decode: Callable[[list[int]], str]
) -> Found:
    """Searches for the `search.n_best` candidates of the greatest expected utility, which is their score, 0 to 100.

    Args:
        find: beam search or sampling of all sources, as its argument says.
        decode: from pieces to the text that is compared.
    """
    searched: dict[int, list[Hypothesis]] = {}
    if search.mbr_beam:
        for places, found in find(search.without_chance().for_results(search.beam_size)):
            searched.update(zip(places, found, strict=True))
    # As many hypotheses as samples, by which the size of a batch is found.
    count = search.mbr_samples
    sampling = dataclasses.replace(search.without_chance(), sampling=True, beam_size=count, n_best=count)
    for places, found in find(sampling):
        yield (
            places,
            [
                ranked(drawn, searched.get(place, []), decode)[: search.n_best]
                for place, drawn in zip(places, found, strict=True)
            ],
        )


def ranked(
    drawn: Sequence[Hypothesis], searched: Sequence[Hypothesis], decode: Callable[[list[int]], str]
) -> list[Hypothesis]:
    """One hypothesis for each text, by falling expected utility, which becomes its score.

    Of texts with the same, the one that the model's own score prefers comes first, then the one that was drawn first.

    Args:
        drawn: samples: candidates, and what they are compared with.
        searched: further candidates.
    """
    candidates = [*drawn, *searched]
    texts = [decode(each.tokens) for each in candidates]
    counts = Counter(texts[: len(drawn)])
    best: dict[str, Hypothesis] = {}
    for text, each in zip(texts, candidates, strict=True):
        if text not in best or each.score > best[text].score:
            best[text] = each
    utilities = expected_chrf(list(best), [counts[text] for text in best])
    scored = zip(utilities, best.values(), strict=True)
    order = sorted(scored, key=lambda pair: (-pair[0], -pair[1].score))
    return [dataclasses.replace(hypothesis, score=utility) for utility, hypothesis in order]


def expected_chrf(texts: Sequence[str], counts: Sequence[int]) -> list[float]:
    """The mean sentence chrF, 0 to 100, of each text against all of them, each as often as it counts.

    Args:
        texts: different ones.
        counts: at least one of them above 0.
    """
    total = sum(counts)
    # fsum is exact: equal terms in another order are the same mean.
    return [math.fsum(np.multiply(row, counts).tolist()) / total for row in _each_chrf(texts)]


def _each_chrf(texts: Sequence[str]) -> Iterator[list[float]]:
    """For each text its chrF against each of them.

    Shapes: T texts, O orders of n-grams, P pairs of a text and an n-gram that it has, sorted by n-gram.
    """
    metric = chrf_metric()
    size, orders = len(texts), metric.char_order
    grams = [extract_all_char_ngrams(text, orders, metric.whitespace) for text in texts]
    totals_TO = np.array([[counter.total() for counter in each] for each in grams], dtype=np.int64)
    numbers: dict[str, int] = {}
    pairs = [
        (numbers.setdefault(gram, len(numbers)), order * size + text, count)
        for text, each in enumerate(grams)
        for order, counter in enumerate(each)
        for gram, count in counter.items()
    ]
    gram_P, place_P, count_P = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 3).T
    first_G = np.searchsorted(gram_P, np.arange(len(numbers) + 1))
    for text, each in enumerate(grams):
        own = np.array([(numbers[gram], count) for counter in each for gram, count in counter.items()], dtype=np.int64)
        own_K, times_K = own.reshape(-1, 2).T
        shared, lengths_K = _ranges(first_G[own_K], first_G[own_K + 1])
        common = np.minimum(count_P[shared], np.repeat(times_K, lengths_K))
        matches_OT = np.bincount(place_P[shared], weights=common, minlength=orders * size).reshape(orders, size)
        statistics_TO3 = np.stack((np.broadcast_to(totals_TO[text], totals_TO.shape), totals_TO, matches_OT.T), axis=2)
        yield [metric._compute_f_score(row) for row in statistics_TO3.reshape(size, -1).tolist()]


def _ranges(begins_K: NDArray[np.int64], ends_K: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of all ranges, one range after the other, and the length of each."""
    lengths_K = ends_K - begins_K
    before_K = np.cumsum(lengths_K) - lengths_K
    return np.arange(lengths_K.sum()) + np.repeat(begins_K - before_K, lengths_K), lengths_K
