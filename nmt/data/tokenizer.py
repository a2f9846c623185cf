"""SentencePiece, made exact: the same corpus gives the same model to the byte, the same seed the same segmentation.

Four ids mean the same in every model of this project: 0 pads, 1 is what the vocabulary cannot write, 2 begins and
3 ends a sentence. Text itself never yields 0, 2 or 3: `<s>` typed in a text is plain text.

What a round trip changes: the normalisation that is chosen (see `tokenizer.normalization`), runs of spaces and spaces
at the ends, and "▁", which is SentencePiece's own space. A piece that the vocabulary lacks has no text: `decode` leaves
it out instead of writing SentencePiece's " ⁇ " into a translation. And one sentence stays one line of text: line ends
of any kind and other control characters, which byte fallback can produce, are decoded as spaces.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from nmt.config import TokenizerConfig
from nmt.data.filter import is_blank
from nmt.data.segmentation import Segmenter, segmenter
from nmt.errors import RequestError
from nmt.files import cause_of, read_regular, write_atomically

PAD, UNKNOWN, BOS, EOS = 0, 1, 2, 3

JOINT_FILE = "tokenizer.model"
SOURCE_FILE = "tokenizer.source.model"
TARGET_FILE = "tokenizer.target.model"

MAX_SENTENCE_BYTES = 65_536  # SentencePiece's own 4,192 passes over long lines in silence
RESERVED_CHARACTER = "\u2585"  # SentencePiece passes over training sentences that contain it
TRAINING_THREADS = 16  # of any machine: the sums of unigram training depend on their number in the last digit
SAMPLE_SEED = 1
BATCH_FOR_THREADS = 256  # below that, starting threads takes longer than encoding

CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")
SPACES = re.compile(" {2,}")


class Tokenizer:
    """Text to ids and back. Source and target share one model where `joint`, else each has its own."""

    def __init__(
        self, source: sentencepiece.SentencePieceProcessor, target: sentencepiece.SentencePieceProcessor
    ) -> None:
        self._source = source
        self._target = target
        self._segmenters: dict[tuple[bool, float], Segmenter] = {}
        models = [source.serialized_model_proto()] + ([] if self.joint else [target.serialized_model_proto()])
        self.identity: str = hashlib.sha256(b"".join(hashlib.sha256(model).digest() for model in models)).hexdigest()

    @classmethod
    def train(
        cls,
        config: TokenizerConfig,
        pairs: Iterable[tuple[str, str]],
        directory: Path | None,
        report: Callable[[str], None],
    ) -> Tokenizer:
        """Train on the pairs, which should be of the training split alone, and save in the directory if there is one.

        More than config.sample sentences are thinned out evenly, in a way that depends on nothing but the pairs.

        Raises: RequestError when there is nothing to train on, or when a key of config does not fit the text.
        """
        _check_symbols(config.user_defined_symbols)
        if config.joint:
            sentences = _Sample(config.sample)
            for pair in pairs:
                sentences.extend(pair)
            models = {JOINT_FILE: _train_model(config, sentences, "", report)}
        else:
            sources, targets = _Sample(config.sample), _Sample(config.sample)
            for source, target in pairs:
                sources.extend([source])
                targets.extend([target])
            models = {
                SOURCE_FILE: _train_model(config, sources, "source ", report),
                TARGET_FILE: _train_model(config, targets, "target ", report),
            }
        read = [_read_model(model, Path(name)) for name, model in models.items()]
        tokenizer = cls(read[0], read[-1])
        if directory is not None:
            tokenizer.save(directory)
        return tokenizer

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """The tokenizer that `train` saved in a directory.

        Raises: RequestError, naming the file, when it is absent, broken, or has other ids than this project's.
        """
        if (directory / JOINT_FILE).is_file():
            joint = _load_model(directory / JOINT_FILE)
            return cls(joint, joint)
        if (directory / SOURCE_FILE).is_file() or (directory / TARGET_FILE).is_file():
            return cls(_load_model(directory / SOURCE_FILE), _load_model(directory / TARGET_FILE))
        raise RequestError(f"{directory / JOINT_FILE}: no such file")

    def save(self, directory: Path) -> None:
        """Write what `load` reads, and remove the files of another tokenizer that is there."""
        names = {JOINT_FILE: self._source} if self.joint else {SOURCE_FILE: self._source, TARGET_FILE: self._target}
        for other in {JOINT_FILE, SOURCE_FILE, TARGET_FILE} - names.keys():
            (directory / other).unlink(missing_ok=True)
        for name, model in names.items():
            write_atomically(directory / name, model.serialized_model_proto())

    @property
    def joint(self) -> bool:
        """Whether source and target have one vocabulary."""
        return self._source is self._target

    @property
    def source_size(self) -> int:
        """Number of source pieces, the four special ones included."""
        return int(self._source.get_piece_size())

    @property
    def target_size(self) -> int:
        """Number of target pieces, the four special ones included."""
        return int(self._target.get_piece_size())

    def encode_source(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The likeliest segmentation of each text, with the end mark; a blank text is the end mark alone.

        threads: None is as many as there are cores, where there is enough to do; the result is the same.
        """
        return _encode(self._source, texts, threads)

    def encode_target(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """As `encode_source`, for the target side; without the begin mark, which `make_batch` adds."""
        return _encode(self._target, texts, threads)

    def sample_source(self, texts: Sequence[str], seed: int, alpha: float) -> list[list[int]]:
        """A random segmentation of each text, with the end mark; a pure function of the arguments.

        Unigram: subword regularization, drawn from all segmentations, likelier ones the likelier the greater alpha
        (Kudo 2018, section 3). BPE: BPE-dropout, alpha is the probability to skip a merge (Provilkov et al. 2020).
        """
        return self.resample_source(self.encode_source(texts), seed, alpha)

    def sample_target(self, texts: Sequence[str], seed: int, alpha: float) -> list[list[int]]:
        """As `sample_source`, for the target side."""
        return self.resample_target(self.encode_target(texts), seed, alpha)

    def resample_source(
        self, sentences: Iterable[Sequence[int] | NDArray[np.integer]], seed: int, alpha: float
    ) -> list[list[int]]:
        """As `sample_source`, for sentences that are encoded already."""
        return self._segmenter(self._source, alpha).draw(sentences, seed)

    def resample_target(
        self, sentences: Iterable[Sequence[int] | NDArray[np.integer]], seed: int, alpha: float
    ) -> list[list[int]]:
        """As `sample_target`, for sentences that are encoded already."""
        return self._segmenter(self._target, alpha).draw(sentences, seed)

    def _segmenter(self, model: sentencepiece.SentencePieceProcessor, alpha: float) -> Segmenter:
        """Made once, since it remembers words."""
        key = (model is self._source, alpha)
        if key not in self._segmenters:
            self._segmenters[key] = segmenter(model, alpha)
        return self._segmenters[key]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids: one line, without special and unknown pieces, without needless spaces."""
        text = str(self._target.decode([int(piece) for piece in ids if piece > EOS]))
        return SPACES.sub(" ", CONTROLS.sub(" ", text)).strip(" ")

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as they are written in the vocabulary, for pictures of attention."""
        return [str(self._source.id_to_piece(int(piece))) for piece in ids]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """As `source_pieces`, for the target side."""
        return [str(self._target.id_to_piece(int(piece))) for piece in ids]


class _Sample:
    """An even sample of a stream of sentences, of bounded size (reservoir sampling, Vitter 1985, algorithm R).

    A stream that fits is kept whole and in order. Sentences that SentencePiece would pass over are counted instead.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.sentences: list[str] = []
        self.seen = 0
        self.too_long = 0
        self.reserved = 0
        self._random = random.Random(SAMPLE_SEED)

    def extend(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            if len(sentence.encode()) > MAX_SENTENCE_BYTES:
                self.too_long += 1
            elif RESERVED_CHARACTER in sentence:
                self.reserved += 1
            elif not is_blank(sentence):
                self._add(sentence)

    def _add(self, sentence: str) -> None:
        self.seen += 1
        if len(self.sentences) < self.size:
            self.sentences.append(sentence)
        else:
            place = int(self._random.random() * self.seen)
            if place < self.size:
                self.sentences[place] = sentence

    def drain(self) -> Iterator[str]:
        """The sentences, each of them forgotten when it is handed over, since SentencePiece keeps its own copy."""
        self.sentences.reverse()
        while self.sentences:
            yield self.sentences.pop()


def _train_model(config: TokenizerConfig, sample: _Sample, side: str, report: Callable[[str], None]) -> bytes:
    if sample.too_long:
        report(f"tokenizer: skipped {sample.too_long} {side}sentences of more than {MAX_SENTENCE_BYTES} bytes")
    if sample.reserved:
        report(f"tokenizer: skipped {sample.reserved} {side}sentences with the reserved character U+2585")
    if not sample.sentences:
        raise RequestError(f"the training text has no {side}sentence to train the tokenizer on")
    if sample.seen > sample.size:
        report(f"tokenizer: trained on {sample.size} of {sample.seen} {side}sentences (tokenizer.sample)")
    try:
        model = _in_background(lambda: _sentencepiece_model(config, sample))
    except RuntimeError as error:
        raise RequestError(_training_error(str(error), side)) from None
    size = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    if size < config.vocab_size:
        report(f"tokenizer: the {side}text fills only {size} of tokenizer.vocab_size={config.vocab_size} pieces")
    return model


def _sentencepiece_model(config: TokenizerConfig, sample: _Sample) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sample.drain(),
        model_writer=written,
        model_type=config.model,
        vocab_size=config.vocab_size,
        hard_vocab_limit=False,
        character_coverage=config.character_coverage,
        normalization_rule_name=config.normalization,
        byte_fallback=config.byte_fallback,
        user_defined_symbols=[unicodedata.normalize("NFC", symbol) for symbol in config.user_defined_symbols],
        max_sentence_length=MAX_SENTENCE_BYTES,
        num_threads=TRAINING_THREADS,
        pad_id=PAD,
        unk_id=UNKNOWN,
        bos_id=BOS,
        eos_id=EOS,
        minloglevel=2,  # errors only
    )
    return written.getvalue()


def _in_background(work: Callable[[], bytes]) -> bytes:
    """The result of minutes of work in C++, during which this thread still answers signals such as Ctrl-C.

    Interrupted, the work is left to end with the process; it is waited for a moment in case that it is nearly done.
    """
    results: list[bytes] = []
    errors: list[Exception] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        while not done.wait(0.2):  # whichever thread a signal reaches, it is this one that handles it
            pass
    except BaseException:
        done.wait(0.5)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _training_error(message: str, side: str) -> str:
    """SentencePiece's message in terms of our keys."""
    sizes = re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message)
    if sizes:
        return (
            f"tokenizer.vocab_size={sizes[1]} is too small for the characters of the {side}text: at least {sizes[2]} "
            "are needed (or a lower tokenizer.character_coverage)"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return f"the training text has no {side}sentence to train the tokenizer on"
    return f"the tokenizer cannot be trained on the {side}text: {' '.join(message.split())}"


def _check_symbols(symbols: Sequence[str]) -> None:
    for index, symbol in enumerate(symbols):
        if not symbol or re.search(r"\s|\u2581|\u2585|\0", symbol):
            reason = "is empty or contains a space or a character reserved by SentencePiece"
        elif symbol in symbols[:index]:
            reason = "occurs twice"
        elif symbol in ("<pad>", "<unk>", "<s>", "</s>"):
            reason = "is the name of a special piece"
        else:
            continue
        raise RequestError(f"tokenizer.user_defined_symbols: {symbol!r} {reason}")


def _load_model(path: Path) -> sentencepiece.SentencePieceProcessor:
    try:
        content = read_regular(path)
    except OSError as error:
        raise RequestError(f"{path}: {cause_of(error)[:1].lower()}{cause_of(error)[1:]}") from None
    return _read_model(content, path)


def _read_model(content: bytes, path: Path) -> sentencepiece.SentencePieceProcessor:
    try:
        if not content:  # SentencePiece takes that for "no model yet" and crashes later
            raise ValueError
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
    except (RuntimeError, ValueError):
        raise RequestError(f"{path}: not a SentencePiece model, or broken") from None
    ids = (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id())
    if ids != (PAD, UNKNOWN, BOS, EOS):
        raise RequestError(
            f"{path}: pad, unknown, bos and eos have the ids {', '.join(map(str, ids))}; "
            f"needed are {PAD}, {UNKNOWN}, {BOS}, {EOS}"
        )
    return model


def _encode(model: sentencepiece.SentencePieceProcessor, texts: Sequence[str], threads: int | None) -> list[list[int]]:
    if threads is None:
        threads = -1 if len(texts) >= BATCH_FOR_THREADS else 1  # -1: as many as there are cores
    encoded: list[list[int]] = model.encode(list(texts), add_eos=True, num_threads=threads)
    return encoded
