"""One small model of every kind, in float64 and with weights large enough that no part of it is negligible.

What a trained model does is of no interest here: the tests that use these models assert equalities, which hold for any
weights. Sizes differ from each other wherever a model lets them, so that no mixed-up dimension goes unnoticed.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.config import BahdanauConfig, LstmConfig, LuongConfig, ModelConfig, TransformerConfig
from nmt.data.tokenizer import EOS, PAD
from nmt.models.base import TranslationModel
from nmt.models.registry import build_model

SOURCE_VOCABULARY, TARGET_VOCABULARY = 13, 11


def _configs() -> dict[str, ModelConfig]:
    untied = {"dropout": 0.0, "tie_embeddings": False}
    configs: dict[str, ModelConfig] = {
        "bahdanau": BahdanauConfig(
            "bahdanau", "tiny", embedding_size=6, hidden_size=8, attention_size=7, readout_size=5, **untied
        )
    }
    for reverse in (False, True):
        name = "reversed" if reverse else "in_order"
        recurrent = {"embedding_size": 6, "hidden_size": 8, "layers": 2, "reverse_source": reverse, **untied}
        configs[f"lstm-{name}"] = LstmConfig("lstm", "tiny", **recurrent)
        for score, feeding in itertools.product(("dot", "general"), (False, True)):
            configs[f"luong-{score}-{'fed' if feeding else 'unfed'}-{name}"] = LuongConfig(
                "luong", "tiny", score=score, input_feeding=feeding, **recurrent
            )
    for norm in ("post", "pre"):
        configs[f"transformer-{norm}"] = TransformerConfig(
            "transformer",
            "tiny",
            width=12,
            feed_forward_size=10,
            heads=3,
            encoder_layers=2,
            decoder_layers=2,
            norm=norm,
            **untied,
        )
    return configs


CONFIGS = _configs()
MODELS = sorted(CONFIGS)
ATTENDING = [name for name in MODELS if not name.startswith("lstm")]
FAMILIES = ["bahdanau", "lstm-reversed", "luong-general-fed-in_order", "transformer-post"]


def tiny_model(
    name: str,
    seed: int = 1,
    scale: float = 0.5,
    dtype: torch.dtype = torch.float64,
    source_vocabulary: int = SOURCE_VOCABULARY,
    target_vocabulary: int = TARGET_VOCABULARY,
    **changes: object,
) -> TranslationModel:
    """The model of that name in evaluation mode. Every weight, biases and norms included, is from N(0, scale²)."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        config = dataclasses.replace(CONFIGS[name], **changes)
        model = build_model(config, source_vocabulary, target_vocabulary)
    finally:
        torch.set_default_dtype(before)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for table in (model.embeddings.source, model.embeddings.target):
            table.weight[PAD] = 0  # as padding_idx means it
    return model.eval()


def sentences(lengths: Sequence[int], vocabulary: int = TARGET_VOCABULARY, seed: int = 1) -> list[list[int]]:
    """Random sentences of as many pieces, the end mark included."""
    generator = random.Random(seed)
    return [[*(generator.randrange(EOS + 1, vocabulary) for _ in range(length - 1)), EOS] for length in lengths]


def coefficients(like: Tensor, seed: int = 1) -> Tensor:
    """Numbers to make a scalar of a tensor, so that a gradient can be taken of it."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(like.dtype)
