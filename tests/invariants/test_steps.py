"""One piece at a time gives what all at once gives: `step` against `forward`, for every model, in any order of rows.

This is what lets one search, one scorer and one exporter serve every model, and what a cache that is not reordered
with its beam, or a fused mask that is right for whole sequences only, would break.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from nmt.config import LuongConfig, SearchConfig
from nmt.data.batching import Batch, make_batch
from nmt.data.tokenizer import BOS, EOS, PAD
from nmt.decoding.search import beam_search
from nmt.models.base import DecoderState, Memory, TranslationModel
from tiny import ATTENDING, CONFIGS, MODELS, SOURCE_VOCABULARY, sentences, tiny_model

pytestmark = pytest.mark.invariant

EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
SOURCES = sentences([5, 1, 7, 3], SOURCE_VOCABULARY)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


@EVERY_MODEL
def test_steps_give_the_hidden_states_of_the_whole(name: str) -> None:
    model = tiny_model(name)
    batch = make_batch(SOURCES, sentences([4, 6, 1, 3]))
    hidden_BTD = model(batch)
    memory = model.encode(batch.source_BS)
    state = model.start(memory)
    for t, tokens_B in enumerate(batch.target_input_BT.unbind(1)):
        hidden_BD, state, _ = model.step(tokens_B, state, memory)
        real = batch.target_output_BT[:, t] != 0
        assert_same(hidden_BD[real], hidden_BTD[real, t])


@EVERY_MODEL
def test_reordered_hypotheses_continue_as_if_computed_afresh(name: str) -> None:
    """Three hypotheses a sentence, which copy each other at random at every step as those of a beam do."""
    model, beam, generator = tiny_model(name), 3, random.Random(1)
    batch = make_batch(SOURCES, [[EOS]] * len(SOURCES))
    memory = model.encode(batch.source_BS)
    state = model.start(memory)
    written: list[list[int]] = [[BOS] for _ in SOURCES]
    parents = [b for b in range(len(SOURCES)) for _ in range(beam)]  # opens one row into three
    for _ in range(5):
        hidden_RD, state, _ = model.step(torch.tensor([row[-1] for row in written]), state, memory)
        rows = len(written) // len(SOURCES)
        fresh = make_batch([SOURCES[r // rows] for r in range(len(written))], [[*row[1:], EOS] for row in written])
        assert_same(hidden_RD, model(fresh)[:, -1])
        written = [[*written[parent], generator.randrange(EOS + 1, 11)] for parent in parents]
        state = state.select(torch.tensor(parents))
        parents = [b * beam + generator.randrange(beam) for b in range(len(SOURCES)) for _ in range(beam)]


@dataclass(frozen=True)
class Reread(Memory):
    """The source itself."""

    source_BS: Tensor


@dataclass(frozen=True)
class Written(DecoderState):
    """All pieces so far and no more."""

    pieces_RT: Tensor


class FromScratch(TranslationModel):
    """A model without any memory: at every step source and target are read again from their beginning."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model
        self.output = model.output

    def encode(self, source_BS: Tensor) -> Reread:
        return Reread(source_BS != PAD, source_BS)

    def start(self, memory: Memory) -> Written:
        return Written(torch.empty((len(memory.mask_BS), 0), dtype=torch.long))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, Written, None]:
        assert isinstance(state, Written) and isinstance(memory, Reread)
        pieces_RT = torch.cat((state.pieces_RT, tokens_R.unsqueeze(1)), dim=1)
        source_RS = memory.source_BS.repeat_interleave(len(tokens_R) // len(memory.source_BS), dim=0)
        real_RS = source_RS != PAD
        source_index_P, target_index_P = real_RS.flatten().nonzero().squeeze(1), torch.arange(pieces_RT.numel())
        batch = Batch(
            source_RS, real_RS.sum(dim=1), source_index_P, pieces_RT, pieces_RT, target_index_P, pieces_RT.numel()
        )
        hidden_RTD = self.model(batch)
        return hidden_RTD[:, -1], Written(pieces_RT), None


@pytest.mark.case
@EVERY_MODEL
def test_a_search_with_caches_is_the_search_without(name: str) -> None:
    """The same pieces and scores; in both, the hypotheses of a beam are reordered as they overtake each other."""
    model = tiny_model(name)
    source_BS = make_batch(SOURCES, [[EOS]] * len(SOURCES)).source_BS
    config = SearchConfig(beam_size=4, n_best=4, max_length_ratio=0.0, max_length_extra=6)
    cached = beam_search(model, source_BS, config)
    reread = beam_search(FromScratch(model), source_BS, config)
    assert len({tuple(h.tokens) for found in cached for h in found}) > 4
    for found, expected in zip(cached, reread, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


@EVERY_MODEL
def test_dropped_sentences_leave_the_others_alone(name: str) -> None:
    model = tiny_model(name)
    targets = sentences([5, 5, 5, 5])
    batch = make_batch(SOURCES, targets)
    hidden_BTD = model(batch)
    memory = model.encode(batch.source_BS)
    state = model.start(memory)
    left = [0, 1, 2, 3]
    for t, leaves in enumerate((1, None, 3, 0, None)):
        hidden_BD, state, _ = model.step(batch.target_input_BT[left, t], state, memory)
        assert_same(hidden_BD, hidden_BTD[left, t])
        if leaves is not None:
            index = torch.tensor([i for i, b in enumerate(left) if b != leaves])
            state, memory = state.select(index), memory.select(index)
            left.remove(leaves)
    assert left == [2]


@EVERY_MODEL
def test_a_state_is_a_value_that_several_steps_may_start_from(name: str) -> None:
    model = tiny_model(name)
    memory = model.encode(make_batch(SOURCES, [[EOS]] * 4).source_BS)
    _, state, _ = model.step(torch.full((4,), BOS), model.start(memory), memory)
    first, _, _ = model.step(torch.full((4,), 5), state, memory)
    model.step(torch.full((4,), 6), state, memory)
    again, _, _ = model.step(torch.full((4,), 5), state, memory)
    assert torch.equal(first, again)


@pytest.mark.parametrize("name", ATTENDING)
def test_weights_come_on_request_and_change_nothing(name: str) -> None:
    model = tiny_model(name)
    source_BS = make_batch(SOURCES, [[EOS]] * 4).source_BS
    memory = model.encode(source_BS)
    rows = torch.arange(4).repeat_interleave(2)
    state = model.start(memory).select(rows)
    tokens_R = torch.tensor([BOS, 4, 5, 6, 7, 8, 9, 10])
    hidden_RD, _, absent = model.step(tokens_R, state, memory)
    same_RD, _, weights_RS = model.step(tokens_R, state, memory, need_weights=True)
    assert absent is None
    assert torch.equal(hidden_RD, same_RD)
    assert weights_RS.shape == (8, 7)
    assert torch.all(weights_RS[source_BS[rows] == 0] == 0)
    seen = source_BS[rows] != 0
    config = CONFIGS[name]
    if isinstance(config, LuongConfig) and (config.window == "local_p" or config.score == "location"):
        # The Gaussian only takes away, and positions beyond the window or the table of scores are not seen.
        assert torch.all(weights_RS.sum(dim=1) <= 1 + 1e-12)
        assert torch.all(weights_RS >= 0)
        return
    if isinstance(config, LuongConfig) and config.window == "local_m":
        seen = seen & (torch.arange(7) <= config.window_size)  # around the first position
    torch.testing.assert_close(weights_RS.sum(dim=1), torch.ones(8, dtype=torch.float64))
    assert torch.all((weights_RS > 0) == seen)
