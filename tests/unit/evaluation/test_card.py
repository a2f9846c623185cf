"""A run's model card and page: what they tell is what the run directory holds, and they never cost a training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from sacrebleu.metrics.chrf import CHRF

from nmt.configuration import load_config
from nmt.data.corpus import Corpus, prepare_corpus
from nmt.evaluation import card
from nmt.evaluation.card import CARD_FILE, CARD_MARK, REPORT_FILE, write_card, write_card_or_warn
from nmt.evaluation.report import code_text, plain_text, ratio_text, score_text
from nmt.training.checkpoint import read_meta


def corpus_of(run: Path) -> Corpus:
    return prepare_corpus(load_config(run / "config.yaml").data, lambda line: None)


@pytest.fixture(scope="module")
def told(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run directory with its card and its page; the run has a note that looks like markup."""
    import shutil

    run = Path(shutil.copytree(trained_run, tmp_path_factory.mktemp("told") / "run", symlinks=True))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["run"]["notes"] = "<i>`*first*` | try</i>"
    (run / "config.yaml").write_text(yaml.safe_dump(config, explicit_end=True))
    write_card(run, corpus_of(run), lambda line: None)
    return run, (run / CARD_FILE).read_text(encoding="utf-8"), (run / REPORT_FILE).read_text(encoding="utf-8")


def shown(page: str) -> str:
    """The words of a page, without its styles, figures and tags."""
    text = re.sub(r"<(style|svg|script)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_both_tell_the_scores_of_the_results(told: tuple[Path, str, str]) -> None:
    run, text, page = told
    entry = json.loads((run / "results.json").read_text())["sets"]["test"]
    record = next(line for line in text.splitlines() if line.startswith("| `test`")).split("|")
    assert record[2].strip() == str(entry["sentences"]) == "24"
    assert [float(cell.split("±")[0]) for cell in record[3:5]] == [
        float(score_text({"value": entry[name], "half_width": 0}).split("±")[0]) for name in ("bleu", "chrf")
    ]
    assert ratio_text(entry["length_ratio"]) in shown(page)
    matter = yaml.safe_load(text.split("---")[1])
    [result] = matter["model-index"][0]["results"]
    assert {m["type"]: m["value"] for m in result["metrics"]} == {
        name: round(entry[name], 2) for name in ("bleu", "chrf")
    }
    assert matter["language"] == ["en", "fr"]


def test_what_the_filter_did_is_in_every_checkpoint_and_told(told: tuple[Path, str, str]) -> None:
    run, text, page = told
    for checkpoint in ("best", "last"):
        assert read_meta(run / "checkpoints" / checkpoint)["filtered"] == "kept 240 of 240 pairs"
    assert "training: kept 240 of 240 pairs" in text
    assert "kept 240 of 240 pairs" in shown(page)


def test_examples_are_of_the_test_set_the_worst_last(told: tuple[Path, str, str], corpus_folder: Path) -> None:
    run, text, _ = told
    sources, references = (
        (corpus_folder / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")
    )
    hypotheses = (run / "hypotheses" / "test.txt").read_text(encoding="utf-8").splitlines()
    told = re.findall(r"^    (?:source|translation|reference) +(.+)$", text, re.MULTILINE)
    triples = list(zip(*[iter(told)] * 3, strict=True))
    numbers = [sources.index(source) for source, _, _ in triples]
    assert triples == [(sources[i], hypotheses[i], references[i]) for i in numbers]
    assert numbers[: card.EXAMPLES] == [2, 7, 12, 16, 21]
    scores = [CHRF().sentence_score(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]
    others = sorted(scores[i] for i in range(24) if i not in numbers[: card.EXAMPLES])
    assert [scores[i] for i in numbers[card.EXAMPLES :]] == others[: card.WORST]


def test_the_page_has_its_figures_and_asks_for_nothing(told: tuple[Path, str, str]) -> None:
    _, _, page = told
    labels = re.findall(r'aria-label="([^"]+)" style', page)
    assert [label.split(" against")[0] for label in labels[:4]] == [
        "cross-entropy (nats a token)",
        "validation score",
        "learning rate (thousandths)",
        "gradient norm before clipping",
    ]
    assert "BLEU by source length" in labels
    assert sum(label.startswith("Attention of each target word") for label in labels) == 3
    assert not re.search(r"<script|@import|url\((?!#)|(src|href)=\"(?!#|data:)", page)


def test_text_is_shown_as_text(told: tuple[Path, str, str]) -> None:
    _, text, page = told
    assert "<i>" not in page
    assert "&lt;i&gt;`*first*` | try&lt;/i&gt;" in page
    assert "Notes: `<i>'*first*' | try</i>`" in text
    markdown = pytest.importorskip("markdown")
    assert markdown.markdown(code_text("a `b` <i>c")) == "<p><code>a 'b' &lt;i&gt;c</code></p>"
    assert markdown.markdown(plain_text("*a* _b_ `c` <i>d [e](f)")) == "<p>*a* _b_ `c` &lt;i&gt;d [e](f)</p>"


def test_a_card_of_somebody_else_is_left_alone(told: tuple[Path, str, str], run_copy: Path) -> None:
    said: list[str] = []
    (run_copy / CARD_FILE).write_text("mine\n")
    write_card(run_copy, corpus_of(run_copy), said.append)
    assert (run_copy / CARD_FILE).read_text() == "mine\n"
    assert said == [f"{run_copy / REPORT_FILE} is written; {run_copy / CARD_FILE} is not by nmt, and stays"]
    assert (run_copy / REPORT_FILE).is_file()
    (run_copy / CARD_FILE).write_text(f"old\n{CARD_MARK}\n")
    write_card(run_copy, corpus_of(run_copy), said.append)
    assert "# `run`" in (run_copy / CARD_FILE).read_text()


def test_a_run_without_test_sets_or_attention_or_an_end(lstm_run: Path) -> None:
    write_card(lstm_run, corpus_of(lstm_run), lambda line: None)
    text, page = ((lstm_run / name).read_text() for name in (CARD_FILE, REPORT_FILE))
    for told in (text, shown(page)):
        assert "Scores" not in told and "Examples" not in told and "where the model looks" not in told
        assert "kept 60 of 60 pairs" in told


@pytest.fixture
def lstm_run(tiny: Callable[[str], list[str]], tmp_path: Path) -> Path:
    from runs import FEW, train

    train(tmp_path / "lstm", [*tiny("lstm"), *FEW, "trainer.max_steps=2"])
    return tmp_path / "lstm"


def test_trouble_with_it_is_one_line(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    corpus = corpus_of(run_copy)

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr(card, "rendered", broken)
    write_card_or_warn(run_copy, corpus, said.append)
    assert said == [f"warning: {run_copy / REPORT_FILE} is not written: ZeroDivisionError: no luck"]
    assert not (run_copy / REPORT_FILE).exists()
