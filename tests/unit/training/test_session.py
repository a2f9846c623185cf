"""A run from its config: what it writes, what it continues, and what it refuses to continue."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config import TrainConfig
from nmt.configuration import compose, load_config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.evaluation import card
from nmt.files import sha256_of
from nmt.training import session
from nmt.training.checkpoint import LAST, Checkpoint, find_checkpoint, step_directories
from nmt.training.monitor import read_metrics
from nmt.training.session import differences, end_in_words, train

Configure = Callable[..., TrainConfig]


@pytest.fixture
def configure(tiny: Callable[[str], list[str]], tmp_path: Path) -> Configure:
    """A config of a few steps in tmp_path/run, with overrides."""

    def config(*overrides: str) -> TrainConfig:
        few = ["trainer.max_steps=3", "validation.sentences=4", f"run.dir={tmp_path / 'run'}"]
        return compose([*tiny("bahdanau"), *few, *overrides])

    return config


def step_of(run: Path) -> int:
    return Checkpoint.open(run / "checkpoints" / LAST).step


# A whole run -----------------------------------------------------------------------------------------------------


def test_a_run_directory(trained_run: Path, corpus_folder: Path) -> None:
    names = {path.name for path in trained_run.iterdir()}
    assert names == {
        "config.yaml",
        "tokenizer.model",
        "checkpoints",
        "metrics.jsonl",
        "results.json",
        "hypotheses",
        "tensorboard",
    }
    config = load_config(trained_run / "config.yaml")
    assert config.model.family == "bahdanau"
    for directory in step_directories(trained_run / "checkpoints"):
        assert load_config(directory / "config.yaml") == config
        assert Tokenizer.load(directory).identity == Tokenizer.load(trained_run).identity
        meta = Checkpoint.open(directory).meta
        assert meta["data"] == {
            f"{split}[0] {split}.{side}": sha256_of(corpus_folder / f"{split}.{side}")
            for split in ("train", "valid")
            for side in ("en", "fr")
        }
        assert meta["parameters"] > 10_000
        assert meta["versions"]["torch"]


def test_results(trained_run: Path) -> None:
    results = json.loads((trained_run / "results.json").read_text(encoding="utf-8"))
    assert results.keys() == {"sets", "provenance"}
    (entry,) = results["sets"].values()
    required = {"bleu", "chrf", "bleu_signature", "chrf_signature", "literature_bleu", "sentences", "seconds"}
    assert required | {"target_tokens_per_s"} <= entry.keys()
    assert entry["bleu"] > 80
    assert entry["literature_bleu"] is None
    assert entry["sentences"] == 24
    assert entry["target_tokens_per_s"] > 0
    assert results["provenance"]["checkpoint"] == find_checkpoint(trained_run).name
    assert results["provenance"]["seed"] == 1
    assert (trained_run / "hypotheses" / "test.txt").read_bytes().count(b"\n") == 24


def test_metrics(trained_run: Path) -> None:
    records = read_metrics(trained_run / "metrics.jsonl")
    assert len(records) == len((trained_run / "metrics.jsonl").read_bytes().splitlines())
    assert all({"step", "epoch", "seconds", "tokens"} <= record.keys() for record in records)
    training = [record for record in records if "loss" in record]
    assert [record["step"] for record in training] == list(range(10, 201, 10))
    assert all(record["steps"] == 10 for record in training)
    measured = {"perplexity", "accuracy", "gradient_norm", "lr", "target_tokens_per_s", "padding_share"}
    assert all(measured <= record.keys() for record in training)
    assert training[-1]["loss"] < training[0]["loss"] / 2
    assert training[-1]["accuracy"] > 0.9
    assert all(0 <= record["padding_share"] < 0.2 for record in training)
    validations = [record for record in records if "valid_bleu" in record]
    assert [record["step"] for record in validations] == [50, 100, 150, 200]
    best = max(validations, key=lambda record: (record["valid_bleu"], -record["step"]))
    assert find_checkpoint(trained_run).name == f"step_{best['step']:08d}", "of equal ones, the first is the best"
    assert list((trained_run / "tensorboard").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([], "10 epochs (trainer.max_epochs)"),
        (["trainer.max_steps=1234567"], "1,234,567 steps (trainer.max_steps)"),
        (
            ["trainer.max_minutes=40", "trainer.patience=3"],
            "40 minutes (trainer.max_minutes) or 3 validations without a better BLEU (trainer.patience), "
            "whichever comes first",
        ),
    ],
)
def test_what_will_end_a_run_is_said_in_one_line(overrides: list[str], says: str) -> None:
    """A run without a budget has the one that is named."""
    assert end_in_words(compose(overrides).trainer) == f"training ends after {says}"


def test_a_run_begins_by_saying_what_will_end_it(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    train(configure("~data.test.test"))
    told = capsys.readouterr().err.splitlines()
    ends, begins = (next(i for i, line in enumerate(told) if text in line) for text in ("ends after", "an epoch"))
    assert told[ends] == "training ends after 3 steps (trainer.max_steps)"
    assert ends < begins


# Continuing ------------------------------------------------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize("budget", ["trainer.max_steps=200", "trainer.max_steps=5", "trainer.max_epochs=1"])
def test_nothing_left_to_do(
    budget: str, run_copy: Path, tiny: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run_copy.rglob("*") if path.is_file() and "board" not in str(path)}
    train(compose([*tiny("bahdanau"), "validation.every=50", budget, f"run.dir={run_copy}"]))
    told = capsys.readouterr().err
    assert "nothing left to do" in told
    assert "step 200" in told
    after = {path: path.read_bytes() for path in before if path.name != "config.yaml"}
    assert after == {path: data for path, data in before.items() if path.name != "config.yaml"}


def test_a_lost_result_is_made_again(run_copy: Path, tiny: Callable[[str], list[str]]) -> None:
    scores = json.loads((run_copy / "results.json").read_text())["sets"]["test"]
    (run_copy / "results.json").unlink()
    train(compose([*tiny("bahdanau"), "validation.every=50", "trainer.max_steps=200", f"run.dir={run_copy}"]))
    again = json.loads((run_copy / "results.json").read_text())["sets"]["test"]
    assert (again["bleu"], again["chrf"]) == (scores["bleu"], scores["chrf"])


def test_a_finished_run_has_its_report_and_no_trouble_with_it(
    run_copy: Path,
    tiny: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is missing is made when the same command runs again; one that is there is left; a failure is a line."""
    config = compose([*tiny("bahdanau"), "validation.every=50", "trainer.max_steps=200", f"run.dir={run_copy}"])
    config.run.report = True
    monkeypatch.setattr(card, "rendered", lambda template, **_: template)
    train(config)
    told = capsys.readouterr().err
    assert f"{run_copy / 'README.md'} and {run_copy / 'report.html'} are written" in told
    assert (run_copy / "report.html").read_text() == "run.html"
    (run_copy / "report.html").write_text("kept")
    train(config)
    assert (run_copy / "report.html").read_text() == "kept"
    (run_copy / "report.html").unlink()
    monkeypatch.setattr(card, "rendered", lambda template, **_: template.missing)
    train(config)
    assert "report.html is not written: AttributeError: " in capsys.readouterr().err
    assert not (run_copy / "report.html").exists()


@pytest.mark.case
def test_the_run_of_another_config_is_refused(configure: Configure, tmp_path: Path) -> None:
    train(configure())
    saved = step_directories(tmp_path / "run" / "checkpoints")
    for override in (
        "optimizer.lr=1e-4",
        "model.hidden_size=48",
        "tokenizer.vocab_size=100",
        "trainer.seed=2",
        "data.filter.max_words=9",
    ):
        key = override.split("=")[0]
        with pytest.raises(RequestError, match=f"holds a run with another {key}; give that value, or another run.dir"):
            train(configure(override))
    assert load_config(tmp_path / "run" / "config.yaml") == configure()
    assert step_directories(tmp_path / "run" / "checkpoints") == saved
    (tmp_path / "run" / "config.yaml").unlink()  # a checkpoint has its own
    with pytest.raises(RequestError, match=r"holds a run with another optimizer\.lr"):
        train(configure("optimizer.lr=1e-4"))


@pytest.mark.case
def test_a_run_that_never_began_does_not_stand_in_the_way(configure: Configure, tmp_path: Path) -> None:
    """A mistake leaves no directory, and what another attempt left is in nobody's way: corrected, the command works."""
    with pytest.raises(RequestError, match=r"tokenizer\.vocab_size=16 is too small"):
        train(configure("tokenizer.vocab_size=16"))
    with pytest.raises(RequestError, match="no file nothing"):
        train(configure("data.train=[{source: nothing.en, target: nothing.fr}]"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tokenizer.model").write_bytes(b"of another attempt")
    train(configure())
    assert step_of(tmp_path / "run") == 3
    directory = find_checkpoint(tmp_path / "run")
    assert Tokenizer.load(directory).identity == Tokenizer.load(tmp_path / "run").identity


def test_what_may_change_when_a_run_goes_on(configure: Configure, corpus_folder: Path, tmp_path: Path) -> None:
    train(configure())
    moved = shutil.copytree(corpus_folder, tmp_path / "moved")
    changes = ["trainer.max_steps=5", "trainer.patience=9", "trainer.keep_last=1", "search.beam_size=2", "run.notes=x"]
    train(configure(*changes, f"data.dir={moved}"))
    assert step_of(tmp_path / "run") == 5
    assert load_config(tmp_path / "run" / "config.yaml").data.dir == str(moved)  # type: ignore[attr-defined]


@pytest.mark.case
@pytest.mark.parametrize("name", ["train.en", "valid.fr"])
def test_other_data_under_the_same_name_is_refused(
    name: str, configure: Configure, corpus_folder: Path, tmp_path: Path
) -> None:
    train(configure())
    other = Path(shutil.copytree(corpus_folder, tmp_path / "other"))
    (other / name).write_text((other / name).read_text(encoding="utf-8").replace("a", "o", 1), encoding="utf-8")
    with pytest.raises(RequestError, match=rf"holds a run on other data: \w+\[0\] {name} has changed"):
        train(configure("trainer.max_steps=5", f"data.dir={other}"))
    assert step_of(tmp_path / "run") == 3


@pytest.mark.case
def test_the_tokenizer_is_the_checkpoints(configure: Configure, tmp_path: Path) -> None:
    """A lost or damaged tokenizer.model of the run is not trained anew, and another one is not taken."""
    train(configure())
    Tokenizer.train(configure().tokenizer, [("abc " * 9, "xyz " * 9)], tmp_path / "run", lambda line: None)
    train(configure("trainer.max_steps=5"))
    first, second = (Tokenizer.load(d).identity for d in step_directories(tmp_path / "run" / "checkpoints"))
    assert first == second


@pytest.mark.case
def test_a_damaged_last_checkpoint_costs_the_steps_since_the_one_before(
    configure: Configure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(configure("trainer.max_steps=2"))
    train(configure("trainer.max_steps=4"))
    newest = step_directories(tmp_path / "run" / "checkpoints")[-1] / "training.pt"
    newest.write_bytes(newest.read_bytes()[:100])
    capsys.readouterr()
    train(configure("trainer.max_steps=6"))
    told = capsys.readouterr().err
    assert f"{newest} is damaged" in told
    assert "at step 2" in told
    assert step_of(tmp_path / "run") == 6
    steps = [record["step"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert steps == sorted(steps)


def test_two_processes_do_not_train_in_one_directory(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with session.only_one(tmp_path / "run"), pytest.raises(RequestError, match="another process is training there"):
        train(configure())
    assert list((tmp_path / "run").iterdir()) == []
    train(configure())


def test_a_run_directory_that_cannot_be_made(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkError, match=r"run\.dir=.*file/run cannot be made: Not a directory"):
        train(configure(f"run.dir={tmp_path / 'file' / 'run'}"))


# Differences -----------------------------------------------------------------------------------------------------


def test_every_key_that_changes_what_is_trained_is_compared(tiny: Callable[[str], list[str]]) -> None:
    """All keys of four models' configs: either free, or a difference by its full name."""

    def leaves(section: dict[str, Any], prefix: str = "") -> list[str]:
        return [
            leaf
            for name, value in section.items()
            for leaf in (leaves(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [prefix + name])
        ]

    for family in ("lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "decoder_only"):
        config = compose([*tiny(family), "run.dir=x"])
        assert differences(config, config) == []
        for path in leaves(dataclasses.asdict(config)):
            changed = copy.deepcopy(config)
            *sections, name = path.split(".")
            owner: Any = changed
            for section in sections:
                owner = owner[section] if isinstance(owner, dict) else getattr(owner, section)
            setattr(owner, name, "something else")
            free = any(path == key or path.startswith(f"{key}.") for key in session.FREE_KEYS)
            assert differences(config, changed) == ([] if free else [path])
