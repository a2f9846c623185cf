"""Recurrent layers: what is carried from position to position, and how it changes.

`StackedRecurrence` is PyTorch's LSTM, GRU or plain RNN, evaluated in two ways with the same weights: its kernel over
all positions where nothing is fed back, and step by step where the output of one step enters the next. The plain RNN is
here for its failing: its gradient vanishes, which is why the gated units exist. `GatedRecurrence` is the gated unit as
its authors wrote it, which PyTorch's GRU is not.

Shapes: B batch, R rows, S source positions, T target positions, E input width, F fed input width, H state width, G the
gates' width (4H for lstm, 3H for gru, H for rnn), D directions.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nmt.models.layers import Dropout
from nmt.models.repeated import Repeated

States = tuple[tuple[Tensor, ...], ...]
"""For each layer, its state (rows, H), and for an LSTM its cell (rows, H) as well."""


def reverse_within_length(x_BS: Tensor, lengths_B: Tensor) -> Tensor:
    """Each sentence from its last real position to its first, the padding still on the right. Its own inverse.

    Takes (B, S) or (B, S, …).
    """
    positions_S = torch.arange(x_BS.shape[1], device=x_BS.device)
    last_B1 = lengths_B[:, None] - 1
    index_BS = torch.where(positions_S <= last_B1, last_B1 - positions_S, positions_S)
    return x_BS[torch.arange(len(x_BS), device=x_BS.device)[:, None], index_BS]


def lstm_cell(gates_R4H: Tensor, cell_RH: Tensor, added_RH: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """State and cell from the gates' pre-activations, in PyTorch's order: input, forget, candidate, output.

    `added_RH` enters the cell beside what an LSTM keeps and what it lets in.
    """
    input_RH, forget_RH, candidate_RH, output_RH = gates_R4H.chunk(4, dim=-1)
    cell_RH = forget_RH.sigmoid() * cell_RH + input_RH.sigmoid() * candidate_RH.tanh()
    if added_RH is not None:
        cell_RH = cell_RH + added_RH
    return output_RH.sigmoid() * cell_RH.tanh(), cell_RH


class StepWeights(NamedTuple):
    """One layer's matrices in a step-by-step evaluation."""

    input_FG: Repeated | None
    input_bias_G: Tensor | None  # None for the first layer, where it is in the projected inputs
    recurrent_HG: Repeated
    recurrent_bias_G: Tensor | None  # None where it only ever acts added to the input's


class StackedRecurrence(nn.Module):
    """Recurrent layers on top of each other, with dropout between them (Zaremba et al. 2014)."""

    KERNELS: ClassVar[dict[str, type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]]] = {
        "lstm": nn.LSTM,
        "gru": nn.GRU,
        "rnn": nn.RNN,
    }

    def __init__(self, cell: str, input_size: int, hidden_size: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell = cell
        self.between = Dropout(dropout)
        kernel = self.KERNELS[cell]
        self.kernel = kernel(input_size, hidden_size, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)

    def encode(self, x_BSE: Tensor, lengths_B: Tensor, host_lengths_B: Tensor) -> tuple[Tensor, States]:
        """States (B, S, H) of the top layer, and all layers' after each sentence's last position.

        The kernel wants the lengths on the host and the rows in the order of their lengths. PyTorch's functions for
        that send the order there and back and wait for it, so here host and device find it each by itself.
        """
        # A sentence of padding only still needs one step: its state is finite and nobody looks at it.
        order_B = lengths_B.clamp(min=1).sort(descending=True).indices
        sorted_B = host_lengths_B.clamp(min=1).sort(descending=True).values
        packed = pack_padded_sequence(x_BSE.index_select(0, order_B), sorted_B, batch_first=True)
        place_B = order_B.argsort()
        output, final = self.kernel(PackedSequence(packed.data, packed.batch_sizes, order_B, place_B))
        in_order = PackedSequence(output.data, output.batch_sizes)
        states_BSH, _ = pad_packed_sequence(in_order, batch_first=True, total_length=x_BSE.shape[1])
        return states_BSH.index_select(0, place_B), self._by_layer(final)

    def sequence(self, x_BTE: Tensor, states: States) -> tuple[Tensor, States]:
        """States (B, T, H) of the top layer from given initial states, and all layers' at the end."""
        stacked = [torch.stack(parts) for parts in zip(*states, strict=True)]
        states_BTH, final = self.kernel(x_BTE, tuple(stacked) if len(stacked) > 1 else stacked[0])
        return states_BTH, self._by_layer(final)

    def project_inputs(self, x_BTE: Tensor) -> Tensor:
        """The first layer's gates (B, T, G) as far as they depend on the first E of its inputs."""
        return F.linear(x_BTE, self._weight("weight_ih", 0)[:, : x_BTE.shape[-1]], self._input_bias(0))

    def step_weights(self, fed_size: int) -> list[StepWeights]:
        """What `step` multiplies with, to be taken once a batch.

        Args:
            fed_size: how many of the first layer's inputs `project_inputs` does not get.
        """
        weights = []
        for layer in range(self.kernel.num_layers):
            input_GF = self._weight("weight_ih", layer)
            if layer == 0:
                input_GF = input_GF[:, input_GF.shape[1] - fed_size :]
            input_FG = Repeated(input_GF.t()) if layer > 0 or fed_size else None
            recurrent_HG = Repeated(self._weight("weight_hh", layer).t())
            recurrent_bias = self._weight("bias_hh", layer) if self.cell == "gru" else None
            input_bias = self._input_bias(layer) if layer > 0 else None
            weights.append(StepWeights(input_FG, input_bias, recurrent_HG, recurrent_bias))
        return weights

    def step(self, projected_RG: Tensor, fed_RF: Tensor | None, states: States, weights: list[StepWeights]) -> States:
        """All layers' next states; `fed_RF` are the last F of the first layer's inputs, not yet projected."""
        following: list[tuple[Tensor, ...]] = []
        for layer, (weight, state) in enumerate(zip(weights, states, strict=True)):
            if layer > 0:
                below_RH = self.between(following[-1][0])
                gates_RG = cast(Repeated, weight.input_FG)(below_RH) + cast(Tensor, weight.input_bias_G)
            else:
                gates_RG = projected_RG
                if fed_RF is not None:
                    gates_RG = gates_RG + cast(Repeated, weight.input_FG)(fed_RF)
            following.append(self._advance(gates_RG, state, weight))
        return tuple(following)

    def _advance(self, gates_RG: Tensor, state: tuple[Tensor, ...], weight: StepWeights) -> tuple[Tensor, ...]:
        hidden_RH = state[0]
        if self.cell == "gru":  # the reset gate acts on U h, as in PyTorch's kernel
            reset_RH, update_RH, candidate_RH = gates_RG.chunk(3, dim=-1)
            recurrent_RG = weight.recurrent_HG(hidden_RH) + cast(Tensor, weight.recurrent_bias_G)
            recurrent_reset, recurrent_update, recurrent_candidate = recurrent_RG.chunk(3, dim=-1)
            reset_RH = (reset_RH + recurrent_reset).sigmoid()
            proposal_RH = (candidate_RH + reset_RH * recurrent_candidate).tanh()
            update_RH = (update_RH + recurrent_update).sigmoid()
            # Not torch.lerp, which wants one type: under autocast the state is wider than what a product gave.
            return (proposal_RH + update_RH * (hidden_RH - proposal_RH),)
        gates_RG = gates_RG + weight.recurrent_HG(hidden_RH)
        return (gates_RG.tanh(),) if self.cell == "rnn" else lstm_cell(gates_RG, state[1])

    def _by_layer(self, final: Tensor | tuple[Tensor, ...]) -> States:
        parts = final if isinstance(final, tuple) else (final,)
        return tuple(zip(*(part.unbind(0) for part in parts), strict=True))

    def _weight(self, name: str, layer: int) -> Tensor:
        return self.kernel.get_parameter(f"{name}_l{layer}")

    def _input_bias(self, layer: int) -> Tensor:
        """PyTorch keeps two biases; except in a GRU's candidate they only ever act as their sum."""
        bias_G = self._weight("bias_ih", layer)
        return bias_G if self.cell == "gru" else bias_G + self._weight("bias_hh", layer)


class GatedWeights(NamedTuple):
    """A gated unit's recurrent matrices in a step-by-step evaluation."""

    gates: Repeated
    candidate: Repeated


class GatedRecurrence(nn.Module):
    """The gated unit of Cho et al. 2014, as in Bahdanau et al. 2014, A.1.1: the reset gate acts before the product.

        z = σ(W_z x + U_z h)    r = σ(W_r x + U_r h)    h̃ = tanh(W x + U (r ∘ h))    h' = (1 - z) ∘ h + z ∘ h̃

    `torch.nn.GRU` computes r ∘ (U h) instead, so it cannot stand in. (Cho et al. write z for 1 - z, which is the same
    unit with the gate's weights negated.) With `directions` there is one set of weights for each and the states are
    (D, B, H): a bidirectional encoder is one loop, not two.
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

    def step_weights(self) -> GatedWeights:
        """What a step multiplies with, to be taken once a batch."""
        return GatedWeights(Repeated(self.gate_weight), Repeated(self.candidate_weight))

    def gates(self, projected: Tensor, hidden: Tensor, weights: GatedWeights) -> tuple[Tensor, Tensor]:
        """z and r from the gates' share (…, 2H) of the inputs."""
        update, reset = (projected + weights.gates(hidden)).sigmoid().chunk(2, dim=-1)
        return update, reset

    def forward(self, projected: Tensor, hidden: Tensor, weights: GatedWeights) -> Tensor:
        """The next state (…, H) from `project_inputs`' value (…, 3H), to which a caller may have added a context's."""
        gates, candidate = projected.split((2 * self.hidden_size, self.hidden_size), dim=-1)
        update, reset = self.gates(gates, hidden, weights)
        proposal = (candidate + weights.candidate(reset * hidden)).tanh()
        return torch.lerp(hidden, proposal, update)


class ContextGatedRecurrence(GatedRecurrence):
    """The decoder's unit of Cho et al. 2014, appendix A: a context that is the same in every step enters it, and the
    reset gate acts on the state's *and* the context's share of the candidate: h̃ = tanh(W y + r ∘ (U h + C c))."""

    def step(self, projected: Tensor, context: Tensor, hidden: Tensor, weights: GatedWeights) -> Tensor:
        """The next state (R, H); `context` (R, 3H) holds C_z c, C_r c and C c."""
        gates, candidate = projected.split((2 * self.hidden_size, self.hidden_size), dim=-1)
        context_gates, context_candidate = context.split((2 * self.hidden_size, self.hidden_size), dim=-1)
        update, reset = self.gates(gates + context_gates, hidden, weights)
        proposal = (candidate + reset * (weights.candidate(hidden) + context_candidate)).tanh()
        return torch.lerp(hidden, proposal, update)


@torch.no_grad()
def initialize(*modules: nn.Module) -> None:
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
