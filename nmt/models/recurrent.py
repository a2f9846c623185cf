"""The recurrent ladder: what a decoder may know of the source, one idea a class.

    LstmSequenceToSequence  Sutskever et al. 2014: the encoder's final states, and nothing else
    Cho                     Cho et al. 2014: one vector for the sentence, seen anew in every step
    Bahdanau                Bahdanau et al. 2014: every source position, by an additive score on the previous state
    Luong                   Luong et al. 2015, in `nmt.models.luong`: by a product with the current state

Each computes what need not wait for the step before (embeddings, their share of the gates, source keys, readout) for
all time steps in one product, and keeps in its loop only what is truly recurrent. `forward` and `step` run the same
equations; the paper's symbols stand beside them.

Shapes: B batch, R = B·N rows, S source positions, T target positions, E embedding width, H state width, D directions
or width of an annotation, L readout width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.config import BahdanauConfig, ChoConfig, LstmConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import AdditiveScore, AttendedSource, Attention
from nmt.models.base import DecoderState, Embeddings, Memory, TranslationModel
from nmt.models.cells import (
    ContextGatedRecurrence,
    GatedRecurrence,
    GatedWeights,
    StackedRecurrence,
    States,
    initialize,
    reverse_within_length,
)
from nmt.models.layers import Dropout, maxout
from nmt.models.repeated import Repeated

# Sutskever et al. 2014 -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LstmMemory(Memory):
    """The whole sentence in one state (and cell) a layer, whatever its length."""

    states: States


@dataclass(frozen=True)
class LstmState(DecoderState):
    """State (and cell) of every layer."""

    states: States


class LstmSequenceToSequence(TranslationModel):
    """Sutskever et al. 2014: one deep LSTM reads the (reversed) source, another starts from its final states.

    The bottleneck that attention removes is `LstmMemory`: its size does not grow with the sentence.
    """

    def __init__(self, config: LstmConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden, layers, dropout = config.embedding_size, config.hidden_size, config.layers, config.dropout
        self.reverse_source = config.reverse_source
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, embedding, config.tie_embeddings)
        self.encoder = StackedRecurrence(config.cell, embedding, hidden, layers, dropout)
        self.decoder = StackedRecurrence(config.cell, embedding, hidden, layers, dropout)
        self.dropout = Dropout(dropout)
        self.output = self.embeddings.projection(hidden, target_vocabulary)
        initialize(self.encoder, self.decoder)

    @property
    def attends(self) -> bool:
        return False

    def encode(self, source_BS: Tensor) -> LstmMemory:
        return self._read(source_BS, (source_BS != PAD).sum(dim=1).cpu())

    def _read(self, source_BS: Tensor, host_lengths_B: Tensor) -> LstmMemory:
        mask_BS = source_BS != PAD
        lengths_B = mask_BS.sum(dim=1)
        if self.reverse_source:  # section 3.3
            source_BS = reverse_within_length(source_BS, lengths_B)
        _, states = self.encoder.encode(self.dropout(self.embeddings.source(source_BS)), lengths_B, host_lengths_B)
        return LstmMemory(mask_BS, states)

    def forward(self, batch: Batch) -> Tensor:
        state = self.start(self._read(batch.source_BS, batch.source_lengths_B))
        x_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        states_BTH, _ = self.decoder.sequence(x_BTE, state.states)
        return self.dropout(states_BTH)

    def start(self, memory: Memory) -> LstmState:
        assert isinstance(memory, LstmMemory)
        return LstmState(memory.states)

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, LstmState, Tensor | None]:
        """The memory is not looked at: all that is known of the source is in the state."""
        assert isinstance(state, LstmState)
        x_R1E = self.dropout(self.embeddings.target(tokens_R)).unsqueeze(1)
        states_R1H, states = self.decoder.sequence(x_R1E, state.states)
        return self.dropout(states_R1H.squeeze(1)), LstmState(states), None


# Cho et al. 2014 -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChoMemory(Memory):
    """The decoder's first state h'_0, and what the summary c of the sentence adds to each step and readout."""

    first_BH: Tensor
    context_B3H: Tensor
    readout_BL: Tensor


@dataclass(frozen=True)
class ChoState(DecoderState):
    """h'_{t-1}."""

    hidden_RH: Tensor


class Cho(TranslationModel):
    """RNN Encoder-Decoder of Cho et al. 2014, appendix A: c = tanh(V h_S) enters every step and every readout.

    Still one vector for a sentence of any length, but the decoder need not carry it along: it sees it anew each time.
    """

    def __init__(self, config: ChoConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden, readout = config.embedding_size, config.hidden_size, config.readout_size
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, embedding, config.tie_embeddings)
        self.encoder = GatedRecurrence(embedding, hidden)
        self.summary = nn.Linear(hidden, hidden, bias=False)  # V
        self.first_state = nn.Linear(hidden, hidden, bias=False)  # V'
        self.decoder = ContextGatedRecurrence(embedding, hidden)
        self.context = nn.Linear(hidden, 3 * hidden, bias=False)  # C_z, C_r, C
        self.readout_state = nn.Linear(hidden, 2 * readout)  # O_h
        self.readout_embedding = nn.Linear(embedding, 2 * readout, bias=False)  # O_y
        self.readout_context = nn.Linear(hidden, 2 * readout, bias=False)  # O_c
        self.dropout = Dropout(config.dropout)
        self.output = self.embeddings.projection(readout, target_vocabulary)

    @property
    def attends(self) -> bool:
        return False

    def encode(self, source_BS: Tensor) -> ChoMemory:
        mask_BS = source_BS != PAD
        projected_BS3H = self.encoder.project_inputs(self.dropout(self.embeddings.source(source_BS)))
        weights = self.encoder.step_weights()
        hidden_BH = projected_BS3H.new_zeros(len(source_BS), self.encoder.hidden_size)
        for projected_B3H, real_B in zip(projected_BS3H.unbind(1), mask_BS.unbind(1), strict=True):
            hidden_BH = torch.where(real_B.unsqueeze(1), self.encoder(projected_B3H, hidden_BH, weights), hidden_BH)
        summary_BH = torch.tanh(self.summary(hidden_BH))
        first_BH = torch.tanh(self.first_state(summary_BH)).type_as(hidden_BH)
        return ChoMemory(mask_BS, first_BH, self.context(summary_BH), self.readout_context(summary_BH))

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        embedded_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        weights = self.decoder.step_weights()
        hidden_BH = memory.first_BH
        states: list[Tensor] = []
        for projected_B3H in self.decoder.project_inputs(embedded_BTE).unbind(1):
            hidden_BH = self.decoder.step(projected_B3H, memory.context_B3H, hidden_BH, weights)
            states.append(hidden_BH)
        return self._readout(torch.stack(states, dim=1), embedded_BTE, memory.readout_BL.unsqueeze(1))

    def start(self, memory: Memory) -> ChoState:
        assert isinstance(memory, ChoMemory)
        return ChoState(memory.first_BH)

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, ChoState, Tensor | None]:
        assert isinstance(state, ChoState) and isinstance(memory, ChoMemory)
        embedded_RE = self.dropout(self.embeddings.target(tokens_R))
        count = len(tokens_R) // len(memory.mask_BS)
        context_R3H = memory.context_B3H.repeat_interleave(count, dim=0)
        projected_R3H, weights = self.decoder.project_inputs(embedded_RE), self.decoder.step_weights()
        hidden_RH = self.decoder.step(projected_R3H, context_R3H, state.hidden_RH, weights)
        readout_RL = self._readout(hidden_RH, embedded_RE, memory.readout_BL.repeat_interleave(count, dim=0))
        return readout_RL, ChoState(hidden_RH), None

    def _readout(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """s_t = maxout(O_h h'_t + O_y e(y_{t-1}) + O_c c)."""
        return self.dropout(maxout(self.readout_state(hidden) + self.readout_embedding(embedded) + context))


# Bahdanau et al. 2014 --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BahdanauMemory(Memory):
    """An annotation h_j for every source position, its projected key U_a h_j, and the decoder's first state s_0."""

    states_BSD: Tensor
    keys_BSA: Tensor
    first_BH: Tensor


@dataclass(frozen=True)
class BahdanauState(DecoderState):
    """s_{i-1}."""

    hidden_RH: Tensor


class Bahdanau(TranslationModel):
    """RNNsearch of Bahdanau et al. 2014, appendix A.

    The score looks at the *previous* state s_{i-1}; so does the readout (A.2.2), which makes c_i and E y_{i-1} all
    that is new in it.
    """

    def __init__(self, config: BahdanauConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden, readout = config.embedding_size, config.hidden_size, config.readout_size
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, embedding, config.tie_embeddings)
        self.encoder = GatedRecurrence(embedding, hidden, directions=2)
        self.first_state = nn.Linear(hidden, hidden)  # W_s
        self.attention = Attention(AdditiveScore(hidden, 2 * hidden, config.attention_size, bias=True))
        self.decoder = GatedRecurrence(embedding, hidden)
        self.context = nn.Linear(2 * hidden, 3 * hidden, bias=False)  # C_z, C_r, C
        self.readout_state = nn.Linear(hidden, 2 * readout)  # U_o
        self.readout_embedding = nn.Linear(embedding, 2 * readout, bias=False)  # V_o
        self.readout_context = nn.Linear(2 * hidden, 2 * readout, bias=False)  # C_o
        self.dropout = Dropout(config.dropout)
        self.output = self.embeddings.projection(readout, target_vocabulary)

    def encode(self, source_BS: Tensor) -> BahdanauMemory:
        mask_BS = source_BS != PAD
        lengths_B = mask_BS.sum(dim=1)
        x_BSE = self.dropout(self.embeddings.source(source_BS))
        x_DBSE = torch.stack((x_BSE, reverse_within_length(x_BSE, lengths_B)))
        projected_DBS3H = self.encoder.project_inputs(x_DBSE.flatten(1, 2)).unflatten(1, source_BS.shape)
        weights = self.encoder.step_weights()
        hidden_DBH = x_BSE.new_zeros(2, len(source_BS), self.encoder.hidden_size)
        states: list[Tensor] = []
        # Padding stands at the right end for both directions, so it never reaches a real position.
        for projected_DB3H in projected_DBS3H.unbind(2):
            hidden_DBH = self.encoder(projected_DB3H, hidden_DBH, weights)
            states.append(hidden_DBH)
        forward_BSH, reversed_BSH = torch.stack(states, dim=2)
        backward_BSH = reverse_within_length(reversed_BSH, lengths_B)
        states_BSD = torch.cat((forward_BSH, backward_BSH), dim=-1)  # h_j = [→h_j; ←h_j], equation 7
        # s_0 = tanh(W_s ←h_1), A.2.2; in the states' precision, which autocast lowers for a product alone.
        first_BH = torch.tanh(self.first_state(backward_BSH[:, 0]).type_as(backward_BSH))
        return BahdanauMemory(mask_BS, states_BSD, self.attention.project_keys(states_BSD), first_BH)

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        embedded_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        attend, add_context, weights = self._repeated(memory)
        hidden_BH = memory.first_BH
        previous: list[Tensor] = []
        contexts: list[Tensor] = []
        for projected_B3H in self.decoder.project_inputs(embedded_BTE).unbind(1):
            previous.append(hidden_BH)
            context_B1D, _ = attend(hidden_BH.unsqueeze(1))  # c_i and α_i from s_{i-1}
            contexts.append(context_B1D.squeeze(1))
            hidden_BH = self.decoder(projected_B3H + add_context(contexts[-1]), hidden_BH, weights)
        return self._readout(torch.stack(previous, dim=1), embedded_BTE, torch.stack(contexts, dim=1))

    def start(self, memory: Memory) -> BahdanauState:
        assert isinstance(memory, BahdanauMemory)
        return BahdanauState(memory.first_BH)

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, BahdanauState, Tensor | None]:
        assert isinstance(state, BahdanauState) and isinstance(memory, BahdanauMemory)
        embedded_RE = self.dropout(self.embeddings.target(tokens_R))
        hidden_BNH = state.hidden_RH.view(len(memory.mask_BS), -1, state.hidden_RH.shape[-1])
        attend, add_context, weights = self._repeated(memory)
        context_BND, weights_BNS = attend(hidden_BNH)
        context_RD = context_BND.flatten(0, 1)
        readout_RL = self._readout(state.hidden_RH, embedded_RE, context_RD)
        projected_R3H = self.decoder.project_inputs(embedded_RE) + add_context(context_RD)
        following = BahdanauState(self.decoder(projected_R3H, state.hidden_RH, weights))
        return readout_RL, following, weights_BNS.flatten(0, 1) if need_weights else None

    def _repeated(self, memory: BahdanauMemory) -> tuple[AttendedSource, Repeated, GatedWeights]:
        """What every step does again: attend to the memory, multiply a context by C_z, C_r and C, and the unit."""
        attend = self.attention.over(memory.keys_BSA, memory.states_BSD, memory.mask_BS)
        return attend, Repeated(self.context.weight.t()), self.decoder.step_weights()

    def _readout(self, previous: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """t_i = maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i) (A.2.2)."""
        return self.dropout(
            maxout(self.readout_state(previous) + self.readout_embedding(embedded) + self.readout_context(context))
        )
