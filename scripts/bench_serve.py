#!/usr/bin/env python
"""How `nmt serve RUN` bears many clients at once, some of them rude.

    scripts/bench_serve.py RUN [--clients 64] [--seconds 60] [--set NAME | --input F] [--json F]

Starts the server on this machine and lets the clients ask for single sentences, one after the other each. Every tenth
request is no JSON, no HTTP, far too large, slow, or never whole, and must be answered as such. Latency is that of the
good requests, from sending to the whole answer; memory is what is resident after the first seconds' warm-up and at the
end. The server ends with SIGTERM. Exit status 1 where a request had no answer or the wrong one, or where the same text
was translated in two ways.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarking import reporting
from benchmarking.measuring import MEGABYTE, percentile
from benchmarking.serving import EXPECTED, GOOD, Tally, Target, load
from nmt.config import TrainConfig
from nmt.configuration import load_config
from nmt.data.corpus import prepare_corpus, read_lines
from nmt.data.filter import is_blank
from nmt.errors import RequestError, WorkError
from nmt.training.session import say

WARM_UP = 3.0  # seconds
ENDED = 128 + signal.SIGTERM


def main(argv: Sequence[str]) -> None:
    """Measures what the command line names."""
    options = _options(argv)
    config = load_config(options.run / "config.yaml")
    texts = _texts(options, config)
    with _server(options.run) as (host, port):
        target = Target(host, port, texts, (config.data.source_language, config.data.target_language))
        warm = asyncio.run(load(target, options.clients, min(WARM_UP, options.seconds)))
        before = _metrics(host, port)
        say(f"{options.clients} clients for {options.seconds:g} s")
        tally = asyncio.run(load(target, options.clients, options.seconds))
        after = _metrics(host, port)
    record = {
        "model": config.model.name,
        "cores": os.cpu_count(),
        "clients": options.clients,
        "seconds": options.seconds,
        **summary(tally, options.seconds),
        "lines_per_batch": _between(before, after, "nmt_batch_lines_sum")
        / _between(before, after, "nmt_batch_lines_count"),
        "memory_before_mb": before["process_resident_memory_bytes"] / MEGABYTE,
        "memory_after_mb": after["process_resident_memory_bytes"] / MEGABYTE,
    }
    reporting.deliver(text(record), record, options.json)
    for each in (warm, tally):
        if each.dropped or each.unexpected or each.different:
            raise WorkError(
                f"{len(each.dropped)} requests without an answer ({', '.join(sorted(set(each.dropped))) or 'none'}), "
                f"{each.unexpected} with the wrong one, {each.different} with another translation than before"
            )


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = reporting.Parser("bench_serve.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory or checkpoint directory")
    parser.add_argument("--clients", metavar="N", type=reporting.count, default=64, help="(default: 64)")
    parser.add_argument("--seconds", metavar="N", type=reporting.count, default=60, help="(default: 60)")
    texts = parser.add_mutually_exclusive_group()
    texts.add_argument("--set", metavar="NAME", help="test set of RUN's corpus (default: the first)")
    texts.add_argument("--input", metavar="F", type=Path, help="file to translate instead, one sentence a line")
    parser.add_argument("--json", metavar="F", type=Path, help="file to write the record to")
    return parser.parse_args(list(argv))


def _texts(options: argparse.Namespace, config: TrainConfig) -> list[str]:
    if options.input is not None:
        lines = list(read_lines(options.input))
    else:
        sets = prepare_corpus(config.data, say).test
        name = options.set or next(iter(sets), "")
        if name not in sets:
            raise RequestError(f"--set {name}: there is no such set; there are: {', '.join(sets) or 'none'}")
        lines = sets[name].sources()
    texts = [line for line in lines if not is_blank(line)]
    if not texts:
        raise RequestError("nothing to translate")
    return texts


@contextlib.contextmanager
def _server(run: Path) -> Iterator[tuple[str, int]]:
    """Host and port of a server, which is ended with SIGTERM. Raises WorkError where it does not start, or end so."""
    command = [sys.executable, "-m", "nmt", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r" on http://([\d.]+):(\d+) ", line)
            if found is None:
                raise WorkError(f"nmt serve: {line.strip()}")
            yield found[1], int(found[2])
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate()[1].strip()
    if process.returncode != ENDED:
        raise WorkError(f"nmt serve ended with status {process.returncode}: {said}")


def _metrics(host: str, port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def _between(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after[name] - before[name]


def summary(tally: Tally, seconds: float) -> dict[str, Any]:
    """The figures of a load."""
    answers: dict[str, dict[str, int]] = {kind: {} for kind in EXPECTED}
    for (kind, status), count in sorted(tally.statuses.items()):
        answers[kind][str(status)] = count
    milliseconds = [1_000 * latency for latency in tally.latencies] or [float("nan")]
    return {
        "requests": sum(tally.statuses.values()),
        "requests_per_s": tally.in_time.total() / seconds,
        "translations_per_s": tally.in_time[GOOD] / seconds,
        "latency_ms_p50": percentile(milliseconds, 0.5),
        "latency_ms_p99": percentile(milliseconds, 0.99),
        "dropped": len(tally.dropped),
        "answers": answers,
    }


def text(record: dict[str, Any]) -> str:
    """One table of figures, one of the answers by kind of request."""
    figures = [
        ("answers a second", f"{record['requests_per_s']:.1f}"),
        ("translations a second", f"{record['translations_per_s']:.1f}"),
        ("latency, median, ms", f"{record['latency_ms_p50']:,.0f}"),
        ("latency, 99th percentile, ms", f"{record['latency_ms_p99']:,.0f}"),
        ("lines in a batch, mean", f"{record['lines_per_batch']:.1f}"),
        ("without an answer", str(record["dropped"])),
        ("resident before, MB", f"{record['memory_before_mb']:,.0f}"),
        ("resident after, MB", f"{record['memory_after_mb']:,.0f}"),
    ]
    first = reporting.table([f"{record['clients']} clients, {record['seconds']} s", "figure"], figures)
    rows = [
        [kind, str(EXPECTED[kind]), ", ".join(f"{status}: {count}" for status, count in found.items()) or "–"]
        for kind, found in record["answers"].items()
    ]
    return f"{first}\n\n{reporting.table(['request', 'must be', 'answered'], rows)}"


if __name__ == "__main__":
    sys.exit(reporting.run(main))
