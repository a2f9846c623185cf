"""Parallel text: two files, read line by line, and the same rules for every file and every way in which it came here.

Lines end at LF and only there. Python's text files, `str.splitlines` and the text loader of Hugging Face `datasets`
also end them at a lone CR (some of them at VT, FF, NEL, U+2028, too), which shifts one side of a corpus against the
other. That is why files are read as bytes, why plain files never pass through `datasets`, and why text from the Hub
(nmt.data.hub) is written to plain files first: there is one reader. Inside a line, those characters become spaces, and
characters that nobody sees, such as a soft hyphen, are removed: "voi-ture", torn by one, would be two unknown words.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, cast

from nmt.config import DataConfig, FilePair, FilesData, GrammarData, HubData, MixedText
from nmt.data.cached import cached_directory
from nmt.data.download import fetch
from nmt.data.filter import is_blank
from nmt.errors import RequestError
from nmt.files import cache_root, cause_of

Report = Callable[[str], None]

# A line that is longer is no sentence; reading it whole would fill the memory with somebody's disk image.
MAX_LINE_BYTES = 16 * 2**20

GZIP_MAGIC = b"\x1f\x8b"
_LINE_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Soft hyphen, zero-width space, marks of direction, word joiner, byte order mark.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")


# Lines ------------------------------------------------------------------------------------------------------------


def read_lines(path: Path | str) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or gzip, in NFC, without their LF and one CR before it.

    As many lines as there are LF, and one more if bytes follow the last LF. What `clean_line` does to a text is done to
    each. The file is streamed.

    Raises RequestError naming file and line: not UTF-8, a NUL byte, a line above MAX_LINE_BYTES, a damaged gzip file.
    """
    for number, line in _byte_lines(path):
        yield decoded_line(path, number, line)


def decoded_line(name: Path | str, number: int, line: bytes) -> str:
    """One line of `read_lines` from its bytes, its LF optional. Raises RequestError with name and number."""
    return clean_line(_decoded(name, number, line))


def clean_line(text: str) -> str:
    """A text as models get it: NFC, without invisible characters, and one line whatever it contains."""
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", _LINE_BREAKS.sub(" ", text)))


def reference_lines(path: Path | str) -> list[str]:
    """The lines of a reference as they are in the file, without their LF and one CR before it, and nothing else.

    These are the lines that `sacrebleu FILE` sees, so that a score is the score on the file. Raises as `read_lines`.
    """
    return [_decoded(path, number, line) for number, line in _byte_lines(path)]


def count_lines(path: Path | str) -> int:
    """As many as `read_lines` gives, without decoding them. Raises RequestError for what cannot be read as lines."""
    return sum(1 for _ in _byte_lines(path))


def _byte_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without LF)."""
    number = 0
    try:
        with _open(path) as file:
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if len(line) == MAX_LINE_BYTES:
                    raise RequestError(f"{path} line {number}: longer than {MAX_LINE_BYTES} bytes; not a text file?")
                yield number, line.removesuffix(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RequestError(f"{path} line {number + 1}: the gzip file is cut off or damaged ({error})") from error
    except OSError as error:
        raise RequestError(f"cannot read {path}: {cause_of(error)}") from error


def _open(path: Path | str) -> BinaryIO:
    """A file for reading bytes, unpacked if it begins as gzip does (no UTF-8 text begins so), whatever its name."""
    file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    if file.peek(2)[:2] != GZIP_MAGIC:
        return file
    # The same open file, not the path again: a pipe gives its bytes once.
    unpacked = gzip.GzipFile(fileobj=file, mode="rb")
    unpacked.myfileobj = file  # type: ignore[assignment]  # closed with it
    return cast(BinaryIO, unpacked)


def _decoded(path: Path | str, number: int, line: bytes) -> str:
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(line[: error.start].decode("utf-8")) + 1
        byte = f"byte 0x{line[error.start]:02x} at column {column}"
        raise RequestError(f"{path} line {number}: not UTF-8 ({byte}); convert it, e.g. with iconv") from None
    if "\0" in text:
        raise RequestError(f"{path} line {number}: a NUL byte at column {text.index(chr(0)) + 1}; not a text file?")
    return text


# Pairs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairFiles:
    """One parallel text on disk; `alignment` holds gold word alignments, a line "i-j i-j ..." for each pair."""

    source: Path
    target: Path
    alignment: Path | None = None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The pairs, read with `read_lines`. Raises RequestError, naming both counts, where the line counts differ."""
        sources, targets = read_lines(self.source), read_lines(self.target)
        done = 0
        while True:
            source, target = next(sources, None), next(targets, None)
            if source is None and target is None:
                return
            if source is None or target is None:
                raise self._unequal(
                    done + (source is not None) + sum(1 for _ in sources),
                    done + (target is not None) + sum(1 for _ in targets),
                )
            yield source, target
            done += 1

    def count(self) -> int:
        """Number of pairs. Raises RequestError, naming both counts, where the line counts differ."""
        sources, targets = count_lines(self.source), count_lines(self.target)
        if sources != targets:
            raise self._unequal(sources, targets)
        return sources

    def sources(self) -> list[str]:
        """The source side, as models get it."""
        return list(read_lines(self.source))

    def references(self) -> list[str]:
        """The target side, untouched, as scores are computed against it."""
        return reference_lines(self.target)

    def _unequal(self, sources: int, targets: int) -> RequestError:
        return RequestError(
            f"{self.source} has {sources} lines but {self.target} has {targets}: "
            "line by line, the one must be the translation of the other"
        )


@dataclass(frozen=True)
class Corpus:
    """Everything a run reads: training texts one after the other, validation texts, test sets by name.

    mixed: how many of the training texts, the last ones, are mixed in (data.mix); the others are the corpus's own.
    """

    name: str
    source_language: str
    target_language: str
    train: list[PairFiles]
    valid: list[PairFiles]
    test: dict[str, PairFiles] = field(default_factory=dict)
    literature_score: bool = False
    max_train_pairs: int | None = None
    mixed: int = 0

    def training_pairs(self) -> Iterator[tuple[str, str]]:
        """The training pairs before filtering: the first `max_train_pairs` of its own, then what is mixed in."""
        own = len(self.train) - self.mixed
        return chain(
            islice(chain.from_iterable(self.train[:own]), self.max_train_pairs), chain.from_iterable(self.train[own:])
        )

    def group_sizes(self) -> list[int]:
        """How many of `training_pairs` are the corpus's own, and how many of each text that is mixed in."""
        own = len(self.train) - self.mixed
        size = sum(files.count() for files in self.train[:own])
        return [min(size, self.max_train_pairs or size), *(files.count() for files in self.train[own:])]


def prepare_corpus(config: DataConfig, report: Report) -> Corpus:
    """Make sure that the files of a corpus exist and fit together: generate, download, convert or just find them.

    Cheap where that has been done before: line counts are taken again, and the validation and test sets, small as they
    are, read in full, so that a fault in the last of them shows now and not after hours of training.

    Raises RequestError for missing, empty, unequal or unreadable files, naming the key or the file and line;
    WorkError for a failed download or a full disk.
    """
    if isinstance(config, GrammarData):
        corpus = _grammar_corpus(config, report)
    elif isinstance(config, FilesData):
        corpus = _files_corpus(config, report)
    elif isinstance(config, HubData):
        from nmt.data.hub import hub_corpus  # imports pandas and pyarrow, which take a second

        corpus = hub_corpus(config, report)
    else:
        raise RequestError(f"data.kind={config.kind}: not a kind of data; one of grammar, files, hub")
    if config.mix:
        mixed = [_mixed(config, name, text, report) for name, text in config.mix.items()]
        corpus = replace(corpus, train=[*corpus.train, *mixed], mixed=len(mixed))
    _check(corpus)
    return corpus


def _mixed(config: DataConfig, name: str, text: MixedText, report: Report) -> PairFiles:
    if text.path is not None:
        from nmt.data.hub import hub_text

        return hub_text(config, name, text, report)
    assert text.source is not None and text.target is not None  # checked with the configuration
    files = [Path(path).expanduser() for path in (text.source, text.target)]
    for path in files:
        if not path.is_file():
            raise RequestError(f"data.mix.{name}: no file {path}")
    return PairFiles(*files)


def _check(corpus: Corpus) -> None:
    own = len(corpus.train) - corpus.mixed
    for key, texts in (("data.train", corpus.train[:own]), ("data.valid", corpus.valid)):
        if not texts:
            raise RequestError(f"{key}: no files are given")
        if sum(text.count() for text in texts) == 0:
            raise RequestError(f"{key}: no pairs, {texts[0].source} is empty")
    for text in corpus.train[own:]:
        if text.count() == 0:
            raise RequestError(f"data.mix: no pairs, {text.source} is empty")
    for text in (*corpus.valid, *corpus.test.values()):
        for _ in text:
            pass
    for name, text in corpus.test.items():
        if not text.references():
            raise RequestError(f"data.test.{name}: no pairs, {text.target} is empty")
        _require_text(f"data.test.{name}", [text])
    _require_text("data.valid", corpus.valid)


def _require_text(key: str, texts: list[PairFiles]) -> None:
    """Raises RequestError where no reference says anything: every score would be 0, whatever the translations."""
    if all(is_blank(line) for text in texts for line in text.references()):
        raise RequestError(f"{key}: every line of {texts[0].target} is blank: there is nothing to score against")


# Grammar ----------------------------------------------------------------------------------------------------------


def _grammar_corpus(config: GrammarData, report: Report) -> Corpus:
    """Generate the corpus into the cache, once for each set of parameters and version of the grammar."""
    from nmt.data import grammar

    source, target = config.source_language, config.target_language
    if {source, target} != {"en", "fr"}:
        raise RequestError(f"data.source_language={source}, data.target_language={target}: the grammar has en and fr")
    if config.min_words > config.max_words:
        raise RequestError(f"data.min_words={config.min_words} is above data.max_words={config.max_words}")
    # Every key that only the grammar has, so that one which is added later cannot be forgotten here.
    names = {"source_language", *(GrammarData.__dataclass_fields__.keys() - DataConfig.__dataclass_fields__.keys())}
    parameters = {name: getattr(config, name) for name in names} | {"version": grammar.GRAMMAR_VERSION}
    directory = cache_root(config.cache) / "grammar" / content_key(parameters)

    def generate(temporary: Path) -> None:
        report(f"generating {config.train_pairs} training pairs with the grammar, seed {config.seed}")
        grammar.write_grammar_corpus(config, temporary)

    cached_directory(directory, generate, report)

    def split_files(split: str) -> PairFiles:
        names = (f"{split}.{source}", f"{split}.{target}", f"{split}.align")
        return PairFiles(*(directory / name for name in names))

    return _corpus(config, [split_files("train")], [split_files("valid")], {"test": split_files("test")})


def content_key(parameters: object) -> str:
    """A folder name for a cached result: the hash of everything that it depends on, as JSON."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:24]


# Files ------------------------------------------------------------------------------------------------------------


def _files_corpus(config: FilesData, report: Report) -> Corpus:
    if config.dir is not None:
        find: Callable[[str], Path] = _Folder(config.dir).find
    elif config.downloads:
        find = _Downloads(config, report).find
    else:
        raise RequestError(f"data.dir is not set: give the folder that holds the files of data={config.name}")

    def found(pair: FilePair) -> PairFiles:
        return PairFiles(find(pair.source), find(pair.target))

    return _corpus(
        config,
        [found(pair) for pair in config.train],
        [found(pair) for pair in config.valid],
        {name: found(pair) for name, pair in config.test.items()},
        literature_score=config.literature_score,
    )


class _Folder:
    """The folder that data.dir names, relative to where the command is run."""

    def __init__(self, given: str) -> None:
        self.given = given
        try:
            self.path = Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise RequestError(f"data.dir={given}: no home directory") from error
        if not self.path.is_dir():
            raise RequestError(f"data.dir={given}: there is no such folder ({self.path})")

    def find(self, name: str) -> Path:
        """The named file, or else the one that is named alike but for .gz. Raises RequestError where there is none."""
        for candidate in _with_and_without_gz(name):
            if (self.path / candidate).is_file():
                return self.path / candidate
            if (self.path / candidate).exists():
                raise RequestError(f"data.dir={self.given}: {candidate} is not a regular file, which can be read again")
        wanted = " or ".join(_with_and_without_gz(name))
        raise RequestError(f"data.dir={self.given}: no file {wanted}; {self._similar(name)}")

    def _similar(self, name: str) -> str:
        folder = (self.path / name).parent
        if not folder.is_dir():
            folder = self.path
        names = sorted(entry.name for entry in folder.iterdir())
        if not names:
            return f"{folder} is empty"
        return "it holds " + ", ".join(difflib.get_close_matches(Path(name).name, names, n=6, cutoff=0.5) or names[:6])


class _Downloads:
    """The files that data.downloads describes, fetched to the cache when they are first needed."""

    def __init__(self, config: FilesData, report: Report) -> None:
        self.downloads = config.downloads
        self.report = report
        self.folder = cache_root(config.cache) / "downloads" / re.sub(r"[^\w.-]+", "_", config.name)

    def find(self, name: str) -> Path:
        """Raises RequestError where the config has no address for the file, WorkError where the download fails."""
        for candidate in _with_and_without_gz(name):
            download = self.downloads.get(candidate)
            if download is not None:
                return fetch(download.url, download.sha256, self.folder / candidate, self.report)
        raise RequestError(f"data.downloads has no address for {name}: give the folder that holds it as data.dir")


def _with_and_without_gz(name: str) -> tuple[str, str]:
    return name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"


def _corpus(
    config: DataConfig,
    train: list[PairFiles],
    valid: list[PairFiles],
    test: dict[str, PairFiles],
    *,
    literature_score: bool = False,
) -> Corpus:
    return Corpus(
        config.name,
        config.source_language,
        config.target_language,
        train,
        valid,
        test,
        literature_score,
        config.max_train_pairs,
    )
