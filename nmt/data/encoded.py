"""The training pairs as ids in memory-mapped arrays, so that a corpus of any size costs hardly any memory.

Encoding streams: text that the filter keeps is encoded and written some thousand pairs at a time, in several processes
where there is much of it, into a directory of the cache that appears when it is complete. The directory is named by a
hash of all that its content depends on, so that the same data, filter and tokenizer are encoded once; a killed process
is gone on from. A Python list of a million sentences would be copied, page by page, into every process that only looks
at it; a mapped file is shared.

With `tokenizer.sampling`, `draw_segmentations` makes new ids for each epoch: for the whole epoch at once, so that the
batch plan knows the lengths that it plans for.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from nmt.config import TrainConfig
from nmt.data.corpus import Report, content_key
from nmt.data.filter import BLANK_SOURCE, BLANK_TARGET, TOO_MANY_PIECES
from nmt.data.filtered import COMMIT_PAIRS, FilteredCorpus, chunks_of, processes_for, report_start
from nmt.data.journal import Journal, build_directory
from nmt.data.parallel import map_in_order
from nmt.data.tokenizer import UNKNOWN, Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.files import cache_root, cause_of, read_regular, remove_directory, sha256_of

FORMAT = 4  # to be raised when the files or the rules change: older caches are then not found any more
CHUNK = 4096  # pairs that are encoded at once
MOST_UNKNOWN = 0.05
META_FILE = "meta.json"


@dataclass
class EncodedSide:
    """The ids of one language, sentence after sentence, each with its end mark.

    ids: of all sentences, uint16 or int32. offsets: int64; sentence i is ids[offsets[i]:offsets[i + 1]].
    unknown: number of pieces that the vocabulary lacks.
    """

    ids: NDArray[np.integer]
    offsets: NDArray[np.int64]
    unknown: int = 0

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], vocabulary_size: int) -> EncodedSide:
        """A side in ordinary memory."""
        ids, lengths = _flat(sentences, _id_type(vocabulary_size))
        return cls(ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), int(np.sum(ids == UNKNOWN)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.integer]:
        """The ids of a sentence; a view, not a copy."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces of each sentence with its end mark, int64."""
        return np.diff(self.offsets)

    @property
    def unknown_share(self) -> float:
        """Share of the pieces, end marks apart, that the vocabulary lacks."""
        return self.unknown / max(1, int(self.offsets[-1]) - len(self))


@dataclass
class EncodedCorpus:
    """Encoded pairs: sentence i of one side translates sentence i of the other.

    filtered: what became of the pairs of the training files, in one line.
    groups: how many pairs are of the corpus's own text, and how many of each text that is mixed in, in this order.
    """

    source: EncodedSide
    target: EncodedSide
    filtered: str = ""
    groups: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def open(cls, directory: Path) -> EncodedCorpus:
        """Map the files of `encode_corpus`. Raises WorkError when one is absent, damaged or of another format."""
        try:
            meta = json.loads(read_regular(directory / META_FILE))
            require_written(directory, meta)
            rows = meta["pairs"]
            sides = []
            for name in ("source", "target"):
                about = meta[name]
                with open(directory / f"{name}.ids", "rb") as ids, open(directory / f"{name}.offsets", "rb") as offsets:
                    arrays = _map(ids, offsets, np.dtype(about["dtype"]), about["pieces"], rows)
                sides.append(EncodedSide(*arrays, about["unknown"]))
            return cls(sides[0], sides[1], meta["filtered"], meta["groups"])
        except (OSError, ValueError, KeyError, TypeError, RequestError) as error:
            raise WorkError(f"{directory}: not a complete encoded corpus ({' '.join(str(error).split())})") from None


def encode_corpus(filtered: FilteredCorpus, tokenizer: Tokenizer, config: TrainConfig, report: Report) -> EncodedCorpus:
    """Encode the training pairs that the filter keeps, or find them in the cache; either way report what was kept.

    Raises: RequestError for unreadable files, when no pair is kept, and when more than 5 % of the pieces of a side
    are unknown; WorkError when the cache cannot be written.
    """
    directory = cache_root(config.data.cache) / "encoded" / _key(filtered, tokenizer, config)
    try:
        encoded = EncodedCorpus.open(directory)
    except WorkError:
        if directory.exists():
            report(f"encoding the training pairs again: {directory} is broken")
            remove_directory(directory)
        build_directory(directory, functools.partial(_write, filtered, tokenizer, config, report))
        encoded = EncodedCorpus.open(directory)
    report(encoded.filtered)
    if isinstance(config.batch.tokens, int):
        _report_small_batches(encoded, config.batch.tokens, report)
    report_unknown("train", encoded, report)
    return encoded


def require_written(directory: Path, meta: dict[str, Any]) -> None:
    """Raises ValueError where the files of an encoded corpus are not those that were written.

    Reading them for their checksums costs less than that of the text, which is taken at every start as well; and ids
    that a failing disk has changed would be trained on without a word.
    """
    said = {name: value for name, value in meta.items() if name != "checksum"}
    if meta["checksum"] != content_key(said):
        raise ValueError(f"{META_FILE} is not what was written")
    for name, checksum in meta["sha256"].items():
        if sha256_of(directory / name) != checksum:
            raise ValueError(f"{name} is not what was written")


def _report_small_batches(encoded: EncodedCorpus, tokens: int, report: Report) -> None:
    """Says that a budget is too small for every pair: it is kept to by none, and each is a batch of its own."""
    shortest = int(np.maximum(encoded.source.lengths, encoded.target.lengths).min())
    if tokens < shortest:
        report(
            f"warning: batch.tokens={tokens} is too small for any pair, of which the shortest has {shortest} pieces: "
            "each is a batch of its own"
        )


def encode_pairs(pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> EncodedCorpus:
    """Encode a validation or test set in memory: every pair, in order, none filtered."""
    sources, targets = [], []
    for source, target in pairs:
        sources.append(source)
        targets.append(target)
    return EncodedCorpus(
        EncodedSide.of(tokenizer.encode_source(sources), tokenizer.source_size),
        EncodedSide.of(tokenizer.encode_target(targets), tokenizer.target_size),
    )


def draw_segmentations(corpus: EncodedCorpus, tokenizer: Tokenizer, config: TrainConfig, epoch: int) -> EncodedCorpus:
    """The pairs of a corpus with new random segmentations for an epoch: a function of trainer.seed and the epoch.

    A sentence whose draw has more than data.filter.max_pieces pieces keeps its likeliest segmentation. The ids are in
    mapped temporary files that have no name and vanish with the arrays.

    Raises: WorkError when they cannot be written.
    """
    try:
        return _drawn(corpus, tokenizer, config, epoch)
    except OSError as error:
        raise WorkError(
            f"cannot write the segmentations of epoch {epoch} in {tempfile.gettempdir()}: {cause_of(error)}; "
            "set TMPDIR to a folder with more room"
        ) from error


def _drawn(corpus: EncodedCorpus, tokenizer: Tokenizer, config: TrainConfig, epoch: int) -> EncodedCorpus:
    alpha, limit = config.tokenizer.sampling_alpha, config.data.filter.max_pieces + 1
    with ExitStack() as files:
        sides = []
        for number, (side, draw) in enumerate(
            ((corpus.source, tokenizer.resample_source), (corpus.target, tokenizer.resample_target))
        ):
            ids, offsets = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            writer = _SideWriter(ids, offsets, side.ids.dtype)
            for start in range(0, len(side), CHUNK):
                likeliest = [side[row] for row in range(start, min(start + CHUNK, len(side)))]
                seed = np.random.SeedSequence([config.trainer.seed, epoch, number, start]).generate_state(1, np.uint64)
                drawn = draw(likeliest, int(seed[0]), alpha)
                chosen = [one if len(one) <= limit else two for one, two in zip(drawn, likeliest, strict=True)]
                writer.append(*_flat(chosen, side.ids.dtype))
            sides.append(writer.side())
    return EncodedCorpus(sides[0], sides[1], corpus.filtered, corpus.groups)


def report_unknown(name: str, corpus: EncodedCorpus, report: Report) -> None:
    """Say in one line how much of a set the vocabulary lacks.

    Raises: RequestError when that is more than 5 % of a side: what is trained or measured would not be translation.
    """
    shares = [f"{side} {100 * getattr(corpus, side).unknown_share:.2f} %" for side in ("source", "target")]
    report(f"{name}: unknown pieces: {', '.join(shares)}")
    for side, encoded in (("source", corpus.source), ("target", corpus.target)):
        if encoded.unknown_share > MOST_UNKNOWN:
            raise RequestError(
                f"{name}: {100 * encoded.unknown_share:.1f} % of the {side} pieces are unknown to the tokenizer (more "
                f"than {100 * MOST_UNKNOWN:.0f} %): raise tokenizer.character_coverage or tokenizer.sample, set "
                "tokenizer.byte_fallback=true, or use a tokenizer that was trained on such text"
            )


def _key(filtered: FilteredCorpus, tokenizer: Tokenizer, config: TrainConfig) -> str:
    return content_key(
        {
            "format": FORMAT,
            "filtered": filtered.key,
            "max_pieces": config.data.filter.max_pieces,
            "tokenizer": tokenizer.identity,
            "sentencepiece": sentencepiece.__version__,
        }
    )


SIDES = ("source", "target")


def _write(
    filtered: FilteredCorpus, tokenizer: Tokenizer, config: TrainConfig, report: Report, directory: Path
) -> None:
    """Write the files that `EncodedCorpus.open` maps, going on from the journal's last commit."""
    processes = processes_for(filtered.corpus, config.data)
    encoder = _Encoder(tokenizer, config.data.filter.max_pieces, alone=processes == 1)
    names = [f"{side}.{suffix}" for side in SIDES for suffix in ("ids", "offsets")]
    with Journal(directory, names) as journal:
        writers = [
            _SideWriter(journal[f"{side}.ids"], journal[f"{side}.offsets"], _id_type(size), journal.state.get(side, {}))
            for side, size in zip(SIDES, (tokenizer.source_size, tokenizer.target_size), strict=True)
        ]
        read = committed = journal.state.get("read", 0)
        late: Counter[str] = Counter(journal.state.get("late", {}))
        ends = filtered.group_ends()
        groups = np.array(journal.state.get("groups", [0] * len(ends)))
        report_start("encoding", processes, read, report)

        def state() -> dict[str, Any]:
            return {
                "read": read,
                "late": late,
                "groups": groups.tolist(),
                **{s: writer.meta for s, writer in zip(SIDES, writers, strict=True)},
            }

        for chunk in map_in_order(encoder, chunks_of(islice(filtered.pairs(), read, None), CHUNK), processes):
            for writer, (ids, lengths) in zip(writers, chunk.sides, strict=True):
                writer.append(ids, lengths)
            late.update(chunk.late)
            groups += np.bincount(np.searchsorted(ends, read + chunk.kept, side="right"), minlength=len(ends))
            read += chunk.read
            if read >= committed + COMMIT_PAIRS:
                journal.commit(state())
                committed = read
        journal.commit(state())
        tally = filtered.tally
        for reason, count in late.items():
            tally.reject(reason, count)
        tally.require_some(config.data.filter)
        meta = {"format": FORMAT, "pairs": tally.kept, "filtered": tally.summary(), **state()}
        meta["sha256"] = {name: sha256_of(directory / name) for name in names}
        meta["checksum"] = content_key(meta)
        (directory / META_FILE).write_text(json.dumps(meta, indent=1) + "\n", "utf-8")
        journal.forget()


@dataclass
class _Chunk:
    """Encoded pairs: of each side the ids and the lengths.

    kept: their places among the `read` pairs that there were before some were dropped, for the reasons in `late`.
    """

    sides: list[tuple[NDArray[np.integer], NDArray[np.int64]]]
    kept: NDArray[np.int64]
    read: int
    late: Counter[str]


class _Encoder:
    """Encodes a chunk of pairs and drops those that are no good as pieces; copied into every process."""

    def __init__(self, tokenizer: Tokenizer, max_pieces: int, *, alone: bool) -> None:
        """alone: SentencePiece may use all cores, since there are no other processes."""
        self._tokenizer = tokenizer
        self._limit = max_pieces + 1
        self._threads = None if alone else 1

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> _Chunk:
        tokenizer = self._tokenizer
        sources = tokenizer.encode_source([source for source, _ in pairs], self._threads)
        targets = tokenizer.encode_target([target for _, target in pairs], self._threads)
        late: Counter[str] = Counter()
        kept: list[int] = []
        for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if max(len(source), len(target)) > self._limit:
                late[TOO_MANY_PIECES] += 1
            elif min(len(source), len(target)) == 1:  # nothing but characters that the normalisation removes
                late[BLANK_SOURCE if len(source) == 1 else BLANK_TARGET] += 1
            else:
                kept.append(place)
        sides = [
            _flat([ids[place] for place in kept], _id_type(size))
            for ids, size in ((sources, tokenizer.source_size), (targets, tokenizer.target_size))
        ]
        return _Chunk(sides, np.array(kept, np.int64), len(pairs), late)


def _flat(
    sentences: Sequence[Sequence[int] | NDArray[np.integer]], dtype: np.dtype[Any]
) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """The ids of all sentences in a row, and how many each has."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    return np.fromiter(chain.from_iterable(sentences), dtype, int(lengths.sum())), lengths


class _SideWriter:
    """Writes the arrays of an EncodedSide: the ids into one file, where each sentence begins into another.

    Where the files hold sentences already, `before` is what `meta` was by then.
    """

    def __init__(
        self, ids: BinaryIO, offsets: BinaryIO, dtype: np.dtype[Any], before: Mapping[str, Any] | None = None
    ) -> None:
        self._ids = ids
        self._offsets = offsets
        self._dtype = dtype
        before = before or {}
        self._end, self._unknown = int(before.get("pieces", 0)), int(before.get("unknown", 0))
        if not before:
            offsets.write(np.zeros(1, np.int64).tobytes())

    def append(self, ids: NDArray[np.integer], lengths: NDArray[np.int64]) -> None:
        """Append sentences, given as the ids of all of them and their lengths."""
        self._ids.write(ids.tobytes())
        self._offsets.write((self._end + np.cumsum(lengths)).tobytes())
        self._end += len(ids)
        self._unknown += int(np.count_nonzero(ids == UNKNOWN))

    @property
    def meta(self) -> dict[str, object]:
        """What one has to know to map the files."""
        return {"dtype": self._dtype.name, "pieces": self._end, "unknown": self._unknown}

    def side(self) -> EncodedSide:
        """What was written, mapped; it outlives the files' being closed."""
        self._ids.flush()
        self._offsets.flush()
        sentences = self._offsets.tell() // 8 - 1
        return EncodedSide(*_map(self._ids, self._offsets, self._dtype, self._end, sentences), self._unknown)


def _map(
    ids: BinaryIO, offsets: BinaryIO, dtype: np.dtype[Any], pieces: int, sentences: int
) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Map the two files of a side. Raises ValueError where they are shorter or longer than they should be."""
    for file, size in ((ids, pieces * dtype.itemsize), (offsets, (sentences + 1) * 8)):
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise ValueError(f"{found} bytes instead of {size}")
    # As plain arrays, which are quicker to slice than memmap objects.
    return (
        np.memmap(ids, dtype, "r", shape=(pieces,)).view(np.ndarray),
        np.memmap(offsets, np.int64, "r", shape=(sentences + 1,)).view(np.ndarray),
    )


def _id_type(vocabulary_size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)
