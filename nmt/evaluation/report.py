"""A comparison as a plain record, and that record as JSON, as text for a terminal and as a page.

All three show the same numbers because they are made from the same record. The page is one file that asks nothing of
the network: styles and figures are inside.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt.evaluation.compare import Comparison, Row
from nmt.evaluation.figures import (
    CURVES,
    MOST_ROWS,
    NIGHT,
    PAPER,
    SERIES,
    SERIES_DARK,
    alignment_figure,
    by_length_figure,
    curve_figure,
)
from nmt.evaluation.runs import Run, config_differences
from nmt.evaluation.scoring import versions
from nmt.files import write_atomically
from nmt.training.console import one_line

JSON_FILE, PAGE_FILE = "comparison.json", "comparison.html"


def write_report(comparison: Comparison, record: dict[str, Any], folder: Path) -> None:
    """Writes comparison.json and comparison.html into the folder."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / JSON_FILE, f"{text}\n")
    write_atomically(folder / PAGE_FILE, as_page(comparison, record))


# The record -------------------------------------------------------------------------------------------------------


def as_record(comparison: Comparison) -> dict[str, Any]:
    """All of a comparison as dictionaries, lists, numbers and text."""
    test = comparison.test
    source_hash, reference_hash = test.identity
    first = comparison.baseline.measurements[0].scores
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "test": {
            "name": test.name,
            "corpus": test.corpus.name,
            "source_language": test.corpus.source_language,
            "target_language": test.corpus.target_language,
            "sentences": len(test.sources),
            "source_sha256": source_hash,
            "reference_sha256": reference_hash,
        },
        "baseline": comparison.baseline.label,
        "scorer": {
            "bleu_signature": comparison.bleu_signature,
            "chrf_signature": comparison.chrf_signature,
            "literature_signature": first.literature_signature,
            "versions": versions(),
        },
        "lengths": [
            {
                "label": bucket.label,
                "shortest": bucket.shortest,
                "longest": bucket.longest,
                "sentences": len(bucket.indices),
            }
            for bucket in comparison.buckets
        ],
        "rows": [_row(row, comparison.baseline) for row in comparison.rows],
    }


def _row(row: Row, baseline: Row) -> dict[str, Any]:
    runs, found = row.runs, row.measurements
    gold = [m.gold for m in found if m.gold is not None]
    return {
        "label": row.label,
        "status": row.status,
        "is_baseline": row.is_baseline,
        "comparable": row.comparable,
        "marks": [asdict(mark) for mark in row.marks],
        "seeds": [run.seed for run in runs],
        "bleu": asdict(row.bleu) if row.bleu else None,
        "chrf": asdict(row.chrf) if row.chrf else None,
        "literature_bleu": _mean([m.scores.literature_bleu for m in found]),
        "parameters": found[0].parameters if found else None,
        "tokens": _mean([run.spent.get("tokens") for run in runs]),
        "minutes": _mean([run.spent["seconds"] / 60 for run in runs if "seconds" in run.spent]),
        "training_tokens_per_s": _mean([run.training_speed() for run in runs]),
        "translating_tokens_per_s": _mean([m.tokens_per_s for m in found]),
        "output": {
            "length_ratio": _mean([m.scores.statistics.length_ratio for m in found]),
            "empty": _mean([m.scores.statistics.empty for m in found]),
            "repeated": _mean([m.scores.statistics.repeated for m in found]),
            "unknown": _mean([m.unknown_outputs for m in found]),
            "unknown_sources": _mean([m.unknown_sources for m in found]),
        },
        "alignment_error_rate": {
            "value": statistics.fmean(score.error_rate for score in gold),
            "deviation": statistics.stdev(score.error_rate for score in gold) if len(gold) > 1 else None,
            "sentences": gold[0].sentences,
            "left_out": gold[0].left_out,
        }
        if gold
        else None,
        "by_length": [asdict(score) if score else None for score in row.by_length],
        "curves": [
            [{name: r.get(name) for name in ("step", "tokens", "seconds", "valid_bleu")} for r in run.validations()]
            for run in runs
        ],
        "alignments": {
            str(number + 1): json.loads(alignment.to_json())
            for number, alignment in (found[0].alignments if found else {}).items()
        },
        "examples": [asdict(example) for example in row.examples],
        "config_differences": {
            name: {"value": own, "baseline": other}
            for name, (own, other) in (
                config_differences(runs[0], baseline.runs[0]) if runs[0].config and not row.is_baseline else {}
            ).items()
        },
        "runs": [_run(run, row, number) for number, run in enumerate(runs)],
    }


def _run(run: Run, row: Row, number: int) -> dict[str, Any]:
    """Where one training's numbers come from."""
    measurement = row.measurements[number] if row.measurements else None
    return {
        "path": str(run.path),
        "seed": run.seed,
        "notes": run.config.run.notes if run.config else "",
        "model": run.config.model.name if run.config else None,
        "data_name": run.config.data.name if run.config else None,
        "step": measurement.step if measurement else None,
        "last_step": run.spent.get("step"),
        "weights_sha256": (run.meta.get("sha256") or {}).get("model.safetensors"),
        "tokenizer_sha256": measurement.tokenizer if measurement else None,
        "data_sha256": run.meta.get("data"),
        "versions": run.meta.get("versions"),
        "search": measurement.search if measurement else None,
        "translations_reused": measurement.reused if measurement else None,
        "bleu": row.bleu.per_training[number] if row.bleu else None,
        "chrf": row.chrf.per_training[number] if row.chrf else None,
        "warnings": list(measurement.scores.statistics.warnings) if measurement else [],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


# Numbers as people read them --------------------------------------------------------------------------------------


def score_text(score: dict[str, Any] | None, digits: int = 1) -> str:
    """As in "31.2 ± 1.3"."""
    return f"{score['value']:.{digits}f} ± {score['half_width']:.{digits}f}" if score else "–"


def spread_text(score: dict[str, Any] | None) -> str:
    """Standard deviation and range of several trainings; empty for one."""
    if not score or score["deviation"] is None:
        return ""
    low, high = min(score["per_training"]), max(score["per_training"])
    return f"s = {score['deviation']:.2f}, {low:.1f} to {high:.1f}, n = {len(score['per_training'])}"


def difference_text(score: dict[str, Any] | None) -> str:
    """As in "+1.24"; a true minus sign."""
    return f"{score['difference']:+.2f}".replace("-", "−") if score and score["difference"] is not None else ""


def p_text(score: dict[str, Any] | None) -> str:
    """Three decimals; no p is below 0.001 with 1,000 resamples."""
    return f"{score['p']:.3f}" if score and score["p"] is not None else ""


def count_text(number: float | None) -> str:
    """Three digits and a unit: 950, 12.3 k, 3.39 M."""
    if number is None:
        return "–"
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"


def whole_text(number: float | None) -> str:
    """With a comma before each three digits; a mean over trainings with one decimal where it has one."""
    if number is None:
        return "–"
    return f"{number:,.0f}" if number >= 100 or float(number).is_integer() else f"{number:,.1f}"


def ratio_text(number: float | None, digits: int = 3) -> str:
    """With that many decimals."""
    return "–" if number is None else f"{number:.{digits}f}"


def code_text(text: object) -> str:
    """Any text as a code span of Markdown on one line."""
    inside = one_line(str(text)).replace("`", "'")
    return f"`{inside or ' '}`"


def plain_text(text: object) -> str:
    """Any text in Markdown on one line, as it is."""
    return re.sub(r"([\\`*_\[\]~|])", r"\\\1", one_line(str(text))).replace("<", "&lt;")


SHOWN: tuple[Callable[..., str], ...] = (
    *(score_text, spread_text, difference_text, p_text),
    *(count_text, whole_text, ratio_text, code_text, plain_text),
)
"""What a template calls by the first word of its name."""


# Text -------------------------------------------------------------------------------------------------------------


def as_text(record: dict[str, Any]) -> str:
    """The tables and marks for a terminal, at most 110 columns unless names are long."""
    test, rows = record["test"], record["rows"]
    names = [f"{row['label']} (baseline)" if row["is_baseline"] else row["label"] for row in rows]
    parts = [
        f"{test['name']} of {test['corpus']}, {test['source_language']}→{test['target_language']}, "
        f"{test['sentences']} sentences; ± is a 95 % interval, p of a paired bootstrap against the baseline",
        _columns(SCORE_COLUMNS, names, rows),
        _columns(COST_COLUMNS, names, rows),
    ]
    if record["lengths"]:
        titles = [f"{bucket['label']} (n={bucket['sentences']})" for bucket in record["lengths"]]
        shown = [(name, row) for name, row in zip(names, rows, strict=True) if row["by_length"]]
        cells = [[score_text(score) for score in row["by_length"]] for _, row in shown]
        parts.append(
            "BLEU by source length in words\n" + _table(["model", *titles], [name for name, _ in shown], cells)
        )
    told = [f"{name}: {mark['sentence']}" for name, row in zip(names, rows, strict=True) for mark in row["marks"]]
    if told:
        parts.append("Not on equal terms with the baseline\n" + "\n".join(told))
    scorer = record["scorer"]
    signatures = [f"BLEU  {scorer['bleu_signature']}", f"chrF  {scorer['chrf_signature']}"]
    if scorer["literature_signature"]:
        signatures.append(f"literature BLEU  {scorer['literature_signature']}")
    return "\n\n".join([*parts, "\n".join(signatures)])


Column = tuple[str, Callable[[dict[str, Any]], str]]

SCORE_COLUMNS: list[Column] = [
    ("BLEU", lambda row: score_text(row["bleu"], 2)),
    ("diff.", lambda row: difference_text(row["bleu"])),
    ("p", lambda row: p_text(row["bleu"])),
    ("chrF", lambda row: score_text(row["chrf"], 2)),
    ("diff.", lambda row: difference_text(row["chrf"])),
    ("p", lambda row: p_text(row["chrf"])),
    ("lit. BLEU", lambda row: ratio_text(row["literature_bleu"], 2)),
    ("seeds", lambda row: str(len(row["seeds"])) if len(row["seeds"]) > 1 else ""),
    ("s", lambda row: ratio_text(row["bleu"]["deviation"], 2) if row["bleu"] else "–"),
    ("marks", lambda row: ", ".join(mark["kind"] for mark in row["marks"])),
]
COST_COLUMNS: list[Column] = [
    ("param.", lambda row: count_text(row["parameters"])),
    ("tokens", lambda row: count_text(row["tokens"])),
    ("minutes", lambda row: ratio_text(row["minutes"], 1)),
    ("train tok/s", lambda row: whole_text(row["training_tokens_per_s"])),
    ("transl. tok/s", lambda row: whole_text(row["translating_tokens_per_s"])),
    ("length ratio", lambda row: ratio_text(row["output"]["length_ratio"])),
    ("empty", lambda row: whole_text(row["output"]["empty"])),
    ("repeated", lambda row: whole_text(row["output"]["repeated"])),
    ("unknown", lambda row: whole_text(row["output"]["unknown"])),
    ("AER", lambda row: ratio_text((row["alignment_error_rate"] or {}).get("value"))),
]


def _columns(columns: Sequence[Column], names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """A table without the columns that have nothing to say for any row."""
    cells = [(title, [text(row) for row in rows]) for title, text in columns]
    kept = [(title, column) for title, column in cells if not set(column) <= {"", "–"}]
    lines = list(zip(*(column for _, column in kept), strict=True))
    return _table(["model", *(title for title, _ in kept)], names, lines)


def _table(titles: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need, names to the left, the rest to the right; the last one of words to the left."""
    lines = [list(titles), *([name, *line] for name, line in zip(names, cells, strict=True))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    left = {0, len(titles) - 1} if titles[-1] == "marks" else {0}
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


# Page -------------------------------------------------------------------------------------------------------------


def as_page(comparison: Comparison, record: dict[str, Any]) -> str:
    """One HTML document with everything inside."""
    return rendered(
        "comparison.html",
        record=record,
        curves=[svg for against in CURVES if (svg := curve_figure(comparison.rows, against))],
        **figures_of(comparison),
    )


def figures_of(comparison: Comparison) -> dict[str, Any]:
    """What a page shows of translations: the pictured sentences, their alignments, scores by length."""
    test = comparison.test
    return {
        "sentences": [(number, test.sources[number], test.references[number]) for number in test.pictured],
        "pictures": _pictures(comparison),
        "by_length": by_length_figure(comparison.rows, comparison.buckets) if comparison.buckets else None,
    }


def rendered(template: str, **values: Any) -> str:
    """One of the templates, with the colours of the figures and numbers as people read them; HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("nmt.evaluation"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for shown in SHOWN:
        environment.filters[shown.__name__.removesuffix("_text")] = shown
    environment.filters["line"] = one_line
    colors = {"series": SERIES, "series_dark": SERIES_DARK, "paper": PAPER, "night": NIGHT}
    return environment.get_template(template).render(version=version("nmt"), **colors, **values)


def _pictures(comparison: Comparison) -> dict[int, list[tuple[str, str]]]:
    """By sentence, the label of each row that attends and its picture."""
    pictures: dict[int, list[tuple[str, str]]] = {}
    for number in comparison.test.pictured:
        for place, row in enumerate(comparison.rows):
            alignment = row.measurements[0].alignments.get(number) if row.comparable else None
            if alignment is not None:
                svg = alignment_figure(alignment, f"attention-{number}-{place}")
                cut = f" (first {MOST_ROWS} words)" if len(alignment.target_tokens) > MOST_ROWS else ""
                pictures.setdefault(number, []).append((row.label + cut, svg))
    return pictures
