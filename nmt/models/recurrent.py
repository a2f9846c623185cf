"""The recurrent ladder: what a decoder may know of the source, one idea a class.

    LstmSequenceToSequence  Sutskever et al. 2014: the encoder's final states, and nothing else
    Bahdanau                Bahdanau et al. 2014: every source position, by an additive score on the previous state
    Luong                   Luong et al. 2015: every source position, by a product with the current state

Each computes what need not wait for the step before (embeddings, their share of the gates, source keys, readout) for
all time steps in one product, and keeps in its loop only what is truly recurrent. `forward` and `step` run the same
equations; the paper's symbols stand beside them.

Shapes: B batch, R = B·N rows, S source positions, T target positions, E embedding width, H state width, G directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.config import BahdanauConfig, LstmConfig, LuongConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import AdditiveAttention, MultiplicativeAttention
from nmt.models.base import DecoderState, Embeddings, Memory, TranslationModel
from nmt.models.layers import Dropout, maxout

LayerStates = tuple[Tensor, ...]
"""One tensor (rows, H) a layer."""


def reverse_within_length(x_BS: Tensor, lengths_B: Tensor) -> Tensor:
    """Each sentence from its last real position to its first, the padding still on the right. Its own inverse.

    Takes (B, S) or (B, S, …).
    """
    positions_S = torch.arange(x_BS.shape[1], device=x_BS.device)
    last_B1 = lengths_B[:, None] - 1
    index_BS = torch.where(positions_S <= last_B1, last_B1 - positions_S, positions_S)
    return x_BS[torch.arange(len(x_BS), device=x_BS.device)[:, None], index_BS]


class StepWeights(NamedTuple):
    """One layer's matrices in a step-by-step evaluation; the first layer's bias is in the projected inputs."""

    input_4HF: Tensor | None
    bias_4H: Tensor | None
    recurrent_4HH: Tensor


class StackedLSTM(nn.Module):
    """LSTM layers on top of each other, dropout between them (Zaremba et al. 2014), evaluated in two ways.

    `sequence` runs PyTorch's kernel over all positions; `step` runs one position whose first-layer input may depend
    on the step before. Both use the same weights.
    """

    def __init__(self, input_size: int, hidden_size: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.between = Dropout(dropout)
        self.lstm = nn.LSTM(input_size, hidden_size, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)

    def encode(self, x_BSE: Tensor, lengths_B: Tensor) -> tuple[Tensor, LayerStates, LayerStates]:
        """States (B, S, H) of the top layer, and every layer's state and cell after each sentence's last position."""
        # A sentence of padding only still needs one step: its state is finite and nobody looks at it.
        packed = pack_padded_sequence(x_BSE, lengths_B.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        output, (hidden_LBH, cell_LBH) = self.lstm(packed)
        states_BSH, _ = pad_packed_sequence(output, batch_first=True, total_length=x_BSE.shape[1])
        return states_BSH, hidden_LBH.unbind(0), cell_LBH.unbind(0)

    def sequence(
        self, x_BTE: Tensor, hidden: LayerStates, cell: LayerStates
    ) -> tuple[Tensor, LayerStates, LayerStates]:
        """States (B, T, H) of the top layer from given initial states, and every layer's state and cell at the end."""
        states_BTH, (hidden_LBH, cell_LBH) = self.lstm(x_BTE, (torch.stack(hidden), torch.stack(cell)))
        return states_BTH, hidden_LBH.unbind(0), cell_LBH.unbind(0)

    def project_inputs(self, x_BTE: Tensor) -> Tensor:
        """The first layer's gates (B, T, 4H) as far as they depend on the first E of its inputs, with both biases."""
        return F.linear(x_BTE, self._weight("weight_ih", 0)[:, : x_BTE.shape[-1]], self._bias(0))

    def step_weights(self, fed_size: int) -> list[StepWeights]:
        """What `step` multiplies with, for each layer: views, cut once so that their gradients are summed once.

        Args:
            fed_size: how many of the first layer's inputs `project_inputs` does not get.
        """
        first = StepWeights(
            self._weight("weight_ih", 0)[:, -fed_size:] if fed_size else None, None, self._weight("weight_hh", 0)
        )
        return [first] + [
            StepWeights(self._weight("weight_ih", layer), self._bias(layer), self._weight("weight_hh", layer))
            for layer in range(1, self.lstm.num_layers)
        ]

    def step(
        self,
        projected_R4H: Tensor,
        fed_RF: Tensor | None,
        hidden: LayerStates,
        cell: LayerStates,
        weights: list[StepWeights],
    ) -> tuple[LayerStates, LayerStates]:
        """Every layer's next state and cell; `fed_RF` are the last F of the first layer's inputs, not yet projected."""
        gates_R4H, below_RF = projected_R4H, fed_RF
        next_hidden: list[Tensor] = []
        next_cell: list[Tensor] = []
        for layer, weight in enumerate(weights):
            if layer > 0:
                below_RF = self.between(next_hidden[-1])
                gates_R4H = F.linear(below_RF, cast(Tensor, weight.input_4HF), weight.bias_4H)
            elif below_RF is not None:
                gates_R4H = torch.addmm(gates_R4H, below_RF, cast(Tensor, weight.input_4HF).t())
            gates_R4H = torch.addmm(gates_R4H, hidden[layer], weight.recurrent_4HH.t())
            input_RH, forget_RH, candidate_RH, output_RH = gates_R4H.chunk(4, dim=-1)
            cell_RH = forget_RH.sigmoid() * cell[layer] + input_RH.sigmoid() * candidate_RH.tanh()
            next_cell.append(cell_RH)
            next_hidden.append(output_RH.sigmoid() * cell_RH.tanh())
        return tuple(next_hidden), tuple(next_cell)

    def _weight(self, name: str, layer: int) -> Tensor:
        return self.lstm.get_parameter(f"{name}_l{layer}")

    def _bias(self, layer: int) -> Tensor:
        """PyTorch keeps two biases, which only ever act as their sum."""
        return self._weight("bias_ih", layer) + self._weight("bias_hh", layer)


class GatedRecurrence(nn.Module):
    """The gated unit of Cho et al. 2014, as in Bahdanau et al. 2014, A.1.1: the reset gate acts before the product.

        z = σ(W_z x + U_z h)    r = σ(W_r x + U_r h)    h̃ = tanh(W x + U (r ∘ h))    h' = (1 - z) ∘ h + z ∘ h̃

    `torch.nn.GRU` computes r ∘ (U h) instead, so it cannot stand in. With `directions` there is one set of weights
    for each and the states are (G, B, H): a bidirectional encoder is one loop, not two.
    """

    def __init__(self, input_size: int, hidden_size: int, directions: int | None = None) -> None:
        super().__init__()
        lead = () if directions is None else (directions,)
        self.hidden_size = hidden_size
        self.input_weight = nn.Parameter(torch.empty(*lead, input_size, 3 * hidden_size))  # W_z, W_r, W
        self.gate_weight = nn.Parameter(torch.empty(*lead, hidden_size, 2 * hidden_size))  # U_z, U_r
        self.candidate_weight = nn.Parameter(torch.empty(*lead, hidden_size, hidden_size))  # U
        self.bias = nn.Parameter(torch.zeros(*lead, 1, 3 * hidden_size))
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Recurrent matrices orthogonal, as in Bahdanau et al. 2014, B.1; input matrices Glorot's."""
        for weight in (self.input_weight, self.gate_weight, self.candidate_weight):
            recurrent = weight is not self.input_weight
            for matrix in weight.view(-1, *weight.shape[-2:]):
                for block in matrix.split(self.hidden_size, dim=-1):
                    (nn.init.orthogonal_ if recurrent else nn.init.xavier_uniform_)(block)

    def project_inputs(self, x: Tensor) -> Tensor:
        """The gates' and the candidate's share (…, 3H) of the inputs (…, E), bias included."""
        return x @ self.input_weight + self.bias

    def forward(self, projected: Tensor, hidden: Tensor) -> Tensor:
        """The next state (…, H) from `project_inputs`' value (…, 3H), to which a caller may have added a context's."""
        gates, candidate = projected.split((2 * self.hidden_size, self.hidden_size), dim=-1)
        update, reset = (gates + hidden @ self.gate_weight).sigmoid().chunk(2, dim=-1)
        proposal = (candidate + (reset * hidden) @ self.candidate_weight).tanh()
        return torch.lerp(hidden, proposal, update)


# Sutskever et al. 2014 -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LstmMemory(Memory):
    """The whole sentence in one state and one cell a layer, whatever its length."""

    hidden: LayerStates
    cell: LayerStates


@dataclass(frozen=True)
class LstmState(DecoderState):
    """State and cell of every layer."""

    hidden: LayerStates
    cell: LayerStates


class LstmSequenceToSequence(TranslationModel):
    """Sutskever et al. 2014: one deep LSTM reads the (reversed) source, another starts from its final states.

    The bottleneck that attention removes is `LstmMemory`: its size does not grow with the sentence.
    """

    def __init__(self, config: LstmConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.reverse_source = config.reverse_source
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, config.embedding_size, config.tie_embeddings)
        self.encoder = StackedLSTM(config.embedding_size, config.hidden_size, config.layers, config.dropout)
        self.decoder = StackedLSTM(config.embedding_size, config.hidden_size, config.layers, config.dropout)
        self.dropout = Dropout(config.dropout)
        self.output = self.embeddings.projection(config.hidden_size, target_vocabulary)
        _initialize(self.encoder, self.decoder)

    @property
    def attends(self) -> bool:
        return False

    def encode(self, source_BS: Tensor) -> LstmMemory:
        mask_BS = source_BS != PAD
        lengths_B = mask_BS.sum(dim=1)
        if self.reverse_source:  # section 3.3
            source_BS = reverse_within_length(source_BS, lengths_B)
        _, hidden, cell = self.encoder.encode(self.dropout(self.embeddings.source(source_BS)), lengths_B)
        return LstmMemory(mask_BS, hidden, cell)

    def forward(self, batch: Batch) -> Tensor:
        state = self.start(self.encode(batch.source_BS))
        x_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        states_BTH, _, _ = self.decoder.sequence(x_BTE, state.hidden, state.cell)
        return self.dropout(states_BTH)

    def start(self, memory: Memory) -> LstmState:
        assert isinstance(memory, LstmMemory)
        return LstmState(memory.hidden, memory.cell)

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, LstmState, Tensor | None]:
        """The memory is not looked at: all that is known of the source is in the state."""
        assert isinstance(state, LstmState)
        x_R1E = self.dropout(self.embeddings.target(tokens_R)).unsqueeze(1)
        states_R1H, hidden, cell = self.decoder.sequence(x_R1E, state.hidden, state.cell)
        return self.dropout(states_R1H.squeeze(1)), LstmState(hidden, cell), None


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
        self.attention = AdditiveAttention(hidden, 2 * hidden, config.attention_size)
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
        x_GBSE = torch.stack((x_BSE, reverse_within_length(x_BSE, lengths_B)))
        projected_GBS3H = self.encoder.project_inputs(x_GBSE.flatten(1, 2)).unflatten(1, source_BS.shape)
        hidden_GBH = x_BSE.new_zeros(2, len(source_BS), self.encoder.hidden_size)
        states: list[Tensor] = []
        # Padding stands at the right end for both directions, so it never reaches a real position.
        for projected_GB3H in projected_GBS3H.unbind(2):
            hidden_GBH = self.encoder(projected_GB3H, hidden_GBH)
            states.append(hidden_GBH)
        forward_BSH, reversed_BSH = torch.stack(states, dim=2)
        backward_BSH = reverse_within_length(reversed_BSH, lengths_B)
        states_BSD = torch.cat((forward_BSH, backward_BSH), dim=-1)  # h_j = [→h_j; ←h_j], equation 7
        # s_0 = tanh(W_s ←h_1), A.2.2; in the states' precision, which autocast lowers for a product alone.
        first_BH = torch.tanh(self.first_state(backward_BSH[:, 0]).type_as(backward_BSH))
        return BahdanauMemory(mask_BS, states_BSD, self.attention.project_keys(states_BSD), first_BH)

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        embedded_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        projected_BT3H = self.decoder.project_inputs(embedded_BTE)
        hidden_BH = memory.first_BH
        previous: list[Tensor] = []
        contexts: list[Tensor] = []
        for projected_B3H in projected_BT3H.unbind(1):
            previous.append(hidden_BH)
            context_B1D, _ = self._attend(hidden_BH.unsqueeze(1), memory)
            contexts.append(context_B1D.squeeze(1))
            hidden_BH = self.decoder(projected_B3H + self.context(contexts[-1]), hidden_BH)
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
        context_BND, weights_BNS = self._attend(hidden_BNH, memory)
        context_RD = context_BND.flatten(0, 1)
        readout_RL = self._readout(state.hidden_RH, embedded_RE, context_RD)
        projected_R3H = self.decoder.project_inputs(embedded_RE) + self.context(context_RD)
        following = BahdanauState(self.decoder(projected_R3H, state.hidden_RH))
        return readout_RL, following, weights_BNS.flatten(0, 1) if need_weights else None

    def _attend(self, hidden_BNH: Tensor, memory: BahdanauMemory) -> tuple[Tensor, Tensor]:
        """c_i and α_i from s_{i-1}."""
        context, weights = self.attention(hidden_BNH, memory.keys_BSA, memory.states_BSD, memory.mask_BS)
        return context, weights

    def _readout(self, previous: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """t_i = maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i) (A.2.2)."""
        return self.dropout(
            maxout(self.readout_state(previous) + self.readout_embedding(embedded) + self.readout_context(context))
        )


# Luong et al. 2015 -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LuongMemory(Memory):
    """Every source state of the encoder's top layer, its key W_a h̄_s, and all layers' final states."""

    states_BSH: Tensor
    keys_BSH: Tensor
    hidden: LayerStates
    cell: LayerStates


@dataclass(frozen=True)
class LuongState(DecoderState):
    """State and cell of every layer, and the attentional vector h̃_{t-1} that is fed to the next step."""

    hidden: LayerStates
    cell: LayerStates
    attentional_RH: Tensor


class Luong(TranslationModel):
    """Luong et al. 2015 with global attention: h_t → α_t → c_t → h̃_t = tanh(W_c [c_t; h_t]) (equation 5).

    With input feeding (section 3.3) h̃_{t-1} enters step t, so training must go step by step. Without it nothing is fed
    back, and the LSTM and the attention each run once over the whole sentence.
    """

    def __init__(self, config: LuongConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden = config.embedding_size, config.hidden_size
        self.reverse_source = config.reverse_source
        self.fed_size = hidden if config.input_feeding else 0
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, embedding, config.tie_embeddings)
        self.encoder = StackedLSTM(embedding, hidden, config.layers, config.dropout)
        self.decoder = StackedLSTM(embedding + self.fed_size, hidden, config.layers, config.dropout)
        self.attention = MultiplicativeAttention(hidden, hidden, config.score)
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)  # W_c
        self.dropout = Dropout(config.dropout)
        self.output = self.embeddings.projection(hidden, target_vocabulary)
        _initialize(self.encoder, self.decoder, self.attention, self.combine)

    def encode(self, source_BS: Tensor) -> LuongMemory:
        mask_BS = source_BS != PAD
        lengths_B = mask_BS.sum(dim=1)
        x_BSE = self.dropout(self.embeddings.source(source_BS))
        if self.reverse_source:
            x_BSE = reverse_within_length(x_BSE, lengths_B)
        states_BSH, hidden, cell = self.encoder.encode(x_BSE, lengths_B)
        if self.reverse_source:  # attention weights then stand in the order of the source text
            states_BSH = reverse_within_length(states_BSH, lengths_B)
        return LuongMemory(mask_BS, states_BSH, self.attention.project_keys(states_BSH), hidden, cell)

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        state = self.start(memory)
        embedded_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        if not self.fed_size:
            states_BTH, _, _ = self.decoder.sequence(embedded_BTE, state.hidden, state.cell)
            return self._attend(states_BTH, memory)[0]
        weights = self.decoder.step_weights(self.fed_size)
        attentional: list[Tensor] = []
        for projected_B4H in self.decoder.project_inputs(embedded_BTE).unbind(1):
            state, _ = self._advance(projected_B4H, state, memory, weights)
            attentional.append(state.attentional_RH)
        return torch.stack(attentional, dim=1)

    def start(self, memory: Memory) -> LuongState:
        assert isinstance(memory, LuongMemory)
        return LuongState(memory.hidden, memory.cell, torch.zeros_like(memory.hidden[-1]))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, LuongState, Tensor | None]:
        assert isinstance(state, LuongState) and isinstance(memory, LuongMemory)
        projected_R4H = self.decoder.project_inputs(self.dropout(self.embeddings.target(tokens_R)))
        state, weights_RS = self._advance(projected_R4H, state, memory, self.decoder.step_weights(self.fed_size))
        return state.attentional_RH, state, weights_RS if need_weights else None

    def _advance(
        self, projected_R4H: Tensor, state: LuongState, memory: LuongMemory, weights: list[StepWeights]
    ) -> tuple[LuongState, Tensor]:
        fed_RH = state.attentional_RH if self.fed_size else None
        hidden, cell = self.decoder.step(projected_R4H, fed_RH, state.hidden, state.cell, weights)
        hidden_BNH = hidden[-1].view(len(memory.mask_BS), -1, hidden[-1].shape[-1])
        attentional_BNH, weights_BNS = self._attend(hidden_BNH, memory)
        return LuongState(hidden, cell, attentional_BNH.flatten(0, 1)), weights_BNS.flatten(0, 1)

    def _attend(self, hidden_BNH: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        """h̃_t and α_t from h_t."""
        context_BNH, weights_BNS = self.attention(hidden_BNH, memory.keys_BSH, memory.states_BSH, memory.mask_BS)
        attentional_BNH = torch.tanh(self.combine(torch.cat((context_BNH, hidden_BNH), dim=-1)))
        return self.dropout(attentional_BNH), weights_BNS


@torch.no_grad()
def _initialize(*modules: nn.Module) -> None:
    """Recurrent matrices orthogonal, the others Glorot's, gate by gate; biases zero.

    The papers draw from U(-0.08, 0.08) and U(-0.1, 0.1), which fits 1,000 cells; with a quarter of them and Adam, the
    states start too small for attention to take hold.
    """
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
                continue
            height = parameter.shape[1] if "weight_hh" in name else min(parameter.shape)
            for block in parameter.split(height):
                (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(block)
