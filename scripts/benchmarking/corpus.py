"""A corpus of any size made by the grammar, the steps that prepare it, and what they take."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarking.reporting import table
from nmt.config import TrainConfig
from nmt.data.batching import padding_share, plan_batches
from nmt.data.corpus import prepare_corpus
from nmt.data.encoded import encode_corpus
from nmt.data.filtered import filter_corpus
from nmt.data.grammar.corpus import generate_pair, skewed_lengths
from nmt.data.parallel import map_in_order, usual_processes
from nmt.data.tokenizer import Tokenizer
from nmt.errors import WorkError
from nmt.files import complete_directory

Report = Callable[[str], None]

BLOCK = 5_000  # pairs that are made at once, and those of a row group
FILE = 1_000_000  # pairs of a Parquet file
HELD_OUT = 500
STEPS = ("hub", "filtered", "encoded")  # the folders of the cache, in the order in which they are filled


# The data ---------------------------------------------------------------------------------------------------------


def make_dataset(folder: Path, pairs: int, report: Report) -> None:
    """Parquet files of the splits train, validation and test, unless they are there; a function of `pairs` alone."""
    if folder.is_dir():
        return
    import pyarrow as pa
    from pyarrow import parquet

    report(f"the grammar makes {pairs:,} pairs")
    side = pa.struct([("en", pa.string()), ("fr", pa.string())])
    schema = pa.schema([("translation", side)])
    with complete_directory(folder) as temporary:
        (temporary / "data").mkdir()
        for split, count in (("train", pairs), ("validation", HELD_OUT), ("test", HELD_OUT)):
            sizes = [(split, start, min(BLOCK, count - start)) for start in range(0, count, BLOCK)]
            blocks = map_in_order(_block, sizes, usual_processes() if count > BLOCK else 1)
            files = -(-count // FILE)
            for number in range(files):
                path = temporary / "data" / f"{split}-{number:05}-of-{files:05}.parquet"
                with parquet.ParquetWriter(path, schema) as writer:
                    for _ in range(-(-min(FILE, count - number * FILE) // BLOCK)):
                        rows = [{"translation": {"en": en, "fr": fr}} for en, fr in next(blocks)]
                        writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _block(place: tuple[str, int, int]) -> list[tuple[str, str]]:
    split, start, count = place
    random = Random(f"{split} {start}")
    made = [generate_pair(random, length) for length in skewed_lengths(random, 3, 60, count)]
    pairs = [(pair.english, pair.french) for pair in made]
    return pairs if split != "train" else [_spoilt(random, pairs, row) for row in range(len(pairs))]


def _spoilt(random: Random, pairs: Sequence[tuple[str, str]], row: int) -> tuple[str, str]:
    source, target = pairs[row]
    kind = random.randrange(120)
    others = {0: (source, source), 1: pairs[row - row // 2], 2: (source, ""), 3: ("3.14 – 2.72", target)}
    return others.get(kind, (source, target))


# The steps --------------------------------------------------------------------------------------------------------


def prepare(config: TrainConfig, phases: Phases, report: Report) -> dict[str, Any]:
    """What `nmt train` does before it trains; numbers of what came out."""
    with phases("read"):
        corpus = prepare_corpus(config.data, report)
    with phases("filter"):
        filtered = filter_corpus(corpus, config.data, report)
    with phases("train the tokenizer"), tempfile.TemporaryDirectory() as folder:
        tokenizer = Tokenizer.train(config.tokenizer, filtered.pairs(), Path(folder), report)
    with phases("encode"):
        encoded = encode_corpus(filtered, tokenizer, config, report)
    with phases("plan an epoch"):
        lengths = (encoded.source.lengths, encoded.target.lengths)
        plan = plan_batches(*lengths, config.batch.budget, config.trainer.seed, 0)
        padding = padding_share(plan, *lengths)
    pieces = [int(side.offsets[-1]) for side in (encoded.source, encoded.target)]
    return {"kept": len(encoded), "pieces": pieces, "batches": len(plan), "padding_share": padding}


def train_steps(config: TrainConfig, phases: Phases) -> None:
    """A run of a few steps with all that belongs to it: what is prepared comes from the cache."""
    from nmt.training.session import train

    with tempfile.TemporaryDirectory() as folder, phases("train"):
        train(replace(config, run=replace(config.run, dir=folder)))


def killed_in_each_step(command: list[str], config: TrainConfig, folder: Path, report: Report) -> bool:
    """Prepare the corpus in another cache by processes that are killed in the middle of each step.

    Whether the files are those of the first cache. Raises WorkError where a step ended before it could be killed.
    """
    assert config.data.cache is not None
    first = Path(config.data.cache)
    second = folder / "cache-of-killed"
    command = [*command, f"data.cache={second.absolute()}", "--folder", str(folder)]
    for step in STEPS:
        with subprocess.Popen(command) as process:
            while not any((second / step).glob(".*.unfinished/commit.json")):
                if process.poll() is not None:
                    raise WorkError(f"{step} ended before it could be killed: take more pairs")
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        report(f"killed in the middle of {step}")
    subprocess.run(command, check=True)
    return all(_digests(first / step) == _digests(second / step) for step in STEPS)


def _digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            found[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


# Time and memory --------------------------------------------------------------------------------------------------


class Phases:
    """Seconds and peak memory of named phases, one after the other; memory is watched in the context of it."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = {}
        self._peak = (0, 0)
        self._ended = threading.Event()

    def __enter__(self) -> Phases:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._peak, start = (0, 0), time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self._look()
        whole, anonymous = self._peak
        self.phases[name] = {"seconds": seconds, "peak_mb": whole / 2**20, "peak_anonymous_mb": anonymous / 2**20}

    def record(self) -> dict[str, Any]:
        """Everything as JSON."""
        peak = max(phase["peak_mb"] for phase in self.phases.values())
        return {"phases": self.phases, "peak_rss_mb": peak}

    def table(self) -> str:
        """Everything as text."""
        rows = [
            [name, *(f"{phase[key]:,.0f}" for key in ("seconds", "peak_mb", "peak_anonymous_mb"))]
            for name, phase in self.phases.items()
        ]
        return table(["step", "seconds", "peak MB", "without files MB"], rows)

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self._look()

    def _look(self) -> None:
        found = [_memory(process) for process in [os.getpid(), *_children(os.getpid())]]
        whole, anonymous = (sum(numbers) for numbers in zip(*found, strict=True))
        self._peak = (max(self._peak[0], whole), max(self._peak[1], anonymous))


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found + [grandchild for child in found for grandchild in _children(child)]


def _memory(process: int) -> tuple[int, int]:
    """Resident bytes of a process, and those of them that no file backs; zeros once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
    sizes = (fields.get(name, "0 kB").split()[0] for name in ("VmRSS", "RssAnon"))
    whole, anonymous = (int(size) * 1024 for size in sizes)
    return whole, anonymous
