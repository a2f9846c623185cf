"""The command, run in a process of its own, and a small run without attention."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


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
