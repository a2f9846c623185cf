#!/usr/bin/env python
"""Kills a training run at random moments, again and again, and holds it against one that was left alone.

    .venv/bin/python scripts/soak.py [--kills 50] [--seed 1] [--folder DIR] [OVERRIDES]
    .venv/bin/python scripts/soak.py model=transformer_tiny model.width=32 model.feed_forward_size=64

Two runs of one configuration on a small grammar corpus: one to its end, the other killed with SIGKILL and continued by
the same command. After each kill `last` and `best` must load, and what `last` points to must be, to the bit, the
checkpoint that the first run saved at that step. At the end both directories must hold the same: weights, averages,
optimizer, metrics, scores, translations, and not one file more. A run that is done before all kills are is compared and
begun anew. A quarter of the kills come before the first step, another quarter while a checkpoint is being written, the
others at any time.

Lost is the time from the last save, or from the start of training where there was none since, to the kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.errors import RequestError, WorkError
from nmt.evaluation.scoring import read_results
from nmt.files import sha256_of
from nmt.training.checkpoint import BEST, LAST, Checkpoint, step_directories
from nmt.training.monitor import read_metrics

KEEP = 2
DEFAULTS = [
    *("data=grammar", "data.train_pairs=300", "data.valid_pairs=12", "data.test_pairs=12", "data.max_words=12"),
    *("tokenizer.vocab_size=200", "tokenizer.sampling=true", "batch.tokens=300", "batch.accumulate=2"),
    *("model.dropout=0.3", "trainer.ema_decay=0.9", "trainer.threads=1", "trainer.device=cpu"),
    *("trainer.max_steps=60", "trainer.save_every=2", "trainer.log_every=5", f"trainer.keep_last={KEEP}"),
    *("validation.every=7", "validation.samples=1", "search.beam_size=2", "search.max_length_extra=5"),
    *("optimizer.lr=5e-3", "schedule=constant", "schedule.warmup=0"),
]
SMALL_MODEL = ["model=bahdanau", *(f"model.{part}_size=32" for part in ("embedding", "hidden", "attention", "readout"))]
TIMED = {"seconds", "target_tokens_per_s", "valid_seconds"}
BEGUN = ("batches an epoch", "continuing ")  # what a run says just before its first step
EARLY, SAVING = 0.25, 0.25  # shares of the kills
LONGEST_SAVE = 0.1  # seconds over which the kills of a save are spread


class Failure(Exception):
    """Something that must hold does not."""


@dataclass
class Process:
    """A run in progress."""

    command: list[str]
    environment: dict[str, str]
    log: Path

    def __enter__(self) -> Process:
        self.started = time.time()
        self.begun: float | None = None
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.wait()

    def wait(self, until: float) -> bool:
        """Waits, and notes when training begins; whether the process has ended by itself."""
        while time.time() < until:
            if self.begun is None and any(said in self.said() for said in BEGUN):
                self.begun = time.time()
            if self.popen.poll() is not None:
                return True
            time.sleep(0.005)
        return False

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def require_success(self) -> None:
        if self.popen.returncode != 0:
            raise Failure(f"exit status {self.popen.returncode}: {self.said()[-2000:]}")


@dataclass
class Tally:
    """What has been counted."""

    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    equal: int = 0
    without_checkpoint: int = 0
    runs: int = 0
    longest_lost: float = 0.0

    def summary(self) -> str:
        moments = ", ".join(f"{count} {moment}" for moment, count in sorted(self.moments.items()))
        return "\n".join(
            (
                f"kills: {self.kills} ({moments})",
                f"checkpoints equal after a kill: {self.equal} of {self.kills - self.without_checkpoint}"
                + (f"; {self.without_checkpoint} kills came before the first" if self.without_checkpoint else ""),
                f"runs equal at the end: {self.runs} of {self.runs}, no stray files",
                f"longest time lost: {self.longest_lost:.2f} s",
            )
        )


class Soak:
    """The two runs."""

    def __init__(self, folder: Path, overrides: Sequence[str], seed: int) -> None:
        self.folder = folder
        chosen = [] if any(text.startswith(("model=", "experiment=")) for text in overrides) else SMALL_MODEL
        self.overrides = [*chosen, *DEFAULTS, *overrides]
        self.random = random.Random(seed)
        self.tally = Tally()
        self.whole = folder / "whole" / "run"
        self.number = 0

    @property
    def killed(self) -> Path:
        """The run that is being killed."""
        return self.folder / f"killed{self.number}" / "run"

    def run(self, kills: int) -> None:
        """Raises Failure for the first thing that does not hold."""
        with self.process(self.whole, "trainer.keep_last=1000000") as process:
            process.wait(float("inf"))
            process.require_success()
            assert process.begun is not None
            before, training = process.begun - process.started, time.time() - process.begun
        say(f"uninterrupted: {before:.1f} s before the first step, {training:.1f} s from there to the end")
        span = 1.5 * training / kills
        while self.tally.kills < kills:
            if self.kill_once(before, span):
                self.require_the_same_end()
                self.number += 1
        with self.process(self.killed) as process:
            process.wait(float("inf"))
            process.require_success()
        self.require_the_same_end()

    def process(self, run: Path, *overrides: str) -> Process:
        """`nmt train`, with a cache of the run's own."""
        run.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "nmt", "train", *self.overrides, f"run.dir={run}", *overrides]
        return Process(command, {**os.environ, "NMT_CACHE": str(run.parent / "cache")}, run.parent / "log")

    def kill_once(self, before: float, span: float) -> bool:
        """Starts or continues the run and kills it; whether it came to its end instead."""
        with self.process(self.killed) as process:
            ended = self.wait_for_a_moment(process, before, span)
            process.popen.kill()
            at = time.time()
            process.popen.wait()
        if ended:
            process.require_success()
            return True
        self.tally.kills += 1
        moment = self.moment_of(process)
        self.tally.moments[moment] += 1
        lost = self.time_lost(process, at)
        self.tally.longest_lost = max(self.tally.longest_lost, lost)
        self.require_loadable()
        say(f"kill {self.tally.kills}, {moment}: {lost:.2f} s lost")
        return False

    def wait_for_a_moment(self, process: Process, before: float, span: float) -> bool:
        """Waits until the process is to be killed; whether it has ended by itself."""
        kind = self.random.random()
        if kind < EARLY:
            return process.wait(process.started + self.random.uniform(0, before))
        ended = False
        while process.begun is None and not ended:
            ended = process.wait(time.time() + 0.01)
        if ended or process.wait(time.time() + self.random.uniform(0, span)):
            return True
        if kind < EARLY + SAVING:
            while not ended and not self.half_written():
                ended = process.wait(time.time() + 0.001)
            time.sleep(self.random.uniform(0, LONGEST_SAVE))
        return ended

    def half_written(self) -> list[Path]:
        """What is being written in the folder of checkpoints."""
        return list((self.killed / "checkpoints").glob(".*"))

    def moment_of(self, process: Process) -> str:
        """What the process was doing when it was killed."""
        if process.begun is None:
            return "before training"
        if "translating and scoring" in process.said():
            return "while scoring"
        return "while saving" if self.half_written() else "while training or validating"

    def time_lost(self, process: Process, at: float) -> float:
        if process.begun is None:
            return 0.0
        saved = [path.stat().st_ctime for path in step_directories(self.killed / "checkpoints")]
        return max(0.0, at - max([process.begun, *saved]))

    # What must hold ----------------------------------------------------------------------------------------------

    def require_loadable(self) -> None:
        """`last` and `best` load, and are what the uninterrupted run saved."""
        checkpoints = self.killed / "checkpoints"
        links = [checkpoints / name for name in (LAST, BEST) if (checkpoints / name).is_symlink()]
        found = step_directories(checkpoints)
        if len(found) > 1 and not (checkpoints / LAST).is_symlink():
            raise Failure(f"{checkpoints} has {len(found)} checkpoints and no {LAST}")
        if not links:
            self.tally.without_checkpoint += 1
            return
        for link in links:
            checkpoint = Checkpoint.open(link)
            other = Checkpoint.open(self.whole / "checkpoints" / link.resolve().name)
            require_same_checkpoint(checkpoint, other, str(link))
        self.tally.equal += 1

    def require_the_same_end(self) -> None:
        """The run that was killed holds what the other one does, to the bit, and nothing else."""
        left, right = self.killed, self.whole
        for name in (LAST, BEST):
            one, other = (Checkpoint.open(run / "checkpoints" / name) for run in (left, right))
            require_same_checkpoint(one, other, name)
        for name in ("tokenizer.model", "hypotheses/test.txt"):
            if sha256_of(left / name) != sha256_of(right / name):
                raise Failure(f"{name} differs")
        require_equal(*(list(records(run)) for run in (left, right)), "metrics.jsonl")
        scores = [
            {name: (entry["bleu"], entry["chrf"]) for name, entry in read_results(run)["sets"].items()}
            for run in (left, right)
        ]
        require_equal(*scores, "results.json")
        kept = {path.name for path in step_directories(right / "checkpoints")[-KEEP:]}
        kept |= {LAST, BEST, (right / "checkpoints" / BEST).resolve().name}
        expected = {path for path in files(right) if path.parts[0] != "checkpoints" or kept.issuperset(path.parts[1:2])}
        stray = files(left) ^ expected
        stray |= {path for path in files(left.parent / "cache") if path.name.endswith(".tmp")}
        if stray:
            raise Failure(f"files in one run only, or left behind: {', '.join(map(str, sorted(stray)))}")
        self.tally.runs += 1
        say(f"a run that was killed is at its end, and equal ({self.tally.kills} kills so far)")


def require_same_checkpoint(left: Checkpoint, right: Checkpoint, where: str) -> None:
    """Raises Failure unless all but times is equal to the bit.

    Of a step that is validated, a run saves first the state before and then that after the validation.
    """
    states = []
    before_validation = left.meta["validated_step"] != right.meta["validated_step"] == right.step
    for checkpoint in (left, right):
        state = {"shown": checkpoint.weights(), **checkpoint.training_state()}
        progress = {name: value for name, value in state["progress"].items() if name != "seconds"}
        window = {name: value for name, value in state["window"].items() if name != "seconds"}
        if before_validation:
            for name in ("validated_step", "best_bleu", "best_step", "validations_without_gain"):
                del progress[name]
            window = {}
        states.append({**state, "progress": progress, "window": window})
    require_equal(*states, f"{where} of step {left.step}")


def require_equal(left: Any, right: Any, where: str) -> None:
    """Raises Failure unless two trees of tensors and plain values are equal to the bit."""
    if isinstance(left, torch.Tensor):
        same = isinstance(right, torch.Tensor) and torch.equal(left, right)
    elif isinstance(left, dict):
        same = left.keys() == right.keys()
        for key in left if same else ():
            require_equal(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        same = len(left) == len(right)
        for number, pair in enumerate(zip(left, right, strict=True) if same else ()):
            require_equal(*pair, f"{where}/{number}")
    else:
        same = left == right
    if not same:
        raise Failure(f"{where} differs: {str(left)[:200]} and {str(right)[:200]}")


def records(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl without what time makes of them; every one must be whole."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    found = read_metrics(run / "metrics.jsonl")
    if len(lines) != len(found) or not all(json.loads(line) == one for line, one in zip(lines, found, strict=True)):
        raise Failure(f"{run / 'metrics.jsonl'} has a line that is not whole")
    for record in found:
        yield {name: value for name, value in record.items() if name not in TIMED}


def files(folder: Path) -> set[Path]:
    """All that is in a folder, but for TensorBoard's files, of which each start makes one."""
    everything = {path.relative_to(folder) for path in folder.rglob("*")}
    return {path for path in everything if path.parts[0] != "tensorboard"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tally; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description="Kill a training run again and again and compare what comes out.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which it is killed")
    parser.add_argument("--folder", type=Path, help="where the runs are made; default: a temporary folder")
    parser.add_argument("overrides", nargs="*", help="of nmt train")
    arguments = parser.parse_intermixed_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        soak = Soak(arguments.folder or Path(temporary), arguments.overrides, arguments.seed)
        try:
            soak.run(arguments.kills)
        except (Failure, RequestError, WorkError) as failure:
            print(f"FAILED after {soak.tally.kills} kills: {failure}")
            return 1
        print(soak.tally.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
