"""Small parts that more than one model uses: positions, feed-forward, residual connection, maxout.

Shapes: B batch, T positions, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Sets a share p of the activations to zero in training and scales the others by 1 / (1 - p).

    On a CPU, PyTorch draws a number for every element, which is a fifth of a small Transformer's training time. Here
    each 64-bit number of the same generator decides for four elements, 16 bits each: p is met to 1/65,536 (0.3 becomes
    0.300003), and the scale is that of the p that is met, so that the expectation is exact.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        dropped = min(round(self.p * 65_536), 65_535)
        bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 32_768
        return x * kept.to(x.dtype).mul_(65_536 / (65_536 - dropped))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def sinusoids(length: int, width: int) -> Tensor:
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) its cosine (Vaswani et al. 2017, section 3.5): (length, D)."""
    frequencies = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles[:, : width // 2].cos()
    return table


class SinusoidalPositions(nn.Module):
    """The table of sinusoids, made longer when a longer sentence comes: no length is beyond it."""

    table_TD: Tensor

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table_TD", sinusoids(length, width).to(torch.get_default_dtype()), persistent=False)

    def forward(self, first: int, length: int) -> Tensor:
        """Encodings (length, D) of the positions from `first` on."""
        if first + length > len(self.table_TD):
            longer = sinusoids(2 * (first + length), self.width)
            self.table_TD = longer.to(self.table_TD.device, self.table_TD.dtype)
        return self.table_TD[first : first + length]


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (Vaswani et al. 2017, equation 2), dropout on the inner layer."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.contract(self.dropout(torch.relu(self.expand(x_BTD))))


class Residual(nn.Module):
    """A sub-layer's residual connection: LayerNorm(x + dropout(f(x))) as published (post), or
    x + dropout(f(LayerNorm(x))) (pre)."""

    def __init__(self, width: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def inner_input(self, x_BTD: Tensor) -> Tensor:
        """What the sub-layer sees of x."""
        return self.norm(x_BTD) if self.pre else x_BTD

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        total = x_BTD + self.dropout(sublayer(self.inner_input(x_BTD)))
        return total if self.pre else self.norm(total)


def maxout(x: Tensor) -> Tensor:
    """The greater of each pair of neighbours: (…, 2L) → (…, L) (Bahdanau et al. 2014, A.2.2)."""
    return x.unflatten(-1, (-1, 2)).amax(dim=-1)
