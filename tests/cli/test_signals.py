"""SIGTERM and SIGINT outside of the training loop: an exit status of their own, and nothing half-written is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nmt import files
from nmt.data import journal

Command = Callable[..., Any]
Tiny = Callable[[str], list[str]]

SIGNALS = {signal.SIGTERM: (143, "nmt: terminated"), signal.SIGINT: (130, "nmt: interrupted")}
GRAMMAR = ["data=grammar", "data.train_pairs=40", "data.valid_pairs=3", "data.test_pairs=3", "data.max_words=9"]


def interrupt(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, number: int, call: int) -> list[Path]:
    """Sends the signal at a call of a function that a module calls by this name, where something half-written is there.

    Returns: a list that gets what the function was called with.
    """
    function = getattr(module, name)
    seen: list[Any] = []

    def interrupted(argument: Any) -> None:
        seen.append(argument)
        if len(seen) == call:
            os.kill(os.getpid(), number)
        function(argument)

    monkeypatch.setattr(module, name, interrupted)
    return seen


def half_written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if files._TEMPORARY.fullmatch(path.name)]


@pytest.mark.case
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("module", "call", "written"), [(files, 1, "grammar"), (journal, 1, "filtered"), (journal, 2, "encoded")]
)
def test_while_a_corpus_is_prepared(
    module: ModuleType,
    call: int,
    written: str,
    number: int,
    nmt: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [f"run.dir={tmp_path / 'run'}", f"data.cache={tmp_path / 'cache'}", "tokenizer.vocab_size=120"]
    seen = interrupt(monkeypatch, module, "fsync_tree", number, call)
    outcome = nmt("train", *GRAMMAR, *options)
    assert seen[-1].parent.name == written
    assert (outcome.status, outcome.out, outcome.err.splitlines()[-1]) == (SIGNALS[number][0], "", SIGNALS[number][1])
    assert "Traceback" not in outcome.err
    assert half_written(tmp_path) == []
    assert not any((tmp_path / "cache" / written).iterdir()), "nor anything that looks complete"


@pytest.mark.case
@pytest.mark.parametrize("number", SIGNALS)
def test_while_scores_are_written(number: int, nmt: Command, run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run_copy / "results.json").read_bytes()
    write = os.fsync

    def fsync(descriptor: int) -> None:
        assert half_written(run_copy) != []
        os.kill(os.getpid(), number)
        write(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    outcome = nmt("score", run_copy)
    assert (outcome.status, outcome.err.splitlines()[-1]) == SIGNALS[number]
    assert half_written(run_copy) == []
    assert (run_copy / "results.json").read_bytes() == before


def test_afterwards_the_signal_is_what_it_was(nmt: Command) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert nmt("--help").status == 0
    assert signal.getsignal(signal.SIGTERM) == before
