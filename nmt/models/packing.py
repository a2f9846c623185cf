"""A padded batch as one long row of its real positions, and attention that keeps the sentences of that row apart.

Padding then costs nothing in any layer: products, norms and dropout see the P positions that there are. Attention gets
the row as a batch of one and, in place of a mask, a `Blocks` that knows where each sentence begins. How it computes is
the variant:

    plain    one mask over the whole row: the formula as it is, on any device, P² in memory
    flex     FlexAttention (Dong et al. 2024), which leaves out the blocks of 128 x 128 in which nobody sees anybody
    varlen   FlashAttention's kernel for sentences of different lengths (Dao 2023): GPUs, half precision

Training alone is packed. A search has few positions a sentence, and its memory must have a row for each.

Shapes: B batch, T positions of the longest sentence, P real positions of all, H heads, K head width, Q queries, S keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.data.tokenizer import PAD


@dataclass(frozen=True)
class Packing:
    """Where the real positions of a batch that is padded on the right are.

    Attributes:
        index_P: of each in the flattened (B, T).
        sentence_P: its sentence.
        position_1P: its place in that sentence, from 0.
        offsets: (B + 1,) int32, where each sentence begins in the row, and the row's end.
        batch, width: B and T.
    """

    index_P: Tensor
    sentence_P: Tensor
    position_1P: Tensor
    offsets: Tensor
    batch: int
    width: int

    @classmethod
    def of(cls, tokens_BT: Tensor, index_P: Tensor) -> Packing:
        """Of a batch's tokens and where those that are no padding are."""
        batch, width = tokens_BT.shape
        offsets = F.pad((tokens_BT != PAD).sum(dim=1).cumsum(dim=0), (1, 0)).int()
        return cls(index_P, index_P // width, (index_P % width).unsqueeze(0), offsets, batch, width)

    def pack(self, x_BT: Tensor) -> Tensor:
        """(1, P) of (B, T)."""
        return x_BT.flatten()[self.index_P].unsqueeze(0)

    def unpack(self, x_1PD: Tensor) -> Tensor:
        """(B, T, D) of (1, P, D), zero at padding."""
        x_XD = x_1PD.new_zeros(self.batch * self.width, x_1PD.shape[2])
        return x_XD.index_copy(0, self.index_P, x_1PD.squeeze(0)).unflatten(0, (self.batch, self.width))


class Blocks:
    """Who sees whom in packed rows: the queries of a sentence the keys of the same sentence, or `causal`, of those the
    ones up to themselves. And the plain way of computing with it."""

    def __init__(self, queries: Packing, keys: Packing, causal: bool = False) -> None:
        self.queries, self.keys, self.causal = queries, keys, causal
        self._prepare()

    def _prepare(self) -> None:
        self.mask_QS = self.queries.sentence_P.unsqueeze(1) == self.keys.sentence_P
        if self.causal:
            self.mask_QS &= self.keys.position_1P <= self.queries.position_1P.t()

    def attend(self, query_1HQK: Tensor, key_1HSK: Tensor, value_1HSK: Tensor) -> Tensor:
        """softmax(q kᵀ / √K) v over what each query sees: (1, H, Q, K)."""
        return F.scaled_dot_product_attention(query_1HQK, key_1HSK, value_1HSK, attn_mask=self.mask_QS)


class FlexBlocks(Blocks):
    """By FlexAttention: compiled on a GPU; on a CPU, where it has no backward pass, for checking alone."""

    def _prepare(self) -> None:
        from torch.nn.attention.flex_attention import create_block_mask

        query_sentence_P, key_sentence_P = self.queries.sentence_P, self.keys.sentence_P
        query_position_P, key_position_P = (one.position_1P.squeeze(0) for one in (self.queries, self.keys))
        causal = self.causal

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same = query_sentence_P[query] == key_sentence_P[key]
            return same & (key_position_P[key] <= query_position_P[query]) if causal else same

        sizes = len(query_sentence_P), len(key_sentence_P)
        self.mask = create_block_mask(sees, None, None, *sizes, device=query_sentence_P.device)
        self.kernel = _flex_attention(query_sentence_P.device.type)

    def attend(self, query_1HQK: Tensor, key_1HSK: Tensor, value_1HSK: Tensor) -> Tensor:
        return self.kernel(query_1HQK, key_1HSK, value_1HSK, block_mask=self.mask)


@functools.cache
def _flex_attention(device: str) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    if device == "cuda":
        return torch.compile(flex_attention, dynamic=True)
    return flex_attention


class VarlenBlocks(Blocks):
    """By the kernel that takes where sentences begin."""

    def _prepare(self) -> None:
        pass

    def attend(self, query_1HQK: Tensor, key_1HSK: Tensor, value_1HSK: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        query_QHK, key_SHK, value_SHK = (x.squeeze(0).transpose(0, 1) for x in (query_1HQK, key_1HSK, value_1HSK))
        found: Any = varlen_attn(
            query_QHK,
            key_SHK,
            value_SHK,
            self.queries.offsets,
            self.keys.offsets,
            self.queries.width,
            self.keys.width,
            window_size=(-1, 0 if self.causal else -1),
        )
        gathered_QHK: Tensor = found
        return gathered_QHK.transpose(0, 1).unsqueeze(0)


def blocks_of(kernel: str) -> type[Blocks] | None:
    """The variant that packs for config key model.attention_kernel; None for `fused`, which does not."""
    return {"fused": None, "plain": Blocks, "flex": FlexBlocks, "varlen": VarlenBlocks}[kernel]
