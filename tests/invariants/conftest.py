"""A small run that everything may happen to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt import cli
from runs import FEW

LAST_STEP = 5
OPTIONS = [*FEW, "validation.every=2", "trainer.log_every=1", f"trainer.max_steps={LAST_STEP}", "trainer.keep_last=9"]


@pytest.fixture(scope="session")
def command(tiny: Callable[[str], list[str]]) -> Callable[[Path], list[str]]:
    """The words of the command that trains in a directory."""
    return lambda run: ["train", *tiny("lstm"), *OPTIONS, f"run.dir={run}"]


@pytest.fixture(scope="session")
def whole(command: Callable[[Path], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to: checkpoints of steps 2, 4 and 5. Not to be changed."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert cli.main(command(run)) == 0
    return run


@pytest.fixture
def nmt(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], tuple[int, list[str]]]:
    """Runs a command: its exit status, and the lines on stderr that are about an end."""

    def run(words: list[str]) -> tuple[int, list[str]]:
        capsys.readouterr()
        status = cli.main(words)
        told = capsys.readouterr().err
        assert "Traceback" not in told
        assert "NMT_TRACEBACK" not in told, "an error that nobody thought of"
        return status, [line for line in told.splitlines() if line.startswith("nmt: ")]

    return run
