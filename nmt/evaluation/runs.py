"""The runs that a comparison is of: what their directories say, before any model is loaded.

A run that cannot be used is still a result, and says why. Only what is no run at all is a mistake in the request.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.configuration import load_config
from nmt.errors import RequestError, WorkError
from nmt.training.checkpoint import CONFIG, META, find_checkpoint, read_meta, require_facts, step_directories
from nmt.training.monitor import METRICS_FILE, budget_progress, flatten, read_metrics

# What may differ between two runs of one configuration, besides the seed: names, places and what is only logged.
PLACES = ("run.", "data.cache", "data.dir", "data.downloads.", "trainer.log_every", "trainer.keep_last")
SEED = "trainer.seed"


@dataclass
class Run:
    """One RUN argument.

    Attributes:
        path: as given.
        config: None where it cannot be read.
        meta: of the checkpoint that is scored; empty where there is none.
        records: of metrics.jsonl.
        spent: step, epoch, tokens and seconds of the whole training, as far as it came.
        failure: why the run cannot be scored; empty where it can.
        unfinished: how far it came of its budget; empty where that is used up.
        cut_short: the same of a checkpoint that is given in its run's place.
    """

    path: Path
    config: TrainConfig | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    checkpoint: Path | None = None
    failure: str = ""
    unfinished: str = ""
    cut_short: str = ""

    @property
    def seed(self) -> int | None:
        """What its training was drawn from; None where the config cannot be read."""
        return self.config.trainer.seed if self.config else None

    @property
    def directory_name(self) -> str:
        """The last part of the run directory's path, with that of the checkpoint where one is given."""
        path = self.path.absolute()
        if (path / META).is_file() and path.parent.name == "checkpoints":
            return f"{path.parent.parent.name}/{path.name}"
        return path.name

    def flat_config(self) -> dict[str, bool | int | float | str]:
        """Dotted keys and values; empty where the config cannot be read."""
        return flatten(dataclasses.asdict(self.config)) if self.config else {}

    def training_speed(self) -> float | None:
        """Target tokens a second while training: the median of what was logged, which leaves validations out."""
        logged = [r["target_tokens_per_s"] for r in self.records if r.get("target_tokens_per_s")]
        if logged:
            return float(statistics.median(logged))
        return self.spent["tokens"] / self.spent["seconds"] if self.spent.get("seconds") else None

    def validations(self) -> list[dict[str, Any]]:
        """The records that have a validation BLEU."""
        return [record for record in self.records if record.get("valid_bleu") is not None]


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """What the directories say.

    Raises:
        RequestError: a path is no run, or one is given twice, or the runs are not of one language pair.
    """
    seen: dict[Path, Path] = {}
    for path in paths:
        resolved = path.resolve()
        if resolved in seen:
            raise RequestError(
                f"compare: {path} is given twice" + (f" (as {seen[resolved]})" if seen[resolved] != path else "")
            )
        seen[resolved] = path
    runs = [read_run(path) for path in paths]
    pairs = {(r.config.data.source_language, r.config.data.target_language): r for r in reversed(runs) if r.config}
    if len(pairs) > 1:
        shown = ", ".join(f"{run.path} is {source}→{target}" for (source, target), run in reversed(pairs.items()))
        raise RequestError(f"compare: runs of different language pairs: {shown}")
    return runs


def read_run(path: Path) -> Run:
    """What one directory says. Raises RequestError where it is no run."""
    if not path.exists():
        raise RequestError(f"compare: {path}: no such run directory")
    given_checkpoint = (path / META).is_file()
    if not given_checkpoint and not (path / CONFIG).is_file() and not (path / "checkpoints").is_dir():
        raise RequestError(f"compare: {path} is no run: it has neither {CONFIG} nor checkpoints/")
    run = Run(path)
    try:
        run.records = _records(path)
        if (path / CONFIG).is_file():
            run.config = load_config(path / CONFIG)
        run.checkpoint = find_checkpoint(path)
        run.config = run.config or load_config(run.checkpoint / CONFIG)
        run.meta = read_meta(run.checkpoint)
        require_facts(run.meta, run.checkpoint, "step", "tokens", "seconds")
    except (RequestError, WorkError) as error:
        run.failure = _reason(run, error)
        return run
    run.spent = _spent(run)
    if not given_checkpoint:
        run.unfinished = _unfinished(run)
    elif run.records and run.records[-1]["step"] == run.spent["step"]:  # else fractions of an epoch are not known
        run.cut_short = _unfinished(run)
    return run


def _records(path: Path) -> list[dict[str, Any]]:
    """A run's metrics; those up to the step of a checkpoint that is given in its run's place."""
    try:
        if not (path / META).is_file():
            return read_metrics(path / METRICS_FILE)
        step = read_meta(path).get("step", 0)
        found = read_metrics(path.resolve().parent.parent / METRICS_FILE)
        return [record for record in found if record["step"] <= step]
    except OSError:
        return []


def _reason(run: Run, error: Exception) -> str:
    if run.config is not None and not step_directories(run.path / "checkpoints") and run.checkpoint is None:
        reached = max((record.get("step", 0) for record in run.records), default=0)
        return "no checkpoint: training ended " + (f"after step {reached}" if reached else "before its first step")
    return str(error)


def _spent(run: Run) -> dict[str, float]:
    """The furthest that the run's latest checkpoint or its metrics tell of."""
    candidates = [run.meta, *run.records[-1:]]
    for directory in step_directories(run.path / "checkpoints")[-1:]:
        try:
            candidates.append(read_meta(directory))
        except WorkError:
            continue
    furthest = max(candidates, key=lambda record: record.get("step", 0))
    spent: dict[str, float] = {name: furthest[name] for name in ("step", "tokens", "seconds") if name in furthest}
    # The metrics know fractions of an epoch, a checkpoint only how many are complete; and the clock goes on a little
    # between a record and the checkpoint of the same step.
    for name in ("epoch", "seconds", "validations_without_gain"):
        spent[name] = max(record.get(name, 0) for record in candidates)
    return spent


def _unfinished(run: Run) -> str:
    """Empty where a limit is reached; else how far the run came."""
    assert run.config is not None
    trainer, spent = run.config.trainer, run.spent
    if trainer.patience is not None and spent.get("validations_without_gain", 0) >= trainer.patience:
        return ""
    share, text = budget_progress(
        int(spent["step"]),
        spent["epoch"],
        spent["seconds"] / 60,
        trainer.max_steps,
        trainer.max_epochs,
        trainer.max_minutes,
    )
    # The metrics round epochs to four decimals and seconds to three.
    return "" if share is not None and share >= 0.99999 else text


# Differences ------------------------------------------------------------------------------------------------------


def configuration_key(run: Run) -> str:
    """The same text for runs that are trainings of one configuration with other seeds."""
    kept = {name: value for name, value in run.flat_config().items() if not name.startswith(PLACES) and name != SEED}
    return json.dumps(kept, sort_keys=True)


def config_differences(run: Run, baseline: Run) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, each with the run's and the baseline's; None where one has no such key."""
    own, other = run.flat_config(), baseline.flat_config()
    names = [*own, *(name for name in other if name not in own)]
    return {
        name: (own.get(name), other.get(name))
        for name in names
        if own.get(name) != other.get(name) and not name.startswith(PLACES)
    }


@dataclass(frozen=True)
class Mark:
    """Something that keeps a row from being on equal terms with the baseline."""

    kind: str
    """One or two words, such as "tokenizer"."""
    sentence: str


BUDGET = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_minutes", "trainer.patience")


def protocol_marks(run: Run, baseline: Run) -> Iterator[Mark]:
    """Where the run's protocol is another one than the baseline's: tokenizer, start, budget, search, training data."""
    differences = config_differences(run, baseline)

    def told(*prefixes: str) -> str:
        return ", ".join(
            f"{name}={value} (baseline {other})"
            for name, (value, other) in differences.items()
            if name.startswith(prefixes)
        )

    tokenizer = told("tokenizer.")
    if tokenizer:
        yield Mark("tokenizer", f"another tokenizer: {tokenizer}")
    elif _tokenizer_hash(run) != _tokenizer_hash(baseline):
        yield Mark("tokenizer", "another tokenizer, of the same settings, trained on other text")
    start = told("init_from")
    if start:
        yield Mark("start", f"another start: {start}")
    # Steps are worth as much as their batches are large, minutes as much as the machine is fast.
    in_steps = baseline.config is not None and baseline.config.trainer.max_steps is not None
    in_minutes = baseline.config is not None and baseline.config.trainer.max_minutes is not None
    budget = told(
        *BUDGET,
        *(("batch.tokens", "batch.accumulate") if in_steps else ()),
        *(("trainer.threads", "trainer.device", "trainer.precision") if in_minutes else ()),
    )
    if budget:
        yield Mark("budget", f"another budget: {budget}")
    search = told("search.")
    if search:
        yield Mark("search", f"another search: {search}")
    data = [name for name, value in _data(run).items() if _data(baseline).get(name) != value]
    if data or _data(run).keys() != _data(baseline).keys() or told("data.max_train_pairs", "data.filter."):
        keys = told("data.")
        yield Mark("data", "other training or validation data" + (f": {keys}" if keys else f": {', '.join(data)}"))


def _data(run: Run) -> dict[str, str]:
    data: dict[str, str] = run.meta.get("data") or {}
    return data


def _tokenizer_hash(run: Run) -> tuple[tuple[str, str], ...]:
    checksums = run.meta.get("sha256") or {}
    return tuple((name, value) for name, value in sorted(checksums.items()) if name.startswith("tokenizer"))
