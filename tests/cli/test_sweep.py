"""`nmt train -m`: a member that fails stops nobody, whatever launches it, and the same command does what is missing."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import TrainConfig
from nmt.configuration import sweep
from nmt.configuration.composition import compose_node
from nmt.configuration.store import options_of
from nmt.configuration.sweep import DONE, FAILED, LOST, MEMBERS_FILE, Outcome
from nmt.errors import RequestError, WorkError
from nmt.training import session
from nmt.training.checkpoint import LAST, Checkpoint, step_directories

Command = Callable[..., Any]
Tiny = Callable[[str], list[str]]

PRESETS = [(part, name) for part in ("launcher", "sweeper") for name in options_of(f"hydra/{part}")]
QUICK = ["data.max_train_pairs=60", "batch.tokens=150", "validation.sentences=5", "~data.test.test"]


@pytest.fixture
def replace_trainer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[TrainConfig], float]], None]:
    """Another function in place of the training."""
    return lambda train: monkeypatch.setattr(session, "train", train)


def members_of(folder: Path) -> list[Outcome]:
    """The table that the latest sweep has left in a folder."""
    latest = max((folder / "multirun").glob(f"*/{MEMBERS_FILE}"), key=lambda path: path.stat().st_mtime_ns)
    return [Outcome(**entry) for entry in json.loads(latest.read_text(encoding="utf-8"))]


def stamps(run: Path) -> dict[str, int]:
    """When each file of the checkpoints was written, by name."""
    return {str(path): path.stat().st_mtime_ns for path in run.glob("checkpoints/step_*/*")}


# A whole sweep ---------------------------------------------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize("launcher", ["basic", "processes", pytest.param("local_jobs", marks=pytest.mark.slow)])
def test_of_five_one_fails_and_the_same_again_does_what_is_missing(
    launcher: str, nmt: Command, tiny: Tiny, empty_folder: Path
) -> None:
    """Four are done, and the fifth is named. Then one has lost its last steps, and takes them again; three rest."""
    options = [*tiny("lstm"), *QUICK, "trainer.max_steps=2", "trainer.save_every=1", f"hydra/launcher={launcher}"]
    command = ["train", "-m", *options, "tokenizer.vocab_size=16,70,80,90,100"]
    outcome = nmt(*command)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.splitlines()[-1] == "nmt: error: 1 of 5 runs failed: tokenizer.vocab_size=16"
    failed, *done = members_of(empty_folder)
    assert (failed.state, failed.run) == (FAILED, "")
    assert "tokenizer.vocab_size=16 is too small" in failed.error
    assert [(member.state, member.label) for member in done] == [
        (DONE, f"tokenizer.vocab_size={size}") for size in (70, 80, 90, 100)
    ]
    assert [Checkpoint.open(Path(m.run) / "checkpoints" / LAST).meta["best_bleu"] for m in done] == [
        member.bleu for member in done
    ]
    half, *others = [Path(member.run) for member in done]
    last = step_directories(half / "checkpoints")[-1]
    weights = Checkpoint.open(last).weights()
    shutil.rmtree(last)
    (half / "results.json").unlink()
    before = [stamps(run) for run in others]
    assert nmt(*command).status == 1
    assert all(torch.equal(weight, weights[name]) for name, weight in Checkpoint.open(last).weights().items())
    assert (half / "results.json").is_file()
    assert [stamps(run) for run in others] == before
    again = members_of(empty_folder)
    assert [(m.state, m.run, m.bleu) for m in again] == [(m.state, m.run, m.bleu) for m in (failed, *done)]


def test_the_table_names_each_member_and_the_best(
    replace_trainer: Callable[..., None], nmt: Command, empty_folder: Path
) -> None:
    def train(config: TrainConfig) -> float:
        if config.model.name == "cho":
            raise WorkError("out of memory")
        Path(config.run.dir).mkdir(parents=True)
        return {"lstm": 1.5, "luong": 20.25}[config.model.name]

    replace_trainer(train)
    outcome = nmt("train", "-m", "model=lstm,cho,luong", "trainer.seed=3")
    assert outcome.status == 1
    lstm, cho, luong, best, error = outcome.err.splitlines()[-5:]
    first, failed, second = members_of(empty_folder)
    assert lstm.split() == ["1", "done", "1.50", first.run, "model=lstm"]
    assert cho.split() == ["2", "failed", "–", "–", "model=cho:", "out", "of", "memory"]
    assert luong.split() == ["3", "done", "20.25", second.run, "model=luong"]
    assert best == f"best on the validation set: {second.run} with BLEU 20.25"
    assert error == "nmt: error: 1 of 3 runs failed: model=cho"
    assert failed.error == "out of memory"


# What launchers and sweepers do ------------------------------------------------------------------------------------


def test_members_that_a_launcher_loses_are_named(
    monkeypatch: pytest.MonkeyPatch, nmt: Command, empty_folder: Path
) -> None:
    """As where a process is killed for want of memory: what the others have done is told all the same."""

    def launch(arguments: Sequence[str], task: sweep.Task) -> None:
        (task.records / "1.json").write_text(json.dumps({"number": 1, "overrides": [], "state": DONE, "bleu": 3.0}))
        raise OSError("a worker was killed")

    monkeypatch.setattr(sweep, "hydra_main", launch)
    outcome = nmt("train", "-m", "trainer.seed=1,2,3")
    assert outcome.status == 1
    assert [member.state for member in members_of(empty_folder)] == [LOST, DONE, LOST]
    assert outcome.err.splitlines()[-1].startswith("nmt: error: 2 of 3 runs failed: trainer.seed=1; trainer.seed=3 (")
    assert "a worker was killed" in outcome.err.splitlines()[-1]


def test_an_answer_that_cannot_be_written_stops_nobody(
    replace_trainer: Callable[..., None], monkeypatch: pytest.MonkeyPatch, nmt: Command, empty_folder: Path
) -> None:
    write = sweep.write_atomically

    def full(path: Path, content: str) -> None:
        if path.name == "0.json":
            raise WorkError(f"{path}: no space left on device")
        write(path, content)

    replace_trainer(lambda config: 1.0)
    monkeypatch.setattr(sweep, "write_atomically", full)
    outcome = nmt("train", "-m", "trainer.seed=1,2")
    assert outcome.status == 1
    assert "0.json: no space left on device" in outcome.err
    assert [member.state for member in members_of(empty_folder)] == [LOST, DONE]


def test_optuna_gets_the_validation_bleu_and_chooses_the_same_runs_again(
    replace_trainer: Callable[..., None], nmt: Command, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails is one from which it learns nothing."""
    tried: list[float] = []

    def train(config: TrainConfig) -> float:
        tried.append(config.optimizer.lr)
        if len(tried) % 4 == 2:
            raise WorkError("out of memory")
        return 30 - 1e4 * config.optimizer.lr

    replace_trainer(train)
    space = ["optimizer.lr=tag(log, interval(1e-4, 1e-3))", "trainer.seed=7"]
    command = ["train", "-m", *space, "hydra/sweeper=optuna_bleu", "hydra.sweeper.n_trials=4", "hydra.sweep.dir=s"]
    outcome = nmt(*command)
    assert outcome.status == 1
    assert len(tried) == len(set(tried)) == 4
    assert all(1e-4 <= rate <= 1e-3 for rate in tried)
    labels = [f"optimizer.lr={rate!r}" for rate in tried]
    assert outcome.err.splitlines()[-1] == f"nmt: error: 1 of 4 runs failed: {labels[1]}"
    assert f"nmt: run 1: {labels[0]}" in outcome.err.splitlines()
    told = (empty_folder / "s" / "optimization_results.yaml").read_text(encoding="utf-8")
    best = min(rate for number, rate in enumerate(tried) if number != 1)
    assert f"optimizer.lr: {best!r}" in told, "the greatest BLEU is the best"
    first = list(tried)
    assert nmt(*command).status == 1
    assert tried[4:] == first


def test_a_search_space_is_checked_before_anything_begins(nmt: Command, empty_folder: Path) -> None:
    for override, says in (
        ("optimizer.lrr=interval(1e-4, 1e-3)", "optimizer.lrr: no such key"),
        ("optimizer.lr=interval(-1, 1)", "optimizer.lr=-1.0: must be a number, above 0"),
        ("model=lstm,luonng", "model=luonng: no such preset"),
    ):
        outcome = nmt("train", "-m", override, "hydra/sweeper=optuna_bleu")
        assert outcome.status == 2, override
        assert says in outcome.err
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize(("part", "name"), PRESETS)
def test_every_preset_builds_on_a_plugin_or_says_what_is_missing(part: str, name: str) -> None:
    from hydra.utils import get_class

    if name == "ray_tasks" and importlib.util.find_spec("hydra_plugins.hydra_ray_launcher") is None:
        with pytest.raises(RequestError, match=r"^hydra/launcher=ray_tasks: needs hydra-ray-launcher, which is not"):
            compose_node([f"hydra/{part}={name}"])
    else:
        assert get_class(compose_node([f"hydra/{part}={name}"]).hydra[part]._target_)


def test_the_same_run_twice_is_refused(nmt: Command, empty_folder: Path) -> None:
    outcome = nmt("train", "-m", "trainer.seed=1,1")
    assert (outcome.status, outcome.err) == (2, "nmt: error: two runs of this sweep are the same: trainer.seed=1\n")
    assert list(empty_folder.iterdir()) == []
