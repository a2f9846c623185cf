"""The Transformer (Vaswani et al. 2017): attention alone, so every target position of a training batch at once.

One decoder layer serves both training, where it sees all target positions under a causal mask, and decoding, where it
sees one position and the keys of the earlier ones in a cache. Cross-attention folds the hypotheses of a sentence into
the query positions, so a sentence's keys exist once however wide the beam.

Shapes: B batch, R = B·N rows, S source positions, T target positions, D model width, H heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nmt.config import TransformerConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import MultiHeadAttention, attention_weights
from nmt.models.base import DecoderState, Embeddings, Memory, TranslationModel, hypotheses_per_sentence
from nmt.models.cache import KeyValueCache
from nmt.models.layers import Dropout, FeedForward, Residual, SinusoidalPositions


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


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with a residual connection and layer norm (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.width, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config.width, config.feed_forward_size, config.dropout)
        self.around_attention = Residual(config.width, config.dropout, config.norm)
        self.around_feed_forward = Residual(config.width, config.dropout, config.norm)

    def forward(self, x_BSD: Tensor, mask: Tensor) -> Tensor:
        attention = self.self_attention
        x_BSD = self.around_attention(
            x_BSD, lambda x: attention(attention.project_query(x), attention.project_keys(x), mask=mask)
        )
        return self.around_feed_forward(x_BSD, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, attention over the source, feed-forward (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.width, config.heads, config.attention_dropout)
        self.cross_attention = MultiHeadAttention(config.width, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config.width, config.feed_forward_size, config.dropout)
        self.around_self_attention = Residual(config.width, config.dropout, config.norm)
        self.around_cross_attention = Residual(config.width, config.dropout, config.norm)
        self.around_feed_forward = Residual(config.width, config.dropout, config.norm)

    def forward(self, x_BTD: Tensor, source_keys: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """All target positions at once, each blind to the later ones."""
        attention = self.self_attention
        x_BTD = self.around_self_attention(
            x_BTD, lambda x: attention(attention.project_query(x), attention.project_keys(x), causal=True)
        )
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
        """One target position for R = B·N rows; the weights (R, S) are those of the cross-attention, head mean."""
        attention = self.self_attention
        x_R1D = x_RD.unsqueeze(1)
        grown = cache

        def look_at_target(x_R1D: Tensor) -> Tensor:
            nonlocal grown
            grown = cache.append(*attention.project_keys(x_R1D))
            return attention(attention.project_query(x_R1D), grown.keys)

        x_R1D = self.around_self_attention(x_R1D, look_at_target)
        x_BND = x_R1D.view(mask.shape[0], -1, x_RD.shape[-1])
        weights_RS: Tensor | None = None
        if need_weights:
            query_BHNK = self.cross_attention.project_query(self.around_cross_attention.inner_input(x_BND))
            weights_RS = attention_weights(query_BHNK, source_keys[0], mask).mean(dim=1).flatten(0, 1)
        x_BND = self.around_cross_attention(x_BND, lambda x: self._look_at_source(x, source_keys, mask))
        return self.around_feed_forward(x_BND, self.feed_forward).flatten(0, 1), grown, weights_RS

    def _look_at_source(self, x_BQD: Tensor, source_keys: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        return self.cross_attention(self.cross_attention.project_query(x_BQD), source_keys, mask=mask)


class Transformer(TranslationModel):
    """Encoder and decoder of section 3, post-norm as published or pre-norm."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, config.width, config.tie_embeddings)
        self.positions = SinusoidalPositions(config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # With the norm before each sub-layer nothing normalises the sum that leaves the last layer.
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.width) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width) if pre else nn.Identity()
        self.output = self.embeddings.projection(config.width, target_vocabulary)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def encode(self, source_BS: Tensor) -> TransformerMemory:
        mask_BS = source_BS != PAD
        x_BSD = self._embed(self.embeddings.source, source_BS, 0)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask_BS[:, None, None, :])
        states_BSD = self.encoder_norm(x_BSD)
        keys = tuple(layer.cross_attention.project_keys(states_BSD) for layer in self._decoder_layers())
        return TransformerMemory(mask_BS, keys)

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        x_BTD = self._embed(self.embeddings.target, batch.target_input_BT, 0)
        for layer, keys in zip(self.decoder, memory.keys, strict=True):
            x_BTD = layer(x_BTD, keys, memory.attention_mask)
        return self.decoder_norm(x_BTD)

    def start(self, memory: Memory) -> TransformerState:
        return TransformerState(tuple(KeyValueCache() for _ in self.decoder))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, TransformerState, Tensor | None]:
        """The weights are those of the last layer, averaged over its heads."""
        assert isinstance(state, TransformerState) and isinstance(memory, TransformerMemory)
        assert hypotheses_per_sentence(len(tokens_R), memory) * memory.mask_BS.shape[0] == len(tokens_R)
        position = state.caches[0].length
        x_RD = self._embed(self.embeddings.target, tokens_R.unsqueeze(1), position).squeeze(1)
        caches: list[KeyValueCache] = []
        weights_RS: Tensor | None = None
        last = len(self.decoder) - 1
        for i, layer in enumerate(self._decoder_layers()):
            x_RD, cache, weights_RS = layer.step(
                x_RD, state.caches[i], memory.keys[i], memory.attention_mask, need_weights and i == last
            )
            caches.append(cache)
        return self.decoder_norm(x_RD), TransformerState(tuple(caches)), weights_RS

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _embed(self, table: nn.Embedding, tokens_BT: Tensor, first_position: int) -> Tensor:
        """√D · E[token] + position (sections 3.4 and 3.5), with dropout (section 5.4)."""
        x_BTD = table(tokens_BT)
        return self.dropout(x_BTD + self.positions(first_position, tokens_BT.shape[1]).to(x_BTD.dtype))
