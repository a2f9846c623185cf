"""Fine-tuning: a run that begins with the weights and the tokenizer of another one, which is only read.

What is kept of the parent is what the weights mean: the vocabulary and the model. Counters, optimizer and schedule
start anew, and the moving average starts with the parent's weights. Once the run has a checkpoint of its own, that is
all it needs: the parent may be gone when the run is continued.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.configuration import load_config
from nmt.configuration.checks import shown
from nmt.errors import RequestError
from nmt.training.checkpoint import CONFIG, WEIGHTS, Checkpoint, open_checkpoint, step_directories

OWN_CHOICE = ("name", "dropout", "attention_dropout", "alignment_layer", "alignment_head", "sampling", "sampling_alpha")
"""Keys of model and tokenizer that fine-tuning may choose anew: what the weights compute does not depend on them."""


def open_parent(config: TrainConfig, report: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint that `init_from` means; None where there is none, or where the run goes on from one of its own.

    Raises:
        RequestError: it is no run, or one of another model or tokenizer than the configuration's, naming what differs.
        WorkError: it is damaged.
    """
    given = config.init_from
    if given is None or step_directories(Path(os.path.expanduser(config.run.dir)) / "checkpoints"):
        return None
    try:
        parent = open_checkpoint(Path(os.path.expanduser(given)))
        before = load_config(parent.directory / CONFIG)
    except RequestError as error:
        raise RequestError(f"init_from={given}: {error}") from error
    if differing := list(_differing(before, config)):
        raise RequestError(
            f"init_from={given} is a run with {', '.join(differing)}; give its values, which its weights are made for"
        )
    report(f"fine-tuning {given}, step {parent.step}, with its tokenizer")
    directions = [(c.data.source_language, c.data.target_language) for c in (before, config)]
    if directions[0] != directions[1]:
        (old, new) = (f"{source} to {target}" for source, target in directions)
        report(f"warning: init_from={given} translates from {old}, and this run from {new}")
    return parent


def parent_facts(config: TrainConfig, parent: Checkpoint | None, own: Checkpoint | None) -> dict[str, Any]:
    """What meta.json says of the parent, and of the parent's parent: path as given, step and checksum of the weights.

    A run that is continued has it from its own checkpoint.
    """
    if own is not None:
        return {"init_from": own.meta["init_from"]} if "init_from" in own.meta else {}
    if parent is None:
        return {}
    facts = {"run": config.init_from, "step": parent.step, "weights_sha256": parent.meta["sha256"].get(WEIGHTS)}
    return {"init_from": {**facts, **({"init_from": parent.meta["init_from"]} if "init_from" in parent.meta else {})}}


def _differing(before: TrainConfig, after: TrainConfig) -> Iterator[str]:
    """The parent's values that the configuration has otherwise, as overrides."""
    if before.model.family != after.model.family:
        yield f"model={before.model.name} (here {after.model.name})"
        return
    for section in ("model", "tokenizer"):
        own, other = (dataclasses.asdict(getattr(config, section)) for config in (before, after))
        for name, value in own.items():
            if value != other[name] and name not in OWN_CHOICE:
                yield f"{section}.{name}={shown(value)} (here {shown(other[name])})"
