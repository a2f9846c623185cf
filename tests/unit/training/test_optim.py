"""Schedules by hand-computed values, the first step of an optimizer of every name, and the average of weights."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nmt.config import OptimizerConfig, ScheduleConfig
from nmt.training.optim import WeightAverage, build_optimizer, build_schedule
from tiny import MODELS, tiny_model

NAMES = ["constant", "inverse_sqrt", "linear", "cosine", "halving"]


def shares(steps: list[int], max_steps: int | None = None, **keys: object) -> list[float]:
    schedule = build_schedule(ScheduleConfig(**keys), max_steps)
    return [schedule(step) for step in steps]


# Schedules -------------------------------------------------------------------------------------------------------


def test_constant() -> None:
    assert shares([1, 7, 10_000], name="constant", warmup=0) == [1, 1, 1]
    assert shares([1, 5, 10, 11], name="constant", warmup=10) == [0.1, 0.5, 1, 1]


@pytest.mark.conformance
def test_inverse_square_root_is_the_papers_up_to_its_peak() -> None:
    """Vaswani et al. 2017, equation 3: d^-0.5 · min(step^-0.5, step · warmup^-1.5), which peaks at step = warmup."""
    warmup, steps = 4_000, [1, 100, 3_999, 4_000, 4_001, 16_000, 100_000]
    peak = warmup**-0.5
    expected = [min(step**-0.5, step * warmup**-1.5) / peak for step in steps]
    assert shares(steps, name="inverse_sqrt", warmup=warmup) == pytest.approx(expected, rel=1e-12)
    assert shares([1, 4, 100], name="inverse_sqrt", warmup=0) == pytest.approx([1, 0.5, 0.1])


def test_linear_and_cosine_end_at_the_floor() -> None:
    steps = [5, 10, 20, 35, 60, 61, 1_000]
    linear = shares(steps, name="linear", warmup=10, total=60, floor=0.1)
    assert linear == pytest.approx([0.5, 1, 0.82, 0.55, 0.1, 0.1, 0.1])
    cosine = shares(steps, name="cosine", warmup=10, total=60, floor=0.1)
    at_20 = 0.1 + 0.45 * (1 + math.cos(math.pi * 0.2))
    assert cosine == pytest.approx([0.5, 1, at_20, 0.55, 0.1, 0.1, 0.1])
    assert shares([20], max_steps=60, name="linear", warmup=10) == pytest.approx([0.8])
    assert shares([20], max_steps=60, name="linear", warmup=10, total=30) == pytest.approx([0.5])


@pytest.mark.conformance
def test_halving_begins_after_its_start() -> None:
    """Luong et al. 2015, section 4.1: after five epochs, half of it each epoch; an epoch of 100 steps here."""
    expected = [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125]
    got = shares([1, 500, 501, 600, 601, 700, 701], name="halving", warmup=0, start=500, interval=100)
    assert got == expected


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_shape_with_an_end_needs_one(name: str) -> None:
    with pytest.raises(ValueError, match=r"schedule\.total or trainer\.max_steps"):
        build_schedule(ScheduleConfig(name=name), None)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'cubic'"):
        build_schedule(ScheduleConfig(name="cubic"), 10)
    with pytest.raises(ValueError, match="'lion'"):
        build_optimizer(OptimizerConfig(name="lion"), nn.Linear(1, 1))


@given(st.sampled_from(NAMES), st.integers(0, 300), st.integers(1, 1_000), st.floats(0, 1), st.integers(1, 2_000))
@settings(max_examples=150, deadline=None)
def test_a_share_is_between_zero_and_one_and_joins_the_warm_up(
    name: str, warmup: int, total: int, floor: float, step: int
) -> None:
    config = ScheduleConfig(name=name, warmup=warmup, total=max(total, warmup + 1), floor=floor, start=warmup)
    schedule = build_schedule(config, None)
    assert 0 <= schedule(step) <= 1
    if 0 < step <= warmup:
        assert schedule(step) == pytest.approx(step / warmup)
    else:
        assert schedule(step + 1) <= schedule(step) + 1e-12  # after the warm-up it never rises
    if warmup:
        assert schedule(warmup) == pytest.approx(1)


# Optimizers ------------------------------------------------------------------------------------------------------


def one_step(config: OptimizerConfig, gradient: float = 2.0) -> float:
    """Where a weight of 1 is after one step."""
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = build_optimizer(config, model)
    model.weight.grad = torch.full_like(model.weight, gradient)
    optimizer.step()
    return model.weight.item()


def test_the_first_step_of_each_optimizer() -> None:
    assert one_step(OptimizerConfig("sgd", lr=0.1)) == pytest.approx(1 - 0.1 * 2)
    assert one_step(OptimizerConfig("sgd", lr=0.1, weight_decay=0.5)) == pytest.approx(1 - 0.1 * 2.5)
    # Adam (Kingma & Ba 2015, algorithm 1): bias-corrected, so the first step is the rate times the gradient's sign.
    assert one_step(OptimizerConfig("adam", lr=0.1)) == pytest.approx(0.9)
    assert one_step(OptimizerConfig("adam", lr=0.1, epsilon=2.0)) == pytest.approx(1 - 0.1 * 2 / (2 + 2))
    # Decoupled decay (Loshchilov & Hutter 2019, algorithm 2) shrinks by rate times decay, whatever the gradient.
    assert one_step(OptimizerConfig("adamw", lr=0.1, weight_decay=0.5)) == pytest.approx(0.95 - 0.1)
    # Adadelta (Zeiler 2012, algorithm 1): the first step is √ε / √((1 - ρ) g² + ε) · g.
    config = OptimizerConfig("adadelta", lr=1.0, rho=0.9, epsilon=1e-6)
    assert one_step(config) == pytest.approx(1 - 2 * math.sqrt(1e-6) / math.sqrt(0.1 * 4 + 1e-6))


def test_momentum_and_betas_reach_the_update() -> None:
    """The second step tells them: the gradient of the first is remembered."""
    for config, expected in (
        (OptimizerConfig("sgd", lr=0.1, momentum=0.5), -0.1 * 0.5 * 2),
        (OptimizerConfig("adam", lr=0.1, beta1=0.5, beta2=0.25, epsilon=1e-12), None),
    ):
        model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        optimizer = build_optimizer(config, model)
        for gradient in (2.0, 0.0):
            before = model.weight.item()
            model.weight.grad = torch.full_like(model.weight, gradient)
            optimizer.step()
        if expected is None:
            mean = 0.5 * 0.5 * 2 / (1 - 0.5**2)
            square = 0.25 * 0.75 * 4 / (1 - 0.25**2)
            expected = -0.1 * mean / math.sqrt(square)
        assert model.weight.item() - before == pytest.approx(expected)


@pytest.mark.parametrize("name", MODELS)
def test_decoupled_decay_spares_biases_and_norms_and_nothing_else(name: str) -> None:
    model = tiny_model(name)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    optimizer = build_optimizer(OptimizerConfig("adamw", lr=0.1, weight_decay=0.5), model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, parameter in model.named_parameters():
        vector = "bias" in key.rsplit(".", 1)[-1] or "norm" in key
        torch.testing.assert_close(parameter.detach(), before[key] * (1 if vector else 0.95), msg=key)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "adadelta"])
def test_every_parameter_of_a_model_is_in_the_optimizer_once(name: str) -> None:
    model = tiny_model("bahdanau", embedding_size=5, tie_embeddings=True, source_vocabulary=11)
    optimizer = build_optimizer(OptimizerConfig(name, lr=0.05), model)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, model.parameters()))
    assert all(group["lr"] == 0.05 for group in optimizer.param_groups)


# Average ---------------------------------------------------------------------------------------------------------


def test_the_average_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = WeightAverage(model.parameters(), decay=0.5)
    with torch.no_grad():
        model.weight.fill_(2.0)
    average.update(1)  # decay 2/11, below 0.5
    assert average.averages[0].item() == pytest.approx(2 / 11 * 1 + 9 / 11 * 2)
    held = average.averages[0].item()
    average.update(1_000)  # decay 0.5
    assert average.averages[0].item() == pytest.approx(0.5 * held + 0.5 * 2)
    assert model.weight.item() == 2


@pytest.mark.parametrize("name", ["bahdanau", "transformer-post"])
def test_swapping_twice_is_the_identity_to_the_bit(name: str) -> None:
    model = tiny_model(name, dtype=torch.float32)
    average = WeightAverage(model.parameters(), decay=0.9)
    for step in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1).add_(0.01)
        average.update(step)
    weights = [p.detach().clone() for p in model.parameters()]
    averages = [a.clone() for a in average.averages]
    places = [p.data_ptr() for p in model.parameters()]
    average.swap()
    assert all(torch.equal(p, a) for p, a in zip(model.parameters(), averages, strict=True))
    assert any(not torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    average.swap()
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(average.averages, averages, strict=True))
    assert places == [p.data_ptr() for p in model.parameters()]


def test_a_tied_matrix_is_averaged_and_swapped_once() -> None:
    model = tiny_model("transformer-post", tie_embeddings=True, source_vocabulary=11)
    average = WeightAverage(model.parameters(), decay=0.9)
    assert len(average.averages) == len(dict(model.named_parameters()))
    before = model.output.weight.detach().clone()
    with torch.no_grad():
        model.output.weight.add_(1.0)
    average.swap()
    assert torch.equal(model.embeddings.source.weight, before)


def test_an_average_of_constant_weights_is_those_weights() -> None:
    model = tiny_model("bahdanau", dtype=torch.float32)
    average = WeightAverage(model.parameters(), decay=0.999)
    for step in range(1, 50):
        average.update(step)
    assert all(torch.equal(a, p) for a, p in zip(average.averages, model.parameters(), strict=True))
