"""The training pairs with a verdict on each: kept, or dropped for one of the counted reasons.

The verdicts are a file of a byte for each pair, kept in the cache under a hash of all that they depend on, so that the
same data are judged once, whatever tokenizers and models are then trained on them. The pairs go by in chunks, which
several processes may share; a killed process is continued from the last commit. What is kept, and in which order, is a
function of the text and of data.filter alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import compress, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from nmt.config import DataConfig, FilterConfig
from nmt.data.cached import resumed_directory
from nmt.data.corpus import Corpus, Report, content_key
from nmt.data.duplicates import Digests, Exact, Near, repeated
from nmt.data.filter import DUPLICATE, KEPT, NEAR_DUPLICATE, VERDICTS, PairFilter, Tally, Verdicts
from nmt.data.journal import Journal
from nmt.data.parallel import map_in_order, usual_processes
from nmt.files import cache_root, sha256_of, write_atomically

FORMAT = 1  # to be raised when the files or the rules change: older caches are then not found any more
CHUNK = 4_096  # pairs that are judged at once
COMMIT_PAIRS = 100_000
MANY_BYTES = 32 * 2**20  # of text, from which on several processes are worth their start

VERDICTS_FILE = "verdicts"

Item = TypeVar("Item")


@dataclass(frozen=True)
class FilteredCorpus:
    """A corpus and the verdicts on its training pairs.

    verdicts: for each of `corpus.training_pairs()`, KEPT or a number of VERDICTS.
    key: a hash of all that the pairs and the verdicts depend on.
    """

    corpus: Corpus
    verdicts: Verdicts
    key: str

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The training pairs that are kept, in order."""
        return compress(self.corpus.training_pairs(), self.verdicts == KEPT)

    def group_ends(self) -> list[int]:
        """Where, among `pairs`, the corpus's own text ends, and each text that is mixed in."""
        if not self.corpus.mixed:
            return [int(np.count_nonzero(self.verdicts == KEPT))]
        ends = np.cumsum(self.corpus.group_sizes())
        return [int(np.count_nonzero(self.verdicts[:end] == KEPT)) for end in ends]

    @property
    def tally(self) -> Tally:
        """What became of the training pairs."""
        return Tally.of(self.verdicts)


def filter_corpus(corpus: Corpus, config: DataConfig, report: Report) -> FilteredCorpus:
    """Judge the training pairs, or find the verdicts in the cache.

    Raises: RequestError for unreadable files, and when no pair is kept; WorkError when the cache cannot be written.
    """
    key = _key(corpus, config.filter)
    directory = cache_root(config.cache) / "filtered" / key
    resumed_directory(directory, functools.partial(_judge, corpus, config, report), report)
    return FilteredCorpus(corpus, np.fromfile(directory / VERDICTS_FILE, np.uint8), key)


def processes_for(corpus: Corpus, config: DataConfig) -> int:
    """Processes that prepare a corpus: those of the configuration, or one for a small corpus and else several."""
    if config.processes is not None:
        return config.processes
    size = sum(path.stat().st_size for files in corpus.train for path in (files.source, files.target))
    return usual_processes() if size >= MANY_BYTES else 1


def report_start(work: str, processes: int, done: int, report: Report) -> None:
    """Say in one line that long work on the training pairs begins, or goes on."""
    if processes > 1 or done:
        going_on = f", going on after {done} pairs" if done else ""
        report(f"{work} the training pairs in {processes} process{'es' * (processes > 1)}{going_on}")


def chunks_of(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _key(corpus: Corpus, config: FilterConfig) -> str:
    settings = dataclasses.asdict(config)
    del settings["max_pieces"]  # the tokenizer's business, and so not decided here
    asks_language = config.max_other_language is not None
    languages = [corpus.source_language, corpus.target_language] if asks_language else []
    used = ["py3langid"] * asks_language + ["datasketch"] * (config.max_similarity is not None)
    return content_key(
        {
            "format": FORMAT,
            "files": [[sha256_of(files.source), sha256_of(files.target)] for files in corpus.train],
            "pairs": corpus.max_train_pairs,
            "mixed": corpus.mixed,
            "filter": settings,
            "languages": languages,
            "libraries": {name: metadata.version(name) for name in used},
        }
    )


@dataclass
class _Judged:
    """Of a chunk of pairs: the verdicts on each alone, and what it is compared by with the others."""

    verdicts: Verdicts
    digests: list[Digests]


class _Judge:
    """Looks at a chunk of pairs; copied into every process."""

    def __init__(self, config: FilterConfig, source_language: str, target_language: str) -> None:
        self.filter = PairFilter(config, source_language, target_language)
        self.comparisons = list(comparisons(config).values())

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> _Judged:
        return _Judged(self.filter.verdicts(pairs), [comparison.digests(pairs) for comparison in self.comparisons])


def comparisons(config: FilterConfig) -> dict[str, Exact | Near]:
    """What pairs are compared by with each other, by the reason for which the later one is dropped, in this order."""
    chosen: dict[str, Exact | Near] = {}
    if config.drop_duplicates:
        chosen[DUPLICATE] = Exact()
    if config.max_similarity is not None:
        chosen[NEAR_DUPLICATE] = Near(config.max_similarity)
    return chosen


def _judge(corpus: Corpus, config: DataConfig, report: Report, directory: Path) -> None:
    """Write the verdicts, going on from the journal's last commit."""
    judge = _Judge(config.filter, corpus.source_language, corpus.target_language)
    compared = comparisons(config.filter)
    processes = processes_for(corpus, config)
    columns = [f"digests.{number}" for number in range(len(compared))]
    with Journal(directory, ["single", *columns]) as journal:
        done = committed = journal.state.get("pairs", 0)
        report_start("filtering", processes, done, report)
        pairs = islice(corpus.training_pairs(), done, None)
        for judged in map_in_order(judge, chunks_of(pairs, CHUNK), processes):
            journal["single"].write(judged.verdicts.tobytes())
            for name, digests in zip(columns, judged.digests, strict=True):
                journal[name].write(digests.tobytes())
            done += len(judged.verdicts)
            if done >= committed + COMMIT_PAIRS:
                journal.commit({"pairs": done})
                committed = done
        journal.commit({"pairs": done})
    verdicts = np.fromfile(directory / "single", np.uint8)
    for name, (reason, comparison) in zip(columns, compared.items(), strict=True):
        if done:
            digests = np.memmap(directory / name, np.uint64, "r").reshape(done, comparison.columns)
            verdicts[repeated(digests, verdicts == KEPT)] = VERDICTS[reason]
    Tally.of(verdicts).require_some(config.filter)
    write_atomically(directory / VERDICTS_FILE, verdicts.tobytes())
    journal.forget()
    for name in ["single", *columns]:
        (directory / name).unlink()
