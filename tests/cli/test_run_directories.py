"""What stands in a run directory or a corpus and is not what it should be: said at once, waited for by nobody.

And what was refused leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
Tiny = Callable[[str], list[str]]

pytestmark = pytest.mark.case
BUDGET = ["trainer.max_steps=1", "validation.sentences=2"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was trained in spite of all: it should stay empty."""
    from nmt.training.trainer import Trainer

    trained: list[str] = []
    monkeypatch.setattr(Trainer, "run", lambda self: trained.append("trained"))
    return trained


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "tokenizer.model", "metrics.jsonl", "results.json", "hypotheses/test.txt", "checkpoints"],
)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_something_else_in_place_of_a_runs_file(
    make: Callable[[Path], None], name: str, nmt: Command, tiny: Tiny, tmp_path: Path, begun: list[str]
) -> None:
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    if name == "checkpoints" and make is os.mkdir:
        path.write_text("")  # where a folder should be
    else:
        make(path)
    outcome = nmt("train", *tiny("lstm"), *BUDGET, f"run.dir={tmp_path / 'run'}")
    kind = "folder" if name == "checkpoints" else "regular file"
    says = f"nmt: error: {path} is no {kind}, though a run directory has one of that name; remove it"
    assert (outcome.status, outcome.err.splitlines()[-1], begun) == (2, says, [])


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "results.json", "hypotheses/test.txt"])
def test_a_pipe_in_a_trained_run(name: str, nmt: Command, run_copy: Path, tmp_path: Path) -> None:
    """Whoever only reads the run does so without the file, or says what it is."""
    (run_copy / name).unlink()
    os.mkfifo(run_copy / name)
    assert nmt("translate", run_copy, "--text", "The cat sees a horse.").out == "Le chat voit un cheval.\n"
    assert nmt("score", run_copy).err.splitlines()[-1].startswith(f"nmt: error: {run_copy / name} is no regular file")
    outcome = nmt("compare", run_copy, run_copy / "checkpoints" / "last", "--output", tmp_path / "out")
    assert outcome.status in (0, 1)
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"sets": {"test": 1}}', b"\xff", b"[" * 100_000])
def test_a_damaged_results_json_is_found_before_the_training(
    content: bytes, nmt: Command, tiny: Tiny, tmp_path: Path, begun: list[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_bytes(content)
    outcome = nmt("train", *tiny("lstm"), *BUDGET, f"run.dir={tmp_path / 'run'}")
    assert (outcome.status, begun) == (1, [])
    error = outcome.err.splitlines()[-1]
    assert error.startswith(f"nmt: error: {tmp_path / 'run' / 'results.json'} cannot be read: ")
    assert error.endswith("; remove it to score again")
    assert os.listdir(tmp_path / "run") == ["results.json"]


@pytest.mark.parametrize("name", ["train.en", "train.fr", "valid.en", "test.fr"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_something_else_in_place_of_a_corpus_file(
    make: Callable[[Path], None], name: str, nmt: Command, tiny: Tiny, corpus_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    for file in corpus_folder.iterdir():
        (tmp_path / "corpus" / file.name).symlink_to(file)
    (tmp_path / "corpus" / name).unlink()
    make(tmp_path / "corpus" / name)
    outcome = nmt("train", *tiny("lstm"), *BUDGET, f"data.dir={tmp_path / 'corpus'}", f"run.dir={tmp_path / 'run'}")
    says = f"nmt: error: data.dir={tmp_path / 'corpus'}: {name} is not a regular file, which can be read again\n"
    assert (outcome.status, outcome.err) == (2, says)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["valid", "test"])
def test_references_without_a_word(
    name: str, nmt: Command, tiny: Tiny, corpus_folder: Path, tmp_path: Path, begun: list[str]
) -> None:
    (tmp_path / "corpus").mkdir()
    for file in corpus_folder.iterdir():
        (tmp_path / "corpus" / file.name).symlink_to(file)
    blank = tmp_path / "corpus" / f"{name}.fr"
    lines = len(blank.read_bytes().splitlines())
    blank.unlink()
    blank.write_text("\u3000\n" * lines, encoding="utf-8")
    outcome = nmt("train", *tiny("lstm"), *BUDGET, f"data.dir={tmp_path / 'corpus'}", f"run.dir={tmp_path / 'run'}")
    key = "data.valid" if name == "valid" else "data.test.test"
    says = f"nmt: error: {key}: every line of {blank} is blank: there is nothing to score against\n"
    assert (outcome.status, outcome.err, begun) == (2, says, [])


@pytest.mark.parametrize("mistake", ["tokenizer.vocab_size=16", "data.filter.max_words=1", "data.dir=nowhere"])
def test_what_is_refused_leaves_nothing_behind(mistake: str, nmt: Command, tiny: Tiny, tmp_path: Path) -> None:
    """Whether it is found before the tokenizer is trained or after it."""
    run = tmp_path / "new" / "runs" / "run"
    assert nmt("train", *tiny("lstm"), *BUDGET, mistake, f"run.dir={run}").status == 2
    assert os.listdir(tmp_path) == []
    run.mkdir(parents=True)
    (run / "notes.txt").write_text("mine")
    assert nmt("train", *tiny("lstm"), *BUDGET, mistake, f"run.dir={run}").status == 2
    assert os.listdir(run) == ["notes.txt"]


def test_a_budget_that_no_pair_keeps_to_is_told(nmt: Command, tiny: Tiny, tmp_path: Path, begun: list[str]) -> None:
    outcome = nmt("train", *tiny("lstm"), *BUDGET, "batch.tokens=2", f"run.dir={tmp_path / 'run'}")
    assert "warning: batch.tokens=2 is too small for any pair, of which the shortest has " in outcome.err
    assert "batch.tokens" not in nmt("train", *tiny("lstm"), *BUDGET, f"run.dir={tmp_path / 'other'}").err
