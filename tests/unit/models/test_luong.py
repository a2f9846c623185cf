"""Luong's attention against the equations of the paper: every score with every window, with and without feeding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from equations import assert_conforms, recurrent_layers, softmax, vector, weighted_sum, zero_states
from nmt.config import LuongConfig
from nmt.data.tokenizer import BOS
from nmt.models.luong import Luong, luong_attention
from tiny import CONFIGS, MODELS, tiny_model

LUONG = [name for name in MODELS if CONFIGS[name].family == "luong"]


def score(config: LuongConfig, model: Luong, h: Tensor, annotations: list[Tensor], s: int) -> Tensor | None:
    """Section 3.1; None for a position beyond those that have a location score."""
    part = model.attention.score
    match config.score:
        case "dot":
            return h @ annotations[s]
        case "general":
            return h @ (part.key.weight @ annotations[s])
        case "concat":  # v_a · tanh(W_a [h_t; h_s])
            w_a = torch.cat((part.query.weight, part.key.weight), dim=1)
            return part.score.weight[0] @ torch.tanh(w_a @ torch.cat((h, annotations[s])))
        case "location":  # equation 8
            return part.position.weight[s] @ h if s < config.location_positions else None
    raise AssertionError(config.score)


def align(config: LuongConfig, model: Luong, t: int, h: Tensor, annotations: list[Tensor]) -> Tensor:
    """The weights a_t of step t (from 0) on every source position (from 0)."""
    length, width = len(annotations), config.window_size
    window = model.attention.window
    match config.window:
        case "global":
            centre, seen = None, list(range(length))
        case "local_m":  # section 3.2: p_t = t
            centre, seen = None, [s for s in range(length) if t - width <= s <= t + width]
        case "local_p":  # equation 9
            centre = length * torch.sigmoid(window.place.weight[0] @ torch.tanh(window.hidden.weight @ h))
            seen = [s for s in range(length) if centre - width <= s <= centre + width]
    scores = {s: score(config, model, h, annotations, s) for s in seen}
    scored = {s: value for s, value in scores.items() if value is not None}
    weights = [torch.zeros((), dtype=torch.float64)] * length
    if scored:
        for s, weight in zip(scored, softmax(list(scored.values())), strict=True):  # equation 7
            # Equation 10, with σ = D / 2
            factor = 1.0 if centre is None else torch.exp(-((s - centre) ** 2) / (2 * (width / 2) ** 2))
            weights[s] = weight * factor
    return torch.stack(weights)


@pytest.mark.conformance
@pytest.mark.parametrize("name", LUONG)
def test_hidden_states_weights_and_gradients_are_those_of_the_papers_equations(name: str) -> None:
    config = CONFIGS[name]
    assert isinstance(config, LuongConfig)

    def luong(model: Luong, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
        states = zero_states(model.encoder)
        annotations = []
        for piece in reversed(source) if config.reverse_source else source:
            states = recurrent_layers(model.encoder, vector(model.embeddings.source, piece), states)
            annotations.append(states[-1][0])
        if config.reverse_source:
            annotations.reverse()
        fed = torch.zeros(config.hidden_size, dtype=torch.float64)
        hidden, weights = [], []
        for t, piece in enumerate([BOS, *target[:-1]]):
            x = vector(model.embeddings.target, piece)
            if config.input_feeding:  # section 3.3
                x = torch.cat((x, fed))
            states = recurrent_layers(model.decoder, x, states)
            h = states[-1][0]
            weights.append(align(config, model, t, h, annotations))
            c = weighted_sum(weights[-1], annotations)
            fed = torch.tanh(model.combine.weight @ torch.cat((c, h)))  # equation 5
            hidden.append(fed)
        return torch.stack(hidden), torch.stack(weights)

    assert_conforms(tiny_model(name), luong)


def test_unknown_scores_and_windows_are_faults_of_the_program() -> None:
    with pytest.raises(ValueError, match="'cosine'"):
        luong_attention(LuongConfig("luong", "tiny", score="cosine"))
    with pytest.raises(ValueError, match="'local'"):
        luong_attention(LuongConfig("luong", "tiny", window="local"))
