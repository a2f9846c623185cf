"""The chunked loss against the formula over all logits at once, with its gradients; and what must not move it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from nmt.data.tokenizer import PAD
from nmt.models.base import OutputProjection
from nmt.training import loss as loss_module
from nmt.training.loss import LossSums, label_smoothed_loss

WIDTH, VOCABULARY = 5, 9
TARGETS_BT = torch.tensor([[4, 7, 3, PAD], [1, 3, PAD, PAD], [8, 8, 2, 3]])


def projection(dtype: torch.dtype = torch.float64, seed: int = 1) -> OutputProjection:
    output = OutputProjection(WIDTH, VOCABULARY, None).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in output.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return output


def hidden_states(dtype: torch.dtype = torch.float64, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*TARGETS_BT.shape, WIDTH, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def plain(hidden_BTD: Tensor, output: OutputProjection, targets_BT: Tensor, smoothing: float) -> LossSums:
    """Szegedy et al. 2016, section 7, position by position: q(k) = (1 - ε)·[k = y] + ε / C over the C real classes."""
    loss = cross_entropy = torch.zeros((), dtype=hidden_BTD.dtype)
    correct = 0
    for hidden_D, target in zip(hidden_BTD.flatten(0, 1), targets_BT.flatten().tolist(), strict=True):
        if target == PAD:
            continue
        log_probabilities_C = F.log_softmax(output(hidden_D)[1:], dim=0)
        q_C = torch.full_like(log_probabilities_C, smoothing / (VOCABULARY - 1))
        q_C[target - 1] += 1 - smoothing
        loss = loss - (q_C * log_probabilities_C).sum()
        cross_entropy = cross_entropy - log_probabilities_C[target - 1]
        correct += int(log_probabilities_C.argmax() == target - 1)
    return LossSums(loss, cross_entropy.detach(), torch.tensor(float(correct), dtype=hidden_BTD.dtype))


def gradients(sums: LossSums, hidden_BTD: Tensor, output: OutputProjection) -> tuple[Tensor, ...]:
    return torch.autograd.grad(sums.loss / 7, [hidden_BTD, output.weight, output.bias])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("rows", [1, 2, 3, 9, 1000])
def test_chunks_make_the_plain_loss_and_its_gradients(
    smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_BYTES", rows * 4 * (VOCABULARY - 1))
    hidden_BTD, output = hidden_states(), projection()
    actual, expected = (f(hidden_BTD, output, TARGETS_BT, smoothing) for f in (label_smoothed_loss, plain))
    for name in ("loss", "cross_entropy", "correct"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=0, atol=1e-11)
    wanted = gradients(expected, hidden_BTD, output)
    for gradient, want in zip(gradients(actual, hidden_BTD, output), wanted, strict=True):
        torch.testing.assert_close(gradient, want, rtol=0, atol=1e-11)
    assert torch.all(wanted[0][TARGETS_BT == PAD] == 0)


def test_a_chunk_smaller_than_one_position_is_one_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_BYTES", 1)
    hidden_BTD, output = hidden_states(), projection()
    actual, expected = (f(hidden_BTD, output, TARGETS_BT, 0.1) for f in (label_smoothed_loss, plain))
    torch.testing.assert_close(actual.loss, expected.loss)


def test_by_hand() -> None:
    """Two real classes with probabilities 3/4 and 1/4, ε = 0.2: q = (0.9, 0.1)."""
    output = OutputProjection(1, 3, torch.tensor([[5.0], [0.0], [0.0]]))
    with torch.no_grad():
        output.bias.copy_(torch.tensor([50.0, 3.0, 1.0]).log())
    sums = label_smoothed_loss(torch.ones(1, 2, 1), output, torch.tensor([[1, 2]]), 0.2)
    high, low = torch.tensor([0.75, 0.25]).log()
    torch.testing.assert_close(sums.loss, -(0.9 * high + 0.1 * low) - (0.1 * high + 0.9 * low))
    torch.testing.assert_close(sums.cross_entropy, -(high + low))
    assert sums.correct.item() == 1


def test_without_smoothing_loss_is_cross_entropy_and_pytorchs() -> None:
    hidden_BTD, output = hidden_states(), projection()
    sums = label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.0)
    assert sums.loss.item() == sums.cross_entropy.item()
    logits_BTC = output(hidden_BTD)[..., 1:]
    expected = F.cross_entropy(logits_BTC.flatten(0, 1), TARGETS_BT.flatten() - 1, ignore_index=-1, reduction="sum")
    torch.testing.assert_close(sums.loss, expected)


@given(st.floats(0, 0.9), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_no_loss_is_below_the_entropy_of_the_smoothed_truth(smoothing: float, seed: int) -> None:
    sums = label_smoothed_loss(hidden_states(seed=seed), projection(), TARGETS_BT, smoothing)
    q_C = torch.full((VOCABULARY - 1,), smoothing / (VOCABULARY - 1), dtype=torch.float64)
    q_C[0] += 1 - smoothing
    entropy = -torch.xlogy(q_C, q_C).sum()
    assert sums.loss >= entropy * int((TARGETS_BT != PAD).sum()) - 1e-9


@pytest.mark.case
@pytest.mark.invariant
def test_the_logit_of_padding_moves_nothing() -> None:
    """PyTorch's own loss gives the padding class its share of the smoothing."""
    results = []
    for logit in (0.0, 100.0, -100.0):
        hidden_BTD, output = hidden_states(), projection()
        with torch.no_grad():
            output.bias[PAD] = logit
            output.weight[PAD] = logit
        sums = label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.1)
        results.append((sums.loss.detach(), sums.correct, *gradients(sums, hidden_BTD, output)))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    _, _, _, weight_gradient_VD, bias_gradient_V = results[0]
    assert torch.all(weight_gradient_VD[PAD] == 0)
    assert bias_gradient_V[PAD] == 0


@pytest.mark.invariant
def test_hidden_states_at_padding_move_nothing() -> None:
    hidden_BTD, output = hidden_states(), projection()
    other_BTD = hidden_BTD.detach().masked_fill((TARGETS_BT == PAD).unsqueeze(-1), float("nan")).requires_grad_()
    first, second = (label_smoothed_loss(h, output, TARGETS_BT, 0.1) for h in (hidden_BTD, other_BTD))
    assert first.loss.item() == second.loss.item()
    first_gradients, second_gradients = gradients(first, hidden_BTD, output), gradients(second, other_BTD, output)
    assert all(torch.equal(a, b) for a, b in zip(first_gradients, second_gradients, strict=True))


@pytest.mark.case
@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_a_batch_of_padding_has_loss_zero_and_gradient_zero(shape: tuple[int, int]) -> None:
    hidden_BTD, output = torch.randn(*shape, WIDTH, requires_grad=True, dtype=torch.float64), projection()
    sums = label_smoothed_loss(hidden_BTD, output, torch.full(shape, PAD), 0.1)
    assert [sums.loss.item(), sums.cross_entropy.item(), sums.correct.item()] == [0, 0, 0]
    assert all(torch.all(gradient == 0) for gradient in gradients(sums, hidden_BTD, output))


@pytest.mark.invariant
def test_the_sums_of_a_batch_are_those_of_its_parts() -> None:
    hidden_BTD, output = hidden_states(), projection()
    together = label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.1)
    alone = [label_smoothed_loss(hidden_BTD[b : b + 1], output, TARGETS_BT[b : b + 1], 0.1) for b in range(3)]
    torch.testing.assert_close(together.loss, torch.stack([sums.loss for sums in alone]).sum())
    torch.testing.assert_close(together.correct, torch.stack([sums.correct for sums in alone]).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_the_numerical_ones(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_BYTES", 2 * 4 * (VOCABULARY - 1))
    output = projection()

    def scaled_loss(hidden_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor) -> Tensor:
        other = OutputProjection(WIDTH, VOCABULARY, weight_VD)
        other.bias = None  # a plain tensor in place of the parameter, which gradcheck moves
        other.__dict__["bias"] = bias_V
        return label_smoothed_loss(hidden_BTD, other, TARGETS_BT, smoothing).loss * 0.3

    inputs = (hidden_states(), output.weight.detach().requires_grad_(), output.bias.detach().requires_grad_())
    assert torch.autograd.gradcheck(scaled_loss, inputs)


def test_a_tied_matrix_gets_the_gradients_of_both_its_uses() -> None:
    table = torch.nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD, dtype=torch.float64)
    output = OutputProjection(WIDTH, VOCABULARY, table.weight).double()
    read_BT = TARGETS_BT.roll(1, dims=1)
    for step in (label_smoothed_loss, plain):
        table.weight.grad = None
        step(torch.tanh(table(read_BT)), output, TARGETS_BT, 0.1).loss.backward()
        if step is label_smoothed_loss:
            actual = table.weight.grad.clone()
    torch.testing.assert_close(actual, table.weight.grad, rtol=0, atol=1e-11)


def test_bfloat16_hidden_states_meet_float32_weights() -> None:
    """What autocast hands over: sums and weight gradients stay float32, the hidden gradient is bfloat16."""
    hidden_BTD, output = hidden_states(torch.bfloat16), projection(torch.float32)
    sums = label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.1)
    got = gradients(sums, hidden_BTD, output)
    assert sums.loss.dtype == torch.float32
    assert [gradient.dtype for gradient in got] == [torch.bfloat16, torch.float32, torch.float32]
    exact_BTD, exact = hidden_states(), projection()
    wanted = plain(exact_BTD, exact, TARGETS_BT, 0.1)
    assert sums.loss.item() == pytest.approx(wanted.loss.item(), rel=0.02)
    for gradient, want in zip(got, gradients(wanted, exact_BTD, exact), strict=True):
        assert (gradient.double() - want).norm() < 0.03 * want.norm()


def test_without_gradients_the_sums_are_the_same() -> None:
    hidden_BTD, output = hidden_states(), projection()
    with torch.no_grad():
        quiet = label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.1)
    assert quiet.loss.item() == label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.1).loss.item()
    assert not quiet.loss.requires_grad


def test_only_the_loss_has_a_gradient() -> None:
    sums = label_smoothed_loss(hidden_states(), projection(), TARGETS_BT, 0.1)
    assert sums.loss.requires_grad
    assert not sums.cross_entropy.requires_grad
    assert not sums.correct.requires_grad


def test_logits_far_apart_stay_finite() -> None:
    hidden_BTD, output = hidden_states(torch.float32), projection(torch.float32)
    with torch.no_grad():
        output.bias[3], output.bias[4] = 1e4, -1e4
    sums = label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.1)
    assert torch.isfinite(sums.loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(sums, hidden_BTD, output))


def test_without_gradients_the_loss_costs_one_product() -> None:
    """Validation asks for none, and the other two products are what makes them."""
    output, hidden_BTD = projection(), hidden_states()
    with FlopCounterMode(display=False) as learning:
        label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.0)
    with torch.no_grad(), FlopCounterMode(display=False) as validating:
        label_smoothed_loss(hidden_BTD, output, TARGETS_BT, 0.0)
    positions = int((TARGETS_BT != PAD).sum())
    assert validating.get_total_flops() == 2 * positions * WIDTH * (VOCABULARY - 1)
    assert learning.get_total_flops() >= 3 * validating.get_total_flops()
