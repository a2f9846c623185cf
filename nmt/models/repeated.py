"""Matrices that every time step multiplies with, and whose gradient is made once.

In y_t = x_t W the gradient of W is Σ_t x_tᵀ g_t, g_t being that of y_t. Autograd makes and adds a matrix as large as W
at every step; for a batch of a few sentences that costs more than all other products of the step. `Repeated` keeps the
factors until the backward pass has gone through all steps, and then makes one product, [x_1; x_2; …]ᵀ [g_1; g_2; …].
The same holds for what attention reads at every step: in c_t = α_t H the source states H are the matrix.

Shapes: … leading dimensions that are the same for x and W, R rows, K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Factors = list[tuple[Tensor, Tensor]]
"""For each step that the backward pass has gone through, x_t and the gradient of y_t."""


class Repeated:
    """One matrix (…, K, N) for the time steps of one batch: `repeated(x)` is x @ W, in value and gradient."""

    def __init__(self, weight: Tensor) -> None:
        device = weight.device.type
        if torch.is_autocast_enabled(device):  # once here instead of once a step
            weight = weight.to(torch.get_autocast_dtype(device))
        self.tracked = torch.is_grad_enabled() and weight.requires_grad
        self.factors: Factors = []
        self.weight = weight
        if self.tracked:
            self.weight = _Matrix.apply(weight, self.factors)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor) -> Tensor:
        """x @ W for x of shape (…, R, K)."""
        x = x.to(self.weight.dtype)
        if not self.tracked:
            return x @ self.weight
        product: Tensor = _Product.apply(x, self.weight, self.factors)  # type: ignore[no-untyped-call]
        return product


class _Matrix(Function):
    """W itself. Its backward pass comes after those of all products with it, since these have it for an input."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, factors: Factors) -> Tensor:
        ctx.factors = factors
        ctx.set_materialize_grads(False)
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        inputs, gradients = (torch.cat(parts, dim=-2) for parts in zip(*ctx.factors, strict=True))
        ctx.factors.clear()  # another backward pass through the same graph begins anew
        return inputs.transpose(-2, -1) @ gradients, None


class _Product(Function):
    """x @ W, which leaves the gradient of W to `_Matrix`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, factors: Factors) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        ctx.factors.append((x, gradient))
        return gradient @ weight.transpose(-2, -1) if ctx.needs_input_grad[0] else None, None, None
