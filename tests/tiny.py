"""One small model of every kind, in float64 and with weights large enough that no part of it is negligible.

What a trained model does is of no interest here: the tests that use these models assert equalities, which hold for any
weights. Sizes differ from each other wherever a model lets them, so that no mixed-up dimension goes unnoticed.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

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
from nmt.data.tokenizer import EOS, PAD
from nmt.models.base import TranslationModel
from nmt.models.registry import build_model

SOURCE_VOCABULARY, TARGET_VOCABULARY = 13, 11


WORDS = "le la un vieux jeune petit jardin maison rivière élève enfant lit voit mange prend ouvre lettre pain où ça"
UNTIED: dict[str, object] = {"dropout": 0.0, "tie_embeddings": False}
SCORES = ("dot", "general", "concat", "location")
WINDOWS = ("global", "local_m", "local_p")
BLOCKS: dict[str, dict[str, object]] = {
    "post": {},
    "pre": {"norm": "pre"},
    "rotary": {"norm": "pre", "normalization": "rms", "activation": "swiglu", "positions": "rotary", "kv_heads": 1},
    "grouped": {"width": 16, "heads": 4, "kv_heads": 2, "activation": "gelu", "positions": "learned"},
    "orderless": {"normalization": "rms", "positions": "none", "kv_heads": 3},
    "one_head": {"norm": "pre", "alignment_layer": 0, "alignment_head": 1},
}
"""What the layers of a Transformer may be made of: together, every choice of every option."""


def _recurrent() -> dict[str, ModelConfig]:
    sizes = {"embedding_size": 6, "hidden_size": 8, **UNTIED}
    configs: dict[str, ModelConfig] = {
        "bahdanau": BahdanauConfig("bahdanau", "tiny", attention_size=7, readout_size=5, **sizes),
        "cho": ChoConfig("cho", "tiny", readout_size=5, **sizes),
        "intra_attention": IntraAttentionConfig("intra_attention", "tiny", attention_size=7, **sizes),
    }
    for cell in ("lstm", "gru", "rnn"):
        for reverse in (False, True) if cell == "lstm" else (True,):
            name = f"{cell}-{'reversed' if reverse else 'in_order'}"
            configs[name] = LstmConfig("lstm", "tiny", cell=cell, layers=2, reverse_source=reverse, **sizes)
    return configs


def _luong() -> dict[str, ModelConfig]:
    """Scores × windows × feeding; the two directions and the three cells with a global window."""
    sizes = {"embedding_size": 6, "hidden_size": 8, "layers": 2, "location_positions": 5, "window_size": 2, **UNTIED}
    configs: dict[str, ModelConfig] = {}
    for score, window, feeding in itertools.product(SCORES, WINDOWS, (False, True)):
        kind = f"{score}-{'fed' if feeding else 'unfed'}"
        options = {"score": score, "window": window, "input_feeding": feeding, **sizes}
        if window != "global":
            configs[f"luong-{kind}-{window}"] = LuongConfig("luong", "tiny", **options)
            continue
        configs[f"luong-{kind}-in_order"] = LuongConfig("luong", "tiny", **options)
        if score == "dot" or kind == "general-fed":
            configs[f"luong-{kind}-reversed"] = LuongConfig("luong", "tiny", reverse_source=True, **options)
        if score == "general":
            cell = "gru" if feeding else "rnn"
            configs[f"luong-{kind}-{cell}"] = LuongConfig("luong", "tiny", cell=cell, **options)
    return configs


def _transformers() -> dict[str, ModelConfig]:
    sizes = {"width": 12, "feed_forward_size": 10, "heads": 3}
    configs: dict[str, ModelConfig] = {}
    for name, options in BLOCKS.items():
        block = {**sizes, **options}
        configs[f"transformer-{name}"] = TransformerConfig(
            "transformer", "tiny", encoder_layers=2, decoder_layers=2, **block, **UNTIED
        )
        configs[f"decoder_only-{name}"] = DecoderOnlyConfig("decoder_only", "tiny", layers=2, dropout=0.0, **block)
    return configs


PRESET_FOLDER = Path(__file__).resolve().parent.parent / "configs" / "model"
PRESET_SIZES: dict[str, dict[str, int]] = {
    "lstm": {"embedding_size": 8, "hidden_size": 8, "layers": 2},
    "cho": {"embedding_size": 8, "hidden_size": 8, "readout_size": 8},
    "bahdanau": {"embedding_size": 8, "hidden_size": 8, "attention_size": 8, "readout_size": 8},
    "luong": {"embedding_size": 8, "hidden_size": 8, "layers": 2},
    "intra_attention": {"embedding_size": 8, "hidden_size": 8, "attention_size": 8},
    "transformer": {"width": 16, "feed_forward_size": 20, "encoder_layers": 2, "decoder_layers": 2, "heads": 4},
    "decoder_only": {"width": 16, "feed_forward_size": 20, "layers": 2, "heads": 4},
}
"""What is made small of a preset of each family. Everything else, its tied embeddings included, stays as it is."""


def preset_options(name: str) -> dict[str, Any]:
    """The keys of configs/model/NAME.yaml and of the presets that it is made from."""
    content = yaml.safe_load((PRESET_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    options: dict[str, Any] = {}
    for part in content.pop("defaults"):
        if (PRESET_FOLDER / f"{part}.yaml").is_file():  # and not the schema, whose values are the dataclass's
            options |= preset_options(part)
    return options | content


def _presets() -> tuple[dict[str, str], dict[str, ModelConfig]]:
    """The tiny model of every preset, and those models. Presets that differ in sizes alone have one."""
    schemas: dict[str, type[ModelConfig]] = {"transformer": TransformerConfig, "decoder_only": DecoderOnlyConfig}
    schemas |= {"lstm": LstmConfig, "cho": ChoConfig, "bahdanau": BahdanauConfig, "luong": LuongConfig}
    schemas |= {"intra_attention": IntraAttentionConfig}
    models: dict[str, str] = {}
    configs: dict[str, ModelConfig] = {}
    for preset in sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml")):
        options = preset_options(preset)
        options |= PRESET_SIZES[options["family"]] | {"dropout": 0.0, "name": "tiny"}
        config = schemas[options["family"]](**options)
        same = next((name for name, other in configs.items() if other == config), None)
        models[preset] = same or f"{preset}-preset"
        configs[models[preset]] = config
    return models, configs


PRESETS, _PRESET_CONFIGS = _presets()
"""The name of the tiny model of every preset in configs/model."""

CONFIGS = {**_recurrent(), **_luong(), **_transformers(), **_PRESET_CONFIGS}
MODELS = sorted(CONFIGS)
PRESET_MODELS = sorted(_PRESET_CONFIGS)
ATTENDING = [name for name in MODELS if CONFIGS[name].family not in ("lstm", "cho")]
FAMILIES = [
    "bahdanau",
    "cho",
    "decoder_only-post",
    "intra_attention",
    "lstm-reversed",
    "luong-general-fed-in_order",
    "transformer-post",
]


def tiny_model(
    name: str,
    seed: int = 1,
    scale: float = 0.5,
    dtype: torch.dtype = torch.float64,
    source_vocabulary: int = SOURCE_VOCABULARY,
    target_vocabulary: int = TARGET_VOCABULARY,
    **changes: object,
) -> TranslationModel:
    """The model of that name in evaluation mode. Every weight, biases and norms included, is from N(0, scale²).

    Where the two vocabularies must be one, both have the size of the larger.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        config = dataclasses.replace(CONFIGS[name], **changes)
        if config.tie_embeddings:
            source_vocabulary = target_vocabulary = max(source_vocabulary, target_vocabulary)
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


def source_size(name: str, target_vocabulary: int, source_vocabulary: int = SOURCE_VOCABULARY) -> int:
    """The source vocabulary of a model that has a target vocabulary of that size: that one, where both are one."""
    return target_vocabulary if CONFIGS[name].tie_embeddings else source_vocabulary


def sentences(lengths: Sequence[int], vocabulary: int = TARGET_VOCABULARY, seed: int = 1) -> list[list[int]]:
    """Random sentences of as many pieces, the end mark included."""
    generator = random.Random(seed)
    return [[*(generator.randrange(EOS + 1, vocabulary) for _ in range(length - 1)), EOS] for length in lengths]


def coefficients(like: Tensor, seed: int = 1) -> Tensor:
    """Numbers to make a scalar of a tensor, so that a gradient can be taken of it."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(like.dtype)
