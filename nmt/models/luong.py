"""Luong et al. 2015: multiplicative attention on the *current* state, whose result is what predicts the piece.

Every way of comparing (dot, general, concat, location) goes with every window (global, local-m, local-p), with or
without input feeding. What is fed back decides how training runs: step by step with input feeding, and otherwise the
recurrence and the attention each once over the whole sentence.

Shapes: B batch, R = B·N rows, N hypotheses a sentence, S source positions, T target positions, E embedding width,
H state width, G gates' width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.config import LuongConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import (
    AdditiveScore,
    AttendedSource,
    Attention,
    DotScore,
    GeneralScore,
    GlobalWindow,
    LocationScore,
    MonotonicWindow,
    PredictiveWindow,
    Score,
)
from nmt.models.base import DecoderState, Embeddings, Memory, TranslationModel
from nmt.models.cells import StackedRecurrence, States, StepWeights, initialize, reverse_within_length
from nmt.models.layers import Dropout
from nmt.models.repeated import Repeated


@dataclass(frozen=True)
class LuongMemory(Memory):
    """Every source state of the encoder's top layer, what the score needs of it, and all layers' final states."""

    states_BSH: Tensor
    keys_BSH: Tensor
    final: States


@dataclass(frozen=True)
class LuongState(DecoderState):
    """All layers' states, the attentional vector h̃_{t-1} that is fed to the next step, and t."""

    states: States
    attentional_RH: Tensor
    position_R: Tensor


class LuongSteps(NamedTuple):
    """What every step of the decoder does again with the sentences of one batch."""

    sentences: int
    recurrence: list[StepWeights]
    attend: AttendedSource
    combine: Repeated  # W_c


def luong_attention(config: LuongConfig) -> Attention:
    """Score (section 3.1, equations 7 and 8) and window (sections 3.1 and 3.2) that the config names."""
    size = config.hidden_size
    score: Score
    match config.score:
        case "dot":
            score = DotScore()
        case "general":
            score = GeneralScore(size, size)
        case "concat":
            score = AdditiveScore(size, size, size, bias=False)
        case "location":
            score = LocationScore(size, config.location_positions)
        case _:
            raise ValueError(f"unknown score {config.score!r}")
    match config.window:
        case "global":
            return Attention(score, GlobalWindow())
        case "local_m":
            return Attention(score, MonotonicWindow(config.window_size))
        case "local_p":
            return Attention(score, PredictiveWindow(size, config.window_size))
    raise ValueError(f"unknown window {config.window!r}")


class Luong(TranslationModel):
    """Luong et al. 2015: h_t → α_t → c_t → h̃_t = tanh(W_c [c_t; h_t]) (equation 5).

    With input feeding (section 3.3) h̃_{t-1} enters step t, so training must go step by step. Without it nothing is fed
    back, and the LSTM and the attention each run once over the whole sentence.
    """

    def __init__(self, config: LuongConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden, layers, dropout = config.embedding_size, config.hidden_size, config.layers, config.dropout
        self.reverse_source = config.reverse_source
        self.fed_size = hidden if config.input_feeding else 0
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, embedding, config.tie_embeddings)
        self.encoder = StackedRecurrence(config.cell, embedding, hidden, layers, dropout)
        self.decoder = StackedRecurrence(config.cell, embedding + self.fed_size, hidden, layers, dropout)
        self.attention = luong_attention(config)
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)  # W_c
        self.dropout = Dropout(dropout)
        self.output = self.embeddings.projection(hidden, target_vocabulary)
        initialize(self.encoder, self.decoder, self.attention, self.combine)

    def encode(self, source_BS: Tensor) -> LuongMemory:
        return self._read(source_BS, (source_BS != PAD).sum(dim=1).cpu())

    def _read(self, source_BS: Tensor, host_lengths_B: Tensor) -> LuongMemory:
        mask_BS = source_BS != PAD
        lengths_B = mask_BS.sum(dim=1)
        x_BSE = self.dropout(self.embeddings.source(source_BS))
        if self.reverse_source:
            x_BSE = reverse_within_length(x_BSE, lengths_B)
        states_BSH, final = self.encoder.encode(x_BSE, lengths_B, host_lengths_B)
        if self.reverse_source:  # attention weights then stand in the order of the source text
            states_BSH = reverse_within_length(states_BSH, lengths_B)
        return LuongMemory(mask_BS, states_BSH, self.attention.project_keys(states_BSH), final)

    def forward(self, batch: Batch) -> Tensor:
        memory = self._read(batch.source_BS, batch.source_lengths_B)
        state = self.start(memory)
        embedded_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        if not self.fed_size:
            states_BTH, _ = self.decoder.sequence(embedded_BTE, state.states)
            position_1T = torch.arange(states_BTH.shape[1], device=states_BTH.device).unsqueeze(0)
            return self._attend(states_BTH, position_1T, self._repeated(memory))[0]
        repeated = self._repeated(memory)
        attentional: list[Tensor] = []
        for projected_BG in self.decoder.project_inputs(embedded_BTE).unbind(1):
            state, _ = self._advance(projected_BG, state, repeated)
            attentional.append(state.attentional_RH)
        return torch.stack(attentional, dim=1)

    def start(self, memory: Memory) -> LuongState:
        assert isinstance(memory, LuongMemory)
        top_BH = memory.final[-1][0]
        return LuongState(
            memory.final, torch.zeros_like(top_BH), memory.mask_BS.new_zeros(len(top_BH), dtype=torch.long)
        )

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, LuongState, Tensor | None]:
        assert isinstance(state, LuongState) and isinstance(memory, LuongMemory)
        projected_RG = self.decoder.project_inputs(self.dropout(self.embeddings.target(tokens_R)))
        state, weights_RS = self._advance(projected_RG, state, self._repeated(memory))
        return state.attentional_RH, state, weights_RS if need_weights else None

    def _repeated(self, memory: LuongMemory) -> LuongSteps:
        return LuongSteps(
            len(memory.mask_BS),
            self.decoder.step_weights(self.fed_size),
            self.attention.over(memory.keys_BSH, memory.states_BSH, memory.mask_BS),
            Repeated(self.combine.weight.t()),
        )

    def _advance(self, projected_RG: Tensor, state: LuongState, repeated: LuongSteps) -> tuple[LuongState, Tensor]:
        fed_RH = state.attentional_RH if self.fed_size else None
        states = self.decoder.step(projected_RG, fed_RH, state.states, repeated.recurrence)
        hidden_BNH = states[-1][0].unflatten(0, (repeated.sentences, -1))
        position_BN = state.position_R.view(repeated.sentences, -1)
        attentional_BNH, weights_BNS = self._attend(hidden_BNH, position_BN, repeated)
        following = LuongState(states, attentional_BNH.flatten(0, 1), state.position_R + 1)
        return following, weights_BNS.flatten(0, 1)

    def _attend(self, hidden_BNH: Tensor, position_BN: Tensor, repeated: LuongSteps) -> tuple[Tensor, Tensor]:
        """h̃_t and α_t from h_t."""
        context_BNH, weights_BNS = repeated.attend(hidden_BNH, position_BN)
        joined_R2H = torch.cat((context_BNH, hidden_BNH), dim=-1).flatten(0, 1)
        attentional_BNH = torch.tanh(repeated.combine(joined_R2H)).unflatten(0, hidden_BNH.shape[:2])
        return self.dropout(attentional_BNH), weights_BNS
