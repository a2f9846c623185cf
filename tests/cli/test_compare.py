"""`nmt compare` as it is typed: five runs, one of them broken, one with another tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt import cli


@pytest.fixture(scope="module")
def five(
    trained_run: Path, tiny: Callable[[str], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Two seeds of one configuration, another model with another tokenizer, a damaged run, and one cut off early."""
    from nmt.configuration import compose
    from nmt.training.session import train

    folder = tmp_path_factory.mktemp("five")
    runs = {name: folder / name for name in ("ours-s1", "ours-s2", "other", "broken", "cut")}
    for name in ("ours-s1", "ours-s2", "broken", "cut"):
        shutil.copytree(trained_run, runs[name], symlinks=True)
    _replace(runs["ours-s2"] / "config.yaml", "trainer:\n  seed: 1", "trainer:\n  seed: 2")
    _replace(runs["cut"] / "config.yaml", "max_steps: 200", "max_steps: 300")
    (runs["broken"] / "checkpoints" / "best" / "model.safetensors").write_bytes(b"")
    overrides = [*tiny("lstm"), "tokenizer.vocab_size=80", "trainer.max_steps=200", f"run.dir={runs['other']}"]
    train(compose(overrides))
    return runs


def _replace(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_five_runs_one_broken_one_with_another_tokenizer(
    five: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", *map(str, five.values()), "--baseline", str(five["ours-s2"]), "--lengths", "6,7"]
    status = cli.main([*arguments, "--output", str(tmp_path / "out")])
    shown = capsys.readouterr()
    assert status == 1
    last = shown.err.splitlines()[-1]
    assert last.startswith("nmt: error: compare: ") and "broken failed" in last and "cut is unfinished" in last
    assert "Traceback" not in shown.err
    record = json.loads((tmp_path / "out" / "comparison.json").read_text())
    rows = {row["label"]: row for row in record["rows"]}
    assert list(rows) == ["ours", "lstm", "broken", "cut"]
    assert rows["ours"]["is_baseline"] and rows["ours"]["seeds"] == [1, 2]
    kinds = {label: [mark["kind"] for mark in row["marks"]] for label, row in rows.items()}
    assert kinds == {"ours": [], "lstm": ["tokenizer"], "broken": ["failed"], "cut": ["unfinished", "budget"]}
    assert rows["lstm"]["bleu"]["p"] is not None and rows["broken"]["bleu"] is None
    assert [bucket["label"] for bucket in record["lengths"]] == ["1–7"]
    page = (tmp_path / "out" / "comparison.html").read_text()
    for label in rows:
        assert label in shown.out and label in page
    assert "tokenizer.vocab_size=80 (baseline 90)" in shown.out and "tokenizer.vocab_size=80 (baseline 90)" in page


def test_runs_that_all_went_well_end_with_status_0(
    five: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(five["other"]), str(five["ours-s1"]), "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert "error" not in shown.err
    assert "lstm (baseline)" in shown.out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["{ours-s1}"], 2, "compare: give at least two runs"),
        ([], 2, "compare: the following arguments are required: RUN"),
        (["{ours-s1}", "nowhere"], 2, "compare: nowhere: no such run directory"),
        (["{ours-s1}", "."], 2, "compare: . is no run: it has neither config.yaml nor checkpoints/"),
        (["{ours-s1}", "{ours-s1}/checkpoints/.."], 2, "is given twice"),
        (["{ours-s1}", "{other}", "--baseline", "{cut}"], 2, "cut is none of the runs: "),
        (["{ours-s1}", "{other}", "--set", "dev"], 2, "compare: --set dev: no such test set; there are: test"),
        (["{ours-s1}", "{other}", "--lengths", "9,3"], 2, "--lengths: invalid list of rising whole numbers"),
        (
            ["{ours-s1}", "{other}", "--output", "{ours-s1}/config.yaml"],
            1,
            "config.yaml/comparison.json: Not a directory",
        ),
        (["{ours-s1}", "{broken}", "--baseline", "{broken}"], 1, "the baseline can not be scored: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    five: dict[str, Path],
    empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    filled = [argument.format(**five) for argument in arguments]
    assert cli.main(["compare", *filled]) == status
    shown = capsys.readouterr()
    assert message in shown.err.splitlines()[-1]
    assert shown.err.splitlines()[-1].startswith("nmt: error: ")
    assert shown.out == ""


def test_two_directions_are_refused(
    five: dict[str, Path], tmp_path: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turned = Path(shutil.copytree(five["ours-s1"], tmp_path / "turned", symlinks=True))
    _replace(
        turned / "config.yaml",
        "source_language: en\n  target_language: fr",
        "source_language: fr\n  target_language: en",
    )
    assert cli.main(["compare", str(five["ours-s1"]), str(turned)]) == 2
    assert "runs of different language pairs: " in capsys.readouterr().err


def test_the_verb_is_in_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "nmt compare RUN RUN" in capsys.readouterr().out
