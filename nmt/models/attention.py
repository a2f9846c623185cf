"""The ways of looking back that the project is about, next to each other.

    additive        v · tanh(W q + U k)         Bahdanau et al. 2014, section A.1.2
    multiplicative  q · k   or   q · W k        Luong et al. 2015, section 3.1 (dot, general)
    scaled          q · k / √K, many heads      Vaswani et al. 2017, equation 1

The recurrent models compare with a `Score`, weigh with a softmax over what a `Window` lets them see, and take N queries
a sentence, so that in beam search the hypotheses of a sentence share its keys. The Transformer goes through PyTorch's
fused kernel; a plain version of the same formula serves where weights are asked for, and the tests hold the two
together.

Shapes: B batch, N queries a sentence, S source positions, Q queries, A width of the additive score, D model width,
H heads, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.models.packing import Blocks
from nmt.models.repeated import Repeated


def masked_softmax(scores_BNS: Tensor, mask: Tensor) -> Tensor:
    """Weights that sum to one where the mask is True and are exactly zero elsewhere, such as on padding.

    Where nothing may be seen (a sentence of padding only, a window beyond the sentence) all weights are zero, not NaN:
    softmax over -inf alone is undefined, so the fill is finite and what is masked is zeroed afterwards.
    """
    weights = scores_BNS.masked_fill(~mask, torch.finfo(scores_BNS.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)


# Scores ----------------------------------------------------------------------------------------------------------


class Score(nn.Module):
    """How a decoder state (the query) and a source state are compared."""

    def project_keys(self, states_BSD: Tensor) -> Tensor:
        """What the comparison needs of every source state. It does not depend on the target, so once a sentence."""
        return states_BSD

    def over(self, keys_BSD: Tensor) -> Callable[[Tensor], Tensor]:
        """The comparison with these keys, for all time steps of a batch: scores (B, N, S) of queries (B, N, D)."""
        raise NotImplementedError


class DotScore(Score):
    """h_t · h_s (Luong et al. 2015, section 3.1, dot)."""

    def over(self, keys_BSD: Tensor) -> Callable[[Tensor], Tensor]:
        return Repeated(keys_BSD.transpose(1, 2))


class GeneralScore(DotScore):
    """h_t · W_a h_s (Luong et al. 2015, section 3.1, general): the dot product with projected keys."""

    def __init__(self, query_size: int, state_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(state_size, query_size, bias=False)

    def project_keys(self, states_BSD: Tensor) -> Tensor:
        return self.key(states_BSD)


class AdditiveScore(Score):
    """v · tanh(W q + U k) (Bahdanau et al. 2014, A.1.2); without bias, v · tanh(W_a [q; k]), which is the concat score
    of Luong et al. 2015, section 3.1."""

    def __init__(self, query_size: int, state_size: int, attention_size: int, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, attention_size, bias=False)
        self.key = nn.Linear(state_size, attention_size, bias=bias)
        self.score = nn.Linear(attention_size, 1, bias=False)

    def project_keys(self, states_BSD: Tensor) -> Tensor:
        return self.key(states_BSD)

    def over(self, keys_BSD: Tensor) -> Callable[[Tensor], Tensor]:
        project = Repeated(self.query.weight.t())

        def scores(query_BND: Tensor) -> Tensor:
            query_BNA = project(query_BND.flatten(0, 1)).unflatten(0, query_BND.shape[:2])
            return self.score(torch.tanh(query_BNA.unsqueeze(2) + keys_BSD.unsqueeze(1))).squeeze(-1)

        return scores


class LocationScore(Score):
    """W_a h_t, a score for each source *position* whatever stands there (Luong et al. 2015, equation 8).

    There are as many positions as W_a has rows: of a longer sentence, the end is not seen.
    """

    def __init__(self, query_size: int, positions: int) -> None:
        super().__init__()
        self.position = nn.Linear(query_size, positions, bias=False)

    def over(self, keys_BSD: Tensor) -> Callable[[Tensor], Tensor]:
        def scores(query_BND: Tensor) -> Tensor:
            scores_BNP = self.position(query_BND)
            beyond = keys_BSD.shape[1] - scores_BNP.shape[-1]
            if beyond > 0:
                return F.pad(scores_BNP, (0, beyond), value=-torch.inf)
            return scores_BNP[..., : keys_BSD.shape[1]]

        return scores


# Windows ---------------------------------------------------------------------------------------------------------


class GlobalWindow(nn.Module):
    """Every real source position is seen, each by its score alone (Luong et al. 2015, section 3.1)."""

    def forward(self, query_BND: Tensor, position_BN: Tensor | None, mask_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """What each query sees, broadcastable to (B, N, S), and what its weights are multiplied with, or None.

        Args:
            position_BN: the target position of each query, from 0; a window that does not move takes None.
        """
        return mask_BS.unsqueeze(1), None


class MonotonicWindow(GlobalWindow):
    """Positions from p_t - W to p_t + W with p_t = t (Luong et al. 2015, section 3.2, local-m)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, query_BND: Tensor, position_BN: Tensor | None, mask_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        assert position_BN is not None
        distance_BNS = torch.arange(mask_BS.shape[1], device=mask_BS.device) - position_BN.unsqueeze(-1)
        return mask_BS.unsqueeze(1) & (distance_BNS.abs() <= self.width), None


class PredictiveWindow(GlobalWindow):
    """Positions from p_t - W to p_t + W with p_t = S · σ(v_p · tanh(W_p h_t)), favoured by a Gaussian around p_t with
    the standard deviation W / 2 (Luong et al. 2015, equations 9 and 10, local-p)."""

    def __init__(self, query_size: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.hidden = nn.Linear(query_size, query_size, bias=False)  # W_p
        self.place = nn.Linear(query_size, 1, bias=False)  # v_p

    def forward(self, query_BND: Tensor, position_BN: Tensor | None, mask_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        length_B11 = mask_BS.sum(dim=1)[:, None, None]
        centre_BN1 = length_B11 * torch.sigmoid(self.place(torch.tanh(self.hidden(query_BND))))
        distance_BNS = torch.arange(mask_BS.shape[1], device=mask_BS.device) - centre_BN1
        gaussian_BNS = torch.exp(-(distance_BNS**2) / (2 * (self.width / 2) ** 2))
        return mask_BS.unsqueeze(1) & (distance_BNS.abs() <= self.width), gaussian_BNS


class Attention(nn.Module):
    """Weights from a score and a window, and the context vector: α = softmax(score), c = Σ_s α_s h_s."""

    def __init__(self, score: Score, window: GlobalWindow | None = None) -> None:
        super().__init__()
        self.score = score
        self.window = window or GlobalWindow()

    def project_keys(self, states_BSD: Tensor) -> Tensor:
        """What the score needs of every source state, once a sentence."""
        return self.score.project_keys(states_BSD)

    def over(self, keys_BSD: Tensor, states_BSD: Tensor, mask_BS: Tensor) -> AttendedSource:
        """The attention to these sentences, for all time steps of a batch."""
        return AttendedSource(self, keys_BSD, states_BSD, mask_BS)


class AttendedSource:
    """The source sentences of a batch as a decoder looks back at them in every step."""

    def __init__(self, attention: Attention, keys_BSD: Tensor, states_BSD: Tensor, mask_BS: Tensor) -> None:
        self.score = attention.score.over(keys_BSD)
        self.window = attention.window
        self.weighted_sum = Repeated(states_BSD)
        self.mask_BS = mask_BS

    def __call__(self, query_BND: Tensor, position_BN: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Context vectors (B, N, D) and weights (B, N, S); the weights of a predictive window sum to less than one.

        Args:
            position_BN: the target position of each query, from 0; a window that does not move takes None.
        """
        seen, factor_BNS = self.window(query_BND, position_BN, self.mask_BS)
        weights_BNS = masked_softmax(self.score(query_BND), seen)
        if factor_BNS is not None:
            weights_BNS = weights_BNS * factor_BNS
        return self.weighted_sum(weights_BNS), weights_BNS


# Scaled dot-product ----------------------------------------------------------------------------------------------


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

    On a CPU the kernel is many times slower in bfloat16 than in float32, so it gets float32 there.
    """
    dtype = query_BHQK.dtype
    if dtype == torch.bfloat16 and query_BHQK.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):
            query_BHQK, key_BHSK, value_BHSK = query_BHQK.float(), key_BHSK.float(), value_BHSK.float()
            return scaled_dot_product(query_BHQK, key_BHSK, value_BHSK, mask, causal, dropout).to(dtype)
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

    With fewer heads of keys and values than of queries, groups of query heads share one (Shazeer 2019, multi-query;
    Ainslie et al. 2023, grouped-query), which makes the cache smaller by that factor. Keys and values are projected by
    a method of their own, since a decoder projects the source's once a sentence and keeps those of earlier positions.
    """

    def __init__(self, width: int, heads: int, kv_heads: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads or heads
        self.head_width = width // heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * self.kv_heads * self.head_width)
        self.output = nn.Linear(width, width)

    def _split(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def project_query(self, x_BQD: Tensor) -> Tensor:
        """Queries (B, H, Q, K)."""
        return self._split(self.query(x_BQD))

    def project_keys(self, x_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (B, H or kv_heads, S, K)."""
        keys, values = self.key_value(x_BSD).chunk(2, dim=-1)
        return self._split(keys), self._split(values)

    def share(self, keys: Tensor) -> Tensor:
        """A copy of each head of keys (or values) for every query head of its group: (B, H, S, K)."""
        group = self.heads // self.kv_heads
        return keys if group == 1 else keys.repeat_interleave(group, dim=1)

    def fold(self, x_BHQK: Tensor) -> Tensor:
        """The query heads of a group as so many more queries of the head of keys that they share, which then needs no
        copies: (B, kv_heads, H / kv_heads · Q, K)."""
        return x_BHQK if self.kv_heads == self.heads else x_BHQK.unflatten(1, (self.kv_heads, -1)).flatten(2, 3)

    def unfold(self, folded: Tensor) -> Tensor:
        """`fold` undone: (B, H, Q, K)."""
        group = self.heads // self.kv_heads
        return folded if group == 1 else folded.unflatten(2, (group, -1)).flatten(1, 2)

    def forward(
        self, query_BHQK: Tensor, keys: tuple[Tensor, Tensor], mask: Tensor | Blocks | None = None, causal: bool = False
    ) -> Tensor:
        """What the queries gather from the keys' values, heads put together again: (B, Q, D)."""
        dropout = self.dropout if self.training else 0.0
        if not (causal or isinstance(mask, Blocks)) and (mask is None or mask.shape[1:3] == (1, 1)):
            folded = scaled_dot_product(self.fold(query_BHQK), *keys, mask, dropout=dropout)
            return self.merge(self.unfold(folded))
        key_BHSK, value_BHSK = (self.share(part) for part in keys)
        if isinstance(mask, Blocks):
            return self.merge(mask.attend(query_BHQK, key_BHSK, value_BHSK))
        return self.merge(scaled_dot_product(query_BHQK, key_BHSK, value_BHSK, mask, causal, dropout))

    def weights(self, query_BHQK: Tensor, keys: tuple[Tensor, Tensor], mask: Tensor | None = None) -> Tensor:
        """The weights (B, H, Q, S) that `forward` uses inside."""
        return attention_weights(query_BHQK, self.share(keys[0]), mask)

    def merge(self, heads_BHQK: Tensor) -> Tensor:
        """The heads' results side by side, through W_O."""
        return self.output(heads_BHQK.transpose(1, 2).flatten(2))
