"""The recurrent models against their papers' equations, written down once more for one sentence and one position at a
time; reversal within a sentence; the two ways of running a stack of recurrent layers.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from equations import Reference, assert_conforms, maxima, recurrent_layers, softmax, vector, weighted_sum, zero_states
from nmt.config import LuongConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS
from nmt.models.base import TranslationModel
from nmt.models.cells import StackedRecurrence, reverse_within_length
from nmt.models.luong import Luong
from nmt.models.registry import build_model
from tiny import CONFIGS, MODELS, SOURCE_VOCABULARY, sentences, tiny_model

# The equations ---------------------------------------------------------------------------------------------------


def sutskever(model: TranslationModel, source: list[int], target: list[int]) -> tuple[Tensor, Tensor | None]:
    """Sutskever et al. 2014, sections 2 and 3.3."""
    states = zero_states(model.encoder)
    for piece in reversed(source) if model.reverse_source else source:
        states = recurrent_layers(model.encoder, vector(model.embeddings.source, piece), states)
    hidden = []
    for piece in [BOS, *target[:-1]]:
        states = recurrent_layers(model.decoder, vector(model.embeddings.target, piece), states)
        hidden.append(states[-1][0])
    return torch.stack(hidden), None


def gated_unit(x: list[Tensor], h: Tensor, gates: Tensor, candidate: Tensor, bias: Tensor) -> Tensor:
    """Bahdanau et al. 2014, A.1.1. `x` holds W_z x, W_r x and W x, contexts included."""
    u_z, u_r = gates.chunk(2, dim=-1)
    b_z, b_r, b = bias.flatten().chunk(3)
    z = torch.sigmoid(x[0] + h @ u_z + b_z)
    r = torch.sigmoid(x[1] + h @ u_r + b_r)
    proposal = torch.tanh(x[2] + (r * h) @ candidate + b)
    return (1 - z) * h + z * proposal


def bahdanau(model: TranslationModel, source: list[int], target: list[int]) -> tuple[Tensor, Tensor | None]:
    """Bahdanau et al. 2014, appendix A."""
    encoder, decoder, attention = model.encoder, model.decoder, model.attention
    directions = []
    for direction, pieces in enumerate((source, source[::-1])):  # A.2.1
        h = torch.zeros(encoder.hidden_size, dtype=torch.float64)
        states = []
        for piece in pieces:
            x = (vector(model.embeddings.source, piece) @ encoder.input_weight[direction]).chunk(3)
            h = gated_unit(
                list(x),
                h,
                encoder.gate_weight[direction],
                encoder.candidate_weight[direction],
                encoder.bias[direction],
            )
            states.append(h)
        directions.append(states)
    forward, backward = directions[0], directions[1][::-1]
    annotations = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]

    s = torch.tanh(model.first_state.weight @ backward[0] + model.first_state.bias)  # A.2.2: s_0 = tanh(W_s ←h_1)
    hidden, weights = [], []
    for piece in [BOS, *target[:-1]]:
        embedded = vector(model.embeddings.target, piece)
        scores = [  # A.1.2: e_ij = v · tanh(W_a s_{i-1} + U_a h_j)
            attention.score.score.weight[0]
            @ torch.tanh(attention.score.query.weight @ s + attention.score.key.weight @ h + attention.score.key.bias)
            for h in annotations
        ]
        weights.append(softmax(scores))
        c = weighted_sum(weights[-1], annotations)
        t = (  # A.2.2: t̃_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i
            model.readout_state.weight @ s
            + model.readout_state.bias
            + model.readout_embedding.weight @ embedded
            + model.readout_context.weight @ c
        )
        hidden.append(maxima(t))
        inputs = (embedded @ decoder.input_weight).chunk(3)
        contexts = (model.context.weight @ c).chunk(3)
        x = [a + b for a, b in zip(inputs, contexts, strict=True)]
        s = gated_unit(x, s, decoder.gate_weight, decoder.candidate_weight, decoder.bias)
    return torch.stack(hidden), torch.stack(weights)


def cho(model: TranslationModel, source: list[int], target: list[int]) -> tuple[Tensor, None]:
    """Cho et al. 2014, appendix A, with z for the paper's 1 - z: see `GatedRecurrence`."""
    encoder, decoder = model.encoder, model.decoder
    h = torch.zeros(encoder.hidden_size, dtype=torch.float64)
    for piece in source:  # A.1.1
        x = (vector(model.embeddings.source, piece) @ encoder.input_weight).chunk(3)
        h = gated_unit(list(x), h, encoder.gate_weight, encoder.candidate_weight, encoder.bias)
    c = torch.tanh(model.summary.weight @ h)  # c = tanh(V h)
    h = torch.tanh(model.first_state.weight @ c)  # A.1.2: h'_0 = tanh(V' c)
    c_z, c_r, c_h = (model.context.weight @ c).chunk(3)
    u_z, u_r = decoder.gate_weight.chunk(2, dim=-1)
    b_z, b_r, b = decoder.bias.flatten().chunk(3)
    hidden = []
    for piece in [BOS, *target[:-1]]:
        embedded = vector(model.embeddings.target, piece)
        x_z, x_r, x_h = (embedded @ decoder.input_weight).chunk(3)
        z = torch.sigmoid(x_z + h @ u_z + c_z + b_z)
        r = torch.sigmoid(x_r + h @ u_r + c_r + b_r)
        proposal = torch.tanh(x_h + b + r * (h @ decoder.candidate_weight + c_h))
        h = (1 - z) * h + z * proposal
        s = (  # s'_t = O_h h'_t + O_y y_{t-1} + O_c c, and the maximum of each pair of it
            model.readout_state.weight @ h
            + model.readout_state.bias
            + model.readout_embedding.weight @ embedded
            + model.readout_context.weight @ c
        )
        hidden.append(maxima(s))
    return torch.stack(hidden), None


REFERENCES: dict[str, Reference] = {"lstm": sutskever, "cho": cho, "bahdanau": bahdanau}
RECURRENT = [name for name in MODELS if CONFIGS[name].family in REFERENCES]


@pytest.mark.conformance
@pytest.mark.parametrize("name", RECURRENT)
def test_hidden_states_weights_and_gradients_are_those_of_the_papers_equations(name: str) -> None:
    assert_conforms(tiny_model(name), REFERENCES[CONFIGS[name].family])


@pytest.mark.conformance
def test_the_gated_unit_resets_before_the_product_as_pytorchs_does_not() -> None:
    """So the paper's unit cannot be swapped for nn.GRU: with the same matrices the two differ."""
    model = tiny_model("bahdanau")
    unit = model.decoder
    size = unit.hidden_size
    x, h = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, size, dtype=torch.float64)
    cell = torch.nn.GRUCell(6, size, dtype=torch.float64)
    w_z, w_r, w = unit.input_weight.split(size, dim=1)
    u_z, u_r = unit.gate_weight.split(size, dim=1)
    b_z, b_r, b = unit.bias.flatten().split(size)
    with torch.no_grad():  # PyTorch's update gate weighs the old state, so its complement is the paper's
        cell.weight_ih.copy_(torch.cat((w_r, -w_z, w), dim=1).t())
        cell.weight_hh.copy_(torch.cat((u_r, -u_z, unit.candidate_weight), dim=1).t())
        cell.bias_ih.copy_(torch.cat((b_r, -b_z, b)))
        cell.bias_hh.zero_()
    ours, theirs = unit(unit.project_inputs(x), h, unit.step_weights()), cell(x, h)
    assert (ours - theirs).abs().max() > 1e-3
    with torch.no_grad():  # nothing to reset: then they agree
        unit.candidate_weight.zero_()
        cell.weight_hh[2 * size :] = 0
    torch.testing.assert_close(unit(unit.project_inputs(x), h, unit.step_weights()), cell(x, h), rtol=0, atol=1e-12)


# Parts -----------------------------------------------------------------------------------------------------------


def test_reversal_leaves_padding_on_the_right_and_undoes_itself() -> None:
    lengths_B = torch.tensor([3, 0, 4, 1])
    ids_BS = torch.tensor([[5, 6, 7, 0], [0, 0, 0, 0], [5, 6, 7, 8], [9, 0, 0, 0]])
    reversed_BS = reverse_within_length(ids_BS, lengths_B)
    assert reversed_BS.tolist() == [[7, 6, 5, 0], [0, 0, 0, 0], [8, 7, 6, 5], [9, 0, 0, 0]]
    x_BSE = torch.randn(4, 4, 2)
    turned_BSE = reverse_within_length(x_BSE, lengths_B)
    assert torch.equal(turned_BSE[0], x_BSE[0, [2, 1, 0, 3]])
    assert torch.equal(reverse_within_length(turned_BSE, lengths_B), x_BSE)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_steps_of_stacked_layers_are_the_kernels_sequence(cell: str) -> None:
    torch.manual_seed(1)
    stack = StackedRecurrence(cell, 5, 4, layers=3, dropout=0.0).double()
    for parameter in stack.parameters():
        torch.nn.init.normal_(parameter)
    x_BTE = torch.randn(2, 6, 5, dtype=torch.float64)
    parts = 2 if cell == "lstm" else 1
    states = tuple(tuple(torch.randn(parts, 2, 4, dtype=torch.float64).unbind(0)) for _ in range(3))
    states_BTH, last = stack.sequence(x_BTE, states)
    weights = stack.step_weights(fed_size=2)
    projected_BTG = stack.project_inputs(x_BTE[..., :3])  # the last two inputs are what is fed back
    for t in range(6):
        states = stack.step(projected_BTG[:, t], x_BTE[:, t, 3:], states, weights)
        torch.testing.assert_close(states[-1][0], states_BTH[:, t], rtol=0, atol=1e-12)
    torch.testing.assert_close(states, last, rtol=0, atol=1e-12)


def test_the_fixed_context_does_not_grow_with_the_sentence() -> None:
    model = tiny_model("lstm-reversed")
    short, long = (model.encode(make_batch(sentences([n], SOURCE_VOCABULARY), [[3]]).source_BS) for n in (2, 40))
    shapes = [[part.shape for layer in memory.states for part in layer] for memory in (short, long)]
    assert shapes[0] == shapes[1] == [(1, 8)] * 4
    assert not model.attends
    assert model.step(torch.tensor([BOS]), model.start(short), short, need_weights=True)[2] is None


@pytest.mark.parametrize("name", ["lstm-reversed", "gru-reversed", "rnn-reversed", "luong-general-fed-in_order"])
def test_first_stacked_weights_are_orthogonal_and_glorots_gate_by_gate(name: str) -> None:
    torch.manual_seed(1)
    model = build_model(CONFIGS[name], 13, 11)
    for part, weight in model.named_parameters():
        if "weight_hh" in part:
            for block in weight.split(weight.shape[1]):
                torch.testing.assert_close(block @ block.t(), torch.eye(len(block)), rtol=0, atol=1e-5)
        elif "weight_ih" in part:
            for block in weight.split(min(weight.shape)):
                bound = math.sqrt(6 / sum(block.shape))
                assert 0.7 * bound < block.abs().max() <= bound
        elif "bias" in part:
            assert torch.all(weight == 0)


def test_states_start_large_enough_for_a_product_of_two_to_say_something() -> None:
    """What multiplicative attention needs to be learned at all."""
    torch.manual_seed(1)
    model = Luong(LuongConfig(family="luong", name="", embedding_size=128, hidden_size=128), 500, 500).eval()
    memory = model.encode(torch.randint(4, 500, (20, 15)))
    assert memory.states_BSH.std() > 0.05  # with E[piece] in place of √E · E[piece], a tenth of that


def test_first_recurrent_matrices_are_orthogonal_block_by_block() -> None:
    """Bahdanau et al. 2014, B.1."""
    torch.manual_seed(1)
    model = build_model(CONFIGS["bahdanau"], 13, 11)
    for unit in (model.encoder, model.decoder):
        size = unit.hidden_size
        for matrix in torch.cat((unit.gate_weight, unit.candidate_weight), dim=-1).view(-1, size, 3 * size):
            for block in matrix.split(size, dim=1):
                torch.testing.assert_close(block @ block.t(), torch.eye(size), rtol=0, atol=1e-5)
