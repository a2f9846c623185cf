"""The Transformer (Vaswani et al. 2017): attention alone, so every target position of a training batch at once.

One decoder layer serves both training, where it sees all target positions under a causal mask, and decoding, where it
sees one position and the keys of the earlier ones in a cache. Cross-attention folds the hypotheses of a sentence into
the query positions, so a sentence's keys exist once however wide the beam.

Shapes: B batch, R = B·N rows, S source positions, T target positions, D model width, H heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.config import BlockConfig, TransformerConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import MultiHeadAttention
from nmt.models.base import DecoderState, Embeddings, Memory, TranslationModel
from nmt.models.cache import KeyValueCache
from nmt.models.layers import Dropout, NoPositions, Residual, build_feed_forward, build_final_norm, build_positions
from nmt.models.packing import Blocks, Packing, blocks_of


@dataclass(frozen=True)
class TransformerMemory(Memory):
    """The source's keys and values for each decoder layer."""

    keys: tuple[tuple[Tensor, Tensor], ...]

    @property
    def attention_mask(self) -> Tensor:
        """(B, 1, 1, S): every head and query may look at every real source position."""
        return self.mask_BS[:, None, None, :]


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """The keys and values of the target positions so far, for each decoder layer."""

    caches: tuple[KeyValueCache, ...]


def build_attention(config: BlockConfig) -> MultiHeadAttention:
    """One attention sub-layer."""
    return MultiHeadAttention(config.width, config.heads, config.kv_heads, config.attention_dropout)


class Layer(nn.Module):
    """What every layer has: self-attention and feed-forward, each with a residual connection and a norm (section 3.1).

    `forward` is what training runs, a whole sub-graph, so that `nmt.training.compiling` may compile it.
    """

    def __init__(self, config: BlockConfig, positions: NoPositions) -> None:
        super().__init__()
        self.positions = positions
        self.self_attention = build_attention(config)
        self.feed_forward = build_feed_forward(config)
        self.around_attention = Residual(config)
        self.around_feed_forward = Residual(config)

    def project(self, x_BTD: Tensor, position_BT: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Queries, and keys and values, of self-attention at the given positions."""
        query = self.self_attention.project_query(x_BTD)
        return self.positions.rotate(query, position_BT), self.project_keys(x_BTD, position_BT)

    def project_keys(self, x_BTD: Tensor, position_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values alone."""
        keys, values = self.self_attention.project_keys(x_BTD)
        return self.positions.rotate(keys, position_BT), values


class EncoderLayer(Layer):
    """Every position sees what the mask lets it see."""

    def forward(self, x_BSD: Tensor, position_BS: Tensor, mask: Tensor | Blocks) -> Tensor:
        x_BSD = self.around_attention(x_BSD, lambda x: self.self_attention(*self.project(x, position_BS), mask=mask))
        return self.around_feed_forward(x_BSD, self.feed_forward)


class DecoderLayer(Layer):
    """Self-attention over the target so far, attention over the source, feed-forward (section 3.1)."""

    def __init__(self, config: BlockConfig, positions: NoPositions) -> None:
        super().__init__(config, positions)
        self.cross_attention = build_attention(config)
        self.around_cross_attention = Residual(config)

    def forward(
        self,
        x_BTD: Tensor,
        position_BT: Tensor,
        source_keys: tuple[Tensor, Tensor],
        mask: Tensor | Blocks,
        earlier: Blocks | None = None,
    ) -> Tensor:
        """All target positions at once, each blind to the later ones.

        Args:
            mask: what they see of the source.
            earlier: what they see of the target, where it is packed.
        """

        def look_at_target(x_BTD: Tensor) -> Tensor:
            return self.self_attention(*self.project(x_BTD, position_BT), mask=earlier, causal=earlier is None)

        x_BTD = self.around_attention(x_BTD, look_at_target)
        x_BTD = self.around_cross_attention(x_BTD, lambda x: self._look_at_source(x, source_keys, mask))
        return self.around_feed_forward(x_BTD, self.feed_forward)

    def step(
        self,
        x_RD: Tensor,
        cache: KeyValueCache,
        source_keys: tuple[Tensor, Tensor],
        mask: Tensor,
        need_weights: bool,
    ) -> tuple[Tensor, KeyValueCache, Tensor | None]:
        """One target position for R = B·N rows; the weights (R, H, S) are those of the cross-attention."""
        grown = cache

        def look_at_target(x_R1D: Tensor) -> Tensor:
            nonlocal grown
            query, keys = self.project(x_R1D, torch.full((1, 1), cache.length, device=x_R1D.device))
            grown = cache.append(*keys)
            return self.self_attention(query, grown.keys)

        x_R1D = self.around_attention(x_RD.unsqueeze(1), look_at_target)
        x_BND = x_R1D.view(mask.shape[0], -1, x_RD.shape[-1])
        weights_RHS: Tensor | None = None
        if need_weights:
            query_BHNK = self.cross_attention.project_query(self.around_cross_attention.inner_input(x_BND))
            weights_RHS = self.cross_attention.weights(query_BHNK, source_keys, mask).transpose(1, 2).flatten(0, 1)
        x_BND = self.around_cross_attention(x_BND, lambda x: self._look_at_source(x, source_keys, mask))
        return self.around_feed_forward(x_BND, self.feed_forward).flatten(0, 1), grown, weights_RHS

    def _look_at_source(self, x_BQD: Tensor, source_keys: tuple[Tensor, Tensor], mask: Tensor | Blocks) -> Tensor:
        return self.cross_attention(self.cross_attention.project_query(x_BQD), source_keys, mask=mask)


class BlockModel(TranslationModel):
    """What surrounds the layers here and in the decoder-only model: embeddings, positions, whose attention is shown."""

    def __init__(self, config: BlockConfig, source_vocabulary: int, target_vocabulary: int, layers: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, config.width, config.tie_embeddings)
        self.positions = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.output = self.embeddings.projection(config.width, target_vocabulary)
        self.alignment_layer = config.alignment_layer % layers
        self.alignment_head = config.alignment_head

    def embed(self, table: nn.Embedding, tokens_BT: Tensor, position_BT: Tensor, length: int) -> Tensor:
        """√D · E[token] + position (sections 3.4 and 3.5), with dropout (section 5.4); positions are below `length`."""
        return self.dropout(self.positions.embed(table(tokens_BT), position_BT, length))

    def shown(self, weights_RHS: Tensor) -> Tensor:
        """The weights (R, S) of the head that is to be shown, or the mean of all."""
        return weights_RHS.mean(dim=1) if self.alignment_head is None else weights_RHS[:, self.alignment_head]


class Transformer(BlockModel):
    """Encoder and decoder of section 3, post-norm as published or pre-norm."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, config.decoder_layers)
        self.encoder = nn.ModuleList(EncoderLayer(config, self.positions) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, self.positions) for _ in range(config.decoder_layers))
        self.encoder_norm = build_final_norm(config)
        self.decoder_norm = build_final_norm(config)
        self.blocks = blocks_of(config.attention_kernel)
        initialize_linear(self)

    def encode(self, source_BS: Tensor) -> TransformerMemory:
        mask_BS = source_BS != PAD
        position_1S = torch.arange(source_BS.shape[1], device=source_BS.device).unsqueeze(0)
        x_BSD = self.embed(self.embeddings.source, source_BS, position_1S, source_BS.shape[1])
        return TransformerMemory(mask_BS, self._read(x_BSD, position_1S, mask_BS[:, None, None, :]))

    def forward(self, batch: Batch) -> Tensor:
        if self.blocks is not None:
            return self._packed(batch, self.blocks)
        memory = self.encode(batch.source_BS)
        length = batch.target_input_BT.shape[1]
        position_1T = torch.arange(length, device=batch.source_BS.device).unsqueeze(0)
        x_BTD = self.embed(self.embeddings.target, batch.target_input_BT, position_1T, length)
        return self._write(x_BTD, position_1T, memory.keys, memory.attention_mask)

    def _packed(self, batch: Batch, blocks: type[Blocks]) -> Tensor:
        """`forward` over the real positions alone; zero at the others."""
        source = Packing.of(batch.source_BS, batch.source_index_P)
        target = Packing.of(batch.target_input_BT, batch.target_index_P)
        tokens_1P = source.pack(batch.source_BS)
        x_1PD = self.embed(self.embeddings.source, tokens_1P, source.position_1P, source.width)
        keys = self._read(x_1PD, source.position_1P, blocks(source, source))
        mask, earlier = blocks(target, source), blocks(target, target, causal=True)
        tokens_1P = target.pack(batch.target_input_BT)
        x_1PD = self.embed(self.embeddings.target, tokens_1P, target.position_1P, target.width)
        return target.unpack(self._write(x_1PD, target.position_1P, keys, mask, earlier))

    def _read(self, x_BSD: Tensor, position_BS: Tensor, mask: Tensor | Blocks) -> tuple[tuple[Tensor, Tensor], ...]:
        """The source's keys and values for each decoder layer."""
        for layer in self.encoder:
            x_BSD = layer(x_BSD, position_BS, mask)
        states_BSD = self.encoder_norm(x_BSD)
        return tuple(layer.cross_attention.project_keys(states_BSD) for layer in self._decoder_layers())

    def _write(
        self,
        x_BTD: Tensor,
        position_BT: Tensor,
        source_keys: tuple[tuple[Tensor, Tensor], ...],
        mask: Tensor | Blocks,
        earlier: Blocks | None = None,
    ) -> Tensor:
        """Hidden states of all target positions; `mask` and `earlier` as in `DecoderLayer`."""
        for layer, keys in zip(self._decoder_layers(), source_keys, strict=True):
            x_BTD = layer(x_BTD, position_BT, keys, mask, earlier)
        return self.decoder_norm(x_BTD)

    def start(self, memory: Memory) -> TransformerState:
        return TransformerState(tuple(KeyValueCache() for _ in self.decoder))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, TransformerState, Tensor | None]:
        """The weights are those of the config's layer and head: by default, the mean of the last layer's."""
        assert isinstance(state, TransformerState) and isinstance(memory, TransformerMemory)
        length = state.caches[0].length
        position_11 = torch.full((1, 1), length, device=tokens_R.device)
        x_RD = self.embed(self.embeddings.target, tokens_R.unsqueeze(1), position_11, length + 1).squeeze(1)
        caches: list[KeyValueCache] = []
        weights_RS: Tensor | None = None
        for i, layer in enumerate(self._decoder_layers()):
            wanted = need_weights and i == self.alignment_layer
            x_RD, cache, weights_RHS = layer.step(x_RD, state.caches[i], memory.keys[i], memory.attention_mask, wanted)
            caches.append(cache)
            if weights_RHS is not None:
                weights_RS = self.shown(weights_RHS)
        return self.decoder_norm(x_RD), TransformerState(tuple(caches)), weights_RS

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]


def initialize_linear(model: nn.Module) -> None:
    """Glorot & Bengio 2010 for every matrix but the embeddings', zero for the biases."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
