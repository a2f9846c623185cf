"""The training pairs as ids in memory-mapped arrays, so that a corpus of any size costs hardly any memory.

Encoding streams: text is filtered, encoded and written some thousand pairs at a time, into a directory of the cache
that appears when it is complete. The directory is named by a hash of all that its content depends on, so that the same
data, filter and tokenizer are encoded once. A Python list of a million sentences would be copied, page by page, into
every process that only looks at it; a mapped file is shared.

With `tokenizer.sampling`, the texts are kept too, and `draw_segmentations` makes the ids of an epoch from them: of the
whole epoch at once, so that the batch plan knows the lengths that it plans for.
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
from itertools import chain, islice, zip_longest
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
from nmt.files import cache_root, complete_directory, sha256_of

FORMAT = 1  # to be raised when the files or the rules change: older caches are then not found any more
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
class EncodedTexts:
    """Texts in one array of UTF-8 bytes; text i is bytes[offsets[i]:offsets[i + 1]]."""

    bytes: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __getitem__(self, index: int) -> str:
        return self.bytes[self.offsets[index] : self.offsets[index + 1]].tobytes().decode()


@dataclass
class EncodedCorpus:
    """Encoded pairs: sentence i of one side translates sentence i of the other.

    source_texts, target_texts: only where the tokenizer samples. filtered: what became of the pairs, in one line.
    """

    source: EncodedSide
    target: EncodedSide
    source_texts: EncodedTexts | None = None
    target_texts: EncodedTexts | None = None
    filtered: str = ""

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def open(cls, directory: Path) -> EncodedCorpus:
        """Map the files of `encode_corpus`. Raises WorkError when one is absent, cut off or of another format."""
        try:
            meta = json.loads((directory / META_FILE).read_text("utf-8"))
            rows = meta["pairs"]
            sides: dict[str, EncodedSide] = {}
            texts: dict[str, EncodedTexts] = {}
            for name in ("source", "target"):
                about = meta[name]
                ids = _map_files(directory / f"{name}.ids", np.dtype(about["dtype"]), about["pieces"], rows)
                sides[name] = EncodedSide(*ids, about["unknown"])
                if meta["texts"]:
                    characters = _map_files(directory / f"{name}.text", np.dtype(np.uint8), about["bytes"], rows)
                    texts[name] = EncodedTexts(*characters)
            source, target = sides["source"], sides["target"]
            return cls(source, target, texts.get("source"), texts.get("target"), meta["filtered"])
        except (OSError, ValueError, KeyError, TypeError) as error:
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
    report_unknown("train", encoded, report)
    return encoded


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
    """
    if corpus.source_texts is None or corpus.target_texts is None:
        raise ValueError("the corpus was encoded without its texts")
    alpha, limit = config.tokenizer.sampling_alpha, config.data.filter.max_pieces + 1
    with ExitStack() as files:

        def new() -> BinaryIO:
            return files.enter_context(tempfile.TemporaryFile())

        source = _SideWriter(new(), new(), _id_type(tokenizer.source_size))
        target = _SideWriter(new(), new(), _id_type(tokenizer.target_size))
        for start in range(0, len(corpus), CHUNK):
            rows = range(start, min(start + CHUNK, len(corpus)))
            seed = int(np.random.SeedSequence([config.trainer.seed, epoch, start]).generate_state(1, np.uint64)[0])
            drawn = tokenizer.sample_source([corpus.source_texts[row] for row in rows], seed, alpha)
            source.write_sentences(
                [ids if len(ids) <= limit else corpus.source[row] for row, ids in zip(rows, drawn, strict=True)]
            )
            drawn = tokenizer.sample_target([corpus.target_texts[row] for row in rows], seed, alpha)
            target.write_sentences(
                [ids if len(ids) <= limit else corpus.target[row] for row, ids in zip(rows, drawn, strict=True)]
            )
        return dataclasses.replace(corpus, source=source.side(), target=target.side())


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
            "texts": config.tokenizer.sampling,
        }
    )


def _write(directory: Path, pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, config: TrainConfig) -> None:
    """Write the files that `EncodedCorpus.open` maps."""
    pair_filter = PairFilter(config.data.filter)
    with ExitStack() as files:

        def new(name: str) -> BinaryIO:
            return files.enter_context(open(directory / name, "w+b"))

        sides = [
            _SideWriter(new(f"{name}.ids"), new(f"{name}.ids.offsets"), _id_type(size))
            for name, size in (("source", tokenizer.source_size), ("target", tokenizer.target_size))
        ]
        texts = [
            _RaggedWriter(new(f"{name}.text"), new(f"{name}.text.offsets"))
            for name in ("source", "target")
            if config.tokenizer.sampling
        ]
        for chunk in _chunks(pair_filter(pairs)):
            kept = _encode(chunk, tokenizer, pair_filter)
            sides[0].write_sentences([source for _, source, _ in kept])
            sides[1].write_sentences([target for _, _, target in kept])
            for side, writer in enumerate(texts):
                encoded = [chunk[row][side].encode() for row, _, _ in kept]
                writer.write(b"".join(encoded), [len(text) for text in encoded])
    pair_filter.require_some()
    about = [
        {"dtype": side.dtype.name, "pieces": side.end, "unknown": side.unknown, "bytes": text.end if text else 0}
        for side, text in zip_longest(sides, texts)
    ]
    meta = {
        "pairs": pair_filter.kept,
        "texts": bool(texts),
        "filtered": pair_filter.summary(),
        "source": about[0],
        "target": about[1],
    }
    (directory / META_FILE).write_text(json.dumps(meta, indent=1) + "\n", "utf-8")


def _encode(
    chunk: Sequence[tuple[str, str]], tokenizer: Tokenizer, pair_filter: PairFilter
) -> list[tuple[int, list[int], list[int]]]:
    """The pairs of a chunk that are still good as pieces: (place in the chunk, source ids, target ids)."""
    limit = pair_filter.config.max_pieces + 1
    sources = tokenizer.encode_source([source for source, _ in chunk])
    targets = tokenizer.encode_target([target for _, target in chunk])
    kept = []
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if max(len(source), len(target)) > limit:
            pair_filter.reject(TOO_MANY_PIECES)
        elif min(len(source), len(target)) == 1:  # nothing but characters that the normalisation removes
            pair_filter.reject(BLANK_SOURCE if len(source) == 1 else BLANK_TARGET)
        else:
            kept.append((row, source, target))
    return kept


class _RaggedWriter:
    """Rows of unequal length, one after the other in one file, and in another file where each begins."""

    def __init__(self, values: BinaryIO, offsets: BinaryIO) -> None:
        self.values = values
        self.offsets = offsets
        self.rows = 0
        self.end = 0
        offsets.write(np.zeros(1, np.int64).tobytes())

    def write(self, values: bytes, lengths: Sequence[int]) -> None:
        """Append rows, given one after the other in bytes, and their numbers of elements."""
        ends = self.end + np.cumsum(np.asarray(lengths, dtype=np.int64))
        self.values.write(values)
        self.offsets.write(ends.tobytes())
        self.rows += len(lengths)
        self.end = int(ends[-1]) if len(ends) else self.end


class _SideWriter(_RaggedWriter):
    """Writes the arrays of an EncodedSide."""

    def __init__(self, values: BinaryIO, offsets: BinaryIO, dtype: np.dtype[Any]) -> None:
        super().__init__(values, offsets)
        self.dtype = dtype
        self.unknown = 0

    def write_sentences(self, sentences: Sequence[Sequence[int] | NDArray[np.integer]]) -> None:
        ids = np.fromiter(chain.from_iterable(sentences), dtype=self.dtype)
        self.unknown += int(np.count_nonzero(ids == UNKNOWN))
        self.write(ids.tobytes(), [len(sentence) for sentence in sentences])

    def side(self) -> EncodedSide:
        """What was written, mapped; it outlives the files' being closed."""
        self.values.flush()
        self.offsets.flush()
        return EncodedSide(*_map(self.values, self.offsets, self.dtype, self.end, self.rows), self.unknown)


def _map_files(path: Path, dtype: np.dtype[Any], elements: int, rows: int) -> tuple[Any, NDArray[np.int64]]:
    with open(path, "rb") as values, open(f"{path}.offsets", "rb") as offsets:
        return _map(values, offsets, dtype, elements, rows)


def _map(
    values: BinaryIO, offsets: BinaryIO, dtype: np.dtype[Any], elements: int, rows: int
) -> tuple[Any, NDArray[np.int64]]:
    """Map a ragged array of that many elements and rows. Raises ValueError where the files are shorter or longer."""
    for file, size in ((values, elements * dtype.itemsize), (offsets, (rows + 1) * 8)):
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise ValueError(f"{found} bytes instead of {size}")
    # As plain arrays, which are quicker to slice than memmap objects.
    return (
        np.memmap(values, dtype, "r", shape=(elements,)).view(np.ndarray),
        np.memmap(offsets, np.int64, "r", shape=(rows + 1,)).view(np.ndarray),
    )


def _id_type(vocabulary_size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
