"""The one place that a training run speaks through: metrics.jsonl, TensorBoard and the terminal.

`metrics.jsonl` is the record: one flushed line for each measurement, so that a run killed at any moment leaves a
readable file, and a resumed run continues it as if it had never stopped. TensorBoard and the terminal are views. Where
stderr is a terminal it carries a progress bar; elsewhere plain lines without control characters.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TextIO

from nmt.errors import WorkError
from nmt.evaluation.alignment import Alignment
from nmt.files import cause_of, read_regular, write_atomically
from nmt.training.board import Board
from nmt.training.console import SCORES, Console, one_line

METRICS_FILE = "metrics.jsonl"
VALIDATION_PREFIX = "valid_"

# What TensorBoard's table of runs has besides the scores: their cost, and the settings that they may be due to.
COST = ("parameters", "tokens", "seconds")
SORTED_BY = (
    *("model", "tokenizer.model", "tokenizer.vocab_size", "batch.tokens", "loss.", "optimizer", "schedule"),
    *("trainer.seed", "trainer.max_", "trainer.ema_decay", "search.beam_size"),
)

# A number, or something with `.item()` that is one: a tensor or array of one element.
Value = Any


@dataclass(frozen=True)
class Sample:
    """A validation sentence, how the model translates it now, and how it should."""

    source: str
    hypothesis: str
    reference: str


class Monitor:
    """Records and shows what a training run measures.

    Args:
        run_dir: the run directory; made where it is missing.
        resumed_step: optimizer step that training continues from; 0 for a new run. Earlier records of later steps,
            left by the run that was interrupted, are removed, since those steps are taken again.
        validated_step: step of the last validation that the continued state knows of; records of later ones are
            removed, too. None: `resumed_step`.
        stream: where the progress goes; None: stderr.

    Raises:
        WorkError: the record cannot be read or written (here and in every method that writes it).
    """

    def __init__(
        self,
        run_dir: Path,
        resumed_step: int = 0,
        stream: TextIO | None = None,
        validated_step: int | None = None,
    ) -> None:
        self._path = Path(run_dir) / METRICS_FILE
        try:
            Path(run_dir).mkdir(parents=True, exist_ok=True)
            kept = _continue_records(
                self._path, resumed_step, resumed_step if validated_step is None else validated_step
            )
            self._file: IO[bytes] | None = open(self._path, "ab", buffering=0)  # noqa: SIM115  closed by close()
        except OSError as error:
            raise WorkError(f"cannot write {self._path}: {error.strerror}") from error
        self._best = _best_bleu(kept)
        self._last_bleu = next((r["valid_bleu"] for r in reversed(kept) if r.get("valid_bleu") is not None), None)
        self._last_counts: tuple[float, int] | None = None
        self._console = Console(stream)
        self._board: Board | None = Board(Path(run_dir) / "tensorboard", resumed_step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def training(
        self,
        step: int,
        epoch: float,
        seconds: float,
        tokens: int,
        metrics: Mapping[str, Value],
        progress: float | None = None,
        budget: str = "",
    ) -> None:
        """Records what was measured over the last steps.

        Args:
            step: optimizer steps taken.
            epoch: passes over the training pairs, with their fraction.
            seconds: training time, that before a resumption included.
            tokens: target tokens trained on so far.
            metrics: names and numbers; `loss` and `target_tokens_per_s` are shown in the bar.
            progress: share of the budget that is used up, 0 to 1, by whichever limit ends first (`budget_progress`).
            budget: that limit in words, such as "step 300/8000".
        """
        values = _plain(metrics)
        if values.get("target_tokens_per_s") is None and (speed := self._speed(seconds, tokens)) is not None:
            values["target_tokens_per_s"] = speed
        self._last_counts = (seconds, tokens)
        self._record(step, epoch, seconds, tokens, values)
        self._show(lambda board: board.scalars("train", values, step))
        self._console.training(step, epoch, seconds, values, progress, budget, self._bleu_texts())

    def advance(self, step: int, seconds: float, progress: float | None = None, budget: str = "") -> None:
        """Moves the bar between two records; does nothing where there is no bar, and is cheap at every step."""
        self._console.advance(step, seconds, progress, budget)

    def validation(
        self,
        step: int,
        epoch: float,
        seconds: float,
        tokens: int,
        metrics: Mapping[str, Value],
        samples: Sequence[Sample] = (),
        alignments: Sequence[Alignment] = (),
        warnings: Sequence[str] = (),
    ) -> None:
        """Records a validation: `metrics` are written with the prefix `valid_`; `bleu` is the one that is compared.

        `samples` go to the terminal and, with the pictures of `alignments`, to TensorBoard. `warnings` are those of
        `nmt.evaluation.metrics.OutputStatistics`.
        """
        values = _plain(metrics)
        bleu = values.get("bleu")
        if bleu is not None:
            self._last_bleu = bleu
            if self._best is None or bleu > self._best[0]:
                self._best = (bleu, step)
        self._record(step, epoch, seconds, tokens, {VALIDATION_PREFIX + name: value for name, value in values.items()})
        self._last_counts = None  # the next speed must not count the validation's time
        self._console.validation(step, values, self._best)
        for warning in warnings:
            self._console.message(f"warning: {warning}")
        for sample in samples:
            self._console.sample(sample.source, sample.hypothesis, sample.reference)

        def show(board: Board) -> None:
            board.scalars("valid", values, step)
            for index, sample in enumerate(samples, start=1):
                board.sample(index, sample.source, sample.hypothesis, sample.reference, step)
            for index, alignment in enumerate(alignments, start=1):
                board.alignment(index, alignment, step)
            board.flush()

        self._show(show)

    def message(self, text: str) -> None:
        """Prints one line, above the bar where there is one. It also fits where a `report` callable is wanted."""
        self._console.message(text)

    def configuration(self, yaml: str) -> None:
        """Keeps the resolved configuration beside the curves."""
        self._show(lambda board: board.text("settings", yaml))  # shown behind the samples: by alphabet

    def results(self, results: Mapping[str, Any], config: Mapping[str, Any], step: int = 0) -> None:
        """Prints the final scores and stores them with the configuration's values, so that runs can be sorted.

        Args:
            results: the contents of results.json: `{"sets": {name: {"bleu": ..., "chrf": ..., ...}}}`.
            config: the configuration as nested dictionaries.
            step: optimizer step of the weights that were scored.
        """
        sets: Mapping[str, Mapping[str, Any]] = results.get("sets", {})
        scores = {
            f"test/{name}/{metric}": measured[metric]
            for name, measured in sets.items()
            for metric in SCORES
            if measured.get(metric) is not None
        }
        cost = results.get("provenance", {})
        scores.update({f"cost/{name}": cost[name] for name in COST if name in cost})
        for name, measured in sets.items():
            self._console.result(name, _plain(measured, numbers_only=True))
        # As on the command line, where model= and data= name presets; the names also come early in the table.
        named = {name.removesuffix(".name"): value for name, value in flatten(config).items()}
        settings = {name: value for name, value in named.items() if name == "data" or name.startswith(SORTED_BY)}
        self._show(lambda board: board.results(settings, scores, step))

    def close(self) -> None:
        """Takes the bar away and closes the files; a second call does nothing."""
        self._show(Board.close)
        self._console.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _show(self, action: Callable[[Board], None]) -> None:
        """TensorBoard is a view: when its files cannot be written any more, the run goes on without it."""
        if self._board is None:
            return
        try:
            action(self._board)
        except OSError as error:
            self._board = None
            self._console.message(f"warning: TensorBoard's files end here: {error.strerror or error}")

    def _record(
        self, step: int, epoch: float, seconds: float, tokens: int, values: Mapping[str, float | int | None]
    ) -> None:
        record = {"step": step, "epoch": round(float(epoch), 4), "seconds": round(float(seconds), 3), "tokens": tokens}
        line = json.dumps({**record, **values}, allow_nan=False, ensure_ascii=False) + "\n"
        if self._file is None:
            raise ValueError("the monitor is closed")
        data = line.encode()
        try:
            # One unbuffered write: a crash leaves the whole line or none of it, save on a full disk.
            written = self._file.write(data)
            if written != len(data):
                self._file.write(data[written:])
        except OSError as error:
            raise WorkError(f"cannot write {self._path}: {error.strerror}") from error

    def _speed(self, seconds: float, tokens: int) -> float | None:
        if self._last_counts is None or seconds <= self._last_counts[0]:
            return None
        return (tokens - self._last_counts[1]) / (seconds - self._last_counts[0])

    def _bleu_texts(self) -> list[str]:
        if self._best is None or self._last_bleu is None:
            return []
        return [f"BLEU {self._last_bleu:.2f}", f"best {self._best[0]:.2f}"]


class SilentMonitor(Monitor):
    """What the other processes of a run speak to, where the first one records for all."""

    def __init__(self) -> None:
        self._best = self._last_bleu = self._last_counts = self._file = self._board = None
        self._console = Console(io.StringIO())

    def _record(self, *_: object) -> None:
        pass

    def message(self, text: str) -> None:
        """Says nothing."""


def budget_progress(
    step: int,
    epoch: float,
    minutes: float,
    max_steps: int | None,
    max_epochs: int | None,
    max_minutes: float | None,
) -> tuple[float | None, str]:
    """The share used up of the limit that will end the run first, and that limit in words.

    With no limit at all the share is None. Example: at step 300 of 8,000 after 6 of 20 minutes → (0.3, "6.0/20 min").
    """
    limits = []
    if max_minutes is not None:
        limits.append((minutes / max_minutes, f"{minutes:.1f}/{max_minutes:g} min"))
    if max_steps is not None:
        limits.append((step / max_steps, f"step {step}/{max_steps}"))
    if max_epochs is not None:
        limits.append((epoch / max_epochs, f"epoch {epoch:.2f}/{max_epochs}"))
    if not limits:
        return None, f"step {step}"
    share, text = max(limits, key=lambda limit: limit[0])
    return min(share, 1.0), text


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl, in their order; lines that a crash cut short are passed over.

    A missing file has no records.

    Raises:
        WorkError: the file cannot be read; or, naming the line, one that is JSON, and so was not cut short, but no
            record.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise WorkError(f"cannot read {path}: {cause_of(error)}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not _is_record(record):
            raise WorkError(f"{path} line {number}: not a record that nmt writes; mend it, or remove the file")
        records.append(record)
    return records


def _is_record(record: Any) -> bool:
    """Whether it names its step and holds nothing but numbers, with null for a measurement that was none."""

    def number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        return False
    counted = {"step", "epoch", "seconds", "tokens"}
    return all(number(value) or (value is None and name not in counted) for name, value in record.items())


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Nested dictionaries as one, with dotted names; a list or None becomes text."""
    flat: dict[str, bool | int | float | str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        elif isinstance(value, bool | int | float | str):
            flat[f"{prefix}{name}"] = value
        else:
            flat[f"{prefix}{name}"] = "null" if value is None else one_line(str(value))
    return flat


def _continue_records(path: Path, resumed_step: int, validated_step: int) -> list[dict[str, Any]]:
    """Removes half-written lines and records of steps that will be taken again; returns the records that stay."""
    try:
        before = read_regular(path)
    except FileNotFoundError:
        return []
    kept = [
        record
        for record in read_metrics(path)
        if resumed_step > 0 and record.get("step", 0) <= (validated_step if _is_validation(record) else resumed_step)
    ]
    after = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept).encode()
    if after != before:
        write_atomically(path, after)
    return kept


def _is_validation(record: Mapping[str, Any]) -> bool:
    return any(name.startswith(VALIDATION_PREFIX) for name in record)


def _best_bleu(records: Sequence[Mapping[str, Any]]) -> tuple[float, int] | None:
    scored = [(r["valid_bleu"], r["step"]) for r in records if r.get("valid_bleu") is not None]
    return max(scored, key=lambda entry: (entry[0], -entry[1])) if scored else None


def _plain(values: Mapping[str, Value], numbers_only: bool = False) -> dict[str, float | int | None]:
    """Python numbers; what is not finite becomes None, which JSON can say."""
    plain: dict[str, float | int | None] = {}
    for name, value in values.items():
        number = value.item() if hasattr(value, "item") else value
        if number is None or (isinstance(number, float) and not math.isfinite(number)):
            plain[name] = None
        elif isinstance(number, bool):
            plain[name] = int(number)
        elif isinstance(number, int | float):
            plain[name] = number
        elif not numbers_only:
            raise TypeError(f"metric {name} is not a number: {number!r}")
    return plain
