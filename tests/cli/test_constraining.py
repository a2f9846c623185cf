"""`nmt translate` with --prefix, --prefixes, --glossary and --copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from untrained import untrained_run

Command = Callable[..., Any]

LINES = ["Le vieux jardin 1,250 (7).", "", "un enfant, a@b.org", "Une lettre 🙂"]
STDIN = "\n".join(LINES).encode()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs") / "run", byte_fallback=False)


def test_what_is_asked_for_is_in_every_line(nmt: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "glossary").write_text("jardin\tmaison rouge\nune lettre\tQ\n", encoding="utf-8")
    options = ["--prefix", "Du pain", "--glossary", tmp_path / "glossary", "--copy", "--n-best", "2"]
    outcome = nmt("translate", run, *options, stdin=STDIN)
    assert outcome.status == 0
    lines = outcome.out.split("\n")
    assert (lines[1], lines[4:]) == ("", [""])
    for line, wanted in zip(lines, (["maison rouge", "1,250", "7"], [], ["a@b.org"], ["Q", "🙂"]), strict=False):
        for hypothesis in line.split("\t") if line else []:
            assert hypothesis.startswith("Du pain")
            assert all(each in hypothesis for each in wanted)


def test_a_prefix_for_each_line(nmt: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("Le pain\nnichts\n\nça\n", encoding="utf-8")
    outcome = nmt("translate", run, "--prefixes", tmp_path / "prefixes", stdin=STDIN)
    assert outcome.status == 0
    free = nmt("translate", run, stdin=STDIN).out.split("\n")
    lines = outcome.out.split("\n")
    assert lines[0].startswith("Le pain")
    assert lines[1:3] == free[1:3]
    assert lines[3].startswith("ça")
    for number, count in ((3, 4), (5, 4)):
        (tmp_path / "prefixes").write_text("le\n" * number, encoding="utf-8")
        outcome = nmt("translate", run, "--prefixes", tmp_path / "prefixes", stdin=STDIN)
        assert outcome.status == 2
        says = "and there is a line 4" if number < count else f"and the input {count}"
        assert outcome.err.endswith(f"nmt: error: {tmp_path / 'prefixes'} has {number} lines, {says}\n")
        assert outcome.out.count("\n") == min(number, count), "what came before it is not lost"


@pytest.mark.parametrize("options", [["--glossary", "none"], ["--prefixes", "none"]])
def test_a_file_that_is_not_there(nmt: Command, run: Path, options: list[str]) -> None:
    outcome = nmt("translate", run, *options, "--text", "a")
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "none" in outcome.err
