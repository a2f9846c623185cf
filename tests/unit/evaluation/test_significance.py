"""The bootstrap is sacreBLEU's to the digit for single trainings, and right about several."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from nmt.errors import RequestError
from nmt.evaluation.metrics import bleu_metric, chrf_metric
from nmt.evaluation.significance import Bootstrap, p_value

WORDS = ["le", "chat", "noir", "dort", "sur", "un", "mur", "et", "la", "fille", "voit", "deux", "arbres", "verts"]


def corrupted(lines: list[str], share: float, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choice(WORDS) if generator.random() < share else w for w in x.split()) for x in lines]


@pytest.fixture(scope="module")
def references() -> list[str]:
    generator = random.Random(5)
    return [" ".join(generator.choices(WORDS, k=generator.randint(4, 18))) for _ in range(80)]


@pytest.mark.parametrize("metric", [bleu_metric, chrf_metric])
def test_single_trainings_are_sacrebleus_paired_test_to_the_digit(metric: Any, references: list[str]) -> None:
    baseline = corrupted(references, 0.3, 1)
    systems = [baseline, corrupted(baseline, 0.02, 2), corrupted(references, 0.25, 3), corrupted(references, 0.05, 4)]
    named = [(str(number), system) for number, system in enumerate(systems)]
    signatures, expected = PairedTest(named, {"m": metric()}, [references], test_type="bs", n_samples=1000)()
    bootstrap = Bootstrap(metric(), references)
    estimates = [bootstrap.estimate([bootstrap.statistics(system)], stream) for stream, system in enumerate(systems)]
    [name] = signatures
    assert bootstrap.signature() == str(signatures[name])
    for estimate, result in zip(estimates, expected[name], strict=True):
        assert estimate.score == result.score
        assert estimate.half_width == pytest.approx(result.ci, rel=1e-6)  # some of it is float32 there
        assert estimate.resampled.mean() == pytest.approx(result.mean, rel=1e-6)
    found = [p_value(estimate, estimates[0]) for estimate in estimates[1:]]
    assert found == [result.p_value for result in expected[name][1:]]
    assert len(set(found)) > 1  # not all as small as they can be


def test_the_seed_is_ours_whatever_the_environment_says(references: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def half_width() -> float:
        bootstrap = Bootstrap(bleu_metric(), references)
        return bootstrap.estimate([bootstrap.statistics(corrupted(references, 0.2, 1))]).half_width

    before = half_width()
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert half_width() == before


def test_equal_scores_are_no_difference(references: list[str]) -> None:
    bootstrap = Bootstrap(bleu_metric(), references)
    estimate = bootstrap.estimate([bootstrap.statistics(corrupted(references, 0.2, 1))])
    assert p_value(estimate, estimate) == 1.0


def test_the_same_training_several_times_is_that_training(references: list[str]) -> None:
    bootstrap = Bootstrap(chrf_metric(), references)
    statistics = bootstrap.statistics(corrupted(references, 0.2, 1))
    once, thrice = bootstrap.estimate([statistics]), bootstrap.estimate([statistics] * 3)
    assert thrice.score == pytest.approx(once.score)
    assert thrice.resampled == pytest.approx(once.resampled)


class Mean:
    """A metric that is the mean of numbers: variances are then known."""

    def _extract_corpus_statistics(self, hypotheses: list[str], _: object) -> list[list[float]]:
        return [[float(hypothesis), 1.0] for hypothesis in hypotheses]

    def _compute_score_from_stats(self, sums: Any) -> SimpleNamespace:
        return SimpleNamespace(score=float(sums[0]) / float(sums[1]))


def mean_metric() -> Metric:
    return Mean()  # type: ignore[return-value]


@pytest.mark.parametrize("scores", [[10, 12], [10, 12, 17], [3, 9, 4, 8, 6]])
def test_the_spread_of_trainings_is_that_of_a_mean_of_independent_ones(scores: list[int]) -> None:
    """All sentences of a training score alike, so nothing but the choice of trainings varies: s²/n."""
    bootstrap = Bootstrap(mean_metric(), ["x"] * 4, samples=40_000)
    estimate = bootstrap.estimate([bootstrap.statistics([str(score)] * 4) for score in scores])
    assert estimate.score == pytest.approx(np.mean(scores))
    assert estimate.resampled.mean() == pytest.approx(np.mean(scores), rel=0.01)
    assert estimate.resampled.var() == pytest.approx(np.var(scores, ddof=1) / len(scores), rel=0.04)


def test_the_spread_of_a_single_training_is_that_of_its_sentences() -> None:
    values = [1, 4, 9, 2, 7, 7, 5, 3]
    bootstrap = Bootstrap(mean_metric(), ["x"] * 8, samples=40_000)
    estimate = bootstrap.estimate([bootstrap.statistics([str(value) for value in values])])
    assert estimate.resampled.var() == pytest.approx(np.var(values) / 8, rel=0.04)


def test_different_streams_draw_trainings_independently() -> None:
    bootstrap = Bootstrap(mean_metric(), ["x"] * 4, samples=4_000)
    trainings = [bootstrap.statistics([str(score)] * 4) for score in (10, 12, 17)]
    one, other = bootstrap.estimate(trainings, 0), bootstrap.estimate(trainings, 1)
    assert abs(np.corrcoef(one.resampled, other.resampled)[0, 1]) < 0.05


def test_sentence_scores_are_those_of_each_sentence_alone(references: list[str]) -> None:
    hypotheses = corrupted(references, 0.3, 2)[:10]
    bootstrap = Bootstrap(chrf_metric(), references[:10])
    expected = [chrf_metric().sentence_score(h, [r]).score for h, r in zip(hypotheses, references[:10], strict=True)]
    assert bootstrap.sentence_scores(bootstrap.statistics(hypotheses)) == pytest.approx(expected)


def test_a_missing_hypothesis_is_refused(references: list[str]) -> None:
    bootstrap = Bootstrap(bleu_metric(), references)
    with pytest.raises(RequestError, match="79 lines in hypotheses, but 80 in references"):
        bootstrap.statistics(references[:-1])
    with pytest.raises(RequestError, match="cannot score: 0 lines"):
        Bootstrap(bleu_metric(), [])
