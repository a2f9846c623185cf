"""A run told to others: README.md, the model card that the Hub and a file browser show, and report.html, with figures.

Both are made from one record, and that from what the run directory says and from its kept translations, so that they
can be made again at any time, on another machine too. The scores are those of `nmt compare`, with the same intervals.
A README.md that somebody else has written is left alone.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from nmt.config import DataConfig, GrammarData
from nmt.data.corpus import Corpus, Report
from nmt.data.overview import equally_spaced
from nmt.errors import RequestError, WorkError
from nmt.evaluation.compare import Comparison, alone
from nmt.evaluation.figures import history_figure
from nmt.evaluation.measure import TestSet
from nmt.evaluation.metrics import chrf_metric
from nmt.evaluation.report import as_record, figures_of, rendered
from nmt.evaluation.runs import Run, read_run
from nmt.evaluation.scoring import read_results
from nmt.files import require_regular, write_atomically
from nmt.training.monitor import flatten

REPORT_FILE, CARD_FILE = "report.html", "README.md"
CARD_MARK = "<!-- written by nmt: remove this line to keep nmt from writing this file again -->"
EXAMPLES = 5
"""Sentences at equal distances through the test set, so that nobody has chosen them."""
WORST = 3
"""And those with the lowest sentence chrF."""


def write_card_or_warn(path: Path, corpus: Corpus, report: Report) -> None:
    """As `write_card`; but whatever goes wrong costs one line: what has been trained and scored is there."""
    try:
        write_card(path, corpus, report)
    except Exception as error:
        kind = "" if isinstance(error, RequestError | WorkError) else f"{type(error).__name__}: "
        report(f"warning: {path / REPORT_FILE} is not written: {kind}{error}")


def write_card(path: Path, corpus: Corpus, report: Report) -> None:
    """Writes README.md and report.html of a run into its directory.

    Args:
        path: a run directory or a checkpoint directory.
        corpus: of the run; its test sets that have been scored are shown.

    Raises:
        RequestError, WorkError: the run, its checkpoint or a test set cannot be read, or nothing can be written.
    """
    run = read_run(path)
    if run.failure or run.config is None:
        raise WorkError(run.failure)
    names = [name for name in corpus.test if name in read_results(path).get("sets", {})]
    names.sort(key=lambda name: name != "test")  # the one that nmt compare takes comes first
    found = [alone(run, TestSet(name, corpus, corpus.test[name]), lambda _: None) for name in names]
    record = card_record(run, corpus, found)
    figures = figures_of(found[0]) if found else {"sentences": [], "pictures": {}, "by_length": None}
    write_atomically(path / REPORT_FILE, rendered("run.html", record=record, histories=histories(run), **figures))
    if _is_ours(path / CARD_FILE):
        write_atomically(path / CARD_FILE, rendered("card.md", record=record, mark=CARD_MARK))
        report(f"{path / CARD_FILE} and {path / REPORT_FILE} are written")
    else:
        report(f"{path / REPORT_FILE} is written; {path / CARD_FILE} is not by nmt, and stays")


def _is_ours(card: Path) -> bool:
    """Whether the file may be replaced: it is not there, or has the mark."""
    if not card.exists():
        return True
    require_regular(card)
    return CARD_MARK in card.read_text(encoding="utf-8", errors="replace")


# The record -------------------------------------------------------------------------------------------------------


def card_record(run: Run, corpus: Corpus, found: Sequence[Comparison]) -> dict[str, Any]:
    """All that is told, as dictionaries, lists, numbers and text.

    Args:
        found: the run on each of its test sets, that first by which it is judged.
    """
    assert run.config is not None
    config = run.config
    sets = [as_record(comparison) for comparison in found]
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "name": run.directory_name,
        "command": shlex.quote(str(run.path)),
        "model": config.model.name,
        "summary": next(iter((type(config.model).__doc__ or "").strip().splitlines()), ""),
        "notes": config.run.notes,
        "corpus": {
            "name": corpus.name,
            "source_language": corpus.source_language,
            "target_language": corpus.target_language,
            "filtered": run.meta.get("filtered"),
            "filter": flatten(dataclasses.asdict(config.data.filter)),
            "mixed": list(config.data.mix),
            "valid": sum(files.count() for files in corpus.valid),
            "files": run.meta.get("data") or {},
        },
        "parameters": run.meta.get("parameters"),
        "step": run.meta["step"],
        "spent": run.spent,
        "speed": run.training_speed(),
        "unfinished": run.unfinished,
        "versions": run.meta.get("versions") or {},
        "weights_sha256": run.meta.get("sha256", {}).get("model.safetensors", ""),
        "sets": sets,
        "attends": bool(found) and found[0].rows[0].measurements[0].attends,
        "examples": _examples(found[0]) if found else [],
        "limits": list(_limits(run, config.data, sets)),
        "config": run.flat_config(),
        "front_matter": _front_matter(run, corpus, sets),
    }


def _examples(comparison: Comparison) -> list[dict[str, Any]]:
    """Sentences at equal distances, then the worst of the others; each with its number, from 1, and sentence chrF."""
    test, hypotheses = comparison.test, comparison.rows[0].measurements[0].hypotheses
    metric, count = chrf_metric(), len(test.sources)
    scores = [
        float(metric.sentence_score(hypothesis, [reference]).score)
        for hypothesis, reference in zip(hypotheses, test.references, strict=True)
    ]
    chosen = equally_spaced(count, EXAMPLES)
    rest = sorted((i for i in range(count) if i not in chosen), key=lambda i: scores[i])[:WORST]
    return [
        {
            "number": i + 1,
            "worst": i in rest,
            "source": test.sources[i],
            "hypothesis": hypotheses[i],
            "reference": test.references[i],
            "chrf": scores[i],
        }
        for i in [*chosen, *rest]
    ]


def _limits(run: Run, data: DataConfig, sets: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What a reader should not expect, a sentence each; only what is known of this run."""
    if isinstance(data, GrammarData):
        words = (
            f"{data.variety} words to choose from at each place" if data.variety else "about a thousand English words"
        )
        yield (
            f"It was trained on sentences that a grammar writes, with {words}. It does not "
            "translate real text, and its scores compare with no published figure."
        )
        longest = data.max_words
    else:
        yield f"It was trained on {data.name} alone: expect less than these scores on text of other kinds."
        longest = data.filter.max_words
    yield f"It translates one sentence at a time, and has seen none of more than {longest} words in training."
    if run.unfinished:
        yield f"Training did not use up its budget: {run.unfinished}."
    if sets:
        row, sentences = sets[0]["rows"][0], sets[0]["test"]["sentences"]
        output = row["output"]
        yield (
            f"Of {sentences} translations {output['empty']:.0f} are empty, {output['repeated']:.0f} repeat a word or "
            f"phrase three times and more, {output['unknown']:.0f} have a mark in place of a word."
        )
        scored = [(bucket["label"], score["value"]) for bucket, score in _scored_buckets(sets[0])]
        if len(scored) > 1:
            label, value = min(scored, key=lambda entry: entry[1])
            yield f"By sentence length BLEU is lowest at {label} words: {value:.1f}."
        yield "It was trained once, with one seed: the intervals say nothing about the chance in training."
    yield "Nothing was measured about names, numbers, bias or safety. Have a person check what matters."


def _scored_buckets(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for bucket, score in zip(record["lengths"], record["rows"][0]["by_length"], strict=True):
        if score is not None:
            yield bucket, score


def _front_matter(run: Run, corpus: Corpus, sets: Sequence[dict[str, Any]]) -> str:
    """The YAML at the top of a model card as the Hugging Face Hub reads it."""
    assert run.config is not None
    results = [
        {
            "task": {"type": "translation", "name": "Translation"},
            "dataset": {"type": corpus.name, "name": corpus.name, "split": record["test"]["name"]},
            "metrics": [
                {"type": metric, "value": round(record["rows"][0][metric]["value"], 2), "name": title}
                for metric, title in (("bleu", "BLEU"), ("chrf", "chrF"))
            ],
        }
        for record in sets
    ]
    matter: dict[str, Any] = {
        "language": [corpus.source_language, corpus.target_language],
        "library_name": "nmt",
        "pipeline_tag": "translation",
        "tags": ["nmt", run.config.model.family],
    }
    if results:
        matter["model-index"] = [{"name": run.directory_name, "results": results}]
    return yaml.safe_dump(matter, sort_keys=False, allow_unicode=True).rstrip()


# Figures ----------------------------------------------------------------------------------------------------------


def histories(run: Run) -> list[str]:
    """What was measured while the run was trained, as figures; those of which nothing was measured are left out."""

    def points(name: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(r["step"], scale * r[name]) for r in run.records if r.get(name) is not None]

    def logarithms(name: str) -> list[tuple[float, float]]:
        return [(step, math.log(value)) for step, value in points(name) if value > 0]

    drawn = (
        history_figure(
            {"training": logarithms("perplexity"), "validation": points("valid_loss")},
            "loss",
            "cross-entropy (nats a token)",
        ),
        history_figure({"BLEU": points("valid_bleu"), "chrF": points("valid_chrf")}, "scores", "validation score"),
        history_figure({"learning rate": points("lr", 1e3)}, "lr", "learning rate (thousandths)"),
        history_figure({"gradient norm": points("gradient_norm")}, "norm", "gradient norm before clipping"),
    )
    return [svg for svg in drawn if svg is not None]
