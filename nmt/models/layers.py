"""Small parts that more than one model uses: dropout, positions, feed-forward, norms, residual connection, maxout.

Shapes: B batch, T positions, D model width, H heads, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.config import BlockConfig


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
        if x.device.type != "cpu" or torch.compiler.is_compiling():  # compiled, the draw is fused with what is around
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


class NoPositions(nn.Module):
    """Tells nothing of order; and what the other ways of telling it are made from.

    A way adds something to the embeddings (`embed`), or turns queries and keys (`rotate`), or neither.
    """

    def embed(self, x_BTD: Tensor, position_BT: Tensor, length: int) -> Tensor:
        """Embeddings at positions (B, T) or (1, T), counted from 0 and all below `length`, which the host knows."""
        return x_BTD

    def rotate(self, x_BHTK: Tensor, position_BT: Tensor) -> Tensor:
        """Queries or keys of self-attention at those positions."""
        return x_BHTK


class SinusoidalPositions(NoPositions):
    """The table of sinusoids, made longer when a longer sentence comes: no length is beyond it."""

    table_TD: Tensor

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table_TD", sinusoids(length, width).to(torch.get_default_dtype()), persistent=False)

    def embed(self, x_BTD: Tensor, position_BT: Tensor, length: int) -> Tensor:
        if length > len(self.table_TD):
            self.table_TD = sinusoids(2 * length, self.width).to(self.table_TD.device, self.table_TD.dtype)
        return x_BTD + self.table_TD[position_BT].to(x_BTD.dtype)


class LearnedPositions(NoPositions):
    """A trained vector a position (Gehring et al. 2017). What lies beyond the table shares its last entry."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)
        # As large as the sinusoids, next to embeddings of unit variance: smaller ones are drowned by them at first.
        nn.init.normal_(self.table.weight, std=math.sqrt(0.5))

    def embed(self, x_BTD: Tensor, position_BT: Tensor, length: int) -> Tensor:
        return x_BTD + self.table(position_BT.clamp(max=self.table.num_embeddings - 1))


class RotaryPositions(NoPositions):
    """Turns each pair of a query's or key's numbers by an angle that grows with its position, so that their product
    depends on the distance alone (Su et al. 2021, equation 34). Pairs are numbers K/2 apart."""

    frequency_K: Tensor

    def __init__(self, head_width: int) -> None:
        super().__init__()
        exponents = torch.arange(0, head_width, 2, dtype=torch.float64) / head_width
        self.register_buffer("frequency_K", (10_000.0**-exponents).to(torch.get_default_dtype()), persistent=False)

    def rotate(self, x_BHTK: Tensor, position_BT: Tensor) -> Tensor:
        angle_B1TK = (position_BT.unsqueeze(-1) * self.frequency_K).unsqueeze(1)
        cosine, sine = angle_B1TK.cos().to(x_BHTK.dtype), angle_B1TK.sin().to(x_BHTK.dtype)
        first, second = x_BHTK.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def build_positions(config: BlockConfig) -> NoPositions:
    """The way of telling order that the config names."""
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.width)
        case "learned":
            return LearnedPositions(config.width, config.max_positions)
        case "rotary":
            return RotaryPositions(config.width // config.heads)
        case "none":
            return NoPositions()
    raise ValueError(f"unknown positions {config.positions!r}")


class FeedForward(nn.Module):
    """f(x W_1 + b_1) W_2 + b_2 with f = max(0, ·) (Vaswani et al. 2017, equation 2) or GELU; dropout after f."""

    def __init__(self, width: int, inner: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.dropout = Dropout(dropout)
        self.activation = {"relu": torch.relu, "gelu": nn.functional.gelu}[activation]

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activation(self.expand(x_BTD))))


class GatedFeedForward(nn.Module):
    """(silu(x W) ∘ x V) W_2 (Shazeer 2020, equation 6, SwiGLU). Three matrices where `FeedForward` has two, so they
    are two thirds as wide for the same number of weights."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        inner = 8 * math.ceil(inner * 2 / 3 / 8)
        self.expand = nn.Linear(width, 2 * inner, bias=False)
        self.contract = nn.Linear(inner, width, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate, value = self.expand(x_BTD).chunk(2, dim=-1)
        return self.contract(self.dropout(nn.functional.silu(gate) * value))


def build_feed_forward(config: BlockConfig) -> nn.Module:
    """The feed-forward layer that the config names.

    Vaswani et al. 2017, section 5.4, drop what leaves a sub-layer and the embeddings, and nothing inside a sub-layer.
    """
    dropout = config.dropout if config.feed_forward_dropout is None else config.feed_forward_dropout
    if config.activation == "swiglu":
        return GatedFeedForward(config.width, config.feed_forward_size, dropout)
    return FeedForward(config.width, config.feed_forward_size, dropout, config.activation)


def build_norm(config: BlockConfig) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""
    return nn.LayerNorm(config.width) if config.normalization == "layer" else nn.RMSNorm(config.width, eps=1e-6)


def build_final_norm(config: BlockConfig) -> nn.Module:
    """With the norm before each sub-layer nothing else normalises the sum that leaves the last layer."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()


class Residual(nn.Module):
    """A sub-layer's residual connection: norm(x + dropout(f(x))) as published (post), or
    x + dropout(f(norm(x))) (pre)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def inner_input(self, x_BTD: Tensor) -> Tensor:
        """What the sub-layer sees of x."""
        return self.norm(x_BTD) if self.pre else x_BTD

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        total = x_BTD + self.dropout(sublayer(self.inner_input(x_BTD)))
        return total if self.pre else self.norm(total)


def maxout(x: Tensor) -> Tensor:
    """The greater of each pair of neighbours: (…, 2L) → (…, L) (Bahdanau et al. 2014, A.2.2)."""
    return x.unflatten(-1, (-1, 2)).amax(dim=-1)
