"""What a configuration must satisfy beyond the types of its keys, all of it known before anything is loaded."""

from __future__ import annotations

import dataclasses
import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt.config import (
    BlockConfig,
    DecoderOnlyConfig,
    FilesData,
    GrammarData,
    SearchConfig,
    TrainConfig,
    TransformerConfig,
)
from nmt.configuration.schema import DATA, MODELS, Key, fields_of
from nmt.errors import RequestError

# Names end up in names of files and directories, which must be good on any system and in any override.
_NAME = re.compile(r"\w[\w.+-]*")

MOST_SHOWN = 200
"""Characters of a value that a message repeats."""


def shown(value: Any) -> str:
    """A value as a user would write it in an override."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    # Bounded, also the work: a few aliases in a YAML file can be a list of a billion, and an int have a million digits.
    if isinstance(value, list | dict):
        text = reprlib.repr(value)
    elif isinstance(value, int) and value.bit_length() > MOST_SHOWN:
        text = hex(value)
    else:
        text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def refuse(path: str, value: Any, allowed: str) -> RequestError:
    """The error for one key: its name, its value, what is allowed."""
    return RequestError(f"{path}={shown(value)}: must be {allowed}")


def check(config: TrainConfig) -> None:
    """Raise RequestError for the first key that is out of bounds or at odds with another one."""
    check_values(config)
    for check_part in (_check_names, _check_model, _check_data, _check_batch, _check_schedule):
        check_part(config)
    check_search(config.search)


def check_values(node: Any, prefix: str = "") -> None:
    """Raise RequestError for the first key of a section that is out of bounds, whatever the others are."""
    for path, key, value in values_of(node, prefix):
        if key.violation(value):
            raise refuse(path, value, key.allowed())


def values_of(node: Any, prefix: str = "") -> Iterator[tuple[str, Key, Any]]:
    """Every value of a configuration with its path and its key, those inside lists and mappings included."""
    for key in fields_of(node):
        value = getattr(node, key.path)
        path = prefix + key.path
        if dataclasses.is_dataclass(value):
            yield from values_of(value, path + ".")
            continue
        yield path, key, value
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, member in members:
            if dataclasses.is_dataclass(member):
                yield from values_of(member, f"{path}.{name}.")


def _check_names(config: TrainConfig) -> None:
    names = {
        "model.name": config.model.name,
        "data.name": config.data.name,
        "data.source_language": config.data.source_language,
        "data.target_language": config.data.target_language,
    }
    for path, name in names.items():
        if not _NAME.fullmatch(name):
            raise refuse(path, name, "letters, digits and . _ + -, since names of files are made of it")
    if not config.run.dir.strip():
        raise refuse("run.dir", '""', "the name of a folder")
    if config.init_from is not None and not config.init_from.strip():
        raise refuse("init_from", '""', "a run directory, a checkpoint directory or null")


def _check_model(config: TrainConfig) -> None:
    model = config.model
    if type(model) is not MODELS[model.family]:
        raise RequestError(f"model.family={model.family}: is chosen with the preset, as in model={model.family}")
    if model.tie_embeddings and not config.tokenizer.joint:
        raise RequestError(
            "model.tie_embeddings=true: needs tokenizer.joint=true; with a vocabulary for each language "
            "write model.tie_embeddings=false"
        )
    size, output = model.tied_widths
    if model.tie_embeddings and getattr(model, size) != getattr(model, output):
        raise RequestError(
            f"model.{size}={getattr(model, size)}: must be equal to model.{output}={getattr(model, output)}, which the "
            "output projection reads, since model.tie_embeddings=true"
        )
    if isinstance(model, BlockConfig):
        _check_blocks(model, config.tokenizer.joint)
    elif config.trainer.compile:
        raise RequestError(
            f"trainer.compile=true: compiles the layers of a Transformer; {model.family} has none, "
            "transformer and decoder_only have"
        )


def _check_blocks(model: BlockConfig, joint: bool) -> None:
    if model.width % model.heads:
        raise refuse("model.heads", model.heads, f"a divisor of model.width={model.width}")
    if model.width % 2:
        raise refuse("model.width", model.width, "even, since positions are pairs of a sine and a cosine")
    if model.kv_heads is not None and model.heads % model.kv_heads:
        raise refuse("model.kv_heads", model.kv_heads, f"a divisor of model.heads={model.heads}")
    if model.positions == "rotary" and model.width // model.heads % 2:
        raise RequestError("model.positions=rotary: turns pairs of numbers, so model.width / model.heads must be even")
    if isinstance(model, DecoderOnlyConfig) and not (model.tie_embeddings and joint):
        raise RequestError(
            "model=decoder_only: source and target are one sequence over one vocabulary; "
            "it needs model.tie_embeddings=true and tokenizer.joint=true"
        )
    if isinstance(model, TransformerConfig) and model.attention_kernel != "fused" and model.attention_dropout:
        raise RequestError(
            f"model.attention_kernel={model.attention_kernel}: has no dropout of weights; "
            "it needs model.attention_dropout=0"
        )
    if isinstance(model, TransformerConfig | DecoderOnlyConfig):
        layers = model.layers if isinstance(model, DecoderOnlyConfig) else model.decoder_layers
        if not -layers <= model.alignment_layer < layers:
            raise refuse("model.alignment_layer", model.alignment_layer, f"from {-layers} to {layers - 1}")
        if model.alignment_head is not None and model.alignment_head >= model.heads:
            raise refuse("model.alignment_head", model.alignment_head, f"below model.heads={model.heads}")


def _check_data(config: TrainConfig) -> None:
    data = config.data
    if type(data) is not DATA[data.kind]:
        raise RequestError(f"data.kind={data.kind}: is chosen with the preset, as in data={data.kind}")
    if isinstance(data, GrammarData) and data.min_words > data.max_words:
        raise refuse("data.min_words", data.min_words, f"at most data.max_words={data.max_words}")
    for name in getattr(data, "test", {}):
        if not _NAME.fullmatch(name):
            raise RequestError(f"data.test: the name {name!r} must be letters, digits and . _ + -")
    for name, text in data.mix.items():
        if not _NAME.fullmatch(name):
            raise RequestError(f"data.mix: the name {name!r} must be letters, digits and . _ + -")
        if [text.source is None, text.target is None, text.path is None] not in (
            [False, False, True],
            [True, True, False],
        ):
            raise RequestError(f"data.mix.{name}: give either source and target, which are files, or path, a dataset")
    if isinstance(data, FilesData):
        for path, files in (("data.train", data.train), ("data.valid", data.valid)):
            if not files:
                raise RequestError(
                    f"{path}: no files; give at least one pair, as in '{path}=[{{source: a.en, target: a.fr}}]'"
                )
        for name, download in data.downloads.items():
            if Path(name).is_absolute() or ".." in Path(name).parts:  # it is where the file is kept below the cache
                raise RequestError(f"data.downloads: the name {shown(name)} must be a path below data.dir, without ..")
            if not re.fullmatch(r"[0-9a-fA-F]{64}", download.sha256):
                raise refuse(f"data.downloads.{name}.sha256", download.sha256, "64 hexadecimal digits")


def _check_batch(config: TrainConfig) -> None:
    if config.batch.tokens == "auto" and config.trainer.sharding != "none":
        raise RequestError(
            f"batch.tokens=auto: is measured with whole weights; give a number with "
            f"trainer.sharding={config.trainer.sharding}"
        )


def _check_schedule(config: TrainConfig) -> None:
    schedule = config.schedule
    if schedule.name not in ("linear", "cosine"):
        return
    total = schedule.total or config.trainer.max_steps
    if total is None:
        raise RequestError(
            f"schedule.name={schedule.name}: needs the step at which it ends; give schedule.total or trainer.max_steps"
        )
    if total <= schedule.warmup:
        name = "schedule.total" if schedule.total else "trainer.max_steps"
        raise refuse("schedule.warmup", schedule.warmup, f"below {name}={total}, where the schedule ends")


def check_search(search: SearchConfig) -> None:
    """Raise RequestError for search settings that are out of bounds or at odds with each other."""
    check_values(search, "search.")
    if search.mbr_samples and search.sampling:
        raise RequestError(
            f"{search.chance}: draws its candidates itself and chooses among them; it needs search.sampling=false"
        )
    if search.mbr_beam and not search.mbr_samples:
        raise RequestError("search.mbr_beam=true: adds to the candidates of search.mbr_samples, which is 0")
    if search.sampling:
        return
    limit = "mbr_samples" if search.mbr_samples else "beam_size"
    if search.n_best > getattr(search, limit):
        raise refuse("search.n_best", search.n_best, f"at most search.{limit}={getattr(search, limit)}")
