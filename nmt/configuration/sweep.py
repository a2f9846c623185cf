"""`nmt train -m`: several runs, on any Hydra launcher and sweeper; one that fails does not stop the others.

Every member is checked before the first one begins. Where they run is the launcher's choice: in this process, in
others, on other machines. What became of a member is therefore a small file, which the member leaves in the sweep's
folder and which is read when the launcher is done. A member's own directory is named after its configuration, so that
the same sweep again goes on with what is half done, and finds what is finished.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt.configuration.application import Train, directory_flags, hydra_main
from nmt.configuration.composition import (
    Member,
    check_search_space,
    compose_node,
    compose_sweep,
    to_member_config,
)
from nmt.configuration.mistakes import in_quotes, normalised
from nmt.configuration.store import groups
from nmt.errors import RequestError, WorkError
from nmt.files import write_atomically
from nmt.streams import print_on_stderr

MEMBERS_FILE = "members.json"
"""In the sweep's folder: the table of members as a list of `Outcome`s."""

DONE, FAILED, INTERRUPTED, LOST = "done", "failed", "interrupted", "no answer"

Describe = Callable[[Exception], str]
"""What is said of an error, in one line."""


@dataclass
class Outcome:
    """What became of one member of a sweep.

    bleu: validation BLEU of its best checkpoint. seconds: that this attempt took. label: what tells it from the others.
    """

    number: int
    overrides: list[str]
    state: str = LOST
    run: str = ""
    bleu: float | None = None
    error: str = ""
    seconds: float = 0.0
    label: str = ""


@dataclass(frozen=True)
class Task:
    """What a launcher calls for each member, here or in another process.

    labels: by the member's number; empty where the sweeper decides on the way what the members are.
    given: the overrides of the sweep.
    records: an absolute path, the folder for their outcomes.
    """

    train: Train
    describe: Describe
    labels: list[str]
    given: list[str]
    records: Path

    def __call__(self, node: Any) -> float | None:
        """Trains a member and leaves its outcome; its validation BLEU is what a sweeper optimizes.

        Raises:
            WorkError: it failed, for a sweeper that has to know; others would stop at it.
        """
        from hydra.core.hydra_config import HydraConfig

        settings = HydraConfig.get()
        outcome = Outcome(settings.job.num, [str(text) for text in settings.overrides.task])
        chosen = [text for text in outcome.overrides if text not in self.given]
        label = self.labels[outcome.number] if self.labels else " ".join(chosen)
        of = f" of {len(self.labels)}" if self.labels else ""
        print_on_stderr(f"nmt: run {outcome.number + 1}{of}: {label}")
        began = time.monotonic()
        try:
            outcome.state = INTERRUPTED
            config = to_member_config(node)
            outcome.run = config.run.dir
            outcome.bleu = self.train(config)
            outcome.state = DONE
        except Exception as error:
            outcome.state, outcome.error = FAILED, self.describe(error)
            print_on_stderr(f"nmt: error: {outcome.error}")
            if not self.labels:
                raise WorkError(outcome.error) from None
        finally:
            outcome.seconds = round(time.monotonic() - began, 1)
            if not os.path.isdir(os.path.expanduser(outcome.run)):
                outcome.run = ""  # one that is refused leaves nothing
            self._leave(outcome)
        return outcome.bleu

    def _leave(self, outcome: Outcome) -> None:
        """Leaves what became of a member; where that cannot be written, it is one without an answer and no more."""
        try:
            write_atomically(self.records / f"{outcome.number}.json", json.dumps(asdict(outcome)))
        except WorkError as error:
            print_on_stderr(f"nmt: error: {self.describe(error)}")


def train_sweep(overrides: Sequence[str], config_dir: Path | None, train: Train, describe: Describe) -> None:
    """Check the runs of a sweep, then train them; one that fails is told, and the others go on.

    Raises:
        RequestError: one of the runs is refused, or the launcher is not installed; nothing has begun then.
        WorkError: at the end, where some failed, naming them.
    """
    overrides = normalised(overrides)
    settings = [text for text in overrides if text.lstrip("+~").startswith("hydra")]
    node = compose_node(settings, config_dir)
    members = _checked(overrides, node, config_dir)
    folder = Path(str(node.hydra.sweep.dir)).absolute()
    everything = [member.overrides for member in members]
    labels = [_label(everything, own) for own in everything]
    arguments = ["--multirun", *directory_flags(config_dir), *_deferred(overrides, members)]
    stopped: Exception | None = None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="members-", dir=folder, ignore_cleanup_errors=True) as records:
        task = Task(train, describe, labels, overrides, Path(records))
        try:
            hydra_main([*arguments, f"hydra.sweep.dir={in_quotes(str(folder))}"], task)
        except Exception as error:
            stopped = error
        outcomes = _outcomes(Path(records), members)
    if stopped is not None and all(outcome.state == LOST for outcome in outcomes):
        raise stopped
    write_atomically(folder / MEMBERS_FILE, json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    print_on_stderr(table(outcomes))
    failed = [outcome for outcome in outcomes if outcome.state != DONE]
    if failed:
        cause = f" ({describe(stopped)})" if stopped is not None and any(o.state == LOST for o in failed) else ""
        names = "; ".join(outcome.label for outcome in failed)
        raise WorkError(f"{len(failed)} of {len(outcomes)} runs failed: {names}{cause}")
    if stopped is not None:
        raise stopped


def table(outcomes: Sequence[Outcome]) -> str:
    """The members of a sweep, a line each, and the best of them."""
    runs = [outcome.run or "–" for outcome in outcomes]
    width = max(map(len, ["run", *runs]))
    lines = [f"{'':>4}  {'state':11}  {'valid BLEU':>10}  {'run':{width}}  what is its own"]
    for outcome, run in zip(outcomes, runs, strict=True):
        bleu = "–" if outcome.bleu is None else f"{outcome.bleu:.2f}"
        told = f"{outcome.label}: {outcome.error}" if outcome.error else outcome.label
        lines.append(f"{outcome.number + 1:>4}  {outcome.state:11}  {bleu:>10}  {run:{width}}  {told}")
    scored = [(outcome.bleu, -outcome.number, outcome.run) for outcome in outcomes if outcome.bleu is not None]
    if len(scored) > 1:
        best, _, run = max(scored)
        lines.append(f"best on the validation set: {run} with BLEU {best:.2f}")
    return "\n".join(lines)


def _checked(overrides: Sequence[str], node: Any, config_dir: Path | None) -> list[Member]:
    """The members; none where another sweeper than Hydra's own will choose them: then what it may choose is checked."""
    if node.hydra.runtime.choices["hydra/sweeper"] != "basic":
        check_search_space(overrides, config_dir)
        return []
    members = compose_sweep(overrides, config_dir)
    seen: dict[str, Member] = {}
    for member in members:
        other = seen.setdefault(os.path.abspath(member.config.run.dir), member)
        if other is member:
            continue
        if not any(text.lstrip("+").startswith("run.dir=") for text in overrides):
            raise RequestError(f"two runs of this sweep are the same: {' '.join(member.overrides)}")
        raise RequestError(
            f"run.dir: two runs of this sweep would be kept in {member.config.run.dir}; leave run.dir out, "
            "or refer to a key that they differ in, as in 'run.dir=\"runs/${model.name}-${trainer.seed}\"'"
        )
    return members


def _outcomes(records: Path, members: Sequence[Member]) -> list[Outcome]:
    """Of every member that is known, in order, each with what tells it from the others."""
    found = {number: Outcome(number, member.overrides) for number, member in enumerate(members)}
    for path in records.glob("*.json"):
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        if members:  # as they were given, and so the same for those that have left no outcome
            outcome.overrides = members[outcome.number].overrides
        found[outcome.number] = outcome
    outcomes = [found[number] for number in sorted(found)]
    for outcome in outcomes:
        outcome.label = _label([other.overrides for other in outcomes], outcome.overrides)
    return outcomes


def _deferred(overrides: Sequence[str], members: Sequence[Member]) -> list[str]:
    """The overrides, those of the keys of a group that is swept as sweeps of one value.

    Before a sweep Hydra composes what does not vary, and would hold model.layers=2 against the default model there.
    """
    everything = [member.overrides for member in members]
    varying = {text.partition("=")[0] for own in everything for text in _own(own, everything)}
    swept = set(groups()) if "experiment" in varying else varying & set(groups())
    deferred = []
    for text in overrides:
        key, _, value = text.partition("=")
        fixed = value and key not in varying and key.startswith(tuple(f"{group}." for group in swept))
        deferred.append(f"{key}=choice({value})" if fixed else text)
    return deferred


def _own(overrides: Sequence[str], everything: Sequence[Sequence[str]]) -> list[str]:
    """The overrides in which one run of a sweep differs from another."""
    return [text for text in overrides if any(text not in other for other in everything)]


def _label(everything: Sequence[Sequence[str]], overrides: Sequence[str]) -> str:
    """What tells one run of a sweep from the others; all that is given where there is but one."""
    return " ".join(_own(overrides, everything) or overrides)
