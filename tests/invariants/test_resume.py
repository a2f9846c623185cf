"""A run that was interrupted, wherever, is to the bit the run that was not; and one seed is one run.

Every preset, with all that has a state or uses chance: dropout, accumulation, a moving average, segmentations drawn
anew in each epoch, validations in between, and lines of metrics over steps on both sides of an interruption.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.training import validation
from nmt.training.checkpoint import LAST, Checkpoint
from nmt.training.interruption import Interrupted
from nmt.training.trainer import Trainer
from runs import EVERYTHING, FEW, assert_same_state, records, signal_after, train
from tiny import PRESET_MODELS

pytestmark = pytest.mark.invariant

Tiny = Callable[[str], list[str]]
PRESETS = [name.removesuffix("-preset") for name in PRESET_MODELS]

# What the presets do not have: other optimizers, schedules, segmentations, cells and precision.
SETTINGS = {
    "adamw": ["optimizer=adamw", "schedule=cosine", "schedule.warmup=2", "tokenizer.model=bpe", "model.cell=gru"],
    "sgd": [
        *("optimizer=sgd", "optimizer.momentum=0.9", "schedule=linear", "schedule.warmup=0", "trainer.ema_decay=0"),
        *("tokenizer.joint=false", "model.tie_embeddings=false", "model.cell=rnn"),
    ],
    "bfloat16": ["trainer.precision=bfloat16", "trainer.device=cpu"],
    "adadelta": ["optimizer=adadelta", "schedule=halving", "schedule.start=2", "schedule.interval=2"],
}


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checkpoint]:
    """interrupted(overrides, steps …): trains in tmp_path/parts, with a signal after each of the steps, to the end."""

    def run(overrides: list[str], *steps: int, number: int = signal.SIGTERM) -> Checkpoint:
        for step in steps:
            with monkeypatch.context() as patch:
                signal_after(step, number, patch)
                with pytest.raises(Interrupted) as stopped:
                    train(tmp_path / "parts", overrides)
            assert stopped.value.signal_number == number
            assert Checkpoint.open(tmp_path / "parts" / "checkpoints" / LAST).step == step
        return train(tmp_path / "parts", overrides)

    return run


@pytest.mark.case
@pytest.mark.parametrize("preset", PRESETS)
def test_same_seed_and_interrupted_or_not_are_the_same_run(
    preset: str, tiny: Tiny, tmp_path: Path, interrupted: Callable[..., Checkpoint]
) -> None:
    """The signals come in mid-epoch, the one before and the other after a validation."""
    options = [*tiny(preset), *EVERYTHING, "trainer.max_steps=7"]
    whole = train(tmp_path / "whole", options)
    assert whole.meta["epoch"] == 1, "the first epoch ends on the way"
    assert_same_state(whole, train(tmp_path / "again", options))
    assert records(tmp_path / "whole") == records(tmp_path / "again")
    assert_same_state(whole, interrupted(options, 2, 5))
    assert records(tmp_path / "whole") == records(tmp_path / "parts")
    measured = [record["step"] for record in records(tmp_path / "whole")]
    assert measured == [3, 4, 6, 7], "of training and, at 4 and 7, of validation"


@pytest.mark.parametrize("name", SETTINGS)
def test_so_it_is_with_other_settings(
    name: str, tiny: Tiny, tmp_path: Path, interrupted: Callable[..., Checkpoint]
) -> None:
    options = [*tiny("lstm"), *EVERYTHING, *SETTINGS[name], "trainer.max_steps=6"]
    assert_same_state(train(tmp_path / "whole", options), interrupted(options, 3))
    assert records(tmp_path / "whole") == records(tmp_path / "parts")


def test_interrupted_after_every_step(tiny: Tiny, tmp_path: Path, interrupted: Callable[..., Checkpoint]) -> None:
    """The ends of epochs and steps with a validation are among them."""
    options = [*tiny("bahdanau"), *EVERYTHING, "trainer.max_steps=8"]
    whole = train(tmp_path / "whole", options)
    assert_same_state(whole, interrupted(options, *range(1, 8), number=signal.SIGINT))
    assert records(tmp_path / "whole") == records(tmp_path / "parts")


def test_a_larger_budget_later_is_the_same_as_at_once(tiny: Tiny, tmp_path: Path) -> None:
    options = [*tiny("bahdanau"), *EVERYTHING]
    whole = train(tmp_path / "whole", [*options, "trainer.max_steps=7"])
    assert train(tmp_path / "parts", [*options, "trainer.max_steps=5"]).step == 5
    parts = train(tmp_path / "parts", [*options, "trainer.max_steps=7"])
    left, right = whole.training_state(), parts.training_state()
    assert left["window"]["steps"] == right["window"]["steps"] == 0, "a validation begins a new line of metrics"
    assert_same_state(whole, parts, validated=False)  # there was one more validation, at step 5


@pytest.mark.case
def test_a_validation_that_was_interrupted_is_made_up_for(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*tiny("bahdanau"), *EVERYTHING, "trainer.max_steps=6"]
    whole = train(tmp_path / "whole", options)

    def interrupting(*arguments: Any) -> Iterator[list[int]]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield from batches(*arguments)

    batches = validation.length_batches
    with monkeypatch.context() as patch:
        patch.setattr(validation, "length_batches", interrupting)
        with pytest.raises(Interrupted, match="stopped at step 4, saved"):
            train(tmp_path / "parts", options)
    half = Checkpoint.open(tmp_path / "parts" / "checkpoints" / LAST)
    assert (half.step, half.meta["validated_step"]) == (4, 0)
    assert_same_state(whole, train(tmp_path / "parts", options))
    assert records(tmp_path / "whole") == records(tmp_path / "parts")


@pytest.mark.case
def test_after_a_crash_steps_are_taken_again(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every step but the first; the run goes back to what a validation or the interval has saved."""
    options = [*tiny("lstm"), *EVERYTHING, "trainer.save_every=3", "trainer.log_every=5", "trainer.max_steps=9"]
    whole = train(tmp_path / "whole", options)
    take_step = Trainer._step
    for step in range(1, 9):

        def crashing(self: Trainer, step: int = step) -> float:
            if self.progress.step == step:
                raise RuntimeError("crash")
            return take_step(self)

        monkeypatch.setattr(Trainer, "_step", crashing)
        with pytest.raises(RuntimeError, match="crash"):
            train(tmp_path / "parts", options)
    monkeypatch.setattr(Trainer, "_step", take_step)
    assert_same_state(whole, train(tmp_path / "parts", options))
    assert records(tmp_path / "whole") == records(tmp_path / "parts")


@pytest.mark.case
def test_a_signal_before_the_first_step_of_a_continuation_changes_nothing(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the disk is what would be saved, so the files stay as they are."""
    options = [*tiny("lstm"), *FEW, "trainer.max_steps=2"]
    directory = train(tmp_path / "parts", options).directory.resolve()
    before = {path.name: path.stat().st_ino for path in directory.iterdir()}
    plan = Trainer._plan_epoch

    def interrupting(self: Trainer) -> None:
        plan(self)
        self.interruption.received = signal.SIGTERM

    monkeypatch.setattr(Trainer, "_plan_epoch", interrupting)
    with pytest.raises(Interrupted, match="stopped at step 2, saved"):
        train(tmp_path / "parts", [*options, "trainer.max_steps=4"])
    assert {path.name: path.stat().st_ino for path in directory.iterdir()} == before


@pytest.mark.case
def test_a_step_that_was_interrupted_is_taken_anew(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of its batches, since with many of them it takes minutes; also as the first one of an epoch."""
    options = [*tiny("lstm"), *EVERYTHING, "trainer.max_steps=8"]
    whole = train(tmp_path / "whole", options)
    accumulate = Trainer._accumulate
    epochs = []
    for step in (2, 6):
        sent: list[int] = []

        def interrupting(self: Trainer, *arguments: Any, step: int = step, sent: list[int] = sent) -> None:
            if self.progress.step == step and not sent:
                sent.append(self.progress.epoch)
                os.kill(os.getpid(), signal.SIGTERM)
            accumulate(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_accumulate", interrupting)
            with pytest.raises(Interrupted, match=f"stopped at step {step}, saved"):
                train(tmp_path / "parts", options)
        saved = Checkpoint.open(tmp_path / "parts" / "checkpoints" / LAST)
        epochs.append((saved.meta["epoch"], *sent))
    assert epochs == [(0, 0), (0, 1)], "where it began, and where it was"
    assert_same_state(whole, train(tmp_path / "parts", options))
    assert records(tmp_path / "whole") == records(tmp_path / "parts")
