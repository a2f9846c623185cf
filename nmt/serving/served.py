"""The runs that a server translates with: what each is called, what it is, and between which languages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.decoding.translator import TextTranslator, Translator
from nmt.errors import RequestError, WorkError
from nmt.serving.exported import load_translator
from nmt.training.checkpoint import EXPORT

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Served:
    """One translator of a server."""

    name: str
    """What requests call it."""
    translator: TextTranslator
    source: str
    """Code of the language that it reads."""
    target: str
    """Code of the language that it writes."""
    architecture: str
    """Its preset."""
    parameters: int | None
    """Trained numbers; None for an export, which does not say."""


def open_served(runs: Sequence[Path]) -> list[Served]:
    """Loads every run, checkpoint or export.

    Raises:
        RequestError: nothing to load there, or the same folder twice.
        WorkError: a damaged file, or an export that does not say what it is.
    """
    return [_open(name, run) for name, run in zip(served_names(runs), runs, strict=True)]


def served_names(runs: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many more as tell them apart; a checkpoint is named after its run as well.

    Raises:
        RequestError: the same folder twice.
    """
    parts = [_parts(run) for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-count:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    raise RequestError(
        f"serve: {next(run for run, each in zip(runs, parts, strict=True) if parts.count(each) > 1)} twice"
    )


def _parts(run: Path) -> tuple[str, ...]:
    path = run.absolute()
    if path.parent.name == CHECKPOINTS:
        return (*path.parent.parent.parent.parts, f"{path.parent.parent.name}/{path.name}")
    return path.parts


def _open(name: str, run: Path) -> Served:
    translator = load_translator(run)
    if isinstance(translator, Translator):
        assert translator.config is not None
        config = translator.config
        languages = config.data.source_language, config.data.target_language
        return Served(name, translator, *languages, config.model.name, translator.model.parameter_count())
    try:
        made = json.loads((run / EXPORT).read_bytes())["provenance"]
        return Served(name, translator, made["source_language"], made["target_language"], made["model"]["name"], None)
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(f"{run / EXPORT} does not say which model and languages the export has") from error
