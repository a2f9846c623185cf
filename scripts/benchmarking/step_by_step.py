"""Luong's, Bahdanau's and Sutskever's models as one writes them first: a loop over target positions, and all in it.

Each position embeds its piece, runs the cells, attends, reads out, projects to the vocabulary and adds to the loss.
What is ahead of the loop is what is done once a sentence: the encoder and the keys. Nothing is joined over positions
and nothing is chunked. This is what the project's own evaluation is compared with: the weights are the very same
parameters, and loss and gradients are equal.

Shapes: B batch, S source positions, E embedding width, H state width, D width of an annotation, A width of the score,
G gates' width, C classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.errors import RequestError
from nmt.models.attention import AdditiveScore, GeneralScore, GlobalWindow
from nmt.models.base import TranslationModel
from nmt.models.cells import GatedRecurrence, StackedRecurrence
from nmt.models.luong import Luong
from nmt.models.recurrent import Bahdanau, LstmSequenceToSequence

State = tuple[Any, ...]


class StepByStep(nn.Module):
    """A recurrent model with the parameters of one of the project's, trained a position at a time."""

    def __init__(self, model: Luong | Bahdanau | LstmSequenceToSequence) -> None:
        super().__init__()
        self.embeddings = model.embeddings
        self.output = model.output
        self.dropout = nn.Dropout(model.dropout.p)

    def encode(self, source_BS: Tensor) -> State:
        """What a step needs of the source, and the first state."""
        raise NotImplementedError

    def step(self, embedded_BE: Tensor, state: State) -> tuple[Tensor, State]:
        """The hidden state that is projected to the vocabulary, and what the next step starts from."""
        raise NotImplementedError

    def loss(self, batch: Batch, smoothing: float) -> Tensor:
        """The sum of `label_smoothed_loss`; padding is cut off the classes, and ignored among the labels."""
        state = self.encode(batch.source_BS)
        # Cut ahead of the loop: in it, each position would fill a gradient of the whole matrix with zeros.
        weight_CD, bias_C = self.output.weight[PAD + 1 :], self.output.bias[PAD + 1 :]
        total = torch.zeros((), device=batch.source_BS.device)
        for input_B, output_B in zip(batch.target_input_BT.unbind(1), batch.target_output_BT.unbind(1), strict=True):
            hidden_BD, state = self.step(self.dropout(self.embeddings.target(input_B)), state)
            logits_BC = F.linear(hidden_BD, weight_CD, bias_C)
            total = total + F.cross_entropy(
                logits_BC, output_B - (PAD + 1), ignore_index=-1, reduction="sum", label_smoothing=smoothing
            )
        return total


def step_by_step(model: TranslationModel) -> StepByStep:
    """The plain implementation that has this model's parameters.

    Raises:
        RequestError: there is none for such a model.
    """
    if isinstance(model, Bahdanau):
        return PlainBahdanau(model)
    if isinstance(model, LstmSequenceToSequence) and model.encoder.cell == "lstm":
        return PlainLstm(model)
    if isinstance(model, Luong) and model.encoder.cell == "lstm":
        score, window = model.attention.score, model.attention.window
        if isinstance(score, GeneralScore) and type(window) is GlobalWindow:
            return PlainLuong(model)
    raise RequestError("--step-by-step: there is one for bahdanau, luong (score=general window=global) and lstm alone")


class PlainStack(nn.Module):
    """LSTM cells on top of each other, with the parameters of a stack."""

    def __init__(self, stack: StackedRecurrence, dropout: nn.Dropout) -> None:
        super().__init__()
        self.dropout = dropout
        self.cells = nn.ModuleList()
        for layer in range(stack.kernel.num_layers):
            cell = nn.LSTMCell(1, 1, device="meta")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(cell, name, stack.kernel.get_parameter(f"{name}_l{layer}"))
            self.cells.append(cell)

    def forward(self, x_BE: Tensor, states: State) -> tuple[Tensor, State]:
        """The top layer's next state, and all layers'."""
        following: list[State] = []
        for layer, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            following.append(cell(x_BE if layer == 0 else self.dropout(following[-1][0]), state))
        return following[-1][0], tuple(following)


def read(encoder: nn.Module, x_BSE: Tensor, lengths_B: Tensor) -> tuple[Tensor, State]:
    """States (B, S, H) of the top layer of PyTorch's LSTM, and all layers' final ones."""
    packed = pack_padded_sequence(x_BSE, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
    states, (hidden_LBH, cell_LBH) = encoder(packed)
    states_BSH, _ = pad_packed_sequence(states, batch_first=True)
    return states_BSH, tuple(zip(hidden_LBH.unbind(0), cell_LBH.unbind(0), strict=True))


def reversed_sources(source_BS: Tensor, lengths_B: Tensor) -> Tensor:
    """Each source from its last piece to its first, padding on the right."""
    rows = [row[:length].flip(0) for row, length in zip(source_BS, lengths_B.tolist(), strict=True)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class PlainLstm(StepByStep):
    """Sutskever et al. 2014."""

    def __init__(self, model: LstmSequenceToSequence) -> None:
        super().__init__(model)
        self.reverse_source = model.reverse_source
        self.encoder = model.encoder.kernel
        self.decoder = PlainStack(model.decoder, self.dropout)

    def encode(self, source_BS: Tensor) -> State:
        lengths_B = (source_BS != PAD).sum(dim=1)
        if self.reverse_source:
            source_BS = reversed_sources(source_BS, lengths_B)
        return read(self.encoder, self.dropout(self.embeddings.source(source_BS)), lengths_B)[1]

    def step(self, embedded_BE: Tensor, state: State) -> tuple[Tensor, State]:
        hidden_BH, state = self.decoder(embedded_BE, state)
        return self.dropout(hidden_BH), state


def attend(scores_BS: Tensor, mask_BS: Tensor, states_BSD: Tensor) -> Tensor:
    """The context (B, D)."""
    weights_BS = scores_BS.masked_fill(~mask_BS, -torch.inf).softmax(dim=-1)
    return torch.bmm(weights_BS.unsqueeze(1), states_BSD).squeeze(1)


class PlainLuong(StepByStep):
    """Luong et al. 2015: general score over all positions, with or without input feeding."""

    def __init__(self, model: Luong) -> None:
        super().__init__(model)
        assert isinstance(model.attention.score, GeneralScore)
        self.reverse_source = model.reverse_source
        self.input_feeding = model.fed_size > 0
        self.encoder = model.encoder.kernel
        self.decoder = PlainStack(model.decoder, self.dropout)
        self.key = model.attention.score.key
        self.combine = model.combine

    def encode(self, source_BS: Tensor) -> State:
        mask_BS = source_BS != PAD
        lengths_B = mask_BS.sum(dim=1)
        if self.reverse_source:
            source_BS = reversed_sources(source_BS, lengths_B)  # what is attended to may stand in any order
        states_BSH, final = read(self.encoder, self.dropout(self.embeddings.source(source_BS)), lengths_B)
        return states_BSH, self.key(states_BSH), mask_BS, final, torch.zeros_like(final[-1][0])

    def step(self, embedded_BE: Tensor, state: State) -> tuple[Tensor, State]:
        states_BSH, keys_BSH, mask_BS, states, attentional_BH = state
        x_BE = torch.cat((embedded_BE, attentional_BH), dim=-1) if self.input_feeding else embedded_BE
        hidden_BH, states = self.decoder(x_BE, states)
        scores_BS = torch.bmm(keys_BSH, hidden_BH.unsqueeze(2)).squeeze(2)
        context_BH = attend(scores_BS, mask_BS, states_BSH)
        attentional_BH = self.dropout(torch.tanh(self.combine(torch.cat((context_BH, hidden_BH), dim=-1))))
        return attentional_BH, (states_BSH, keys_BSH, mask_BS, states, attentional_BH)


class GatedUnit(NamedTuple):
    """The unit of Cho et al. 2014, which `torch.nn.GRUCell` is not: the reset gate acts before the product."""

    input_EG: Tensor
    gates_HG: Tensor
    candidate_HH: Tensor
    bias_1G: Tensor

    def step(self, x_BE: Tensor, hidden_BH: Tensor, context_BG: Tensor | float = 0.0) -> Tensor:
        """The next state, from an input and what a context adds to gates and candidate."""
        size = hidden_BH.shape[1]
        input_BG = x_BE @ self.input_EG + self.bias_1G + context_BG
        gates_BG = torch.sigmoid(input_BG[:, : 2 * size] + hidden_BH @ self.gates_HG)
        update_BH, reset_BH = gates_BG[:, :size], gates_BG[:, size:]
        proposal_BH = torch.tanh(input_BG[:, 2 * size :] + (reset_BH * hidden_BH) @ self.candidate_HH)
        return (1 - update_BH) * hidden_BH + update_BH * proposal_BH


def gated_units(cell: GatedRecurrence) -> list[GatedUnit]:
    """One unit for each direction."""
    weights = (cell.input_weight, cell.gate_weight, cell.candidate_weight, cell.bias)
    parts = [weight.unbind(0) if cell.input_weight.dim() == 3 else (weight,) for weight in weights]
    return [GatedUnit(*unit) for unit in zip(*parts, strict=True)]


class PlainBahdanau(StepByStep):
    """Bahdanau et al. 2014."""

    def __init__(self, model: Bahdanau) -> None:
        super().__init__(model)
        assert isinstance(model.attention.score, AdditiveScore)
        self.encoder = model.encoder
        self.first_state = model.first_state
        self.score = model.attention.score
        self.decoder = model.decoder
        self.context = model.context
        self.readout_state = model.readout_state
        self.readout_embedding = model.readout_embedding
        self.readout_context = model.readout_context

    def encode(self, source_BS: Tensor) -> State:
        mask_BS = source_BS != PAD
        x_BSE = self.dropout(self.embeddings.source(source_BS))
        forward, backward = gated_units(self.encoder)
        hidden_BH = x_BSE.new_zeros(len(x_BSE), self.encoder.hidden_size)
        rightwards = [hidden_BH := forward.step(x_BE, hidden_BH) for x_BE in x_BSE.unbind(1)]
        hidden_BH = torch.zeros_like(hidden_BH)
        leftwards: list[Tensor] = []
        for x_BE, real_B in zip(reversed(x_BSE.unbind(1)), reversed(mask_BS.unbind(1)), strict=True):
            hidden_BH = torch.where(real_B.unsqueeze(1), backward.step(x_BE, hidden_BH), hidden_BH)
            leftwards.insert(0, hidden_BH)
        states_BSD = torch.cat((torch.stack(rightwards, dim=1), torch.stack(leftwards, dim=1)), dim=-1)
        first_BH = torch.tanh(self.first_state(leftwards[0]))
        return states_BSD, self.score.key(states_BSD), mask_BS, first_BH

    def step(self, embedded_BE: Tensor, state: State) -> tuple[Tensor, State]:
        states_BSD, keys_BSA, mask_BS, hidden_BH = state
        query_BA = self.score.query(hidden_BH)
        scores_BS = self.score.score(torch.tanh(query_BA.unsqueeze(1) + keys_BSA)).squeeze(-1)
        context_BD = attend(scores_BS, mask_BS, states_BSD)
        readout_BL = self.readout_state(hidden_BH) + self.readout_embedding(embedded_BE)
        readout_BL = readout_BL + self.readout_context(context_BD)
        maxima_BL = readout_BL.view(len(readout_BL), -1, 2).max(dim=-1).values
        [unit] = gated_units(self.decoder)
        following_BH = unit.step(embedded_BE, hidden_BH, self.context(context_BD))
        return self.dropout(maxima_BL), (states_BSD, keys_BSA, mask_BS, following_BH)
