"""`nmt score`: sacreBLEU's numbers on the files as they are, for a run or for any two files."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt as library
from nmt.data.corpus import prepare_corpus
from nmt.errors import RequestError
from nmt.evaluation import scoring
from nmt.evaluation.scoring import score_sets

Command = Callable[..., Any]


def sacrebleu(references: Path, hypotheses: Path) -> list[float]:
    """BLEU and chrF of the command of that name."""
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(references),
        "-i",
        str(hypotheses),
        "-m",
        "bleu",
        "chrf",
        "-w",
        "2",
    ]
    scores = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    return [score["score"] for score in scores]


@pytest.mark.case
def test_a_run_scores_what_sacrebleu_says_of_its_file(nmt: Command, run_copy: Path, corpus_folder: Path) -> None:
    (run_copy / "results.json").unlink()
    (run_copy / "hypotheses" / "test.txt").unlink()
    checkpoint = run_copy / "checkpoints" / "step_00000050"  # of a model that still makes mistakes
    (run_copy / "checkpoints" / "best").unlink()
    (run_copy / "checkpoints" / "best").symlink_to(checkpoint.name)
    outcome = nmt("score", run_copy)
    assert outcome.status == 0
    entry = json.loads((run_copy / "results.json").read_text(encoding="utf-8"))["sets"]["test"]
    bleu, chrf = sacrebleu(corpus_folder / "test.fr", run_copy / "hypotheses" / "test.txt")
    assert 0 < bleu < 100
    assert (round(entry["bleu"], 2), round(entry["chrf"], 2)) == (bleu, chrf)
    (row,) = [line for line in outcome.out.splitlines() if line.startswith("test ")]
    assert row.split()[:4] == ["test", "24", f"{bleu:.2f}", f"{chrf:.2f}"]
    assert entry["bleu_signature"] in outcome.out
    assert entry["chrf_signature"] in outcome.out
    files = nmt(
        "score", "--hypotheses", run_copy / "hypotheses" / "test.txt", "--references", corpus_folder / "test.fr"
    )
    assert [line.split()[:2] for line in files.out.splitlines()] == [["BLEU", f"{bleu:.2f}"], ["chrF", f"{chrf:.2f}"]]


def test_a_scored_run_gets_its_card_and_page(nmt: Command, run_copy: Path) -> None:
    config = run_copy / "config.yaml"
    config.write_text(config.read_text().replace("report: false", "report: true"))
    outcome = nmt("score", run_copy)
    assert outcome.status == 0
    assert "are written" in outcome.err
    bleu = json.loads((run_copy / "results.json").read_text())["sets"]["test"]["bleu"]
    for name in ("README.md", "report.html"):
        assert f"{bleu:.1f} ±" in (run_copy / name).read_text(encoding="utf-8")


def test_what_is_scored_is_what_is_translated(nmt: Command, trained_run: Path, corpus_folder: Path) -> None:
    translated = nmt("translate", trained_run, "--input", corpus_folder / "test.en").out
    assert translated == (trained_run / "hypotheses" / "test.txt").read_text(encoding="utf-8")


@pytest.mark.case
def test_unequal_files(nmt: Command, corpus_folder: Path, tmp_path: Path) -> None:
    lines = (corpus_folder / "test.fr").read_bytes().splitlines(keepends=True)
    (tmp_path / "hypotheses").write_bytes(b"".join(lines[:-1]))
    outcome = nmt("score", "--hypotheses", tmp_path / "hypotheses", "--references", corpus_folder / "test.fr")
    assert (outcome.status, outcome.out) == (2, "")
    assert "23" in outcome.err
    assert "24" in outcome.err


def test_a_set_that_there_is_not(nmt: Command, run_copy: Path) -> None:
    before = (run_copy / "results.json").read_bytes()
    outcome = nmt("score", run_copy, "--set", "tset")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "nmt: error: no test set tset in files; there are: test\n"
    assert (run_copy / "results.json").read_bytes() == before


def test_a_run_without_test_sets(nmt: Command, lstm_run: Path) -> None:
    outcome = nmt("score", lstm_run)
    assert (outcome.status, outcome.out) == (2, "")
    assert "no test set" in outcome.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give a RUN, or both --hypotheses and --references"),
        (["--hypotheses", "x"], "give a RUN, or both --hypotheses and --references"),
        (["RUN", "--hypotheses", "x", "--references", "y"], "not both"),
    ],
)
def test_run_or_files(options: list[str], says: str, nmt: Command) -> None:
    outcome = nmt("score", *options)
    assert (outcome.status, outcome.out) == (2, "")
    assert says in outcome.err


@pytest.mark.case
def test_blank_sources_and_references_are_scored(run_copy: Path, corpus_folder: Path, tmp_path: Path) -> None:
    """Nothing of a test set is left out: a blank source has a blank translation, and its reference counts."""
    for name in ("train", "valid"):
        for side in ("en", "fr"):
            (tmp_path / f"{name}.{side}").symlink_to(corpus_folder / f"{name}.{side}")
    (tmp_path / "test.en").write_text("The cat sees a horse.\n\n \nA bird hears the sea.\n", encoding="utf-8")
    references = "Le chat voit un cheval.\nUne ligne de plus.\n\nUn oiseau entend la mer.\n"
    (tmp_path / "test.fr").write_text(references, encoding="utf-8")
    translator = library.load(run_copy)
    assert translator.config is not None
    config = dataclasses.replace(translator.config.data, dir=str(tmp_path))
    results = score_sets(translator, prepare_corpus(config, print), ["test"], run_copy, print)["sets"]["test"]
    hypotheses = (run_copy / "hypotheses" / "test.txt").read_text(encoding="utf-8")
    assert hypotheses == "Le chat voit un cheval.\n\n\nUn oiseau entend la mer.\n"
    assert (results["sentences"], results["empty"]) == (4, 1), "empty where the reference is not"
    assert [round(results["bleu"], 2), round(results["chrf"], 2)] == sacrebleu(
        tmp_path / "test.fr", run_copy / "hypotheses" / "test.txt"
    )


def test_an_interruption_costs_one_set_and_a_wrong_name_none(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = library.load(run_copy)
    assert translator.config is not None
    corpus = prepare_corpus(translator.config.data, lambda line: None)
    corpus = dataclasses.replace(corpus, test=dict.fromkeys(("one", "two"), corpus.test["test"]))
    (run_copy / "results.json").unlink()
    with pytest.raises(RequestError, match="no test set three"):
        score_sets(translator, corpus, ["one", "three"], run_copy, lambda line: None)
    assert not (run_copy / "results.json").exists(), "nothing is scored before all names are known"
    score = scoring._score

    def interrupted(*arguments: Any) -> Any:
        if (run_copy / "results.json").exists():
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(scoring, "_score", interrupted)
    with pytest.raises(KeyboardInterrupt):
        score_sets(translator, corpus, ["one", "two"], run_copy, lambda line: None)
    assert scoring.read_results(run_copy)["sets"].keys() == {"one"}
