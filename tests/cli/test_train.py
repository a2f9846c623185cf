"""`nmt train` from end to end: a run directory with what it should hold, and an end that a shell understands."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.training.checkpoint import LAST, Checkpoint
from nmt.training.monitor import read_metrics

Command = Callable[..., Any]
Tiny = Callable[[str], list[str]]

QUICK = ["data.max_train_pairs=60", "batch.tokens=150", "validation.sentences=5", "trainer.log_every=1"]


@pytest.mark.parametrize(
    "family", ["lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "decoder_only"]
)
def test_train_then_translate_and_score(family: str, nmt: Command, tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = nmt("train", *tiny(family), *QUICK, "trainer.max_steps=4", "validation.every=2", f"run.dir={run}")
    assert (outcome.status, outcome.out) == (0, "")
    assert f"{family}: " in outcome.err
    assert "kept 60 of 60 pairs" in outcome.err
    assert {path.name for path in run.iterdir()} == {
        "config.yaml",
        "tokenizer.model",
        "checkpoints",
        "metrics.jsonl",
        "results.json",
        "hypotheses",
        "tensorboard",
    }
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step_00000002", "step_00000004", "best", "last"}
    assert {path.name for path in (run / "checkpoints" / "last").iterdir()} == {
        "model.safetensors",
        "training.pt",
        "meta.json",
        "config.yaml",
        "tokenizer.model",
    }
    assert not os.path.isabs(os.readlink(run / "checkpoints" / "last"))
    steps = [record["step"] for record in read_metrics(run / "metrics.jsonl")]
    assert steps == [1, 2, 2, 3, 4, 4]
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert set(results["sets"]) == {"test"}
    assert nmt("translate", run, "--text", "The cat sees a horse.").out.count("\n") == 1
    scored = nmt("score", run, "--set", "test")
    assert scored.status == 0
    assert f"{results['sets']['test']['bleu']:.2f}" in scored.out


@pytest.mark.case
def test_again_says_that_nothing_is_left(nmt: Command, tiny: Tiny, tmp_path: Path) -> None:
    command = ["train", *tiny("lstm"), *QUICK, f"run.dir={tmp_path / 'run'}"]
    assert nmt(*command, "trainer.max_steps=3").status == 0
    for budget in ("trainer.max_steps=3", "trainer.max_steps=2"):
        again = nmt(*command, budget)
        assert again.status == 0
        assert "nothing left to do, scored at step 3" in again.err


@pytest.mark.case
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_same_command_goes_on(
    number: int, status: int, nmt: Command, nmt_process: Command, tiny: Tiny, tmp_path: Path
) -> None:
    """In a locale without accents, which the corpus and the names of the run have."""
    command = ["train", *tiny("bahdanau"), *QUICK, "validation.every=1000"]
    interrupted, whole = tmp_path / "interrompu", tmp_path / "whole"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    endless = [f"run.dir={interrupted}", "trainer.max_steps=100000", "'run.notes=\"été\"'".strip("'")]
    with nmt_process(*command, *endless, **locale) as process:
        until = time.monotonic() + 120
        while not read_metrics(interrupted / "metrics.jsonl"):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (status, b"")
    step = Checkpoint.open(interrupted / "checkpoints" / LAST).step
    assert err.decode("utf-8").splitlines()[-1] == f"nmt: stopped at step {step}, saved"
    assert "Traceback" not in err.decode("utf-8")
    assert not (interrupted / "results.json").exists()
    budget = f"trainer.max_steps={step + 3}"
    resumed = nmt(*command, f"run.dir={interrupted}", budget, 'run.notes="été"')
    assert resumed.status == 0
    assert f"continuing {interrupted} at step {step}" in resumed.err
    assert nmt(*command, f"run.dir={whole}", budget).status == 0
    left, right = (Checkpoint.open(run / "checkpoints" / LAST) for run in (interrupted, whole))
    assert left.step == right.step == step + 3
    assert all(torch.equal(weight, right.weights()[name]) for name, weight in left.weights().items())
    scores = [json.loads((run / "results.json").read_text())["sets"]["test"]["chrf"] for run in (interrupted, whole)]
    assert scores[0] == scores[1]


@pytest.mark.case
def test_paths_are_those_of_the_callers_folder(
    nmt: Command, tiny: Tiny, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ici").mkdir()
    (tmp_path / "données").symlink_to(corpus_folder)
    monkeypatch.chdir(tmp_path / "ici")
    options = [*QUICK, "trainer.max_steps=1", 'data.dir="../données"', "run.dir=a/run"]
    assert nmt("train", *tiny("lstm"), *options).status == 0
    assert (tmp_path / "ici" / "a" / "run" / "results.json").is_file()
    assert nmt("score", "a/run").status == 0
    assert {path.name for path in (tmp_path / "ici").iterdir()} == {"a"}


def test_without_run_dir_a_name_is_made(nmt: Command, tiny: Tiny, empty_folder: Path) -> None:
    assert nmt("train", *tiny("lstm"), *QUICK, "trainer.max_steps=1", "~data.test.test").status == 0
    (run,) = (empty_folder / "runs").iterdir()
    assert run.name.startswith("lstm-files-")
    assert not set(run.name) & set("=, :")


def test_a_corpus_that_is_packed(nmt: Command, tiny: Tiny, corpus_folder: Path, tmp_path: Path) -> None:
    """gzip is known by its content: the results are those of the plain files."""
    import gzip

    (tmp_path / "packed").mkdir()
    for path in corpus_folder.iterdir():
        (tmp_path / "packed" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name, folder in (("plain", corpus_folder), ("gz", tmp_path / "packed")):
        options = [*QUICK, "trainer.max_steps=2", f"data.dir={folder}", f"run.dir={tmp_path / name}"]
        assert nmt("train", *tiny("lstm"), *options).status == 0
    left, right = (Checkpoint.open(tmp_path / name / "checkpoints" / LAST).weights() for name in ("plain", "gz"))
    assert all(torch.equal(left[name], right[name]) for name in left)
