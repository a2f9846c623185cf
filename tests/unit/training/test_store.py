"""What a run continues from: the latest checkpoint that is whole, with `best` where that checkpoint says it is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.configuration import load_config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import WorkError
from nmt.training.checkpoint import BEST, CHECKSUM, LAST, META, WEIGHTS, Checkpoint, checksum_of, step_directories
from nmt.training.store import RunStore


class Run:
    """A run directory that is saved to as training does."""

    def __init__(self, directory: Path, trained: Path, keep_last: int) -> None:
        self.config = load_config(trained / "config.yaml")
        self.tokenizer = Tokenizer.load(trained)
        self.store = RunStore(directory, {"parameters": 5, "data": {"train.en": "0"}}, keep_last)
        self.best_step = 0

    def save(self, step: int, best: bool = False, metrics: dict[str, float] | None = None) -> None:
        self.best_step = step if best else self.best_step
        progress: dict[str, Any] = {"step": step, "best_step": self.best_step, "validated_step": step}
        weights = {"weight": torch.full((3,), float(step))}
        self.store.save(self.config, self.tokenizer, weights, {"progress": progress}, progress, metrics, best)

    def steps(self) -> list[int]:
        return [Checkpoint.open(path).step for path in step_directories(self.store.checkpoints)]


@pytest.fixture
def run(tmp_path: Path, trained_run: Path) -> Run:
    return Run(tmp_path / "run", trained_run, keep_last=2)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_nothing_to_continue(run: Run) -> None:
    assert run.store.latest(pytest.fail) is None


def test_last_best_and_what_meta_says(run: Run) -> None:
    run.save(1, best=True, metrics={"bleu": 12.5})
    run.save(2)
    assert os.readlink(run.store.checkpoints / LAST) == "step_00000002"
    assert os.readlink(run.store.checkpoints / BEST) == "step_00000001"
    best, last = (Checkpoint.open(run.store.checkpoints / name).meta for name in (BEST, LAST))
    assert best["valid"] == {"bleu": 12.5}
    assert last["valid"] is None
    assert (last["step"], last["best_step"], last["parameters"], last["data"]) == (2, 1, 5, {"train.en": "0"})


@pytest.mark.case
def test_old_ones_are_removed_but_never_the_best_or_the_last(run: Run) -> None:
    run.save(1)
    run.save(2, best=True)
    for step in range(3, 13):
        run.save(step)
        assert {2, step} <= set(run.steps())
    assert run.steps() == [2, 11, 12]
    run.save(13, best=True)  # the former best is now as old as it looks
    assert run.steps() == [12, 13]


@pytest.mark.case
@pytest.mark.parametrize("name", [WEIGHTS, META, "training.pt", "tokenizer.model", "config.yaml"])
def test_a_damaged_checkpoint_is_named_and_passed_over(name: str, run: Run) -> None:
    run.save(1, best=True)
    run.save(2)
    path = run.store.checkpoints / "step_00000002" / name
    path.write_bytes(path.read_bytes()[:20])
    told: list[str] = []
    found = run.store.latest(told.append)
    assert found is not None
    assert found.step == 1
    assert len(told) == 1
    assert str(path) in told[0]


@pytest.mark.parametrize("name", ["validated_step", "best_step", "data"])
def test_a_meta_that_leaves_something_out_is_damaged(name: str, run: Run) -> None:
    run.save(1, best=True)
    run.save(2)
    path = run.store.checkpoints / "step_00000002" / META
    meta = json.loads(path.read_text())
    del meta[name]
    path.write_text(json.dumps({**meta, CHECKSUM: checksum_of(meta)}))
    told: list[str] = []
    found = run.store.latest(told.append)
    assert found is not None
    assert found.step == 1
    assert told == [f"{path} is damaged: it has no {name}; trying the one before"]


def test_all_damaged(run: Run) -> None:
    run.save(1)
    run.save(2)
    for directory in step_directories(run.store.checkpoints):
        damage(directory / WEIGHTS)
    told: list[str] = []
    with pytest.raises(WorkError, match="is damaged"):
        run.store.latest(told.append)
    assert len(told) == 2


def test_best_is_pointed_to_again_after_a_crash_between_saving_and_pointing(run: Run) -> None:
    run.save(1, best=True)
    run.save(2)
    run.best_step = 2  # a validation at step 2 found it better, and the process died before `best` was moved
    run.save(2)
    assert os.readlink(run.store.checkpoints / BEST) == "step_00000001"
    assert run.store.latest(pytest.fail) is not None
    assert os.readlink(run.store.checkpoints / BEST) == "step_00000002"


def test_going_back_takes_best_back(run: Run) -> None:
    """Where the damaged checkpoint was also the best one, `best` is again what the earlier one says."""
    run.save(1, best=True)
    run.save(2, best=True)
    damage(run.store.checkpoints / "step_00000002" / WEIGHTS)
    found = run.store.latest(lambda line: None)
    assert found is not None
    assert os.readlink(run.store.checkpoints / BEST) == "step_00000001"


def test_lost_links_do_not_matter(run: Run) -> None:
    run.save(1, best=True)
    run.save(2)
    (run.store.checkpoints / LAST).unlink()
    (run.store.checkpoints / BEST).unlink()
    found = run.store.latest(pytest.fail)
    assert found is not None
    assert found.step == 2
    assert os.readlink(run.store.checkpoints / BEST) == "step_00000001"
    shutil.rmtree(run.store.checkpoints)
    assert run.store.latest(pytest.fail) is None


def test_what_a_killed_process_left_is_tidied_away(run: Run) -> None:
    """A half-written checkpoint, a half-removed one, a link that was not yet in its place, and one too many."""
    run.store.keep_last = 9
    run.config.trainer.keep_last = 2
    for step in (1, 2, 3, 4):
        run.save(step, best=step == 1)
    checkpoints = run.store.checkpoints
    for name in ("step_00000005", "step_00000000"):
        (checkpoints / f".{name}.0123456789abcdef.tmp").mkdir()
    (checkpoints / ".best.link").symlink_to("step_00000003")
    run.store.tidy()
    assert {path.name for path in checkpoints.iterdir()} == {
        *(f"step_0000000{step}" for step in (1, 3, 4)),
        *(LAST, BEST),
    }
    shutil.rmtree(checkpoints)
    run.store.tidy()


@pytest.mark.case
def test_a_damaged_checkpoint_takes_no_good_ones_place(run: Run) -> None:
    """It is the later one until the run comes to its step again, and only one is kept."""
    run.save(1)
    run.save(5)
    run.store.keep_last = 1
    damage(run.store.checkpoints / "step_00000005" / WEIGHTS)
    assert run.store.latest(lambda line: None) is not None
    assert os.readlink(run.store.checkpoints / LAST) == "step_00000001"
    for step in (2, 3):
        run.save(step)
        assert Checkpoint.open(run.store.checkpoints / LAST).step == step
    assert [path.name[-1] for path in step_directories(run.store.checkpoints)] == ["3", "5"]
    run.save(5)
    assert run.steps() == [5]
