#!/usr/bin/env python
"""How fast a configuration trains, how near to the machine's limit that is, and where the time and memory go.

    scripts/bench_train.py [OVERRIDES] [--against "OVERRIDES"]… [--step-by-step] [--unguarded] [--threads N] [--json F]

The overrides are those of `nmt train`. `--against` may come several times: the same configuration but for these
overrides, measured in turn with the first and given as a ratio to it. `--step-by-step` adds the plain step-by-step
implementation of a recurrent model as one more, `--unguarded` a training loop without this project's guarantees.
Examples:

    scripts/bench_train.py model=transformer_tiny tokenizer.vocab_size=8000 batch.tokens=4096 --threads 2
    scripts/bench_train.py model=luong --against model=bahdanau --against "model.input_feeding=false" --step-by-step

A round is a few optimizer steps of the Trainer, the same batches each time, between two large matrix products; the
figures are medians over the rounds with the least and the greatest. Tokens are target tokens with end marks and without
padding, operations those of `benchmarking.operations`. Memory and time by part are measured apart, after the rounds.
Prints a table and then one line of JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking import reporting
from benchmarking.measuring import MatrixProduct, Spread, alternate, ratios
from benchmarking.training import (
    Round,
    StepByStepTrainer,
    TrainingSubject,
    UnguardedTrainer,
    Workshop,
    overridden,
    record,
)
from nmt.configuration import compose
from nmt.training.session import say

UNITS = "median (least–greatest) of {rounds} rounds; 1 MB = 10^6 bytes"


def main(argv: Sequence[str]) -> None:
    """Measures what the command line names."""
    options = _options(argv)
    subjects = _subjects(options)
    products: dict[Any, MatrixProduct] = {}
    turns: list[Callable[[], Round]] = []
    for subject in subjects:
        kind = (subject.device, subject.dtype)
        if kind not in products:
            products[kind] = MatrixProduct(*kind)
        say(f"warming up {subject.name}: {subject.steps} steps a round")
        subject.round(products[kind])
        turns.append(partial(subject.round, products[kind]))
    rounds = alternate(turns, options.rounds)
    say("measuring memory and time by part")
    records = [
        record(subject, found, subject.memory(), subject.parts(), subject.saving())
        for subject, found in zip(subjects, rounds, strict=True)
    ]
    first = {**reporting.machine(subjects[0].device, subjects[0].threads), **records[0], "rounds": options.rounds}
    reporting.deliver(text(records), {**first, "against": compared(records)}, options.json)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = reporting.Parser("bench_train.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="as for nmt train, e.g. model=luong")
    parser.add_argument(
        "--against", metavar="OVERRIDES", action="append", default=[], help="compare with these changes"
    )
    parser.add_argument("--step-by-step", action="store_true", help="compare with plain step-by-step implementations")
    parser.add_argument("--unguarded", action="store_true", help="compare with a loop that guarantees nothing")
    parser.add_argument("--threads", metavar="N", type=reporting.count, help="CPU threads; else trainer.threads")
    parser.add_argument("--steps", metavar="N", type=reporting.count, default=8, help="steps of a round (default: 8)")
    parser.add_argument("--rounds", metavar="N", type=reporting.count, default=5, help="rounds (default: 5)")
    parser.add_argument("--json", metavar="F", type=Path, help="file to write the record to")
    return parser.parse_intermixed_args(list(argv))


def _subjects(options: argparse.Namespace) -> list[TrainingSubject]:
    """Every configuration, checked before the first one is built."""
    threads = [f"trainer.threads={options.threads}"] if options.threads else []
    lists = [options.overrides, *(overridden(options.overrides, changes) for changes in options.against)]
    configs = [(" ".join(overrides) or "(defaults)", compose([*overrides, *threads])) for overrides in lists]
    workshop = Workshop(options.steps)
    subjects = [workshop.subject(name, config) for name, config in configs]
    if options.step_by_step:
        plain = [entry for entry in configs if entry[1].model.family in ("lstm", "luong", "bahdanau")]
        subjects += [workshop.subject(f"{name}, step by step", config, StepByStepTrainer) for name, config in plain]
    if options.unguarded:
        subjects += [workshop.subject(f"{name}, unguarded", config, UnguardedTrainer) for name, config in configs]
    return subjects


def compared(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records but the first, each with how many times as fast as it the first one is."""
    first, *others = records
    speed = Spread(tuple(first["target_tokens_per_s_rounds"]))
    found = []
    for other in others:
        by_round = ratios(speed, Spread(tuple(other["target_tokens_per_s_rounds"])))
        ratio = first["target_tokens_per_s"] / other["target_tokens_per_s"]
        found.append({**other, "ratio": ratio, "ratio_rounds": list(by_round.rounds)})
    return found


def text(records: Sequence[dict[str, Any]]) -> str:
    """A column for each configuration, then the same for the parts of a step."""
    ratios = ["1", *(f"{other['ratio']:.2f}" for other in compared(records))]
    letters = [chr(ord("A") + number) for number in range(len(records))]

    def row(name: str, cell: Callable[[dict[str, Any]], str]) -> list[str]:
        return [name, *(cell(record) for record in records)]

    def spread(key: str, digits: int = 0) -> Callable[[dict[str, Any]], str]:
        return lambda record: Spread(tuple(record[f"{key}_rounds"])).text(digits)

    def megabytes(key: str) -> Callable[[dict[str, Any]], str]:
        return lambda record: "–" if record[key] is None else f"{record[key]:,.0f}"

    rows = [
        row("target tokens a second", spread("target_tokens_per_s")),
        ["A is so many times as fast", *ratios],
        row("million operations a token", lambda record: f"{record['operations_per_token'] / 1e6:.2f}"),
        row("matrix product, GFLOP/s", lambda record: f"{record['peak_operations_per_s'] / 1e9:,.1f}"),
        row("fraction of that peak", spread("fraction_of_peak", 3)),
        row("padding", lambda record: f"{record['padding_share']:.1%}"),
        row("memory of a step above idle, MB", megabytes("step_memory_mb")),
        row("peak resident memory, MB", megabytes("peak_rss_mb")),
        row("planning an epoch, s", lambda record: f"{record['plan_seconds']:.2f}"),
        row("saving, ms, and its share of the time", _saving),
    ]
    parts = dict.fromkeys(part for record in records for part in record["share_by_part"])
    rows += [["", *("" for _ in records)], ["time by part, ms a step (profiled)", *("" for _ in records)]]
    rows += [row(f"  {part}", partial(_share, part)) for part in parts]
    legend = [f"{letter}: {record['configuration']}" for letter, record in zip(letters, records, strict=True)]
    note = UNITS.format(rounds=len(records[0]["target_tokens_per_s_rounds"]))
    return "\n".join([*legend, note, "", reporting.table(["", *letters], rows)])


def _saving(record: dict[str, Any]) -> str:
    return f"{1000 * record['save_seconds']:,.0f} {record['save_share']:6.2%}"


def _share(part: str, record: dict[str, Any]) -> str:
    taken = record["step_seconds_by_part"].get(part, 0.0)
    return f"{1000 * taken:,.1f} {record['share_by_part'].get(part, 0.0):6.1%}"


if __name__ == "__main__":
    sys.exit(reporting.run(main))
