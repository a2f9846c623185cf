"""Several runs on one test set: one scorer for all, a row for each configuration, differences with significance.

Runs whose configurations differ in nothing but the seed are one row, the mean of its trainings. A run with a seed that
the row already has (a copy, another checkpoint) is a row of its own: it does not tell how much trainings vary. What is
not on equal terms with the baseline (tokenizer, budget, search, training data) is marked and shown; what was scored
against other text (the test set) is shown without a difference, since there is none to speak of; what failed is shown
as failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import Report
from nmt.errors import RequestError, WorkError
from nmt.evaluation.lengths import LIMITS, Bucket, length_buckets
from nmt.evaluation.measure import Measurement, TestSet, TestSets, measure
from nmt.evaluation.metrics import bleu_metric, chrf_metric
from nmt.evaluation.runs import Mark, Run, configuration_key, protocol_marks, read_runs
from nmt.evaluation.significance import Bootstrap, Estimate, p_value

EXAMPLES = 3
"""Sentences shown of those on which a row and the baseline differ most, in either direction."""
_SEED_ENDING = re.compile(r"[-_. =]+((s|seed)[-_. =]*)?$")


@dataclass(frozen=True)
class Score:
    """A corpus score of a row, 0 to 100, and how it compares."""

    value: float
    """The mean over the row's trainings."""
    half_width: float
    """Half of the 95 % interval."""
    per_training: list[float]
    deviation: float | None
    """Standard deviation between trainings (n - 1 in the denominator); None for one."""
    difference: float | None
    """To the baseline; None for the baseline, and where test sets differ."""
    p: float | None


@dataclass(frozen=True)
class Example:
    """A sentence on which a row and the baseline differ much."""

    number: int
    """Line of the test set, from 1."""
    source: str
    reference: str
    hypothesis: str
    baseline: str
    chrf: float
    baseline_chrf: float


@dataclass
class Row:
    """One configuration: trained once, or with several seeds."""

    label: str
    runs: list[Run]
    measurements: list[Measurement]
    """One for each run; none of a failed one."""
    is_baseline: bool = False
    comparable: bool = False
    """Scored on the baseline's test set."""
    marks: list[Mark] = field(default_factory=list)
    bleu: Score | None = None
    chrf: Score | None = None
    by_length: list[Score | None] = field(default_factory=list)
    """BLEU of each of the comparison's buckets."""
    examples: list[Example] = field(default_factory=list)

    @property
    def status(self) -> str:
        """finished, unfinished or failed."""
        run = self.runs[0]
        return "failed" if run.failure else "unfinished" if run.unfinished else "finished"


@dataclass(frozen=True)
class Comparison:
    """All that is told on the terminal, as JSON and as a page."""

    test: TestSet
    """The baseline's."""
    rows: list[Row]
    bleu_signature: str
    chrf_signature: str
    buckets: list[Bucket]

    @property
    def baseline(self) -> Row:
        return next(row for row in self.rows if row.is_baseline)

    @property
    def complaints(self) -> list[str]:
        """A line for every run that failed or did not use up its budget."""
        runs = [run for row in self.rows for run in row.runs]
        return [f"{run.path} failed: {run.failure}" for run in runs if run.failure] + [
            f"{run.path} is unfinished: {run.unfinished}" for run in runs if run.unfinished and not run.failure
        ]


def compare_runs(
    paths: Sequence[Path],
    report: Report,
    baseline: Path | None = None,
    set_name: str | None = None,
    limits: Sequence[int] = LIMITS,
) -> Comparison:
    """Compares the best checkpoints of runs on a test set.

    Args:
        paths: run directories or checkpoint directories, at least two.
        baseline: one of them; None: the first that can be scored.
        set_name: None: `test`, or else the first test set of the baseline's corpus.
        limits: greatest source lengths of the buckets, in words, but for the last one's.

    Raises:
        RequestError: a path is no run, the languages differ, no such baseline or test set.
        WorkError: no run, or not the baseline, can be scored.
    """
    if len(paths) < 2:
        raise RequestError("compare: give at least two runs")
    runs = read_runs(paths)
    chosen = _named(runs, baseline) if baseline is not None else None
    tests = TestSets(report)
    name = _set_name(runs if chosen is None else [chosen], set_name, tests)
    measured: list[tuple[Run, Measurement | None]] = []
    for run in runs:
        measured.append((run, _measured(run, name, tests, report)))
        if run.failure:
            report(f"{run.path}: {run.failure}")
    first = chosen or next((run for run, found in measured if found), None)
    if first is None or first.failure:
        told = "; ".join(f"{run.path}: {run.failure}" for run in ([first] if first else runs))
        raise WorkError(f"compare: {'the baseline' if first else 'none of the runs'} can not be scored: {told}")
    return _scored(_rows(measured, first), limits)


def alone(run: Run, test: TestSet, report: Report, limits: Sequence[int] = LIMITS) -> Comparison:
    """One run on a test set, as a comparison with nothing: its scores with intervals, by length, where it looks.

    Raises:
        RequestError, WorkError: the checkpoint cannot be loaded, or the test set cannot be read.
    """
    label = run.config.model.name if run.config else run.directory_name
    return _scored([Row(label, [run], [measure(run, test, report)], is_baseline=True, comparable=True)], limits)


def _scored(rows: list[Row], limits: Sequence[int]) -> Comparison:
    test = next(row for row in rows if row.is_baseline).measurements[0].test
    buckets = length_buckets([len(source.split()) for source in test.sources], limits)
    bleu, chrf = (Bootstrap(metric, test.references) for metric in (bleu_metric(), chrf_metric()))
    _score_rows(rows, bleu, chrf, buckets, test)
    return Comparison(test, rows, bleu.signature(), chrf.signature(), buckets)


def _named(runs: Sequence[Run], baseline: Path) -> Run:
    for run in runs:
        if run.path.resolve() == baseline.resolve():
            return run
    raise RequestError(f"compare: --baseline {baseline} is none of the runs: {', '.join(str(r.path) for r in runs)}")


def _set_name(runs: Sequence[Run], given: str | None, tests: TestSets) -> str:
    """The set to score: that of the first run whose corpus can be had."""
    problems = []
    for run in runs:
        if run.failure:
            problems.append(f"{run.path}: {run.failure}")
            continue
        try:
            names = list(tests.corpus(run).test)
        except (RequestError, WorkError) as error:
            problems.append(f"{run.path}: {error}")
            continue
        if given is not None and given not in names:
            raise RequestError(f"compare: --set {given}: no such test set; there are: {', '.join(names) or 'none'}")
        if not names:
            raise RequestError(f"compare: the corpus of {run.path} has no test set")
        return given or ("test" if "test" in names else names[0])
    what = "the baseline" if len(runs) == 1 else "none of the runs"
    raise WorkError(f"compare: {what} can not be scored: {'; '.join(problems)}")


def _measured(run: Run, name: str, tests: TestSets, report: Report) -> Measurement | None:
    if run.failure:
        return None
    try:
        return measure(run, tests.of(run, name), report)
    except (RequestError, WorkError) as error:
        run.failure = str(error)
        return None


# Rows -------------------------------------------------------------------------------------------------------------


def _rows(measured: Sequence[tuple[Run, Measurement | None]], baseline: Run) -> list[Row]:
    """Rows in the order of their first runs; trainings of one configuration that used up their budget share one."""
    grouped: dict[object, Row] = {}
    for number, (run, measurement) in enumerate(measured):
        key: object = number
        if measurement is not None and not run.unfinished and not run.cut_short:
            key = (configuration_key(run), str(run.meta.get("data")), measurement.tokenizer, measurement.test.identity)
            if key in grouped and run.seed in [other.seed for other in grouped[key].runs]:
                key = number
        row = grouped.setdefault(key, Row("", [], []))
        row.runs.append(run)
        row.is_baseline = row.is_baseline or run is baseline
        if measurement is not None:
            row.measurements.append(measurement)
    rows = list(grouped.values())
    first = next(row for row in rows if row.is_baseline)
    for row in rows:
        row.comparable = bool(row.measurements) and (
            row.measurements[0].test.identity == first.measurements[0].test.identity
        )
        row.marks = _marks(row, first)
    for row, label in zip(rows, _labels(rows), strict=True):
        row.label = label
    return rows


def _marks(row: Row, baseline: Row) -> list[Mark]:
    run, other = row.runs[0], baseline.runs[0]
    if run.failure:
        return [Mark("failed", run.failure)]
    marks = []
    if run.unfinished:
        marks.append(Mark("unfinished", f"did not use up its budget: {run.unfinished}"))
    if run.cut_short != other.cut_short:
        own, theirs = (r.cut_short or "all of its budget" for r in (run, other))
        marks.append(Mark("budget", f"a checkpoint from another time of its training: {own} (baseline {theirs})"))
    tested, against = row.measurements[0].test, baseline.measurements[0].test
    if not row.comparable:
        sides = zip(("source", "reference"), tested.identity, against.identity, strict=True)
        differing = " and ".join(side for side, left, right in sides if left != right)
        marks.append(
            Mark(
                "test set",
                f"not comparable: another {differing} text of {tested.name} ({len(tested.references)} sentences of "
                f"{tested.corpus.name}) than the baseline's ({len(against.references)} of {against.corpus.name})",
            )
        )
    return marks + list(protocol_marks(run, other))


def _labels(rows: Sequence[Row]) -> list[str]:
    """The shortest names that tell the rows apart: the model's, the run directory's, or the path."""
    models = [row.runs[0].config.model.name if row.runs[0].config else "" for row in rows]
    directories = [_common_name(row.runs) for row in rows]
    paths = [str(row.runs[0].path) for row in rows]
    return [
        next((names[i] for names in (models, directories) if names[i] and names.count(names[i]) == 1), paths[i])
        for i in range(len(rows))
    ]


def _common_name(runs: Sequence[Run]) -> str:
    """What the names of the run directories begin with: bahdanau of bahdanau-s1 and bahdanau-s2."""
    names = [run.directory_name for run in runs]
    if len(names) == 1:
        return names[0]
    common = "".join(
        letters[0] for letters in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    )
    return _SEED_ENDING.sub("", common) or names[0]


# Scores -----------------------------------------------------------------------------------------------------------


def _score_rows(
    rows: Sequence[Row], bleu: Bootstrap, chrf: Bootstrap, buckets: Sequence[Bucket], test: TestSet
) -> None:
    """Scores of every row that has translations, the baseline first, since the others are compared with it."""
    within = [Bootstrap(bleu_metric(), [test.references[i] for i in bucket.indices]) for bucket in buckets]
    baseline: dict[object, Estimate] = {}
    baseline_sentences: list[float] = []
    for stream, row in enumerate(sorted(rows, key=lambda row: not row.is_baseline)):
        if not row.measurements:
            continue
        if not row.comparable:
            references = row.measurements[0].test.references
            own_bleu, own_chrf = (Bootstrap(metric, references) for metric in (bleu_metric(), chrf_metric()))
            row.bleu, _ = _score(own_bleu, _statistics(own_bleu, row), stream, None)
            row.chrf, _ = _score(own_chrf, _statistics(own_chrf, row), stream, None)
            continue
        bleu_statistics, chrf_statistics = _statistics(bleu, row), _statistics(chrf, row)
        estimates: dict[object, Estimate] = {}
        row.bleu, estimates["bleu"] = _score(bleu, bleu_statistics, stream, baseline.get("bleu"))
        row.chrf, estimates["chrf"] = _score(chrf, chrf_statistics, stream, baseline.get("chrf"))
        for number, (bucket, part) in enumerate(zip(buckets, within, strict=True)):
            chosen = [statistics[bucket.indices] for statistics in bleu_statistics]
            score, estimates[number] = _score(part, chosen, stream, baseline.get(number))
            row.by_length.append(score)
        sentences = chrf.sentence_scores(chrf_statistics[0])
        if row.is_baseline:
            baseline, baseline_sentences = estimates, sentences
            first = row.measurements[0]
        else:
            row.examples = _examples(test, row.measurements[0], first, sentences, baseline_sentences)


def _statistics(bootstrap: Bootstrap, row: Row) -> list[NDArray[np.float64]]:
    return [bootstrap.statistics(measurement.hypotheses) for measurement in row.measurements]


def _score(
    bootstrap: Bootstrap, trainings: Sequence[NDArray[np.float64]], stream: int, baseline: Estimate | None
) -> tuple[Score, Estimate]:
    estimate = bootstrap.estimate(trainings, stream)
    single = [bootstrap.score(statistics) for statistics in trainings]
    score = Score(
        value=estimate.score,
        half_width=estimate.half_width,
        per_training=single,
        deviation=float(np.std(single, ddof=1)) if len(single) > 1 else None,
        difference=estimate.score - baseline.score if baseline else None,
        p=p_value(estimate, baseline) if baseline else None,
    )
    return score, estimate


def _examples(
    test: TestSet, row: Measurement, baseline: Measurement, scores: Sequence[float], baseline_scores: Sequence[float]
) -> list[Example]:
    """The sentences with the greatest differences of sentence chrF: first those better than the baseline's."""
    differences = np.array(scores) - np.array(baseline_scores)
    order = np.argsort(-differences, kind="stable").tolist()
    better = [i for i in order[:EXAMPLES] if differences[i] > 0]
    worse = [i for i in order[::-1][:EXAMPLES] if differences[i] < 0]
    return [
        Example(
            number=i + 1,
            source=test.sources[i],
            reference=test.references[i],
            hypothesis=row.hypotheses[i],
            baseline=baseline.hypotheses[i],
            chrf=scores[i],
            baseline_chrf=baseline_scores[i],
        )
        for i in better + worse
    ]
