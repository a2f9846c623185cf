"""`nmt average`: what it prints, and that the other commands take what it made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]


def test_an_average_is_a_run_to_translate_with(nmt: Command, run_copy: Path) -> None:
    outcome = nmt("average", run_copy, "--last", "2")
    directory = run_copy / "checkpoints" / "average_last_2"
    assert (outcome.status, outcome.out) == (0, f"{directory}\n")
    assert outcome.err == "mean of step_00000150, step_00000200\n"
    translated = nmt("translate", directory, "--text", "The cat sees the river.")
    assert (translated.status, translated.out) == (0, "Le chat voit la rivière.\n")


def test_more_than_there_are(nmt: Command, run_copy: Path) -> None:
    outcome = nmt("average", run_copy)
    assert (outcome.status, outcome.out) == (2, "")
    assert "has 4 checkpoints, 5 were asked for" in outcome.err


def test_no_run(nmt: Command, tmp_path: Path) -> None:
    outcome = nmt("average", tmp_path / "nothing", "--last", "2")
    assert (outcome.status, outcome.out) == (2, "")
    assert "nothing: no such run directory" in outcome.err
