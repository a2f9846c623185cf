"""What the papers' equations, written down once more, have in common, and the comparison of a model with them.

A reference knows nothing of batches, padding, joined matrices or work done ahead of a loop: it takes one sentence and
one position at a time. What it shares with the model is the weights alone, so that gradients can be compared weight by
weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from nmt.data.batching import make_batch
from nmt.models.base import ScaledEmbedding, TranslationModel
from nmt.models.cells import StackedRecurrence
from tiny import SOURCE_VOCABULARY, coefficients, sentences

Reference = Callable[[TranslationModel, list[int], list[int]], tuple[Tensor, Tensor | None]]
"""Model, source ids and target ids to hidden states (T, D) and attention weights (T, S)."""

SOURCES = sentences([5, 1, 7, 3], SOURCE_VOCABULARY)
TARGETS = sentences([4, 6, 1, 3])


def softmax(scores: list[Tensor]) -> Tensor:
    powers = torch.stack(scores).exp()
    return powers / powers.sum()


def weighted_sum(weights: Tensor, vectors: list[Tensor]) -> Tensor:
    return sum((weight * vector for weight, vector in zip(weights, vectors, strict=True)), torch.zeros(()))


def maxima(x: Tensor) -> Tensor:
    """The greater of each pair of neighbours."""
    return torch.stack([torch.maximum(x[2 * k], x[2 * k + 1]) for k in range(len(x) // 2)])


def vector(table: ScaledEmbedding, piece: int) -> Tensor:
    """√E · E[piece]."""
    return table.weight[piece] * math.sqrt(table.embedding_dim)


# Stacks of recurrent layers --------------------------------------------------------------------------------------


def lstm_unit(w: Tensor, u: Tensor, b: Tensor, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Zaremba et al. 2014, section 3."""
    w_i, w_f, w_g, w_o = w.chunk(4)
    u_i, u_f, u_g, u_o = u.chunk(4)
    b_i, b_f, b_g, b_o = b.chunk(4)
    i = torch.sigmoid(w_i @ x + u_i @ h + b_i)
    f = torch.sigmoid(w_f @ x + u_f @ h + b_f)
    o = torch.sigmoid(w_o @ x + u_o @ h + b_o)
    g = torch.tanh(w_g @ x + u_g @ h + b_g)
    c = f * c + i * g
    return o * torch.tanh(c), c


def gru_unit(w: Tensor, u: Tensor, b_w: Tensor, b_u: Tensor, x: Tensor, h: Tensor) -> Tensor:
    """The gated unit as `torch.nn.GRU` documents it."""
    (w_r, w_z, w_n), (u_r, u_z, u_n) = w.chunk(3), u.chunk(3)
    (b_r, b_z, b_n), (d_r, d_z, d_n) = b_w.chunk(3), b_u.chunk(3)
    r = torch.sigmoid(w_r @ x + b_r + u_r @ h + d_r)
    z = torch.sigmoid(w_z @ x + b_z + u_z @ h + d_z)
    n = torch.tanh(w_n @ x + b_n + r * (u_n @ h + d_n))
    return (1 - z) * n + z * h


def recurrent_layers(stack: StackedRecurrence, x: Tensor, states: list[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """One step of every layer: its (h, c), or (h,)."""
    following: list[tuple[Tensor, ...]] = []
    for layer, state in enumerate(states):
        w, u, b_w, b_u = (
            getattr(stack.kernel, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        match stack.cell:
            case "lstm":
                following.append(lstm_unit(w, u, b_w + b_u, x, *state))
            case "gru":
                following.append((gru_unit(w, u, b_w, b_u, x, *state),))
            case "rnn":  # Elman 1990
                following.append((torch.tanh(w @ x + b_w + u @ state[0] + b_u),))
        x = following[-1][0]
    return following


def zero_states(stack: StackedRecurrence) -> list[tuple[Tensor, ...]]:
    zeros = torch.zeros(stack.kernel.hidden_size, dtype=torch.float64)
    return [(zeros, zeros) if stack.cell == "lstm" else (zeros,)] * stack.kernel.num_layers


# The comparison --------------------------------------------------------------------------------------------------


def assert_conforms(model: TranslationModel, reference: Reference) -> None:
    """Hidden states, attention weights and gradients of every weight agree to 1e-9, sentence by sentence."""
    batch = make_batch(SOURCES, TARGETS)
    hidden_BTD, weights_BTS = model(batch), attention_of(model)
    actual = expected = torch.zeros((), dtype=torch.float64)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        hidden_TD, weights_TS = reference(model, source, target)
        torch.testing.assert_close(hidden_BTD[row, : len(target)], hidden_TD, rtol=0, atol=1e-9)
        assert (weights_TS is None) == (weights_BTS is None)
        if weights_TS is not None and weights_BTS is not None:
            shown_TS = weights_BTS[row, : len(target), : len(source)]
            torch.testing.assert_close(shown_TS, weights_TS, rtol=0, atol=1e-9)
        factors = coefficients(hidden_TD, seed=row)
        actual = actual + (factors * hidden_BTD[row, : len(target)]).sum()
        expected = expected + (factors * hidden_TD).sum()
    # The projection belongs to the loss.
    parameters = {name: p for name, p in model.named_parameters() if not name.startswith("output.")}
    gradients = torch.autograd.grad(actual, list(parameters.values()))
    wanted = torch.autograd.grad(expected, list(parameters.values()))
    for name, gradient, want in zip(parameters, gradients, wanted, strict=True):
        assert want.abs().max() > 1e-6, f"{name} takes no part in the reference"
        torch.testing.assert_close(gradient, want, rtol=0, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def attention_of(model: TranslationModel) -> Tensor | None:
    """The weights (B, T, S) of every step, or None."""
    batch = make_batch(SOURCES, TARGETS)
    memory = model.encode(batch.source_BS)
    state, columns = model.start(memory), []
    for tokens_B in batch.target_input_BT.unbind(1):
        _, state, weights_BS = model.step(tokens_B, state, memory, need_weights=True)
        columns.append(weights_BS)
    return None if columns[0] is None else torch.stack(columns, dim=1)
