"""The training pairs as ids in memory-mapped arrays, so that a corpus of any size costs hardly any memory.

Encoding streams: text is filtered, encoded and written some thousand pairs at a time, into a directory of the cache
that appears when it is complete. The directory is named by a hash of all that its content depends on, so that the same
data, filter and tokenizer are encoded once. A Python list of a million sentences would be copied, page by page, into
every process that only looks at it; a mapped file is shared.

With `tokenizer.sampling`, `draw_segmentations` makes new ids for each epoch: for the whole epoch at once, so that the
batch plan knows the lengths that it plans for.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
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
from nmt.data.corpus import Corpus, Report, content_key
from nmt.data.filter import BLANK_SOURCE, BLANK_TARGET, TOO_MANY_PIECES, PairFilter
from nmt.data.tokenizer import UNKNOWN, Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.files import cache_root, cause_of, complete_directory, read_regular, sha256_of

FORMAT = 3  # to be raised when the files or the rules change: older caches are then not found any more
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
        ids = np.fromiter(chain.from_iterable(sentences), dtype=_id_type(vocabulary_size))
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
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
    """

    source: EncodedSide
    target: EncodedSide
    filtered: str = ""

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
            return cls(sides[0], sides[1], meta["filtered"])
        except (OSError, ValueError, KeyError, TypeError, RequestError) as error:
            raise WorkError(f"{directory}: not a complete encoded corpus ({' '.join(str(error).split())})") from None


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer, config: TrainConfig, report: Report) -> EncodedCorpus:
    """Filter and encode the training pairs, or find them in the cache; either way report what was kept.

    Raises: RequestError for unreadable files, when no pair is kept, and when more than 5 % of the pieces of a side
    are unknown; WorkError when the cache cannot be written.
    """
    directory = cache_root(config.data.cache) / "encoded" / _key(corpus, tokenizer, config)
    try:
        encoded = EncodedCorpus.open(directory)
    except WorkError:
        if directory.exists():
            report(f"encoding the training pairs again: {directory} is broken")
        with complete_directory(directory, replace=True) as temporary:
            _write(temporary, corpus.training_pairs(), tokenizer, config)
        encoded = EncodedCorpus.open(directory)
    report(encoded.filtered)
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
                writer.write([one if len(one) <= limit else two for one, two in zip(drawn, likeliest, strict=True)])
            sides.append(writer.side())
    return EncodedCorpus(sides[0], sides[1], corpus.filtered)


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


def _key(corpus: Corpus, tokenizer: Tokenizer, config: TrainConfig) -> str:
    return content_key(
        {
            "format": FORMAT,
            "files": [[sha256_of(files.source), sha256_of(files.target)] for files in corpus.train],
            "pairs": corpus.max_train_pairs,
            "filter": {
                f.name: getattr(config.data.filter, f.name) for f in dataclasses.fields(type(config.data.filter))
            },
            "tokenizer": tokenizer.identity,
            "sentencepiece": sentencepiece.__version__,
        }
    )


def _write(directory: Path, pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, config: TrainConfig) -> None:
    """Write the files that `EncodedCorpus.open` maps."""
    pair_filter = PairFilter(config.data.filter)
    meta: dict[str, object] = {"format": FORMAT}
    with ExitStack() as files:

        def writer(name: str, vocabulary_size: int) -> _SideWriter:
            ids, offsets = (
                files.enter_context(open(directory / f"{name}.{suffix}", "w+b")) for suffix in ("ids", "offsets")
            )
            return _SideWriter(ids, offsets, _id_type(vocabulary_size))

        source, target = writer("source", tokenizer.source_size), writer("target", tokenizer.target_size)
        for chunk in _chunks(pair_filter(pairs)):
            kept = _encode(chunk, tokenizer, pair_filter)
            source.write([source_ids for source_ids, _ in kept])
            target.write([target_ids for _, target_ids in kept])
    pair_filter.require_some()
    meta |= {"pairs": pair_filter.kept, "filtered": pair_filter.summary(), "source": source.meta, "target": target.meta}
    meta["sha256"] = {path.name: sha256_of(path) for path in sorted(directory.iterdir())}
    meta["checksum"] = content_key(meta)
    (directory / META_FILE).write_text(json.dumps(meta, indent=1) + "\n", "utf-8")


def _encode(
    chunk: Sequence[tuple[str, str]], tokenizer: Tokenizer, pair_filter: PairFilter
) -> list[tuple[list[int], list[int]]]:
    """The ids of those pairs of a chunk that are still good as pieces."""
    limit = pair_filter.config.max_pieces + 1
    sources = tokenizer.encode_source([source for source, _ in chunk])
    targets = tokenizer.encode_target([target for _, target in chunk])
    kept = []
    for source, target in zip(sources, targets, strict=True):
        if max(len(source), len(target)) > limit:
            pair_filter.reject(TOO_MANY_PIECES)
        elif min(len(source), len(target)) == 1:  # nothing but characters that the normalisation removes
            pair_filter.reject(BLANK_SOURCE if len(source) == 1 else BLANK_TARGET)
        else:
            kept.append((source, target))
    return kept


class _SideWriter:
    """Writes the arrays of an EncodedSide: the ids into one file, where each sentence begins into another."""

    def __init__(self, ids: BinaryIO, offsets: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._ids = ids
        self._offsets = offsets
        self._dtype = dtype
        self._sentences = 0
        self._end = 0
        self._unknown = 0
        offsets.write(np.zeros(1, np.int64).tobytes())

    def write(self, sentences: Sequence[Sequence[int] | NDArray[np.integer]]) -> None:
        """Append sentences."""
        ids = np.fromiter(chain.from_iterable(sentences), dtype=self._dtype)
        ends = self._end + np.cumsum([len(sentence) for sentence in sentences], dtype=np.int64)
        self._ids.write(ids.tobytes())
        self._offsets.write(ends.tobytes())
        self._sentences += len(sentences)
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
        return EncodedSide(*_map(self._ids, self._offsets, self._dtype, self._end, self._sentences), self._unknown)


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


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
