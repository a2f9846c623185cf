"""The command, run in this process or in one of its own, and a small run without attention."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmt import cli


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def nmt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """nmt("translate", run, stdin=b"…"), in this process: quick, and torch is imported once."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    return run


@pytest.fixture
def nmt_process() -> Callable[..., subprocess.Popen[bytes]]:
    """The command as a process, its three streams as pipes; further arguments by name are environment variables."""

    def start(*arguments: str | Path, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "nmt", *map(str, arguments)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    return start


@pytest.fixture(scope="session")
def lstm_run(tiny: Callable[[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a model without attention, of one step. Not to be changed."""
    from nmt.configuration import compose
    from nmt.training.session import train

    run = tmp_path_factory.mktemp("runs") / "lstm"
    train(compose([*tiny("lstm"), "trainer.max_steps=1", "~data.test.test", f"run.dir={run}"]))
    return run
