"""Floating-point operations of a sentence pair, derived from each model's equations.

Counted are the multiplications and additions of matrix products, attention's among them, two for each pair of numbers
that meet; that is nearly all of a model's work, and what a matrix product's speed can be compared with. Sums, gates,
softmax and dropout are not counted, nor what an implementation computes twice or on padding: the count is the model's,
so that a slower implementation of the same model gets a lower share of the peak. Masks save nothing (Chowdhery et al.
2022, appendix B): causal attention is counted over all T × T products, a window over all S.

All lengths are in pieces and count the end mark. The formulas take arrays of lengths, one entry a pair.

Letters as in the models: E embedding width, H state width, A width of an additive score, L readout width, D model
width, V vocabulary.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nmt.config import (
    BahdanauConfig,
    BlockConfig,
    ChoConfig,
    DecoderOnlyConfig,
    IntraAttentionConfig,
    LstmConfig,
    LuongConfig,
    ModelConfig,
    TransformerConfig,
)

Count = NDArray[np.float64]
"""One number a pair: lengths in pieces, or multiplications."""

TRAINING = 3
"""Forward and backward pass as a multiple of the forward pass: each product has two factors, and the gradient of each
is a product of the same size."""

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def forward_operations(model: ModelConfig, vocabulary: int, source: ArrayLike, target: ArrayLike) -> Count:
    """Operations of each pair's forward pass, projection to the vocabulary included.

    Args:
        vocabulary: pieces of the target side; padding, one of them, is no class.
        source, target: lengths of each pair, end marks included.
    """
    source_length, target_length = np.asarray(source, np.float64), np.asarray(target, np.float64)
    multiplications, width = _hidden_states(model, source_length, target_length)
    return 2 * (multiplications + target_length * width * (vocabulary - 1))


def training_operations(model: ModelConfig, vocabulary: int, source: ArrayLike, target: ArrayLike) -> Count:
    """Operations of each pair's forward and backward pass."""
    return TRAINING * forward_operations(model, vocabulary, source, target)


def _hidden_states(model: ModelConfig, source: Count, target: Count) -> tuple[Count, int]:
    """Multiplications up to the hidden states that are projected to the vocabulary, and their width."""
    match model:
        case LstmConfig():
            return lstm(model, source, target), model.hidden_size
        case ChoConfig():
            return cho(model, source, target), model.readout_size
        case BahdanauConfig():
            return bahdanau(model, source, target), model.readout_size
        case LuongConfig():
            return luong(model, source, target), model.hidden_size
        case IntraAttentionConfig():
            return intra_attention(model, source, target), model.hidden_size
        case TransformerConfig():
            return transformer(model, source, target), model.width
        case DecoderOnlyConfig():
            return decoder_only(model, source, target), model.width
    raise TypeError(f"no formula for {type(model).__name__}")


# Recurrent models ------------------------------------------------------------------------------------------------


def stack(cell: str, inputs: int, hidden: int, layers: int) -> int:
    """Recurrent layers at one position: each gate sees the layer's input and its state."""
    return GATES[cell] * hidden * (inputs + hidden + (layers - 1) * 2 * hidden)


def gated_unit(inputs: int, hidden: int) -> int:
    """The unit of Cho et al. 2014 at one position: update gate, reset gate and candidate."""
    return 3 * hidden * (inputs + hidden)


def lstm(model: LstmConfig, source: Count, target: Count) -> Count:
    """Sutskever et al. 2014: the same stack on either side."""
    position = stack(model.cell, model.embedding_size, model.hidden_size, model.layers)
    return (source + target) * position


def cho(model: ChoConfig, source: Count, target: Count) -> Count:
    """Cho et al. 2014: c, the first state, and c's share of gates and readout once a sentence."""
    embedding, hidden, readout = model.embedding_size, model.hidden_size, 2 * model.readout_size
    unit = gated_unit(embedding, hidden)
    once = hidden * hidden + hidden * hidden + hidden * 3 * hidden + hidden * readout
    return source * unit + once + target * (unit + (hidden + embedding) * readout)


def bahdanau(model: BahdanauConfig, source: Count, target: Count) -> Count:
    """Bahdanau et al. 2014: two units a source position and its key; score, context, unit, readout a target one."""
    embedding, hidden, attention = model.embedding_size, model.hidden_size, model.attention_size
    annotation, readout = 2 * hidden, 2 * model.readout_size
    unit = gated_unit(embedding, hidden)
    first_state = hidden * hidden
    looks = hidden * attention + source * (attention + annotation)
    writes = unit + annotation * 3 * hidden + (hidden + embedding + annotation) * readout
    return source * (2 * unit + annotation * attention) + first_state + target * (looks + writes)


def luong(model: LuongConfig, source: Count, target: Count) -> Count:
    """Luong et al. 2015: score and context on top of the stack, then W_c."""
    embedding, hidden, layers = model.embedding_size, model.hidden_size, model.layers
    fed = hidden if model.input_feeding else 0
    key = hidden * hidden if model.score in ("general", "concat") else 0
    query = {"dot": 0, "general": 0, "concat": hidden * hidden, "location": hidden * model.location_positions}
    compared = 0 if model.score == "location" else hidden
    predicted = hidden * hidden + hidden if model.window == "local_p" else 0
    looks = query[model.score] + predicted + source * (compared + hidden) + 2 * hidden * hidden
    reads = stack(model.cell, embedding, hidden, layers) + key
    return source * reads + target * (stack(model.cell, embedding + fed, hidden, layers) + looks)


def intra_attention(model: IntraAttentionConfig, source: Count, target: Count) -> Count:
    """Cheng et al. 2016: position t attends to the t - 1 before it; the target to the source as well."""
    embedding, hidden, attention = model.embedding_size, model.hidden_size, model.attention_size
    seen = attention + 2 * hidden  # a score, and sums of states and cells, for each position looked at
    score = (embedding + hidden) * attention  # the input's and the last summary's share
    own = score + hidden * attention + (embedding + hidden) * 4 * hidden
    before_source, before_target = source * (source - 1) / 2, target * (target - 1) / 2
    fusion = (embedding + hidden) * hidden
    reads = source * (own + hidden * attention) + before_source * seen
    return reads + target * (own + score + fusion) + (before_target + target * source) * seen


# Transformers ----------------------------------------------------------------------------------------------------


def key_value_width(model: BlockConfig) -> int:
    """Width of keys and values together; grouped heads share them."""
    return 2 * (model.kv_heads or model.heads) * (model.width // model.heads)


def feed_forward(model: BlockConfig) -> int:
    """The feed-forward sub-layer at one position."""
    if model.activation == "swiglu":  # three matrices, two thirds as wide, rounded up to a multiple of 8
        return 3 * model.width * 8 * math.ceil(model.feed_forward_size * 2 / 3 / 8)
    return 2 * model.width * model.feed_forward_size


def transformer(model: TransformerConfig, source: Count, target: Count) -> Count:
    """Vaswani et al. 2017: of the attention products, q·k and the weighted sum, each is one of width D."""
    width, key_value = model.width, key_value_width(model)
    query_and_output = 2 * width * width
    block = query_and_output + width * key_value + feed_forward(model)
    encoder = source * block + 2 * width * source**2
    cross = target * query_and_output + source * width * key_value + 2 * width * source * target
    decoder = target * block + 2 * width * target**2 + cross
    return model.encoder_layers * encoder + model.decoder_layers * decoder


def decoder_only(model: DecoderOnlyConfig, source: Count, target: Count) -> Count:
    """One stack over source and target; the source sees itself, the target both.

    Of the last layer at source positions, the keys and values alone are ever looked at.
    """
    width = model.width
    keys = width * key_value_width(model)
    block = 2 * width * width + keys + feed_forward(model)
    from_source = (model.layers - 1) * (source * block + 2 * width * source**2) + source * keys
    from_target = model.layers * (target * block + 2 * width * target * (source + target))
    return from_source + from_target
