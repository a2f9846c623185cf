"""What an answer must contain: the words that it begins with, and phrases that occur somewhere in it.

A phrase may be begun wherever a word may, in the middle of "(…" or "l'…" as well, and must end where a word does. How
far a hypothesis has come with its phrases is a value of its own, `Progress`; the search keeps the best hypotheses for
each number of pieces that are still to come, which is grid beam search (Hokamp and Liu 2017, section 3).

A phrase is written as it was given, whatever the vocabulary has: what it lacks, such as an emoji, is the unknown piece
to the model and the phrase's own text in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.data.corpus import clean_line
from nmt.data.tokenizer import SPACES, UNKNOWN, Tokenizer
from nmt.evaluation.alignment import BYTE_PIECE, WORD_START


@dataclass(frozen=True)
class Constraints:
    """What the translation of one text must contain."""

    prefix: str = ""
    """Whole words that it begins with."""
    phrases: tuple[str, ...] = ()
    """Whole words that occur in it: in the prefix, or each phrase at a place of its own after it."""


class Next(Enum):
    """What the coming piece may be, so that a phrase ends where a word does."""

    ANY = 0
    NEW_WORD = 1
    """A phrase has just been written, and counts."""
    SAME_WORD = 2
    """Its letters have just been written, but as the beginning of a longer word."""


class Place(NamedTuple):
    """Where a phrase is written."""

    phrase: int
    spelling: int
    """Which of its spellings."""
    start: int
    """How many pieces come before it."""


@dataclass(frozen=True)
class Progress:
    """How far a hypothesis has come with its phrases."""

    length: int = 0
    """Pieces."""
    written: tuple[Place, ...] = ()
    """The phrases that are written, in the order of the text."""
    active: Place | None = None
    """The one that is being written."""
    coming: Next = Next.ANY

    def has(self, phrase: int) -> bool:
        """Whether a phrase is written."""
        return any(place.phrase == phrase for place in self.written)


@dataclass(frozen=True)
class Phrase:
    """A phrase in pieces, the end mark left out."""

    text: str
    spellings: tuple[tuple[int, ...], ...]
    """As a new word; and, where the vocabulary has it, after a character that is no letter, such as a bracket."""
    verbatim: bool
    """Whether the tokenizer writes its pieces as its text."""

    @property
    def ends_in_word(self) -> bool:
        """Whether its last character is a letter or digit."""
        return self.text[-1].isalnum()


@dataclass(frozen=True, eq=False)
class WordEdges:
    """Which pieces of a vocabulary V begin or end within a word."""

    ids: dict[str, int]
    """Of each piece."""
    continues_V: Tensor
    """Whether a piece begins with a letter or digit, and so within a word."""
    ends: list[bool]
    """Whether a piece ends with one, of all V."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> WordEdges:
        """Those of a tokenizer's target side."""
        pieces = tokenizer.target_pieces(range(tokenizer.target_size))
        return cls(
            {piece: number for number, piece in enumerate(pieces)},
            torch.tensor([_in_word(piece, piece[:1]) for piece in pieces]),
            [number == UNKNOWN or _in_word(piece, piece[-1:]) for number, piece in enumerate(pieces)],
        )


def _in_word(piece: str, character: str) -> bool:
    byte = BYTE_PIECE.fullmatch(piece)
    return int(byte[1], 16) >= 0x80 or chr(int(byte[1], 16)).isalnum() if byte else character.isalnum()


class TokenConstraints:
    """The constraints of one source in pieces, and what follows from them.

    Attributes:
        prefix: pieces that come first.
        phrases: what is to be written.
        total: pieces of all phrases.
    """

    def __init__(self, prefix: Phrase | None, phrases: Sequence[Phrase], edges: WordEdges) -> None:
        self.prefix = prefix.spellings[0] if prefix else ()
        self.phrases = tuple(phrases)
        self.edges = edges
        self._beginning = prefix
        self._lengths = [max(map(len, phrase.spellings)) for phrase in self.phrases]
        self.total = sum(self._lengths)

    @property
    def prefix_ends_in_word(self) -> bool:
        """Whether a piece after the prefix must not go on with its last word."""
        return self._beginning is not None and self._beginning.ends_in_word

    @property
    def start(self) -> Progress:
        """Nothing is written."""
        return Progress()

    def limit(self, max_length: int) -> int:
        """The most pieces of a translation: more than usual where the constraints alone have more."""
        return max(max_length, len(self.prefix) + self.total)

    def missing(self, progress: Progress) -> int:
        """How many pieces of phrases are still to come."""
        count = self.total - sum(self._lengths[place.phrase] for place in progress.written)
        if progress.active:
            count += len(self._pieces(progress.active)) - self._lengths[progress.active.phrase]
            count -= progress.length - progress.active.start
        return count

    def wanted(self, progress: Progress, last: int) -> list[int]:
        """Pieces that bring a phrase further, or begin one, after the piece `last`."""
        active = [progress.active] if progress.active else []
        places = [*active, *self._beginnings(progress, last)]
        return list(dict.fromkeys(self._pieces(place)[progress.length - place.start] for place in places))

    def after(self, progress: Progress, last: int, piece: int) -> list[Progress]:
        """What may have become of a hypothesis with one more piece; several where phrases begin alike."""
        length = progress.length + 1
        active = [progress.active] if progress.active else []
        found: list[Progress] = []
        for place in (*active, *self._beginnings(progress, last)):
            pieces = self._pieces(place)
            if pieces[progress.length - place.start] != piece:
                continue
            if length - place.start < len(pieces):
                found.append(Progress(length, progress.written, place))
                continue
            coming = Next.NEW_WORD if self.phrases[place.phrase].ends_in_word else Next.ANY
            found.append(Progress(length, (*progress.written, place), None, coming))
        if any(each.coming is Next.NEW_WORD for each in found):
            found.append(Progress(length, progress.written, None, Next.SAME_WORD))
        return found or [Progress(length, progress.written)]

    def _pieces(self, place: Place) -> tuple[int, ...]:
        return self.phrases[place.phrase].spellings[place.spelling]

    def _beginnings(self, progress: Progress, last: int) -> Iterator[Place]:
        """Where phrases that are not written yet may begin after the piece `last`; of equal ones, one."""
        if progress.coming is Next.SAME_WORD or progress.length < len(self.prefix):
            return
        seen: set[tuple[tuple[int, ...], ...]] = set()
        for i, phrase in enumerate(self.phrases):
            if phrase.spellings in seen or progress.has(i):
                continue
            seen.add(phrase.spellings)
            for spelling in range(1 if self.edges.ends[last] else len(phrase.spellings)):
                yield Place(i, spelling, progress.length)

    def text(self, tokenizer: Tokenizer, tokens: Sequence[int], written: Sequence[Place]) -> str:
        """The text of a translation, its phrases as they were given."""
        if all(phrase.verbatim for phrase in self.phrases) and (self._beginning is None or self._beginning.verbatim):
            return tokenizer.decode(tokens)
        parts: list[str] = []
        done = 0
        if self._beginning:
            parts.append(self._beginning.text)
            done = len(self.prefix)
        for place in written:
            text = self.phrases[place.phrase].text
            parts += [_joined(tokenizer, tokens[done : place.start]), text if place.spelling else f" {text}"]
            done = place.start + len(self._pieces(place))
        return SPACES.sub(" ", "".join([*parts, _joined(tokenizer, tokens[done:])])).strip(" ")


def _joined(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """The text of some pieces with the spaces at its ends."""
    if not tokens:
        return ""
    first, last = tokenizer.target_pieces([tokens[0], tokens[-1]])
    before = " " if first.startswith(WORD_START) else ""
    return f"{before}{tokenizer.decode(tokens)}{' ' if last.endswith(WORD_START) else ''}"


def encode_constraints(constraints: Constraints, tokenizer: Tokenizer, edges: WordEdges) -> TokenConstraints | None:
    """The constraints in pieces; None where nothing is demanded."""
    prefix, *phrases = (_phrase(text, tokenizer, edges) for text in (constraints.prefix, *constraints.phrases))
    wanted = [
        phrase
        for phrase in phrases
        if phrase is not None and not (prefix and re.search(whole_words(phrase.text), prefix.text))
    ]
    return TokenConstraints(prefix, wanted, edges) if prefix or wanted else None


def whole_words(phrase: str) -> str:
    """The regular expression of a phrase that begins and ends where a word does."""
    before = r"(?<!\w)" if phrase[:1].isalnum() else ""
    after = r"(?!\w)" if phrase[-1:].isalnum() else ""
    return f"{before}{re.escape(phrase)}{after}"


def _phrase(text: str, tokenizer: Tokenizer, edges: WordEdges) -> Phrase | None:
    """None for a text that is blank, or nothing to the tokenizer."""
    text = SPACES.sub(" ", clean_line(text).replace("\t", " ")).strip()
    [[*ids, _]] = tokenizer.encode_target([text])
    if not text or not ids:
        return None
    spellings = [tuple(ids)]
    [first] = tokenizer.target_pieces(ids[:1])
    inner = first.removeprefix(WORD_START)
    if inner != first:
        if not inner and len(ids) > 1:
            spellings.append(tuple(ids[1:]))
        elif inner in edges.ids:
            spellings.append((edges.ids[inner], *ids[1:]))
    return Phrase(text, tuple(spellings), tokenizer.decode(ids) == text)
