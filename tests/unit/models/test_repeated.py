"""Matrices that every step multiplies with: value and gradient of the plain product, the gradient made once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.models.repeated import Repeated

STEPS = 4


def recurrence(product: Callable[[Tensor], Tensor], first: Tensor, back: Tensor) -> Tensor:
    """A loss after several steps h' = tanh(h W) V, in which every state enters as well."""
    hidden, states = first, []
    for _ in range(STEPS):
        hidden = torch.tanh(product(hidden)) @ back
        states.append(hidden)
    return torch.stack(states).sin().sum()


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7)], ids=["matrix", "matrices"])
def test_value_and_gradients_are_those_of_the_plain_product(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    first = torch.randn(*shape[:-2], 3, 5, dtype=torch.float64, requires_grad=True)
    back = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    plain = recurrence(lambda x: x @ weight, first, back)
    expected = torch.autograd.grad(plain, (weight, first, back))
    loss = recurrence(Repeated(weight), first, back)
    assert torch.equal(loss, plain)
    for _ in range(2):  # going back through the same graph again gives the same, not twice as much
        found = torch.autograd.grad(loss, (weight, first, back), retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert expected[0].abs().max() > 1e-2


def test_a_view_and_what_was_computed_have_their_gradients_too() -> None:
    """The recurrent matrices are transposed views, the source states the result of an encoder."""
    torch.manual_seed(1)
    raw, x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(2, 3, dtype=torch.float64)
    repeated = Repeated(raw.exp().t())
    (repeated(x) * repeated(2 * x)).sum().backward()
    found, raw.grad = raw.grad, None
    ((x @ raw.exp().t()) * (2 * x @ raw.exp().t())).sum().backward()
    torch.testing.assert_close(found, raw.grad, rtol=0, atol=1e-12)


def test_the_gradient_is_one_product_whatever_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(5, 5, requires_grad=True)
    loss = recurrence(Repeated(weight), torch.randn(3, 5), torch.eye(5))
    with torch.profiler.profile() as recorded:
        loss.backward()
    shaped = [event for event in recorded.events() if event.name == "aten::cat"]
    assert len(shaped) == 2, "the inputs and the gradients of all steps"
    products = sum(event.name == "aten::mm" for event in recorded.events())
    assert products == 1 + (STEPS - 1) + STEPS, "one for W; back to the state before, but for the first; V's"


def test_a_matrix_that_no_step_used_has_no_gradient() -> None:
    weight, other = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
    Repeated(weight)
    Repeated(other)(torch.randn(1, 2)).sum().backward()
    assert weight.grad is None
    assert other.grad is not None


def test_nothing_is_kept_where_no_gradient_is_wanted() -> None:
    weight = torch.randn(2, 2, requires_grad=True)
    with torch.no_grad():
        repeated = Repeated(weight)
        assert torch.equal(repeated(torch.eye(2)), weight)
    assert repeated.factors == []
    assert repeated.weight is weight


def test_lower_precision_is_that_of_the_plain_product() -> None:
    torch.manual_seed(1)
    weight, x = torch.randn(6, 6, requires_grad=True), torch.randn(3, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found, plain = Repeated(weight)(x), x @ weight
    assert torch.equal(found, plain)
    assert found.dtype == torch.bfloat16
    gradients, expected = (torch.autograd.grad(y.float().square().sum(), (weight, x)) for y in (found, plain))
    torch.testing.assert_close(gradients, expected)
    assert gradients[0].dtype == torch.float32
