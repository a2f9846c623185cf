"""The three ways of looking back that the project is about, next to each other.

    additive        v · tanh(W q + U k)         Bahdanau et al. 2014, section A.1.2
    multiplicative  q · k   or   q · W k        Luong et al. 2015, equation 8 (dot, general)
    scaled          q · k / √K, many heads      Vaswani et al. 2017, equation 1

The first two take N queries a sentence, so that in beam search the hypotheses of a sentence share its keys. The third
goes through PyTorch's fused kernel; a plain version of the same formula serves where weights are asked for, and the
tests hold the two together.

Shapes: B batch, N queries a sentence, S source positions, Q queries, A width of the additive score, D model width,
H heads, K head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def masked_softmax(scores_BNS: Tensor, mask_BS: Tensor) -> Tensor:
    """Weights that sum to one over real positions and are exactly zero on padding.

    A sentence that is padding only gets zeros, not NaN: softmax over -inf alone is undefined, so the fill is finite
    and the padding is zeroed afterwards.
    """
    mask_B1S = mask_BS.unsqueeze(1)
    weights = scores_BNS.masked_fill(~mask_B1S, torch.finfo(scores_BNS.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~mask_B1S, 0.0)


class AdditiveAttention(nn.Module):
    """e_ij = v · tanh(W s_{i-1} + U h_j); α = softmax(e); c_i = Σ_j α_ij h_j (Bahdanau et al. 2014, A.1.2)."""

    def __init__(self, query_size: int, state_size: int, attention_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, attention_size, bias=False)
        self.key = nn.Linear(state_size, attention_size)
        self.score = nn.Linear(attention_size, 1, bias=False)

    def project_keys(self, states_BSD: Tensor) -> Tensor:
        """U h_j for every source position (B, S, A). It does not depend on the target, so once a sentence."""
        return self.key(states_BSD)

    def forward(
        self, query_BND: Tensor, keys_BSA: Tensor, states_BSD: Tensor, mask_BS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Context vectors (B, N, D) and weights (B, N, S)."""
        hidden_BNSA = torch.tanh(self.query(query_BND).unsqueeze(2) + keys_BSA.unsqueeze(1))
        weights_BNS = masked_softmax(self.score(hidden_BNSA).squeeze(-1), mask_BS)
        return weights_BNS @ states_BSD, weights_BNS


class MultiplicativeAttention(nn.Module):
    """score(h_t, h_s) = h_t · h_s (dot) or h_t · W h_s (general) (Luong et al. 2015, equations 7 and 8)."""

    def __init__(self, query_size: int, state_size: int, score: str) -> None:
        super().__init__()
        if score not in ("dot", "general"):
            raise ValueError(f"unknown score {score!r}")
        if score == "dot" and query_size != state_size:
            raise ValueError("the dot score compares vectors of one size")
        self.key = nn.Linear(state_size, query_size, bias=False) if score == "general" else None

    def project_keys(self, states_BSD: Tensor) -> Tensor:
        """W h_s for every source position, once a sentence."""
        return states_BSD if self.key is None else self.key(states_BSD)

    def forward(
        self, query_BND: Tensor, keys_BSD: Tensor, states_BSD: Tensor, mask_BS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Context vectors (B, N, D) and weights (B, N, S)."""
        weights_BNS = masked_softmax(query_BND @ keys_BSD.transpose(1, 2), mask_BS)
        return weights_BNS @ states_BSD, weights_BNS


def scaled_dot_product(
    query_BHQK: Tensor,
    key_BHSK: Tensor,
    value_BHSK: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q kᵀ / √K) v with PyTorch's fused kernel (Vaswani et al. 2017, equation 1).

    `mask` is True where a query may look, broadcastable to (B, H, Q, S). `causal` hides later positions and is for
    Q = S alone: with a cache, one query may look at every key, so no mask is needed there. `dropout` is what the
    kernel applies, whatever the module's mode: pass 0 outside training.
    """
    return F.scaled_dot_product_attention(
        query_BHQK, key_BHSK, value_BHSK, attn_mask=mask, is_causal=causal, dropout_p=dropout
    )


def attention_weights(query_BHQK: Tensor, key_BHSK: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights (B, H, Q, S) that the fused kernel does not return; zero where nothing may be looked at."""
    scores = query_BHQK @ key_BHSK.transpose(-2, -1) / math.sqrt(query_BHQK.shape[-1])
    if mask is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_H) W_O, head_h = attention(q W_h^Q, k W_h^K, v W_h^V) (Vaswani et al. 2017, section 3.2.2).

    Keys and values are projected by a method of their own, since a decoder projects the source's once a sentence and
    keeps those of earlier positions.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def _split(self, x_BTD: Tensor) -> Tensor:
        batch, length, width = x_BTD.shape
        return x_BTD.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def project_query(self, x_BQD: Tensor) -> Tensor:
        """Queries (B, H, Q, K)."""
        return self._split(self.query(x_BQD))

    def project_keys(self, x_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (B, H, S, K)."""
        keys, values = self.key_value(x_BSD).chunk(2, dim=-1)
        return self._split(keys), self._split(values)

    def forward(
        self, query_BHQK: Tensor, keys: tuple[Tensor, Tensor], mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """What the queries gather from the keys' values, heads put together again: (B, Q, D)."""
        dropout = self.dropout if self.training else 0.0
        heads_BHQK = scaled_dot_product(query_BHQK, *keys, mask=mask, causal=causal, dropout=dropout)
        return self.output(heads_BHQK.transpose(1, 2).flatten(2))
