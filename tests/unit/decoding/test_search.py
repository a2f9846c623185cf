"""Beam search on numbers that can be computed by hand, where it stops, and what comes out.

That it finds what it is defined to find is in tests/invariants/test_exact_search.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.config import SearchConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS, PAD, UNKNOWN
from nmt.decoding import search as search_module
from nmt.decoding.search import Hypothesis, beam_search, build_search, default_max_lengths
from nmt.models.base import DecoderState, Memory, OutputProjection, TranslationModel
from tiny import FAMILIES, MODELS, SOURCE_VOCABULARY, sentences, tiny_model

VOCABULARY = 7  # three words besides the four special pieces
PENALTIES = [("none", 1.0), ("average", 1.0), ("average", 0.5), ("gnmt", 0.6), ("gnmt", 2.0)]
SOURCES = sentences([4, 1, 6], SOURCE_VOCABULARY)


def settings(**changes: Any) -> SearchConfig:
    return SearchConfig(**{"min_length": 0, **changes})


def padded(sources: list[list[int]]) -> Tensor:
    return make_batch(sources, [[EOS]] * len(sources)).source_BS


# Length penalties on numbers that can be computed by hand --------------------------------------------------------


@dataclass(frozen=True)
class LastPiece(DecoderState):
    last_R: Tensor


class TableModel(TranslationModel):
    """The next piece's distribution depends on the last piece alone and is given as a table of logits (V, V)."""

    def __init__(self, logits_VV: Tensor) -> None:
        super().__init__()
        self.output = OutputProjection(len(logits_VV), len(logits_VV), nn.Parameter(logits_VV.t().contiguous()))
        self.steps = 0

    def encode(self, source_BS: Tensor) -> Memory:
        return Memory(source_BS != PAD)

    def start(self, memory: Memory) -> LastPiece:
        return LastPiece(torch.full((len(memory.mask_BS),), BOS))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, LastPiece, None]:
        self.steps += 1
        return nn.functional.one_hot(tokens_R, len(self.output.weight)).float(), LastPiece(tokens_R), None


def table_model(distributions: dict[int, dict[int, float]], vocabulary: int) -> TableModel:
    """A TableModel from probabilities of the pieces that may follow each piece; what is not named never follows."""
    probabilities_VV = torch.zeros(vocabulary, vocabulary)
    probabilities_VV[:, EOS] = 1.0
    for last, following in distributions.items():
        probabilities_VV[last] = 0.0
        for piece, probability in following.items():
            probabilities_VV[last, piece] = probability
    return TableModel(probabilities_VV.clamp(min=1e-30).log())


A, B, C = 4, 5, 6
ONE = torch.tensor([[EOS]])


@pytest.mark.case
@pytest.mark.parametrize(
    ("penalty", "alpha", "winner"),
    [
        # log p: [] -0.916, [A] -1.204, [B C] -1.386 (0.4 · 1, 0.3 · 1, 0.25 · 1 · 1)
        ("none", 0.0, []),
        ("average", 0.0, []),
        ("average", 0.2, []),  # -0.916, -1.204 / 1.149 = -1.048, -1.386 / 1.246 = -1.113
        ("average", 0.6, [B, C]),  # -0.916, -1.204 / 1.516 = -0.794, -1.386 / 1.933 = -0.717
        ("average", 2.0, [B, C]),
        ("gnmt", 0.6, []),  # -0.916, -1.204 / 1.097 = -1.098, -1.386 / 1.188 = -1.166
        ("gnmt", 2.0, [B, C]),  # -0.916, -1.204 / 1.361 = -0.885, -1.386 / 1.778 = -0.780
    ],
)
def test_winners_by_hand(penalty: str, alpha: float, winner: list[int]) -> None:
    model = table_model({BOS: {EOS: 0.4, A: 0.3, B: 0.25, UNKNOWN: 0.05}, B: {C: 1.0}}, vocabulary=7)
    config = settings(beam_size=4, n_best=3, length_penalty=penalty, length_alpha=alpha)
    [found] = beam_search(model, ONE, config, [5])
    assert found[0].tokens == winner
    by_tokens = {tuple(hypothesis.tokens): hypothesis.log_probability for hypothesis in found}
    assert by_tokens == {
        (): pytest.approx(-0.9163, abs=1e-3),
        (A,): pytest.approx(-1.2040, abs=1e-3),
        (B, C): pytest.approx(-1.3863, abs=1e-3),
    }


@pytest.mark.case
@pytest.mark.parametrize("penalty", ["average", "gnmt"])
def test_a_greater_exponent_never_makes_the_winner_shorter(penalty: str) -> None:
    for seed in range(5):
        model = tiny_model("lstm-reversed", seed=seed, scale=0.7, target_vocabulary=VOCABULARY)
        lengths = []
        for alpha in (0.0, 0.3, 0.6, 1.0, 2.0):
            config = settings(beam_size=64, length_penalty=penalty, length_alpha=alpha)
            lengths.append([len(found[0].tokens) for found in beam_search(model, padded(SOURCES), config, [3] * 3)])
        assert lengths == [list(row) for row in zip(*map(sorted, zip(*lengths, strict=True)), strict=True)]


@pytest.mark.case
def test_an_empty_translation_is_the_users_choice() -> None:
    model = table_model({BOS: {EOS: 0.99, A: 0.01}}, vocabulary=7)
    assert beam_search(model, ONE, settings(beam_size=2), [5])[0][0].tokens == []
    assert beam_search(model, ONE, SearchConfig(beam_size=2), [5])[0][0].tokens == [A]  # min_length is 1 by default


def test_an_end_that_is_not_among_the_best_does_not_end_a_hypothesis() -> None:
    model = table_model({BOS: {A: 0.6, EOS: 0.4}, A: {B: 0.5, EOS: 0.3, C: 0.2}}, vocabulary=7)
    assert beam_search(model, ONE, settings(beam_size=1, length_penalty="none"), [5])[0][0].tokens == [A, B]
    # The second step's best two are [A] ended, 0.30, and [B C], 0.27; [B] ended, 0.18, is third and no result.
    model = table_model(
        {BOS: {A: 0.5, B: 0.45, C: 0.05}, A: {EOS: 0.6, B: 0.2, C: 0.2}, B: {C: 0.6, EOS: 0.4}}, vocabulary=7
    )
    [found] = beam_search(model, ONE, settings(beam_size=2, n_best=2, length_penalty="none"), [5])
    assert [hypothesis.tokens for hypothesis in found] == [[A], [B, C]]


def test_a_hypothesis_that_ends_leaves_its_place_to_another() -> None:
    """The second step's best are [A] ended, 0.36, [A D], 0.24, and [B C], 0.22: both of the open ones go on."""
    D = 7
    model = table_model(
        {BOS: {A: 0.6, B: 0.4}, A: {EOS: 0.6, D: 0.4}, B: {C: 0.55, EOS: 0.45}, C: {EOS: 1.0}, D: {D: 0.9, EOS: 0.1}},
        vocabulary=8,
    )
    [found] = beam_search(model, ONE, settings(beam_size=2, n_best=2, length_penalty="none"), [5])
    assert [hypothesis.tokens for hypothesis in found] == [[A], [B, C]]


def test_default_limits_are_by_the_ratio_to_the_source() -> None:
    config = SearchConfig(max_length_ratio=1.5, max_length_extra=2, min_length=4)
    assert default_max_lengths(padded(SOURCES), config) == [8, 4, 11]  # 4, 1 and 6 pieces; at least min_length


# Stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
@pytest.mark.parametrize(("penalty", "alpha"), PENALTIES)
def test_stopping_early_never_changes_the_result(
    beam: int, penalty: str, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on what is still open, against going on until the beam is full of ended hypotheses."""
    generator = torch.Generator().manual_seed(beam)
    models = [TableModel(2 * torch.randn(9, 9, generator=generator)) for _ in range(12)]
    source_BS = padded(sentences([1, 4, 2], SOURCE_VOCABULARY))
    steps = [0, 0]
    found: list[list[list[list[Hypothesis]]]] = [[], []]
    for bounded in (0, 1):
        if not bounded:
            monkeypatch.setattr(search_module, "_done", lambda found, best, config, *_: len(found) >= config.beam_size)
        for model in models:
            model.steps = 0
            for n_best in {1, beam}:
                config = settings(beam_size=beam, n_best=n_best, length_penalty=penalty, length_alpha=alpha)
                found[bounded].append(beam_search(model, source_BS, config, [12, 20, 16]))
            steps[bounded] += model.steps
        monkeypatch.undo()
    assert found[0] == found[1]
    if beam > 1 and alpha <= 1 and penalty != "average":  # which favour length so much that the bound is rarely met
        assert steps[1] < steps[0], "the bound never fired, so this test shows nothing"


def test_the_bound_by_hand() -> None:
    """0.9 has ended and 0.1 is open: no continuation overtakes, unless dividing by its length could make it."""
    model = table_model({BOS: {EOS: 0.9, A: 0.1}, A: {A: 0.6, EOS: 0.4}}, vocabulary=5)
    for penalty, alpha, limit, steps in (
        ("none", 0.0, 50, 1),
        ("average", 1.0, 20, 1),  # log 0.1 / 21 = -0.1096 is below log 0.9 = -0.1054
        ("average", 1.0, 21, 2),  # log 0.1 / 22 = -0.1047 is above; log 0.06 / 22 is not
    ):
        model.steps = 0
        beam_search(model, ONE, settings(beam_size=4, length_penalty=penalty, length_alpha=alpha), [limit])
        assert model.steps == steps
    model.steps = 0
    beam_search(model, ONE, settings(beam_size=4, n_best=2, length_penalty="none"), [50])
    assert model.steps == 3  # after two 0.04 is second best and 0.06 open, after three 0.036 is


@pytest.mark.case
@pytest.mark.parametrize("name", MODELS)
def test_every_line_ends_within_its_limit(name: str) -> None:
    """A model that all but refuses to end."""
    model = tiny_model(name)
    with torch.no_grad():
        model.output.bias[EOS] = -30
    source_BS = padded(SOURCES)
    for beam in (1, 4):
        config = SearchConfig(beam_size=beam, n_best=beam, max_length_ratio=1.0, max_length_extra=3)
        limits = default_max_lengths(source_BS, config)
        for limit, found in zip(limits, beam_search(model, source_BS, config), strict=True):
            assert len(found) == beam
            assert all(len(hypothesis.tokens) <= limit for hypothesis in found)
            assert len(found[0].tokens) == limit


def test_a_beam_wider_than_the_vocabulary_works() -> None:
    model = tiny_model("luong-dot-fed-reversed", target_vocabulary=5)  # one word: one output for each length
    [found] = beam_search(model, padded(SOURCES[:1]), settings(beam_size=10, n_best=10), [4])
    assert sorted(hypothesis.tokens for hypothesis in found) == [[A] * length for length in range(5)]


# What comes out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sampling", [False, True])
def test_no_special_piece_is_ever_written(name: str, sampling: bool) -> None:
    """Even by a model that wants nothing else."""
    model = tiny_model(name)
    with torch.no_grad():
        model.output.bias[[PAD, UNKNOWN, BOS]] = 20
    find = build_search(model, settings(beam_size=4, n_best=4, sampling=sampling))
    for found in find(padded(SOURCES), [1, 2, 3]):
        assert len(found) == 4
        assert all(piece > EOS for hypothesis in found for piece in hypothesis.tokens)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sampling", [False, True])
def test_results_come_best_first_and_differ(name: str, sampling: bool) -> None:
    model = tiny_model(name)
    find = build_search(model, settings(beam_size=5, n_best=5, sampling=sampling))
    for found in find(padded(SOURCES), [1, 2, 3]):
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        if not sampling:
            assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 5


def test_n_best_are_the_first_of_more() -> None:
    model = tiny_model("transformer-post")
    few, many = (
        beam_search(model, padded(SOURCES), settings(beam_size=6, n_best=n, length_penalty="none"), [6] * 3)
        for n in (2, 6)
    )
    assert [found[:2] for found in many] == few


@pytest.mark.parametrize("sampling", [False, True])
def test_a_search_can_be_left_between_two_positions(sampling: bool) -> None:
    model = table_model({BOS: {A: 1.0}, A: {A: 1.0}}, vocabulary=7)

    def leave() -> None:
        if model.steps == 3:
            raise KeyError("left")

    find = build_search(model, settings(beam_size=2, sampling=sampling, max_length_extra=40), leave)
    with pytest.raises(KeyError, match="left"):
        find(ONE, [1])
    assert model.steps == 3


def test_a_greedy_search_moves_rows_only_where_a_sentence_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays where it is, is not copied: a cache then goes on writing in place."""
    chosen: list[list[int]] = []
    select = LastPiece.select

    def recording(state: LastPiece, index: Tensor) -> LastPiece:
        chosen.append(index.tolist())
        return select(state, index)

    monkeypatch.setattr(LastPiece, "select", recording)
    endless = table_model({BOS: {A: 1.0}, A: {A: 1.0}}, vocabulary=7)
    found = beam_search(endless, ONE.expand(3, -1), settings(beam_size=1), [5, 2, 5])
    assert [len(hypothesis.tokens) for [hypothesis] in found] == [5, 2, 5]
    assert chosen == [[0, 2], []]
