"""Small training runs, how they are interrupted, and what it means that two of them are the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.configuration import compose
from nmt.files import sha256_of
from nmt.training import session
from nmt.training.checkpoint import BEST, LAST, Checkpoint
from nmt.training.monitor import read_metrics
from nmt.training.trainer import Trainer

FEW = ["data.max_train_pairs=60", "batch.tokens=150", "validation.sentences=5"]  # about 9 batches an epoch
EVERYTHING = [
    *FEW,
    "model.dropout=0.3",
    "batch.accumulate=2",
    "trainer.ema_decay=0.95",
    "tokenizer.sampling=true",
    "trainer.log_every=3",  # of which no other number is a multiple: steps are lost between two lines
    "validation.every=4",
]
"""All that has a state or uses chance."""


def train(where: Path, overrides: Sequence[str]) -> Checkpoint:
    """Trains, or goes on training, in a directory; the last checkpoint. No test sets, since scores do not matter."""
    session.train(compose([*overrides, "~data.test.test", f"run.dir={where}"]))
    return Checkpoint.open(where / "checkpoints" / LAST)


def signal_after(step: int, number: int, patch: pytest.MonkeyPatch) -> None:
    """This process sends itself a signal when that step has been taken."""
    take_step = Trainer._step

    def noticing(self: Trainer, *arguments: Any) -> float:
        lr = take_step(self, *arguments)
        if self.progress.step == step:
            os.kill(os.getpid(), number)
        return lr

    patch.setattr(Trainer, "_step", noticing)


def assert_equal(left: Any, right: Any, path: str = "") -> None:
    """Equality to the bit of trees of tensors and plain values."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), path
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), path
        for key in left:
            assert_equal(left[key], right[key], f"{path}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), path
        for number, pair in enumerate(zip(left, right, strict=True)):
            assert_equal(*pair, f"{path}/{number}")
    else:
        assert left == right, path


def assert_same_state(left: Checkpoint, right: Checkpoint, validated: bool = True) -> None:
    """Equality of all that a run consists of, times apart; where not `validated`, of validations, too.

    That is: the weights, averaged where there is an average and raw, the optimizer's state, progress, and what has been
    measured since the last line of metrics.
    """
    assert_equal(left.weights(), right.weights())
    states = [checkpoint.training_state() for checkpoint in (left, right)]
    free = {"seconds"}
    if not validated:
        free |= {"validated_step", "best_bleu", "best_step", "validations_without_gain"}
    for state in states:
        for part in ("progress", "window"):
            state[part] = {name: value for name, value in state[part].items() if name not in free}
    assert_equal(*states)


def records(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what time makes of it."""
    timed = {"seconds", "target_tokens_per_s", "valid_seconds"}
    found = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in record.items() if name not in timed} for record in found]


def contents(folder: Path) -> dict[str, str]:
    """What every file holds; TensorBoard's, of which each start makes one, apart."""
    paths = [path for path in folder.rglob("*") if "tensorboard" not in path.parts]
    return {str(path.relative_to(folder)): sha256_of(path) for path in paths if path.is_file()}


def assert_same_end(run: Path, whole: Path) -> None:
    """The same weights, state, metrics and files: what the times in them are, apart."""
    for name in (LAST, BEST):
        assert_same_state(*(Checkpoint.open(each / "checkpoints" / name) for each in (run, whole)))
    assert records(run) == records(whole)
    files = [{name for name in contents(each) if not name.startswith("checkpoints/step_")} for each in (run, whole)]
    assert files[0] == files[1]
    assert not set(run.rglob(".*")), "nothing half-written"
    assert (run / "hypotheses" / "test.txt").read_bytes() == (whole / "hypotheses" / "test.txt").read_bytes()


def assert_loads(run: Path) -> None:
    """What `last` and `best` point to, where they are there."""
    for name in (LAST, BEST):
        link = run / "checkpoints" / name
        if link.is_symlink():
            checkpoint = Checkpoint.open(link)
            assert checkpoint.weights()
            assert checkpoint.training_state()
