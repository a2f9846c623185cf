"""One stack of layers over one sequence: source, the marker that asks for French, target (a prefix language model).

    source pieces … </s>   <s>   target pieces … </s>

`<s>`, which every model reads first on the target side, is the marker: its embedding says "from here on in French". The
source is read as an encoder reads it, each position seeing all of it (Raffel et al. 2020, figure 4, prefix mask); a
target position sees the source and the target up to itself, in one softmax. The source never looks at the target, so
its keys and values are computed once, and are this model's memory; the loss is on the target alone.

Shapes: B batch, R = B·N rows, S source positions, T target positions, D model width, H heads, K head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.config import DecoderOnlyConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import MultiHeadAttention
from nmt.models.base import DecoderState, Memory
from nmt.models.cache import KeyValueCache
from nmt.models.layers import build_final_norm
from nmt.models.transformer import BlockModel, Layer, initialize_linear


@dataclass(frozen=True)
class DecoderOnlyMemory(Memory):
    """The source's keys and values in every layer."""

    keys: tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class DecoderOnlyState(DecoderState):
    """The keys and values of the target so far, in every layer, and the position of the next piece in the sequence."""

    caches: tuple[KeyValueCache, ...]
    position_R: Tensor


class PrefixLayer(Layer):
    """Serves source and target alike: seen are the keys of an earlier part, where there is one, and one's own."""

    def forward(
        self, x_BTD: Tensor, position_BT: Tensor, mask: Tensor, earlier: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """What leaves the layer, and its own keys and values."""
        own: list[tuple[Tensor, Tensor]] = []

        def look(x_BTD: Tensor) -> Tensor:
            query, (keys, values) = self.project(x_BTD, position_BT)
            own.append((keys, values))
            if earlier is not None:
                keys, values = torch.cat((earlier[0], keys), dim=2), torch.cat((earlier[1], values), dim=2)
            return self.self_attention(query, (keys, values), mask=mask)

        x_BTD = self.around_attention(x_BTD, look)
        return self.around_feed_forward(x_BTD, self.feed_forward), own[0]


class DecoderOnly(BlockModel):
    """A single stack whose every layer serves source and target alike."""

    def __init__(self, config: DecoderOnlyConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, config.layers)
        if not self.embeddings.tied:
            raise ValueError("one sequence needs one joint vocabulary and tied embeddings")
        self.layers = nn.ModuleList(PrefixLayer(config, self.positions) for _ in range(config.layers))
        self.final_norm = build_final_norm(config)
        initialize_linear(self)

    def encode(self, source_BS: Tensor) -> DecoderOnlyMemory:
        mask_BS = source_BS != PAD
        position_1S = torch.arange(source_BS.shape[1], device=source_BS.device).unsqueeze(0)
        x_BSD = self.embed(self.embeddings.source, source_BS, position_1S, source_BS.shape[1])
        keys: list[tuple[Tensor, Tensor]] = []
        *layers, last = self._stack()
        for layer in layers:
            x_BSD, found = layer(x_BSD, position_1S, mask_BS[:, None, None, :])
            keys.append(found)
        # Nobody reads what the last layer would make of the source itself.
        keys.append(last.project_keys(last.around_attention.inner_input(x_BSD), position_1S))
        return DecoderOnlyMemory(mask_BS, tuple(keys))

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        length = batch.target_input_BT.shape[1]
        steps_T = torch.arange(length, device=batch.source_BS.device)
        position_BT = memory.mask_BS.sum(dim=1, keepdim=True) + steps_T
        causal_TT = steps_T.unsqueeze(1) >= steps_T
        # (B, 1, T, S + T): the real source, and the target up to oneself.
        mask = torch.cat(
            (
                memory.mask_BS[:, None, None, :].expand(-1, 1, length, -1),
                causal_TT.expand(len(position_BT), 1, -1, -1),
            ),
            dim=-1,
        )
        x_BTD = self.embed(self.embeddings.source, batch.target_input_BT, position_BT, mask.shape[-1])
        for layer, source in zip(self._stack(), memory.keys, strict=True):
            x_BTD, _ = layer(x_BTD, position_BT, mask, source)
        return self.final_norm(x_BTD)

    def start(self, memory: Memory) -> DecoderOnlyState:
        return DecoderOnlyState(tuple(KeyValueCache() for _ in self.layers), memory.mask_BS.sum(dim=1))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, DecoderOnlyState, Tensor | None]:
        """The weights are the source's part of the config's alignment_layer, scaled to sum to one: the rest of each
        softmax goes to the target so far."""
        assert isinstance(state, DecoderOnlyState) and isinstance(memory, DecoderOnlyMemory)
        position_R1 = state.position_R.unsqueeze(1)
        length = memory.mask_BS.shape[1] + state.caches[0].length + 1
        x_R1D = self.embed(self.embeddings.source, tokens_R.unsqueeze(1), position_R1, length)
        caches: list[KeyValueCache] = []
        weights_RS: Tensor | None = None
        for i, (layer, source) in enumerate(zip(self._stack(), memory.keys, strict=True)):
            query_RH1K, new = layer.project(layer.around_attention.inner_input(x_R1D), position_R1)
            caches.append(state.caches[i].append(*new))
            gathered_R1D, source_RHS = prefix_attention(
                layer.self_attention, query_RH1K, source, caches[-1].keys, memory.mask_BS
            )
            x_R1D = layer.around_attention(x_R1D, lambda _, gathered=gathered_R1D: gathered)
            x_R1D = layer.around_feed_forward(x_R1D, layer.feed_forward)
            if need_weights and i == self.alignment_layer:
                weights_RS = self.shown(source_RHS)
                weights_RS = weights_RS / weights_RS.sum(dim=-1, keepdim=True).clamp(min=1e-9)
        return self.final_norm(x_R1D).squeeze(1), DecoderOnlyState(tuple(caches), state.position_R + 1), weights_RS

    def _stack(self) -> list[PrefixLayer]:
        return [layer for layer in self.layers if isinstance(layer, PrefixLayer)]


def prefix_attention(
    attention: MultiHeadAttention,
    query_RH1K: Tensor,
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    mask_BS: Tensor,
) -> tuple[Tensor, Tensor]:
    """One softmax over the source's keys, which the hypotheses of a sentence share, and a row's own target keys.

    Returns:
        what is gathered (R, 1, D), and the weights on the source (R, H, S), which sum to less than one.
    """
    sentences = len(mask_BS)
    (source_keys, source_values), (target_keys, target_values) = source, target  # (B or R, kv_heads, S or T, K)
    query_RH1K = query_RH1K / math.sqrt(query_RH1K.shape[-1])
    # Fold the N hypotheses of a sentence into the query positions, so that its source keys stand once.
    query_BHNK = query_RH1K.squeeze(2).unflatten(0, (sentences, -1)).transpose(1, 2)
    source_scores_BHNS = attention.unfold(attention.fold(query_BHNK) @ source_keys.transpose(2, 3))
    source_scores_BHNS = source_scores_BHNS.masked_fill(~mask_BS[:, None, None, :], -torch.inf)
    source_scores_RHS = source_scores_BHNS.transpose(1, 2).flatten(0, 1)
    target_scores_RHT = attention.unfold(attention.fold(query_RH1K) @ target_keys.transpose(2, 3)).squeeze(2)
    weights_RHX = torch.cat((source_scores_RHS, target_scores_RHT), dim=-1).softmax(dim=-1)
    source_RHS, target_RHT = weights_RHX.split((source_keys.shape[2], target_keys.shape[2]), dim=-1)
    source_BHNS = source_RHS.unflatten(0, (sentences, -1)).transpose(1, 2)
    from_source_BHNK = attention.unfold(attention.fold(source_BHNS) @ source_values)
    from_target_RHK = attention.unfold(attention.fold(target_RHT.unsqueeze(2)) @ target_values).squeeze(2)
    gathered_RHK = from_source_BHNK.transpose(1, 2).flatten(0, 1) + from_target_RHK
    return attention.merge(gathered_RHK.unsqueeze(2)), source_RHS
