"""From a model's configuration to the model: the one place that knows all families."""

from __future__ import annotations

from nmt.config import (
    BahdanauConfig,
    ChoConfig,
    DecoderOnlyConfig,
    IntraAttentionConfig,
    LstmConfig,
    LuongConfig,
    ModelConfig,
    TransformerConfig,
)
from nmt.models.base import TranslationModel
from nmt.models.decoder_only import DecoderOnly
from nmt.models.intra_attention import IntraAttention
from nmt.models.luong import Luong
from nmt.models.recurrent import Bahdanau, Cho, LstmSequenceToSequence
from nmt.models.transformer import Transformer


def build_model(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> TranslationModel:
    """A model with fresh weights, drawn from PyTorch's global generator."""
    match config:
        case LstmConfig():
            return LstmSequenceToSequence(config, source_vocabulary, target_vocabulary)
        case ChoConfig():
            return Cho(config, source_vocabulary, target_vocabulary)
        case BahdanauConfig():
            return Bahdanau(config, source_vocabulary, target_vocabulary)
        case LuongConfig():
            return Luong(config, source_vocabulary, target_vocabulary)
        case IntraAttentionConfig():
            return IntraAttention(config, source_vocabulary, target_vocabulary)
        case TransformerConfig():
            return Transformer(config, source_vocabulary, target_vocabulary)
        case DecoderOnlyConfig():
            return DecoderOnly(config, source_vocabulary, target_vocabulary)
    raise TypeError(f"no model for {type(config).__name__}")
