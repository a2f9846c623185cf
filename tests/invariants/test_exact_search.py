"""Beam search against the definition of what it looks for, for every model.

A wide beam must find what trying every output finds; a beam of one must be the greedy loop that a tutorial would show;
what a hypothesis is said to cost must be what the model charges when the hypothesis is given to it. The models are
random: the weights are large, so that lengths and probabilities vary.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS, PAD, UNKNOWN, Tokenizer
from nmt.decoding.penalties import length_penalty
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.translator import Translator
from nmt.models.base import TranslationModel
from nmt.training.loss import label_smoothed_loss
from tiny import MODELS, PRESET_MODELS, SOURCE_VOCABULARY, sentences, source_size, tiny_model

pytestmark = [pytest.mark.invariant, pytest.mark.case]

VOCABULARY = 7  # three words besides the four special pieces
EVERYTHING = 64  # more than the 1 + 3 + 9 + 27 outputs of at most three words
PENALTIES = [
    ("none", 1.0),
    *(("average", alpha) for alpha in (0.0, 0.5, 1.0, 2.0)),
    *(("gnmt", alpha) for alpha in (0.6, 1.0, 2.0)),
]
SOURCES = sentences([4, 1, 6], SOURCE_VOCABULARY)


def settings(**changes: Any) -> SearchConfig:
    return SearchConfig(**{"min_length": 0, **changes})


def padded(sources: list[list[int]]) -> Tensor:
    return make_batch(sources, [[EOS]] * len(sources)).source_BS


def with_three_words(name: str, seed: int = 3, **changes: Any) -> tuple[TranslationModel, list[list[int]]]:
    """A model of VOCABULARY target pieces, and sources that it can read."""
    size = source_size(name, VOCABULARY)
    model = tiny_model(name, seed=seed, source_vocabulary=size, target_vocabulary=VOCABULARY, **changes)
    return model, sentences([4, 1, 6], size)


def charged(model: TranslationModel, source: list[int], outputs: list[list[int]]) -> list[float]:
    """The log-probability of each translation with its end mark when it is given to the model; padding is no class."""
    batch = make_batch([source] * len(outputs), [[*tokens, EOS] for tokens in outputs])
    log_probabilities_BTC = model.output(model(batch))[..., PAD + 1 :].log_softmax(dim=-1)
    chosen_BT = log_probabilities_BTC.gather(2, (batch.target_output_BT - 1).clamp(min=0).unsqueeze(2)).squeeze(2)
    return chosen_BT.masked_fill(batch.target_output_BT == PAD, 0.0).sum(dim=1).tolist()


def every_output(
    model: TranslationModel, source: list[int], config: SearchConfig, max_length: int
) -> list[tuple[float, list[int]]]:
    """All outputs within the limits with their scores, the best first."""
    penalty = length_penalty(config.length_penalty, config.length_alpha)
    words = range(EOS + 1, model.output.weight.shape[0])
    lengths = range(config.min_length, max_length + 1)
    outputs = [list(tokens) for length in lengths for tokens in itertools.product(words, repeat=length)]
    totals = charged(model, source, outputs)
    scores = [total / penalty(len(tokens) + 1) for total, tokens in zip(totals, outputs, strict=True)]
    return sorted(zip(scores, outputs, strict=True), key=lambda found: -found[0])


def assert_ranking(found: list[Hypothesis], expected: list[tuple[float, list[int]]]) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


# Everything is found ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("penalty", "alpha"), PENALTIES)
@pytest.mark.parametrize("name", PRESET_MODELS)
def test_a_wide_beam_finds_what_trying_everything_finds(name: str, penalty: str, alpha: float) -> None:
    """All outputs in their order; and no narrower beam finds a better one."""
    model, sources = with_three_words(name)
    config = settings(beam_size=EVERYTHING, n_best=40, length_penalty=penalty, length_alpha=alpha)
    best = []
    for source, found in zip(sources, beam_search(model, padded(sources), config, [3, 3, 3]), strict=True):
        expected = every_output(model, source, config, 3)
        assert len(expected) == 40
        assert_ranking(found, expected)
        best.append(found[0].score)
    for width in (1, 2, 3, 5, 9):
        narrow = settings(beam_size=width, length_penalty=penalty, length_alpha=alpha)
        for score, [hypothesis] in zip(best, beam_search(model, padded(sources), narrow, [3, 3, 3]), strict=True):
            assert hypothesis.score <= score + 1e-5


@pytest.mark.parametrize(("penalty", "alpha"), PENALTIES)
@pytest.mark.parametrize("n_best", [1, 5])
def test_a_wide_beam_that_may_stop_early_finds_the_same(penalty: str, alpha: float, n_best: int) -> None:
    for seed in range(4):
        model, sources = with_three_words("lstm-reversed", seed=seed, scale=1.0)
        config = settings(beam_size=EVERYTHING, n_best=n_best, length_penalty=penalty, length_alpha=alpha)
        for source, found in zip(sources, beam_search(model, padded(sources), config, [3, 3, 3]), strict=True):
            assert_ranking(found, every_output(model, source, config, 3)[:n_best])


@pytest.mark.parametrize(("shortest", "longest"), [(0, 0), (0, 2), (1, 3), (2, 2), (3, 3)])
@pytest.mark.parametrize("name", PRESET_MODELS)
def test_limits_of_length_are_kept(name: str, shortest: int, longest: int) -> None:
    model, sources = with_three_words(name)
    config = settings(beam_size=EVERYTHING, n_best=EVERYTHING, min_length=shortest)
    for source, found in zip(sources, beam_search(model, padded(sources), config, [longest] * 3), strict=True):
        assert {len(hypothesis.tokens) for hypothesis in found} == set(range(shortest, longest + 1))
        assert_ranking(found, every_output(model, source, config, longest))


def test_each_sentence_has_its_own_limit() -> None:
    model, sources = with_three_words("transformer-pre")
    config = settings(beam_size=EVERYTHING, n_best=EVERYTHING)
    limits = [1, 3, 2]
    for source, limit, found in zip(sources, limits, beam_search(model, padded(sources), config, limits), strict=True):
        assert_ranking(found, every_output(model, source, config, limit))


# A beam of one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_one_is_the_greedy_loop(name: str) -> None:
    model, limit = tiny_model(name), 6
    found = beam_search(model, padded(SOURCES), settings(beam_size=1, min_length=1), [limit] * 3)
    for source, [hypothesis] in zip(SOURCES, found, strict=True):
        tokens: list[int] = []
        while len(tokens) < limit:
            logits_V = model.output(model(make_batch([source], [[*tokens, EOS]]))[0, -1])
            logits_V[[PAD, UNKNOWN, BOS]] = -torch.inf
            if not tokens:
                logits_V[EOS] = -torch.inf
            piece = int(logits_V.argmax())
            if piece == EOS:
                break
            tokens.append(piece)
        assert hypothesis.tokens == tokens


# What a hypothesis costs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 3])
def test_the_log_probability_is_what_the_model_charges(name: str, beam: int) -> None:
    """Also of a hypothesis that was ended at the limit: its end mark is paid for."""
    model = tiny_model(name)
    config = settings(beam_size=beam, n_best=beam, length_penalty="gnmt", length_alpha=0.6)
    for source, found in zip(SOURCES, beam_search(model, padded(SOURCES), config, [5, 5, 5]), strict=True):
        assert len(found) == beam
        totals = charged(model, source, [hypothesis.tokens for hypothesis in found])
        for hypothesis, total in zip(found, totals, strict=True):
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
            penalty = ((5 + len(hypothesis.tokens) + 1) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("name", PRESET_MODELS)
def test_the_score_of_a_translation_is_the_training_loss_of_its_pieces(
    name: str, beam: int, tokenizer: Tokenizer
) -> None:
    size = tokenizer.source_size
    model = tiny_model(name, dtype=torch.float32, source_vocabulary=size, target_vocabulary=size)
    search = SearchConfig(beam_size=beam, n_best=beam, max_length_ratio=0.5, max_length_extra=2)
    lines = ["Le vieux jardin.", "ça mange du pain", "x", "la maison de la rivière où un enfant lit une lettre"]
    ours = Translator(model, tokenizer, search, torch.device("cpu"))
    for source, found in zip(tokenizer.encode_source(lines), ours.n_best(lines), strict=True):
        for translation in found:
            target = [*(tokenizer._target.piece_to_id(piece) for piece in translation.tokens), EOS]
            batch = make_batch([source], [target])
            sums = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, 0.0)
            assert -float(sums.cross_entropy) / len(target) == pytest.approx(translation.score, abs=1e-4)
