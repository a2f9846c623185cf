"""What `bench_train.py` trains: the Trainer's steps, the same pairs every round, and figures per true token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarking.measuring import Memory
from benchmarking.training import (
    Round,
    StepByStepTrainer,
    TrainingSubject,
    UnguardedTrainer,
    Workshop,
    overridden,
    record,
)
from nmt.configuration import compose
from nmt.errors import RequestError
from nmt.training import trainer
from nmt.training.store import RunStore

Tiny = Callable[[str], list[str]]


@pytest.fixture
def subject(tiny: Tiny) -> Callable[..., TrainingSubject]:
    """subject("lstm", override …), with two steps a round."""

    def build(family: str, *overrides: str, kind: type[trainer.Trainer] = trainer.Trainer) -> TrainingSubject:
        config = compose([*tiny(family), "data.max_train_pairs=60", "batch.tokens=100", *overrides])
        return Workshop(2).subject(family, config, kind)

    return build


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("", ["model=luong", "model.layers=1", "batch.tokens=64"]),
        ("batch.tokens=8 optimizer.lr=1", ["model=luong", "model.layers=1", "batch.tokens=8", "optimizer.lr=1"]),
        ("model=lstm", ["batch.tokens=64", "model=lstm"]),
        ("model.layers=2", ["model=luong", "batch.tokens=64", "model.layers=2"]),
        ("run.notes='a b' +model.layers=3", ["model=luong", "batch.tokens=64", "run.notes=a b", "+model.layers=3"]),
    ],
)
def test_changes_take_the_place_of_what_they_replace(changes: str, expected: list[str]) -> None:
    assert overridden(["model=luong", "model.layers=1", "batch.tokens=64"], changes) == expected


def test_changes_that_cannot_be_read() -> None:
    with pytest.raises(RequestError, match=r"--against run\.notes='a: No closing quotation"):
        overridden([], "run.notes='a")


def test_every_round_trains_on_the_same_pairs(
    subject: Callable[..., TrainingSubject], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = subject("lstm", "batch.accumulate=2")
    trained: list[tuple[int, int]] = []
    make_batch = trainer.make_batch

    def noting(source: Any, target: Any) -> Any:
        trained.append((sum(map(len, source)), sum(map(len, target))))
        return make_batch(source, target)

    monkeypatch.setattr(trainer, "make_batch", noting)
    one.take_steps()
    assert len(trained) == 4, "two steps of two batches"
    assert sum(target for _, target in trained) == one.tokens
    one.memory()  # trains on other batches in between
    trained.clear()
    one.take_steps()
    again, trained = trained, []
    assert sum(target for _, target in again) == one.tokens
    assert one.trainer.progress.step == 2


def test_a_round_is_no_longer_than_an_epoch(subject: Callable[..., TrainingSubject]) -> None:
    one = subject("lstm", "batch.accumulate=1000")
    assert one.steps == 1
    one.take_steps()
    assert (one.trainer.progress.step, one.trainer.progress.epoch) == (1, 0)
    assert one.tokens == one.lengths[1].sum()


def test_memory_is_measured_on_the_largest_batches(
    subject: Callable[..., TrainingSubject], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = subject("lstm")
    seen: list[Any] = []
    monkeypatch.setattr(TrainingSubject, "_train_on", lambda self, batches: seen.extend(batches))
    one.memory()
    source, target = one.lengths
    areas = [len(batch) * (source[batch].max() + target[batch].max()) for batch in one.plan]
    longest = [len(batch) * max(source[batch].max(), target[batch].max()) ** 2 for batch in one.plan]
    assert [id(batch) for batch in seen] == [id(one.plan[np.argmax(sizes)]) for sizes in (areas, longest)]


def test_figures_are_of_true_tokens(subject: Callable[..., TrainingSubject]) -> None:
    one = subject("lstm")
    rounds = [Round(seconds, peak) for seconds, peak in ((2.0, 4e9), (1.0, 2e9), (4.0, 2e9))]
    found = record(one, rounds, Memory(3 * 10**6, 2 * 10**6), {"data": 1.0, "loss": 3.0}, saving=5.0)
    assert found["target_tokens_per_s"] == one.tokens / 2.0
    assert found["target_tokens_per_s_rounds"] == [one.tokens / 2.0, one.tokens / 1.0, one.tokens / 4.0]
    fractions = [one.operations / 8e9, one.operations / 2e9, one.operations / 8e9]
    assert found["fraction_of_peak_rounds"] == pytest.approx(fractions)
    assert found["fraction_of_peak"] == pytest.approx(one.operations / 8e9)
    assert found["operations_per_token"] * one.tokens == pytest.approx(one.operations)
    assert (found["peak_rss_mb"], found["step_memory_mb"], found["peak_device_mb"]) == (3.0, 2.0, None)
    assert found["share_by_part"] == {"data": 0.25, "loss": 0.75}
    assert found["save_share"] == pytest.approx(5.0 / (5.0 + 1000 * 2.0 / one.steps))


@pytest.mark.parametrize("family", ["lstm", "bahdanau", "luong"])
def test_step_by_step_is_the_same_training(family: str, subject: Callable[..., TrainingSubject]) -> None:
    """But for the order in which sums are made: the weights are the same after two steps."""
    options = ["model.dropout=0", "optimizer=sgd", "optimizer.lr=0.5"]
    weights = []
    for kind in (trainer.Trainer, StepByStepTrainer):
        one = subject(family, *options, kind=kind)
        first = {name: weight.clone() for name, weight in one.trainer.model.state_dict().items()}
        one.take_steps()
        weights.append(one.trainer.model.state_dict())
    for name, weight in weights[0].items():
        assert not torch.equal(weight, first[name]), name
        torch.testing.assert_close(weight, weights[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["luong", "transformer"])
def test_unguarded_is_the_same_training(family: str, subject: Callable[..., TrainingSubject]) -> None:
    """Without dropout, and while all is well, guarantees change nothing: the same weights to the bit."""
    weights = []
    for kind in (trainer.Trainer, UnguardedTrainer):
        one = subject(family, "model.dropout=0", "batch.accumulate=2", kind=kind)
        first = {name: weight.clone() for name, weight in one.trainer.model.state_dict().items()}
        one.take_steps()
        weights.append(one.trainer.model.state_dict())
    assert any(not torch.equal(weight, first[name]) for name, weight in weights[0].items())
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def test_saving_is_timed_on_checkpoints_that_are_gone_afterwards(
    subject: Callable[..., TrainingSubject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    written = []
    save = RunStore.save
    monkeypatch.setattr(RunStore, "save", lambda self, *rest: (save(self, *rest), written.append(self.checkpoints)))
    assert 0 < subject("lstm").saving() < 60
    assert len(written) == 3
    assert not any(folder.exists() for folder in written)
