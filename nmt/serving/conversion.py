"""A Transformer of this project as a CTranslate2 model: the same numbers under other names.

What has no place of its own in CTranslate2 is written into what has one, which leaves the function as it is:

    positions          a table of the first `POSITIONS`, whatever made it: sinusoids, the trained table with its last
                       entry repeated, zeros for none. Rotary positions are computed there and have no end.
    grouped heads      each head of keys and values once for every query head of its group, which is what CTranslate2
                       does with them before it keeps them
    alignment_head     moved to the front of its layer, since CTranslate2 shows the mean of a layer's first heads
    padding, unknown   an output bias so low that these and the begin mark are never predicted

Shapes: D model width, H heads, G heads of keys and values, K head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.config import TransformerConfig
from nmt.data.tokenizer import Tokenizer
from nmt.decoding.search import NEVER
from nmt.models.attention import MultiHeadAttention
from nmt.models.layers import NoPositions, Residual
from nmt.models.transformer import DecoderLayer, EncoderLayer, Transformer

POSITIONS = 4_096
"""Positions that an exported model has, unless they are rotary."""

IMPOSSIBLE = -1e4
"""A bias that no logit makes up for, and that float16 can still hold."""


def build_spec(model: Transformer, config: TransformerConfig, tokenizer: Tokenizer) -> Any:
    """The `ctranslate2.specs.TransformerSpec` of a model in float32, complete and yet to be quantised and saved."""
    from ctranslate2 import specs

    encoder, decoder = _empty_layers(config)
    for spec, layer in zip(encoder.layer, model.encoder, strict=True):
        _fill_layer(spec, cast(EncoderLayer, layer))
    for i, (spec, layer) in enumerate(zip(decoder.layer, model.decoder, strict=True)):
        shown = config.alignment_head if i == model.alignment_layer else None
        _fill_layer(spec, cast(EncoderLayer, layer))
        _fill_cross_attention(spec.attention, cast(DecoderLayer, layer), shown)
    for side, embedding, norm in (
        (encoder, model.embeddings.source, model.encoder_norm),
        (decoder, model.embeddings.target, model.decoder_norm),
    ):
        table = side.embeddings[0] if side is encoder else side.embeddings
        table.weight = _array(embedding.weight)
        if config.norm == "pre":
            _fill_norm(side.layer_norm, norm)
        if config.positions != "rotary":
            side.position_encodings.encodings = _array(position_table(model.positions, config.width))
    bias = model.output.bias.detach().clone()
    bias[list(NEVER)] = IMPOSSIBLE
    decoder.projection.weight, decoder.projection.bias = _array(model.output.weight), _array(bias)

    spec = specs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(tokenizer.source_pieces(range(tokenizer.source_size)))
    spec.register_target_vocabulary(tokenizer.target_pieces(range(tokenizer.target_size)))
    spec.config.add_source_eos = True  # so that other programs may hand over pieces as SentencePiece gives them
    spec.config.layer_norm_epsilon = cast(Residual, model.encoder[0].around_attention).norm.eps
    spec.validate()
    return spec


def position_table(positions: NoPositions, width: int) -> Tensor:
    """What a way of telling order adds to the embeddings at the first `POSITIONS` positions: (POSITIONS, D)."""
    with torch.no_grad():
        nothing_1TD, position_1T = torch.zeros(1, POSITIONS, width), torch.arange(POSITIONS).unsqueeze(0)
        return positions.embed(nothing_1TD, position_1T, POSITIONS).squeeze(0)


def _empty_layers(config: TransformerConfig) -> tuple[Any, Any]:
    """Specs of encoder and decoder with the model's structure and no weights yet."""
    from ctranslate2.specs import common_spec, transformer_spec

    activations = common_spec.Activation
    shared = {
        "pre_norm": config.norm == "pre",
        "activation": {"relu": activations.RELU, "gelu": activations.GELU, "swiglu": activations.SWISH}[
            config.activation
        ],
        "ffn_glu": config.activation == "swiglu",
        "rms_norm": config.normalization == "rms",
    }
    if config.positions == "rotary":
        shared |= {"rotary_dim": 0, "rotary_interleave": False}  # all of a head, in pairs K/2 apart
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **shared)
    decoder = transformer_spec.TransformerDecoderSpec(
        config.decoder_layers,
        config.heads,
        alignment_layer=config.alignment_layer,
        alignment_heads=config.heads if config.alignment_head is None else 1,
        **shared,
    )
    return encoder, decoder


def _fill_layer(spec: Any, layer: EncoderLayer) -> None:
    """Self-attention and feed-forward, which encoder and decoder layers have alike."""
    query, keys, output = _projections(layer.self_attention)
    _fill_linear(spec.self_attention.linear[0], *(torch.cat(parts) for parts in zip(query, keys, strict=True)))
    _fill_linear(spec.self_attention.linear[1], *output)
    _fill_norm(spec.self_attention.layer_norm, layer.around_attention.norm)
    expand, contract = cast(nn.Linear, layer.feed_forward.expand), cast(nn.Linear, layer.feed_forward.contract)
    if hasattr(spec.ffn, "linear_0_noact"):
        gate, value = expand.weight.chunk(2)
        _fill_linear(spec.ffn.linear_0, gate)
        _fill_linear(spec.ffn.linear_0_noact, value)
    else:
        _fill_linear(spec.ffn.linear_0, expand.weight, expand.bias)
    _fill_linear(spec.ffn.linear_1, contract.weight, contract.bias)
    _fill_norm(spec.ffn.layer_norm, layer.around_feed_forward.norm)


def _fill_cross_attention(spec: Any, layer: DecoderLayer, shown: int | None) -> None:
    heads = range(layer.cross_attention.heads)
    order = sorted(heads, key=lambda head: head != shown)
    for linear, projection in zip(spec.linear, _projections(layer.cross_attention, order), strict=True):
        _fill_linear(linear, *projection)
    _fill_norm(spec.layer_norm, layer.around_cross_attention.norm)


Projection = tuple[Tensor, Tensor]
"""Weight and bias."""


def _projections(
    attention: MultiHeadAttention, order: Sequence[int] | None = None
) -> tuple[Projection, Projection, Projection]:
    """Of queries, of keys and values, and of the output, all with H heads in the given order, which changes nothing."""
    heads, width = attention.heads, attention.head_width
    chosen = list(range(heads)) if order is None else list(order)

    def ordered(x: Tensor) -> Tensor:
        """(H·K, …), heads in that order."""
        return x.unflatten(0, (heads, width))[chosen].flatten(0, 1)

    def repeated(x: Tensor) -> Tensor:
        """(2·G·K, …) → (2·H·K, …)."""
        x_2GK = x.unflatten(0, (2, attention.kv_heads, width))
        return x_2GK.repeat_interleave(heads // attention.kv_heads, dim=1)[:, chosen].flatten(0, 2)

    query, keys, output = attention.query, attention.key_value, attention.output
    return (
        (ordered(query.weight), ordered(query.bias)),
        (repeated(keys.weight), repeated(keys.bias)),
        (ordered(output.weight.T).T, output.bias),
    )


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None = None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _array(cast(Tensor, norm.weight))
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(x: Tensor) -> Any:
    """A NumPy copy: quantisation writes into the arrays that it gets."""
    return x.detach().float().numpy().copy()
