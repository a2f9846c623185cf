"""The LSTMN with deep fusion against the equations of Cheng et al. 2016; the tape as a value."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from equations import assert_conforms, softmax, vector, weighted_sum
from nmt.data.tokenizer import BOS, EOS
from nmt.models.intra_attention import LSTMN, IntraAttention, TapeScore
from tiny import tiny_model


def score(part: TapeScore, x: Tensor, state: Tensor, previous: Tensor) -> Tensor:
    """v · tanh(W_h h_i + W_x x_t + W_h̃ h̃_{t-1}) (equation 4).

    In section 4, b_j = u · tanh(W_γ γ_j + W_x x_t + W_γ̃ γ̃_{t-1}).
    """
    inner = part.key.weight @ state + part.input.weight @ x + part.input.bias + part.previous.weight @ previous
    return part.score.weight[0] @ torch.tanh(inner)


def lstmn(
    layer: LSTMN, x: Tensor, states: list[Tensor], cells: list[Tensor], previous: Tensor, fused: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Section 3.1: h_t, c_t and h̃_t; `fused` is r_t ∘ α̃_t of section 4."""
    h_tilde = c_tilde = torch.zeros(layer.hidden_size, dtype=torch.float64)
    if states:
        s = softmax([score(layer.intra, x, h, previous) for h in states])  # equation 5
        h_tilde, c_tilde = weighted_sum(s, states), weighted_sum(s, cells)  # equation 6
    w = torch.cat((layer.recurrent.weight, layer.input.weight), dim=1)
    gates = w @ torch.cat((h_tilde, x)) + layer.input.bias  # equation 7: W · [h̃_t, x_t]
    i, f, c_hat, o = gates.chunk(4)
    i, f, o, c_hat = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(c_hat)
    c = f * c_tilde + i * c_hat  # equation 8
    if fused is not None:
        c = fused + c  # section 4: c_t = r_t ∘ α̃_t + f_t ∘ c̃_t + i_t ∘ ĉ_t
    return o * torch.tanh(c), c, h_tilde  # equation 9


def cheng(model: IntraAttention, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """Sections 3.1 and 4."""
    encoder, decoder = model.encoder, model.decoder
    gamma: list[Tensor] = []
    alpha: list[Tensor] = []
    summary = torch.zeros(encoder.hidden_size, dtype=torch.float64)
    for piece in source:
        h, c, summary = lstmn(encoder, vector(model.embeddings.source, piece), gamma, alpha, summary)
        gamma.append(h)
        alpha.append(c)
    states: list[Tensor] = []
    cells: list[Tensor] = []
    weights: list[Tensor] = []
    summary = gamma_tilde = torch.zeros(decoder.hidden_size, dtype=torch.float64)
    w_r = torch.cat((decoder.fusion.weight, decoder.fusion_input.weight), dim=1)
    for piece in [BOS, *target[:-1]]:
        x = vector(model.embeddings.target, piece)
        p = softmax([score(model.inter, x, state, gamma_tilde) for state in gamma])  # b_j, and over all j
        gamma_tilde, alpha_tilde = weighted_sum(p, gamma), weighted_sum(p, alpha)
        r = torch.sigmoid(w_r @ torch.cat((gamma_tilde, x)) + decoder.fusion_input.bias)  # r_t = σ(W_r · [γ̃_t, x_t])
        h, c, summary = lstmn(decoder, x, states, cells, summary, r * alpha_tilde)
        states.append(h)
        cells.append(c)
        weights.append(p)
    return torch.stack(states), torch.stack(weights)


@pytest.mark.conformance
def test_hidden_states_weights_and_gradients_are_those_of_the_papers_equations() -> None:
    assert_conforms(tiny_model("intra_attention"), cheng)


def test_the_tape_grows_by_a_position_a_step_and_earlier_tapes_stay() -> None:
    model = tiny_model("intra_attention")
    assert isinstance(model, IntraAttention)
    memory = model.encode(torch.tensor([[5, 6, EOS], [7, EOS, 0]]))
    first = model.start(memory)
    _, second, _ = model.step(torch.tensor([BOS, BOS]), first, memory)
    _, third, _ = model.step(torch.tensor([4, 5]), second, memory)
    assert [state.tape.hidden_RTH.shape for state in (first, second, third)] == [(2, n, 8) for n in range(3)]
    assert torch.equal(third.tape.hidden_RTH[:, :1], second.tape.hidden_RTH)
    assert torch.equal(third.tape.cell_RTH[:, :1], second.tape.cell_RTH)
