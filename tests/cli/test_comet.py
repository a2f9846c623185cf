"""`nmt score --comet`, with a program of the name and the interface of unbabel-comet 2.2.7's `comet-score`.

No weights of COMET are at hand: what is tested is what is asked of the command, and what becomes of its answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.data.corpus import reference_lines
from nmt.errors import RequestError, WorkError
from nmt.evaluation.comet import Comet

Command = Callable[..., Any]

# Of the real one: the options and what they are called, lines that end at any line break and are stripped, one result
# for each file, in a mapping by its name. The score of a sentence is a function of all three texts and of their order.
PROGRAM = f"""#!{sys.executable}
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for short, long in (("-s", "--sources"), ("-r", "--references")):
    parser.add_argument(short, long)
parser.add_argument("-t", "--translations", nargs="+")
for option in ("--quiet", "--only_system"):
    parser.add_argument(option, action="store_true")
for option in ("--model", "--to_json"):
    parser.add_argument(option)
given = parser.parse_args()
fault = os.environ.get("FAULT")
if fault == "dies":
    print("Traceback: …\\nKeyError: \\"Model 'x' not supported by COMET.\\"", file=sys.stderr)
    sys.exit(1)
def lines(path):
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file.readlines()]
[path] = given.translations
texts = zip(lines(given.sources), lines(path), lines(given.references), strict=True)
rows = [dict(src=s, mt=t, ref=r) for s, t, r in texts]
for row in rows:
    row["COMET"] = (len(row["src"]) + 10 * len(row["mt"]) + 100 * len(row["ref"])) / 10_000
if fault == "short":
    rows.pop()
if fault == "nan":
    rows[0]["COMET"] = float("nan")
print(path, "score: 0.0")
if fault != "silent":
    with open(given.to_json, "w", encoding="utf-8") as file:
        json.dump({{path: rows}} if fault != "odd" else rows, file)
with open(os.environ["SEEN"], "a", encoding="utf-8") as file:
    print(given.model, given.quiet, given.only_system, file=file)
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command on the path; the file that it leaves its options in."""
    program = tmp_path / "bin" / "comet-score"
    program.parent.mkdir()
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


def expected(sources: list[str], hypotheses: list[str], references: list[str]) -> float:
    lengths = [
        (len(s.strip()) + 10 * len(t.strip()) + 100 * len(r.strip())) / 10_000
        for s, t, r in zip(sources, hypotheses, references, strict=True)
    ]
    return sum(lengths) / len(lengths)


def test_a_run_has_comet_beside_its_scores(nmt: Command, run_copy: Path, corpus_folder: Path, seen: Path) -> None:
    outcome = nmt("score", run_copy, "--comet", "Unbabel/wmt22-comet-da")
    assert outcome.status == 0, outcome.err
    texts = [corpus_folder / "test.en", run_copy / "hypotheses" / "test.txt", corpus_folder / "test.fr"]
    score = expected(*map(reference_lines, texts))
    entry = json.loads((run_copy / "results.json").read_text(encoding="utf-8"))["sets"]["test"]
    assert (entry["comet"], entry["comet_model"]) == (pytest.approx(score), "Unbabel/wmt22-comet-da")
    head, *rows = outcome.out.splitlines()
    (row,) = [line for line in rows if line.startswith("test ")]
    assert (head.split()[-1], row.split()[-1]) == ("COMET", f"{score:.4f}")
    assert rows[-1] == "COMET  Unbabel/wmt22-comet-da"
    assert seen.read_text() == "Unbabel/wmt22-comet-da True True\n"
    assert "COMET" not in nmt("score", run_copy).out
    entry = json.loads((run_copy / "results.json").read_text(encoding="utf-8"))["sets"]["test"]
    assert "comet" not in entry, "the score of other translations would stay"


def test_three_files(nmt: Command, tmp_path: Path, seen: Path) -> None:
    """A CR inside a line, at which the command would end it, and blank lines keep their places."""
    texts = {"sources": "a\rb\n\nxyz\n", "hypotheses": "aa\n\nx\n", "references": "a\nb\r\nccccc"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.touch()
    options = [word for name in texts for word in (f"--{name}", str(tmp_path / name))]
    outcome = nmt("score", *options, "--comet", checkpoint)
    assert outcome.status == 0, outcome.err
    score = expected(["a b", "", "xyz"], ["aa", "", "x"], ["a", "b", "ccccc"])
    assert outcome.out.splitlines()[-1] == f"COMET {score:.4f}  {checkpoint}"
    assert seen.read_text().startswith(f"{checkpoint} ")


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--comet", "nowhere.ckpt"], "--comet nowhere.ckpt: there is no such checkpoint"),
        (["--comet", "m"], "score: two files are scored with both --comet and --sources, or with neither"),
        (["--sources", "two"], "score: two files are scored with both --comet and --sources, or with neither"),
        (["--comet", "m", "--sources", "one"], "cannot score: 2 lines in two, but 1 in one"),
    ],
)
def test_what_does_not_fit_is_said_before_any_work(
    nmt: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("one", "a\n"), ("two", "a\nb\n")):
        Path(name).write_text(text, encoding="utf-8")
    outcome = nmt("score", "--hypotheses", "two", "--references", "two", *options)
    assert (outcome.status, outcome.out, outcome.err) == (2, "", f"nmt: error: {says}\n")


def test_without_the_command_one_line_says_how_to_get_it(nmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    outcome = nmt("score", "no-such-run", "--comet", "m")
    assert outcome.status == 2
    assert "comet-score, which is not found" in outcome.err
    assert "uv tool install unbabel-comet" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("dies", r"""ended with status 1: KeyError: "Model 'x' not supported by COMET\."$"""),
        *((fault, "has not given each of 2 sentences a score$") for fault in ("short", "nan", "silent", "odd")),
    ],
)
def test_an_answer_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, fault: str, says: str) -> None:
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(WorkError, match=f"^comet-score --model=x {says}"):
        Comet.find("x").score(["a", "b"], ["c", "d"], ["e", "f"])


def test_the_command_is_also_found_beside_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment need not be activated."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RequestError, match="not found"):
        Comet.find("x")
    (tmp_path / "comet-score").touch(mode=0o755)
    assert Comet.find("x").command == str(tmp_path / "comet-score")
