"""Drawing from the model: the right distribution, from a generator of each sentence's own."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from nmt.config import SearchConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS, PAD, UNKNOWN
from nmt.decoding.search import Hypothesis, beam_search, sample
from nmt.models.base import DecoderState, Memory, OutputProjection, TranslationModel
from tiny import FAMILIES, SOURCE_VOCABULARY, sentences, tiny_model

SOURCES = sentences([4, 1, 6, 3, 8, 2, 5], SOURCE_VOCABULARY)
SEEDS = [11, 12, 13, 14, 15, 16, 17]


class ConstantModel(TranslationModel):
    """One distribution at every position."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.output = OutputProjection(1, len(logits), torch.tensor(logits).unsqueeze(1))

    def encode(self, source_BS: Tensor) -> Memory:
        return Memory(source_BS != PAD)

    def start(self, memory: Memory) -> DecoderState:
        return DecoderState()

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, DecoderState, None]:
        return torch.ones(len(tokens_R), 1), state, None


def settings(**changes: object) -> SearchConfig:
    return SearchConfig(
        **{"min_length": 0, "sampling": True, "max_length_ratio": 0.0, "max_length_extra": 6, **changes}
    )


def padded(sources: list[list[int]]) -> Tensor:
    return make_batch(sources, [[EOS]] * len(sources)).source_BS


def tokens(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


@pytest.mark.parametrize(
    ("temperature", "top_k", "epsilon"),
    [(1.0, 0, 0), (0.5, 0, 0), (3.0, 0, 0), (1.0, 2, 0), (0.7, 3, 0), (3.0, 0, 0.1), (1.0, 1, 0.1), (1.0, 0, 0.99)],
)
def test_draws_follow_the_distribution(temperature: float, top_k: int, epsilon: float) -> None:
    """Pearson's statistic of 20,000 first pieces; what is forbidden gets nothing, and the others share its mass.

    The model gives the pieces that may come 0.07, 0.20, 0.13 and 0.01, and the rest to those that may not: an epsilon
    of 0.1 leaves the second and the third, at any temperature, and 0.99 the likeliest.
    """
    draws = 20_000
    logits = [9.0, 1.5, 1.2, -1.0, 0.0, 1.0, 0.6, -2.0]  # padding, unknown, begin and end mark first
    config = settings(n_best=draws, temperature=temperature, top_k=top_k, epsilon=epsilon, min_length=1)
    [found] = sample(ConstantModel(logits), torch.tensor([[EOS]]), config, [3], [1])
    counts = Counter(hypothesis.tokens[0] for hypothesis in found)
    allowed = sorted(range(EOS + 1, 8), key=lambda piece: -logits[piece])[: top_k or None]
    if epsilon:
        allowed = [piece for piece in allowed if piece in (5, 6)][: None if epsilon < 0.5 else 1]
    powers = {piece: math.exp(logits[piece] / temperature) for piece in allowed}
    assert counts.keys() <= powers.keys()
    expected = {piece: draws * power / sum(powers.values()) for piece, power in powers.items()}
    statistic = sum((counts[piece] - number) ** 2 / number for piece, number in expected.items())
    assert statistic < 16.3  # three degrees of freedom at most: one in a thousand is above


def test_lengths_are_geometric_and_end_at_the_limit() -> None:
    draws, end = 4_000, 0.25
    logits = [0.0, -40.0, -40.0, math.log(end), math.log(1 - end)]
    [found] = sample(ConstantModel(logits), torch.tensor([[EOS]]), settings(n_best=draws), [3], [3])
    counts = Counter(len(hypothesis.tokens) for hypothesis in found)
    for length, share in enumerate([0.25, 0.75 * 0.25, 0.75**2 * 0.25, 0.75**3]):
        assert abs(counts[length] / draws - share) < 5 * math.sqrt(share * (1 - share) / draws)
    for hypothesis in found:
        assert hypothesis.log_probability == pytest.approx(
            len(hypothesis.tokens) * math.log(1 - end) + math.log(end), abs=1e-5
        )


@pytest.mark.invariant
@pytest.mark.parametrize("name", FAMILIES)
def test_a_draw_depends_on_its_sentence_and_seed_and_not_on_the_batch(name: str) -> None:
    model, config = tiny_model(name), settings(n_best=3)
    together = tokens(sample(model, padded(SOURCES), config, SEEDS))
    alone = [
        tokens(sample(model, padded([source]), config, [seed]))[0] for source, seed in zip(SOURCES, SEEDS, strict=True)
    ]
    assert together == alone
    order = [3, 0, 6, 1, 5, 4, 2]
    shuffled = tokens(sample(model, padded([SOURCES[i] for i in order]), config, [SEEDS[i] for i in order]))
    assert shuffled == [together[i] for i in order]
    assert tokens(sample(model, padded(SOURCES), config, [seed + 100 for seed in SEEDS])) != together


@pytest.mark.invariant
@pytest.mark.parametrize("name", FAMILIES)
def test_neither_is_it_moved_by_nor_does_it_move_other_randomness(name: str) -> None:
    model, config = tiny_model(name), settings(n_best=2)
    torch.manual_seed(1)
    first = tokens(sample(model, padded(SOURCES), config, SEEDS))
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)
    assert tokens(sample(model, padded(SOURCES), config, SEEDS)) == first


@pytest.mark.parametrize("change", [{"temperature": 1e-4}, {"temperature": 1e-40}, {"top_k": 1}], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_next_to_no_temperature_or_choice_is_greedy(name: str, change: dict[str, float]) -> None:
    model = tiny_model(name)
    greedy = beam_search(model, padded(SOURCES), settings(beam_size=1, sampling=False))
    drawn = sample(model, padded(SOURCES), settings(n_best=2, **change), SEEDS)
    for [best], hypotheses in zip(greedy, drawn, strict=True):
        for hypothesis in hypotheses:
            assert hypothesis.tokens == best.tokens
            assert hypothesis.log_probability == pytest.approx(best.log_probability, abs=1e-4)
            assert hypothesis.score == pytest.approx(best.score, abs=1e-4)


def test_scores_are_the_models_own_whatever_the_temperature() -> None:
    logits = [0.0, -40.0, -40.0, -40.0, math.log(0.9), math.log(0.1)]
    [found] = sample(
        ConstantModel(logits), torch.tensor([[EOS]]), settings(n_best=50, temperature=4.0, min_length=1), [1], [1]
    )
    seen = {h.tokens[0]: h.log_probability for h in found}
    assert seen == {4: pytest.approx(math.log(0.9) - 40, abs=1e-3), 5: pytest.approx(math.log(0.1) - 40, abs=1e-3)}


def test_limits_of_length_are_kept() -> None:
    model = tiny_model("luong-general-fed-in_order")
    config = settings(n_best=20, min_length=2)
    limits = [2, 3, 4, 5, 6, 7, 8]
    for limit, found in zip(limits, sample(model, padded(SOURCES), config, SEEDS, limits), strict=True):
        assert all(2 <= len(hypothesis.tokens) <= limit for hypothesis in found)
        assert all(piece not in (PAD, BOS, UNKNOWN, EOS) for hypothesis in found for piece in hypothesis.tokens)


def test_top_k_beyond_the_vocabulary_is_no_limit() -> None:
    model = ConstantModel([0.0] * 6)
    assert nn.Module in type(model).__mro__
    source = torch.tensor([[EOS]])
    wide, free = (tokens(sample(model, source, settings(n_best=30, top_k=k), [5], [4])) for k in (1_000, 0))
    assert wide == free
