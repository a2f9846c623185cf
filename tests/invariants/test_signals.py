"""A run that is stopped or killed loses nothing that was saved, and the same command comes to the same end.

SIGINT, SIGTERM and SIGHUP at every kind of moment, in this process; SIGKILL at random ones, in processes of its own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.data import encoded
from nmt.data import tokenizer as tokenizer_module
from nmt.evaluation import scoring
from nmt.training import checkpoint as checkpoint_module
from nmt.training import validation
from nmt.training.checkpoint import Checkpoint, step_directories
from runs import assert_loads, assert_same_end, signal_after

pytestmark = [pytest.mark.invariant, pytest.mark.case]

Command = Callable[[Path], list[str]]
Nmt = Callable[[list[str]], tuple[int, list[str]]]
LAST_STEP = 5


# Signals ---------------------------------------------------------------------------------------------------------


def signalling(number: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but before its first work a signal to this process."""
    sent = []

    def call(*arguments: Any, **named: Any) -> Any:
        if not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return then(*arguments, **named)

    return call


# Where the signal comes: what is called then, and the step that is saved when the process has ended.
MOMENTS: dict[str, tuple[Any, str, int]] = {
    "tokenizer training": (tokenizer_module, "_sentencepiece_model", 0),  # in a thread of its own
    "encoding": (encoded, "_write", 0),
    "validation": (validation, "corpus_scores", 2),
    "saving": (checkpoint_module, "save_config", 2),
    "scoring": (scoring, "corpus_scores", LAST_STEP),
}


@pytest.fixture
def _no_nohup() -> Iterator[None]:
    """Whatever the tests were started with, SIGHUP is as it is in a terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_no_nohup")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("moment", ["training", *MOMENTS])
def test_a_signal_at_any_moment(
    moment: str,
    number: int,
    status: int,
    command: Command,
    whole: Path,
    nmt: Nmt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        if moment == "training":
            saved = 3
            signal_after(saved, number, patch)
        else:
            module, name, saved = MOMENTS[moment]
            patch.setattr(module, name, signalling(number, getattr(module, name)))
        ended, told = nmt(command(run))
    assert ended == status
    in_the_loop = moment in ("training", "validation", "saving")
    stopped = "interrupted" if number == signal.SIGINT else "terminated"
    assert told == [f"nmt: stopped at step {saved}, saved" if in_the_loop else f"nmt: {stopped}"]
    assert [Checkpoint.open(path).step for path in step_directories(run / "checkpoints")][-1:] == [saved] * bool(saved)
    assert_loads(run)
    assert not {*run.rglob(".*"), *(tmp_path / "cache").rglob(".*")}, "nothing half-written"
    assert nmt(command(run)) == (0, [])
    assert_same_end(run, whole)


# SIGKILL ---------------------------------------------------------------------------------------------------------


def soak(*arguments: str) -> int:
    """scripts/soak.py, in this process; the runs that it kills are others."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "soak.py"
    spec = importlib.util.spec_from_file_location("soak", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # as its dataclasses want it
    spec.loader.exec_module(module)
    return int(module.main(list(arguments)))


def test_killed_a_few_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak("--kills", "3", "--folder", str(tmp_path), "trainer.max_steps=20") == 0, capsys.readouterr()
    told = capsys.readouterr().out
    assert told.startswith("kills: 3 (")
    assert re.search(r"runs equal at the end: (\d+) of \1, no stray files\nlongest time lost: \d+\.\d\d s\n", told)


@pytest.mark.slow
@pytest.mark.parametrize("model", [[], ["model=transformer_tiny", "model.width=32", "model.feed_forward_size=64"]])
def test_killed_fifty_times(model: list[str], tmp_path: Path) -> None:
    assert soak("--kills", "50", "--folder", str(tmp_path), *model) == 0
