"""Random segmentations of encoded sentences, exactly repeatable.

SentencePiece draws segmentations too, but its draws differ from process to process whatever the seed (seen with 0.2.3),
so that a resumed run would see other data than an uninterrupted one. Here they are drawn from Python's generator, whose
numbers are the same everywhere. Since no piece reaches over a space, a sentence is segmented word by word, and what a
draw needs to know about a word is worked out once.

Words with an unknown piece, a byte or a user-defined symbol keep their likeliest segmentation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random

import numpy as np
import sentencepiece
from numpy.typing import NDArray

SPACE = "▁"  # SentencePiece's mark of a space; a piece that contains it begins with it
MOST_WORDS = 100_000  # that are remembered at a time


class Segmenter(ABC):
    """Draws segmentations with the pieces of one model."""

    def __init__(self, pieces: Sequence[str], normal: Sequence[bool], scores: Sequence[float], alpha: float) -> None:
        """What each piece spells, whether it is a normal one, and its score: the greater, the more it is preferred."""
        self.alpha = alpha
        self._pieces = pieces
        self._normal = normal
        self._begins_word = [piece.startswith(SPACE) for piece in pieces]
        self._ids = {piece: id_ for id_, piece in enumerate(pieces) if normal[id_]}
        self._scores = scores

    def draw(self, sentences: Iterable[Sequence[int] | NDArray[np.integer]], seed: int) -> list[list[int]]:
        """A random segmentation of each encoded sentence: a pure function of the sentences and the seed."""
        random = Random(seed)
        return [self._draw_sentence([int(id_) for id_ in sentence], random) for sentence in sentences]

    def _draw_sentence(self, ids: list[int], random: Random) -> list[int]:
        drawn: list[int] = []
        start = 0
        for end in range(1, len(ids) + 1):
            # The end mark is a word of its own, and no normal piece.
            if end == len(ids) or self._begins_word[ids[end]] or end == len(ids) - 1:
                word = ids[start:end]
                if all(self._normal[id_] for id_ in word):
                    word = self._draw_word("".join([self._pieces[id_] for id_ in word]), random)
                drawn.extend(word)
                start = end
        return drawn

    @abstractmethod
    def _draw_word(self, word: str, random: Random) -> list[int]: ...


# For each end of a beginning of a word: the running sums of the weights of its last pieces; their starts and ids.
Lattice = list[tuple[list[float], list[tuple[int, int]]]]


class UnigramSegmenter(Segmenter):
    """Subword regularization: a segmentation's probability is as its likelihood to the power of alpha.

    Kudo 2018, section 3.2, with all segmentations as candidates (l = infinity): forward filtering, backward sampling.
    """

    def __init__(self, pieces: Sequence[str], normal: Sequence[bool], scores: Sequence[float], alpha: float) -> None:
        super().__init__(pieces, normal, scores, alpha)
        self._longest = max(map(len, self._ids), default=0)
        self._lattices: dict[str, Lattice] = {}

    def _draw_word(self, word: str, random: Random) -> list[int]:
        lattice = self._lattices.get(word)
        if lattice is None:
            if len(self._lattices) >= MOST_WORDS:
                self._lattices.clear()
            lattice = self._lattices[word] = self._lattice(word)
        drawn: list[int] = []
        end = len(word)
        while end:
            sums, last_pieces = lattice[end]
            choice = bisect(sums, random.random() * sums[-1]) if len(sums) > 1 else 0
            end, id_ = last_pieces[min(choice, len(sums) - 1)]
            drawn.append(id_)
        drawn.reverse()
        return drawn

    def _lattice(self, word: str) -> Lattice:
        lattice: Lattice = [([], [])]
        forward = [0.0]  # logarithm of the summed weights of all segmentations of word[:end]
        for end in range(1, len(word) + 1):
            last_pieces, logarithms = [], []
            for start in range(max(0, end - self._longest), end):
                id_ = self._ids.get(word[start:end])
                if id_ is not None and forward[start] > -math.inf:
                    last_pieces.append((start, id_))
                    logarithms.append(forward[start] + self.alpha * self._scores[id_])
            greatest = max(logarithms, default=-math.inf)
            weights = [math.exp(logarithm - greatest) for logarithm in logarithms]
            forward.append(greatest + math.log(sum(weights)) if weights else -math.inf)
            lattice.append((list(accumulate(weights)), last_pieces))
        return lattice


class BpeSegmenter(Segmenter):
    """BPE-dropout: at each merge, each pair that could be merged is left out of the choice with probability alpha.

    Provilkov et al. 2020, algorithm 1.
    """

    def _draw_word(self, word: str, random: Random) -> list[int]:
        symbols = list(word)
        while True:
            best_place, best_score, best = -1, -math.inf, ""
            for place in range(len(symbols) - 1):
                merged = symbols[place] + symbols[place + 1]
                id_ = self._ids.get(merged)
                # A pair as good as the best one, but further to the right, waits for its turn.
                if id_ is None or random.random() < self.alpha or self._scores[id_] <= best_score:
                    continue
                best_place, best_score, best = place, self._scores[id_], merged
            if best_place < 0:
                return [self._ids[symbol] for symbol in symbols]
            symbols[best_place : best_place + 2] = [best]


def segmenter(model: sentencepiece.SentencePieceProcessor, alpha: float) -> Segmenter:
    """The segmenter for a SentencePiece model; alpha as `tokenizer.sampling_alpha`."""
    size = model.get_piece_size()
    types, is_bpe = _types(model.serialized_model_proto())
    kind = BpeSegmenter if is_bpe else UnigramSegmenter
    return kind(
        [str(model.id_to_piece(id_)) for id_ in range(size)],
        [type_ == _NORMAL for type_ in types],
        [float(model.get_score(id_)) for id_ in range(size)],
        alpha,
    )


# SentencePiece tells neither the algorithm of a model nor which pieces are user-defined, but its file does: a protocol
# buffer, described in sentencepiece_model.proto.
_NORMAL = 1
_BPE = 2


def _types(model: bytes) -> tuple[list[int], bool]:
    """The type of each piece, and whether the model is of BPE."""
    types: list[int] = []
    is_bpe = False
    for number, value in _fields(model):
        if number == 1 and isinstance(value, bytes):  # ModelProto.pieces
            types.append(next((t for n, t in _fields(value) if n == 3 and isinstance(t, int)), _NORMAL))
        elif number == 2 and isinstance(value, bytes):  # ModelProto.trainer_spec
            is_bpe = (3, _BPE) in _fields(value)
    return types, is_bpe


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of an encoded protocol buffer: (number, value); nested messages and strings as bytes."""
    place = 0

    def variable_length_integer() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        number, wire_type = divmod(variable_length_integer(), 8)
        if wire_type == 0:
            yield number, variable_length_integer()
        else:
            size = variable_length_integer() if wire_type == 2 else {1: 8, 5: 4}[wire_type]
            place += size
            yield number, message[place - size : place]
