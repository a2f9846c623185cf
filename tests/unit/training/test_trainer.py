"""The training loop: the same however batches are cut, and at an end when its budget is.

That nothing that interrupts it changes what comes out is in tests/invariants/test_resume.py.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import runs
from nmt.errors import WorkError
from nmt.training import trainer
from nmt.training.checkpoint import BEST, Checkpoint, step_directories
from nmt.training.interruption import Interrupted
from nmt.training.trainer import mixed_seed
from runs import FEW, assert_same_state, records, signal_after

FAMILIES = ["lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "decoder_only"]
Train = Callable[..., Checkpoint]


@pytest.fixture
def train(tiny: Callable[[str], list[str]], tmp_path: Path) -> Train:
    """train(name of the run, family, overrides …) → its last checkpoint. No test sets, since scores do not matter."""

    return lambda name, family, *overrides: runs.train(tmp_path / name, [*tiny(family), *overrides])


# Metrics and chance ----------------------------------------------------------------------------------------------


def test_each_record_says_how_many_steps_it_covers(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first after a validation covers those since it, and its numbers are of these alone; not so one after a
    resumption."""
    options = ["trainer.max_steps=12", "validation.every=10", "trainer.log_every=4"]
    with monkeypatch.context() as patch:
        signal_after(5, signal.SIGTERM, patch)
        with pytest.raises(Interrupted):
            train("run", "lstm", *options)
    train("run", "lstm", *options)
    found = [(r["step"], r["steps"]) for r in records(tmp_path / "run") if "steps" in r]
    assert found == [(4, 4), (8, 4), (12, 2)]
    assert "step 12  epoch " in (told := capsys.readouterr().err)
    assert "  mean of 2 steps  loss " in told


def test_another_seed_is_another_run(train: Train) -> None:
    one, two = (
        train(f"seed{seed}", "lstm", "trainer.max_steps=1", f"trainer.seed={seed}").weights() for seed in (1, 2)
    )
    assert not any(torch.equal(one[name], two[name]) for name in one if one[name].dim() > 1)


def test_seeds_of_steps_are_all_different() -> None:
    seeds = {mixed_seed(*numbers) for numbers in itertools.product(range(5), range(50), range(4))}
    assert len(seeds) == 5 * 50 * 4


# Gradients -------------------------------------------------------------------------------------------------------

PLAIN_DESCENT = [
    "optimizer=sgd",
    "optimizer.lr=1.0",
    "optimizer.momentum=0",
    "trainer.ema_decay=0",
    "model.dropout=0",
    "trainer.max_steps=1",
]


@pytest.mark.invariant
@pytest.mark.parametrize("family", FAMILIES)
def test_one_step_is_the_same_however_its_pairs_are_cut_into_batches(
    family: str, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient is normalised by the tokens of the step: a batch of one pair weighs as one pair."""

    def after_one_step(name: str, *plan: Iterable[int]) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(trainer, "plan_batches", lambda *_: [np.array(batch) for batch in plan])
        options = [*PLAIN_DESCENT, "trainer.clip_norm=null", f"batch.accumulate={len(plan)}"]
        return train(name, family, *options).weights()

    together = after_one_step("together", range(60))
    apart = after_one_step("apart", [0], range(1, 20), range(20, 60))
    other = after_one_step("other", [0], range(1, 20))
    for name, weight in together.items():
        torch.testing.assert_close(weight, apart[name], rtol=1e-4, atol=1e-6)
    assert any((together[name] - other[name]).abs().max() > 1e-3 for name in together), "the test could fail"


def test_the_gradient_is_clipped(train: Train) -> None:
    """Plain gradient descent at rate 1: a step is as long as the gradient, which is longer than the limit here."""
    options = [*PLAIN_DESCENT, *FEW, "trainer.log_every=1"]
    norms, weights = [], []
    for limit in ("null", "0.05", "0.025"):
        checkpoint = train(f"limit{limit}", "luong", *options, f"trainer.clip_norm={limit}")
        norms.append(records(checkpoint.directory.parents[1])[0]["gradient_norm"])
        weights.append(checkpoint.weights())
    assert norms[0] == norms[1] == norms[2] > 0.05, "what is recorded is not clipped"
    _, half, quarter = weights
    assert distance(half, quarter) == pytest.approx(0.025, rel=1e-2)
    start = {name: 2 * quarter[name].double() - half[name] for name in half}  # as far again in the other direction
    assert distance(weights[0], start) == pytest.approx(norms[0], rel=1e-2)


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float((one[name].double() - other[name]).square().sum()) for name in one))


def test_the_average_that_is_saved(train: Train, tmp_path: Path) -> None:
    """avg ← d·avg + (1 - d)·weights after each step, d = min(0.9, (1 + step) / (10 + step))."""
    options = [*FEW, "trainer.save_every=1", "trainer.keep_last=99", "trainer.max_steps=6"]
    train("run", "transformer", *options)
    saved = [Checkpoint.open(path) for path in step_directories(tmp_path / "run" / "checkpoints")]
    assert [checkpoint.step for checkpoint in saved] == [1, 2, 3, 4, 5, 6]
    for before, after in itertools.pairwise(saved):
        decay = min(0.9, (1 + after.step) / (10 + after.step))
        raw, averages = after.training_state()["weights"], before.weights()
        for name, average in after.weights().items():
            torch.testing.assert_close(average, decay * averages[name] + (1 - decay) * raw[name], rtol=1e-5, atol=1e-7)
            assert not torch.equal(average, raw[name])


@pytest.mark.case
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_names_batch_and_key(error: Exception, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(trainer, "label_smoothed_loss", fail)
    monkeypatch.setattr(trainer, "plan_batches", lambda *_: [np.arange(11)])
    with pytest.raises(WorkError, match=r"batch of 11 pairs of up to \d+ pieces: lower batch\.tokens=300 and raise"):
        train("run", "bahdanau", "trainer.max_steps=1")


def test_other_errors_are_not_taken_for_it(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(trainer, "label_smoothed_loss", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train("run", "bahdanau", "trainer.max_steps=1")


# Budgets ---------------------------------------------------------------------------------------------------------

HOPELESS = [*FEW, "optimizer.lr=1e-12", "validation.every=2", "trainer.patience=3"]


@pytest.mark.case
def test_patience_counts_validations_without_gain_and_survives_an_interruption(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation at step 2 is the best, those at 4, 6 and 8 are not better."""
    whole = train("whole", "lstm", *HOPELESS, "trainer.max_steps=30")
    assert (whole.step, whole.meta["best_step"], whole.meta["validations_without_gain"]) == (8, 2, 3)
    for step in (3, 6):
        with monkeypatch.context() as patch:
            signal_after(step, signal.SIGTERM, patch)
            with pytest.raises(Interrupted):
                train("parts", "lstm", *HOPELESS, "trainer.max_steps=30")
    assert_same_state(whole, train("parts", "lstm", *HOPELESS, "trainer.max_steps=30"))
    assert os.readlink(tmp_path / "parts" / "checkpoints" / BEST) == "step_00000002"


def test_epochs(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """17 batches an epoch, three of them a step: the sixth and last step of an epoch has two."""
    monkeypatch.setattr(trainer, "plan_batches", lambda *_: np.array_split(np.arange(60), 17))
    last = train("run", "lstm", "trainer.max_epochs=2", "batch.accumulate=3", "trainer.log_every=1")
    assert (last.step, last.meta["epoch"], last.meta["batch"], last.meta["validated_step"]) == (12, 1, 17, 12)
    epochs = [record["epoch"] for record in records(tmp_path / "run") if "loss" in record]
    assert epochs == pytest.approx([min(3 * n, 17) / 17 + epoch for epoch in (0, 1) for n in range(1, 7)], abs=1e-4)
    assert train("run", "lstm", "trainer.max_epochs=1", "batch.accumulate=3").step == 12
    assert train("run", "lstm", "trainer.max_epochs=3", "batch.accumulate=3").step == 18


def test_every_pair_is_seen_once_an_epoch(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, ...]] = []
    make_batch = trainer.make_batch

    def noting(source: Any, target: Any) -> Any:
        seen.extend((s.tobytes(), t.tobytes()) for s, t in zip(source, target, strict=True))
        return make_batch(source, target)

    monkeypatch.setattr(trainer, "make_batch", noting)
    train("run", "lstm", "trainer.max_epochs=2", "batch.accumulate=2")
    assert len(seen) == 480
    assert len(set(seen[:240])) == 240
    assert set(seen[:240]) == set(seen[240:])
    assert seen[:240] != seen[240:]


def test_minutes_count_those_before_an_interruption(train: Train) -> None:
    first = train("run", "lstm", "trainer.max_minutes=1e-6")
    assert first.step == 1
    assert first.meta["seconds"] > 60e-6
    assert train("run", "lstm", "trainer.max_minutes=1e-6").step == 1
    more = first.meta["seconds"] / 60 + 1e-6
    assert train("run", "lstm", f"trainer.max_minutes={more:.9f}").step > 1


def test_whichever_budget_ends_first(train: Train) -> None:
    assert train("run", "lstm", "trainer.max_steps=3", "trainer.max_epochs=1").step == 3
    assert train("run", "lstm", "trainer.max_steps=99", "trainer.max_epochs=1").step == 17
