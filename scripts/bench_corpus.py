#!/usr/bin/env python
"""What it costs to prepare a corpus of PAIRS pairs and to train on it: seconds and peak memory of each step.

    scripts/bench_corpus.py PAIRS [OVERRIDES] [--folder DIR] [--steps N] [--kill] [--json F]

The grammar makes PAIRS pairs, one in thirty of them spoilt so that the filters find something, as Parquet files with
the column of wmt/wmt14, {"translation": {"en": …, "fr": …}}. That is not measured. Then, as `nmt train data=hub` does:
reading them through `datasets` into text, filtering, training a tokenizer, encoding, planning an epoch, N training
steps. OVERRIDES are those of `nmt train`. Memory is that of this process and the processes that it starts, added up,
looked at twenty times a second: all of it, mapped files included, and the part that no file backs.

--kill: afterwards, the preparation is done once more in a cache of its own, by a process that is killed with SIGKILL in
the middle of each step and started again; its files must then be the same. DIR keeps what was made, and is used again.
Prints a table and then one line of JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarking import reporting
from benchmarking.corpus import Phases, killed_in_each_step, make_dataset, prepare, train_steps
from nmt.configuration import compose
from nmt.training.session import say


def main(argv: Sequence[str]) -> None:
    """Measures what the command line names."""
    options = _options(argv)
    if options.folder is not None:
        _measure(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        _measure(options, Path(folder))


def _measure(options: argparse.Namespace, folder: Path) -> None:
    dataset = folder / f"grammar-{options.pairs}"
    make_dataset(dataset, options.pairs, say)
    given = ["data=hub", f"data.path={dataset.absolute()}", f"data.cache={(folder / 'cache').absolute()}"]
    given += ["data.filter.drop_copies=true", "data.filter.min_letters=0.5", "data.filter.drop_duplicates=true"]
    given += ["validation.sentences=8", "validation.samples=0", f"trainer.max_steps={options.steps}"]
    config = compose([*given, *options.overrides])
    if options.prepare_only:
        prepare(config, Phases(), say)
        return
    with Phases() as phases:
        prepared = prepare(config, phases, say)
        train_steps(config, phases)
    record = {"pairs": options.pairs, "prepared": prepared, "steps": options.steps, **phases.record()}
    if options.kill:
        command = [sys.executable, __file__, str(options.pairs), *options.overrides, "--prepare-only"]
        record["equal_after_kills"] = killed_in_each_step(command, config, folder, say)
    reporting.deliver(phases.table(), record, options.json)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = reporting.Parser("bench_corpus.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", metavar="PAIRS", type=reporting.count, help="training pairs")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="as for nmt train, such as data.processes=2")
    parser.add_argument("--folder", metavar="DIR", type=Path, help="keeps data and cache; else a temporary folder")
    parser.add_argument("--steps", metavar="N", type=reporting.count, default=100, help="training steps (100)")
    parser.add_argument("--kill", action="store_true", help="prepare once more, killed in each step, and compare")
    parser.add_argument("--prepare-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", metavar="F", type=Path, help="file for the record")
    return parser.parse_intermixed_args(list(argv))


if __name__ == "__main__":
    sys.exit(reporting.run(main))
