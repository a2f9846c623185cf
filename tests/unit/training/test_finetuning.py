"""`init_from`: what a run takes from another one, what it does not, and what it refuses to begin with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.config import TrainConfig
from nmt.configuration import compose
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.training.checkpoint import LAST, WEIGHTS, Checkpoint, find_checkpoint
from nmt.training.monitor import read_metrics
from nmt.training.session import train

Configure = Callable[..., TrainConfig]


@pytest.fixture
def other_corpus(corpus_folder: Path, tmp_path: Path) -> Path:
    """Text whose own vocabulary would be another one."""
    folder = Path(shutil.copytree(corpus_folder, tmp_path / "other"))
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("a", "ab").replace("i", "ir"), encoding="utf-8")
    return folder


@pytest.fixture
def configure(tiny: Callable[[str], list[str]], other_corpus: Path, tmp_path: Path) -> Configure:
    """A config of a few steps on other text in tmp_path/tuned, with overrides."""

    def config(*overrides: str, preset: str = "bahdanau") -> TrainConfig:
        few = [f"data.dir={other_corpus}", "trainer.max_steps=3", "validation.sentences=4", "~data.test.test"]
        return compose([*tiny(preset), *few, f"run.dir={tmp_path / 'tuned'}", *overrides])

    return config


def last(run: Path) -> Checkpoint:
    return Checkpoint.open(run / "checkpoints" / LAST)


def files_of(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


STANDSTILL = ("optimizer=sgd", "optimizer.lr=1e-30", "trainer.max_steps=1")
"""Steps that are too small to change a weight."""


@pytest.mark.case
def test_training_begins_with_the_weights_and_the_tokenizer_of_the_parent(
    configure: Configure, trained_run: Path, tmp_path: Path
) -> None:
    """The parent is only read. The text, encoded for a tokenizer of its own before, is encoded for the parent's."""
    cache = f"data.cache={tmp_path / 'cache'}"
    train(configure(cache, f"run.dir={tmp_path / 'own'}"))
    before = files_of(trained_run)
    train(configure(cache, *STANDSTILL, f"init_from={trained_run}", "data.filter.max_words=250", "model.dropout=0"))
    run, parent = tmp_path / "tuned", Checkpoint.open(find_checkpoint(trained_run))
    weights = last(run).weights()
    assert weights.keys() == parent.weights().keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in parent.weights().items())
    identities = [Tokenizer.load(folder).identity for folder in (trained_run, run, last(run).directory)]
    assert len(set(identities)) == 1
    assert Tokenizer.load(tmp_path / "own").identity != identities[0]
    assert len(list((tmp_path / "cache" / "encoded").iterdir())) == 2
    assert len(list((tmp_path / "cache" / "filtered").iterdir())) == 1
    assert files_of(trained_run) == before


@pytest.mark.case
def test_counters_and_optimizer_begin_anew_and_the_origin_is_recorded(
    configure: Configure, trained_run: Path, tmp_path: Path
) -> None:
    """A checkpoint may be named as well as a run; of a second fine-tuning, both parents are known."""
    first = trained_run / "checkpoints" / "step_00000050"
    train(configure(f"init_from={first}"))
    checkpoint = last(tmp_path / "tuned")
    assert (checkpoint.step, checkpoint.meta["validated_step"]) == (3, 3)
    state = checkpoint.training_state()["optimizer"]["state"]
    assert {float(entry["step"]) for entry in state.values()} == {3.0}
    assert [record["step"] for record in read_metrics(tmp_path / "tuned" / "metrics.jsonl")][-1] == 3
    origin = {
        "run": str(first),
        "step": 50,
        "weights_sha256": Checkpoint.open(first).meta["sha256"][WEIGHTS],
    }
    assert checkpoint.meta["init_from"] == origin
    results = json.loads((tmp_path / "tuned" / "results.json").read_text(encoding="utf-8"))
    assert results["provenance"]["init_from"] == origin
    train(configure(f"init_from={tmp_path / 'tuned'}", f"run.dir={tmp_path / 'second'}"))
    assert last(tmp_path / "second").meta["init_from"] | {"init_from": None} == {
        "run": str(tmp_path / "tuned"),
        "step": checkpoint.step,
        "weights_sha256": checkpoint.meta["sha256"][WEIGHTS],
        "init_from": None,
    }
    assert last(tmp_path / "second").meta["init_from"]["init_from"] == origin


@pytest.mark.case
def test_it_goes_on_without_the_parent_to_the_same_weights(
    configure: Configure, run_copy: Path, tmp_path: Path
) -> None:
    """The same init_from is to be given, since it is part of what the run is."""
    given = f"init_from={run_copy}"
    train(configure(given, "trainer.max_steps=5", f"run.dir={tmp_path / 'whole'}"))
    train(configure(given))
    for other in ((), (f"init_from={tmp_path / 'whole'}",)):
        with pytest.raises(RequestError, match="holds a run with another init_from; give that value"):
            train(configure(*other, "trainer.max_steps=5"))
    shutil.rmtree(run_copy)
    train(configure(given, "trainer.max_steps=5"))
    whole, resumed = last(tmp_path / "whole"), last(tmp_path / "tuned")
    assert resumed.step == 5
    assert all(torch.equal(weight, resumed.weights()[name]) for name, weight in whole.weights().items())
    assert resumed.meta["init_from"] == whole.meta["init_from"]


@pytest.mark.case
@pytest.mark.parametrize(
    ("preset", "overrides", "says"),
    [
        ("cho", [], r"model=bahdanau \(here cho\)"),
        (
            "bahdanau",
            ["model.hidden_size=48", "tokenizer.vocab_size=100", "model.dropout=0.3"],
            r"model\.hidden_size=32 \(here 48\), tokenizer\.vocab_size=90 \(here 100\)",
        ),
    ],
)
def test_another_model_or_vocabulary_is_refused_in_one_line(
    preset: str, overrides: list[str], says: str, configure: Configure, trained_run: Path, tmp_path: Path
) -> None:
    """Dropout is no part of what the weights are made for."""
    with pytest.raises(RequestError, match=rf"^init_from={trained_run} is a run with {says}; give its values, which"):
        train(configure(*overrides, f"init_from={trained_run}", preset=preset))
    assert not (tmp_path / "tuned").exists()


@pytest.mark.case
def test_what_is_no_run_is_refused_before_anything_is_made(
    configure: Configure, run_copy: Path, tmp_path: Path
) -> None:
    for given, says in ((tmp_path / "none", "no such run directory"), (tmp_path, "has no checkpoint")):
        with pytest.raises(RequestError, match=rf"^init_from={given}: {given}:? {says}"):
            train(configure(f"init_from={given}"))
    with pytest.raises(RequestError, match='init_from="": must be a run directory'):
        configure('init_from=""')
    damaged = find_checkpoint(run_copy) / WEIGHTS
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(WorkError, match=f"{damaged} is damaged"):
        train(configure(f"init_from={run_copy}"))
    assert not (tmp_path / "tuned").exists()


def test_another_direction_is_told(configure: Configure, trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turned = ["data.source_language=fr", "data.target_language=en"]
    train(configure(f"init_from={trained_run}", *turned, *STANDSTILL))
    told = capsys.readouterr().err
    assert f"warning: init_from={trained_run} translates from en to fr, and this run from fr to en" in told
