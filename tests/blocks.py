"""A Transformer's layers by their papers' equations, every option: one sentence, one head, one position at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from equations import softmax, vector, weighted_sum
from nmt.config import BlockConfig
from nmt.models.attention import MultiHeadAttention
from nmt.models.layers import FeedForward, GatedFeedForward, NoPositions, Residual


def sinusoid(t: int, width: int) -> Tensor:
    """Vaswani et al. 2017, section 3.5."""
    return torch.tensor(
        [(math.cos if d % 2 else math.sin)(t / 10_000 ** (d // 2 * 2 / width)) for d in range(width)],
        dtype=torch.float64,
    )


def embed(
    config: BlockConfig, positions: NoPositions, table: nn.Embedding, pieces: list[int], first: int = 0
) -> list[Tensor]:
    """Vaswani et al. 2017, sections 3.4 and 3.5; Gehring et al. 2017, section 3.1 (learned)."""
    embedded = [vector(table, piece) for piece in pieces]
    match config.positions:
        case "sinusoidal":
            return [x + sinusoid(first + t, config.width) for t, x in enumerate(embedded)]
        case "learned":
            return [x + positions.table.weight[first + t] for t, x in enumerate(embedded)]
    return embedded


def turn(config: BlockConfig, x: Tensor, t: int) -> Tensor:
    """Su et al. 2021, equations 14 and 15: the pair of numbers i and i + K/2, turned by t · 10000^(-2i/K)."""
    if config.positions != "rotary":
        return x
    half = len(x) // 2
    turned = list(x)
    for i in range(half):
        angle = t * 10_000 ** (-2 * i / len(x))
        turned[i] = math.cos(angle) * x[i] - math.sin(angle) * x[i + half]
        turned[i + half] = math.sin(angle) * x[i] + math.cos(angle) * x[i + half]
    return torch.stack(turned)


def normalize(norm: nn.Module, x: Tensor) -> Tensor:
    """Ba et al. 2016, equation 4; Zhang & Sennrich 2019, equation 4."""
    if isinstance(norm, nn.RMSNorm):
        return norm.weight * x / torch.sqrt((x**2).sum() / len(x) + norm.eps)
    mean = x.sum() / len(x)
    variance = ((x - mean) ** 2).sum() / len(x)
    return norm.weight * (x - mean) / torch.sqrt(variance + norm.eps) + norm.bias


def attend(
    config: BlockConfig,
    attention: MultiHeadAttention,
    queries: dict[int, Tensor],
    keys: dict[int, Tensor],
    visible: dict[int, list[int]],
    turned: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Vaswani et al. 2017, equation 1 and section 3.2.2; Ainslie et al. 2023, section 2.2, for groups of heads.

    Args:
        queries, keys: what stands at each position.
        visible: the positions that each query may look at.
        turned: whether queries and keys are turned by their positions.

    Returns:
        for each query what it gathers, and its weights (H, visible).
    """
    size, groups = config.width // config.heads, config.kv_heads or config.heads
    w_k, w_v = attention.key_value.weight.chunk(2)
    b_k, b_v = attention.key_value.bias.chunk(2)
    gathered, weights = [], []
    for t, query in queries.items():
        heads, found = [], []
        for head in range(config.heads):
            rows = slice(head * size, (head + 1) * size)
            group = head // (config.heads // groups)
            shared = slice(group * size, (group + 1) * size)
            q = attention.query.weight[rows] @ query + attention.query.bias[rows]
            ks = {s: w_k[shared] @ keys[s] + b_k[shared] for s in visible[t]}
            if turned:
                q, ks = turn(config, q, t), {s: turn(config, k, s) for s, k in ks.items()}
            found.append(softmax([q @ k / math.sqrt(size) for k in ks.values()]))
            heads.append(weighted_sum(found[-1], [w_v[shared] @ keys[s] + b_v[shared] for s in visible[t]]))
        gathered.append(attention.output.weight @ torch.cat(heads) + attention.output.bias)
        weights.append(torch.stack(found))
    return gathered, weights


def feed_forward(config: BlockConfig, layer: FeedForward | GatedFeedForward, x: Tensor) -> Tensor:
    """Vaswani et al. 2017, equation 2; Hendrycks & Gimpel 2016, section 2 (gelu); Shazeer 2020, equation 6 (swiglu)."""
    if config.activation == "swiglu":
        w, v = layer.expand.weight.chunk(2)
        gate = w @ x
        return layer.contract.weight @ (gate / (1 + torch.exp(-gate)) * (v @ x))
    inner = layer.expand.weight @ x + layer.expand.bias
    if config.activation == "gelu":
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    else:
        inner = torch.clamp(inner, min=0)
    return layer.contract.weight @ inner + layer.contract.bias


def before(config: BlockConfig, around: Residual, xs: list[Tensor]) -> list[Tensor]:
    """What the sub-layer sees."""
    return [normalize(around.norm, x) for x in xs] if config.norm == "pre" else xs


def after(config: BlockConfig, around: Residual, xs: list[Tensor], additions: list[Tensor]) -> list[Tensor]:
    """What leaves the residual connection (Vaswani et al. 2017, section 3.1)."""
    sums = [x + addition for x, addition in zip(xs, additions, strict=True)]
    return sums if config.norm == "pre" else [normalize(around.norm, x) for x in sums]


def at(xs: list[Tensor], first: int = 0) -> dict[int, Tensor]:
    """The vectors by their positions."""
    return dict(enumerate(xs, start=first))


def shown(config: BlockConfig, weights_HS: Tensor) -> Tensor:
    """The head that the config names, or the mean of all."""
    head = config.alignment_head
    return weights_HS.sum(dim=0) / len(weights_HS) if head is None else weights_HS[head]
