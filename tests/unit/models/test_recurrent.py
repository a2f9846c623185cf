"""The recurrent models against their papers' equations, written down once more for one sentence and one position at a
time; reversal within a sentence; the two ways of running a stack of LSTM layers.

The references below know nothing of batches, padding, joined matrices or work done ahead of the loop. What they share
with the models is the weights alone, so that gradients can be compared weight by weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tiny import CONFIGS, MODELS, SOURCE_VOCABULARY, coefficients, sentences, tiny_model
from torch import Tensor

from nmt.config import LuongConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS
from nmt.models.base import ScaledEmbedding, TranslationModel
from nmt.models.recurrent import Luong, StackedLSTM, reverse_within_length
from nmt.models.registry import build_model

Reference = Callable[[TranslationModel, list[int], list[int]], tuple[Tensor, Tensor | None]]
"""Model, source ids and target ids to hidden states (T, D) and attention weights (T, S)."""

SOURCES = sentences([5, 1, 7, 3], SOURCE_VOCABULARY)
TARGETS = sentences([4, 6, 1, 3])


def softmax(scores: list[Tensor]) -> Tensor:
    powers = torch.stack(scores).exp()
    return powers / powers.sum()


def weighted_sum(weights: Tensor, vectors: list[Tensor]) -> Tensor:
    return sum((weight * vector for weight, vector in zip(weights, vectors, strict=True)), torch.zeros(()))


# The equations ---------------------------------------------------------------------------------------------------


def lstm_layers(lstm: torch.nn.LSTM, x: Tensor, states: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """One step of a deep LSTM (Zaremba et al. 2014, section 3): every layer's (h, c)."""
    following = []
    for layer, (h, c) in enumerate(states):
        w_i, w_f, w_g, w_o = getattr(lstm, f"weight_ih_l{layer}").chunk(4)
        u_i, u_f, u_g, u_o = getattr(lstm, f"weight_hh_l{layer}").chunk(4)
        b_i, b_f, b_g, b_o = (getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}")).chunk(4)
        i = torch.sigmoid(w_i @ x + u_i @ h + b_i)
        f = torch.sigmoid(w_f @ x + u_f @ h + b_f)
        o = torch.sigmoid(w_o @ x + u_o @ h + b_o)
        g = torch.tanh(w_g @ x + u_g @ h + b_g)
        c = f * c + i * g
        h = o * torch.tanh(c)
        following.append((h, c))
        x = h
    return following


def zero_states(lstm: torch.nn.LSTM) -> list[tuple[Tensor, Tensor]]:
    zeros = torch.zeros(lstm.hidden_size, dtype=torch.float64)
    return [(zeros, zeros)] * lstm.num_layers


def vector(table: ScaledEmbedding, piece: int) -> Tensor:
    """√E · E[piece]."""
    return table.weight[piece] * math.sqrt(table.embedding_dim)


def sutskever(model: TranslationModel, source: list[int], target: list[int]) -> tuple[Tensor, Tensor | None]:
    """Sutskever et al. 2014, sections 2 and 3.3."""
    states = zero_states(model.encoder.lstm)
    for piece in reversed(source) if model.reverse_source else source:
        states = lstm_layers(model.encoder.lstm, vector(model.embeddings.source, piece), states)
    hidden = []
    for piece in [BOS, *target[:-1]]:
        states = lstm_layers(model.decoder.lstm, vector(model.embeddings.target, piece), states)
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
            attention.score.weight[0]
            @ torch.tanh(attention.query.weight @ s + attention.key.weight @ h + attention.key.bias)
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
        hidden.append(torch.stack([torch.maximum(t[2 * k], t[2 * k + 1]) for k in range(len(t) // 2)]))
        inputs = (embedded @ decoder.input_weight).chunk(3)
        contexts = (model.context.weight @ c).chunk(3)
        x = [a + b for a, b in zip(inputs, contexts, strict=True)]
        s = gated_unit(x, s, decoder.gate_weight, decoder.candidate_weight, decoder.bias)
    return torch.stack(hidden), torch.stack(weights)


def luong(model: TranslationModel, source: list[int], target: list[int]) -> tuple[Tensor, Tensor | None]:
    """Luong et al. 2015, sections 3 to 3.3."""
    states = zero_states(model.encoder.lstm)
    annotations = []
    for piece in reversed(source) if model.reverse_source else source:
        states = lstm_layers(model.encoder.lstm, vector(model.embeddings.source, piece), states)
        annotations.append(states[-1][0])
    if model.reverse_source:
        annotations.reverse()
    fed = torch.zeros(model.combine.out_features, dtype=torch.float64)
    hidden, weights = [], []
    for piece in [BOS, *target[:-1]]:
        x = vector(model.embeddings.target, piece)
        if model.fed_size:  # section 3.3
            x = torch.cat((x, fed))
        states = lstm_layers(model.decoder.lstm, x, states)
        h = states[-1][0]
        compared = annotations if model.attention.key is None else [model.attention.key.weight @ a for a in annotations]
        weights.append(softmax([h @ a for a in compared]))  # equations 7 and 8
        c = weighted_sum(weights[-1], annotations)
        fed = torch.tanh(model.combine.weight @ torch.cat((c, h)))  # equation 5
        hidden.append(fed)
    return torch.stack(hidden), torch.stack(weights)


REFERENCES: dict[str, Reference] = {"lstm": sutskever, "bahdanau": bahdanau, "luong": luong}
RECURRENT = [name for name in MODELS if name.split("-")[0] in REFERENCES]


@pytest.mark.conformance
@pytest.mark.parametrize("name", RECURRENT)
def test_hidden_states_and_gradients_are_those_of_the_papers_equations(name: str) -> None:
    model, reference = tiny_model(name), REFERENCES[name.split("-")[0]]
    hidden_BTD = model(make_batch(SOURCES, TARGETS))
    weights = list(model.parameters())
    actual = expected = torch.zeros((), dtype=torch.float64)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        hidden_TD, _ = reference(model, source, target)
        torch.testing.assert_close(hidden_BTD[row, : len(target)], hidden_TD, rtol=0, atol=1e-9)
        factors = coefficients(hidden_TD, seed=row)
        actual = actual + (factors * hidden_BTD[row, : len(target)]).sum()
        expected = expected + (factors * hidden_TD).sum()
    gradients = torch.autograd.grad(actual, weights, allow_unused=True)
    wanted = torch.autograd.grad(expected, weights, allow_unused=True)
    for (parameter, _), gradient, want in zip(model.named_parameters(), gradients, wanted, strict=True):
        if parameter.startswith("output."):  # the projection belongs to the loss
            assert gradient is want is None
            continue
        assert want.abs().max() > 1e-6, f"{parameter} takes no part in the reference"
        torch.testing.assert_close(gradient, want, rtol=0, atol=1e-9, msg=lambda text, p=parameter: f"{p}: {text}")


@pytest.mark.conformance
@pytest.mark.parametrize("name", [name for name in RECURRENT if not name.startswith("lstm")])
def test_attention_weights_are_those_of_the_papers_equations(name: str) -> None:
    model, reference = tiny_model(name), REFERENCES[name.split("-")[0]]
    batch = make_batch(SOURCES, TARGETS)
    memory = model.encode(batch.source_BS)
    state = model.start(memory)
    columns = []
    for tokens_B in batch.target_input_BT.unbind(1):
        _, state, weights_BS = model.step(tokens_B, state, memory, need_weights=True)
        columns.append(weights_BS)
    weights_BTS = torch.stack(columns, dim=1)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        _, weights_TS = reference(model, source, target)
        torch.testing.assert_close(weights_BTS[row, : len(target), : len(source)], weights_TS, rtol=0, atol=1e-9)


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
    ours, theirs = unit(unit.project_inputs(x), h), cell(x, h)
    assert (ours - theirs).abs().max() > 1e-3
    with torch.no_grad():  # nothing to reset: then they agree
        unit.candidate_weight.zero_()
        cell.weight_hh[2 * size :] = 0
    torch.testing.assert_close(unit(unit.project_inputs(x), h), cell(x, h), rtol=0, atol=1e-12)


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


def test_steps_of_stacked_layers_are_the_kernels_sequence() -> None:
    torch.manual_seed(1)
    stack = StackedLSTM(5, 4, layers=3, dropout=0.0).double()
    x_BTE = torch.randn(2, 6, 5, dtype=torch.float64)
    hidden = tuple(torch.randn(3, 2, 4, dtype=torch.float64).unbind(0))
    cell = tuple(torch.randn(3, 2, 4, dtype=torch.float64).unbind(0))
    states_BTH, last_hidden, last_cell = stack.sequence(x_BTE, hidden, cell)
    weights = stack.step_weights(fed_size=2)
    projected_BT4H = stack.project_inputs(x_BTE[..., :3])  # the last two inputs are what is fed back
    for t in range(6):
        hidden, cell = stack.step(projected_BT4H[:, t], x_BTE[:, t, 3:], hidden, cell, weights)
        torch.testing.assert_close(hidden[-1], states_BTH[:, t], rtol=0, atol=1e-12)
    for actual, expected in zip((*hidden, *cell), (*last_hidden, *last_cell), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_the_fixed_context_does_not_grow_with_the_sentence() -> None:
    model = tiny_model("lstm-reversed")
    short, long = (model.encode(make_batch(sentences([n], SOURCE_VOCABULARY), [[3]]).source_BS) for n in (2, 40))
    assert [t.shape for t in (*short.hidden, *short.cell)] == [t.shape for t in (*long.hidden, *long.cell)]
    assert not model.attends
    assert model.step(torch.tensor([BOS]), model.start(short), short, need_weights=True)[2] is None


@pytest.mark.parametrize("name", ["lstm-reversed", "luong-general-fed-in_order"])
def test_first_lstm_weights_are_orthogonal_and_glorots_gate_by_gate(name: str) -> None:
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
