"""Lines of several sentences, translated sentence by sentence and joined again: one line in, one line out.

Where a sentence ends is what pySBD says (Sadvilkar and Neumann 2020: rules, among them those for abbreviations and
numbers). Two things are not left to it: a sentence ends at a space alone, so that no address is torn, and what pySBD
would change or lose is kept as it is, in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.corpus import clean_line
from nmt.decoding.translator import Translation
from nmt.errors import RequestError
from nmt.evaluation.alignment import END_MARK, WORD_START, Alignment

WINDOW = 2_000
"""Characters that pySBD gets at once: its time grows with their square."""

Split = Callable[[str], list[str]]
"""The sentences of a line, at least one, which is blank for a blank line."""


def as_one(line: str) -> list[str]:
    """The line as a single sentence."""
    return [line]


def sentence_splitter(language: str) -> Split:
    """For text in a language.

    Raises:
        RequestError: pySBD is not installed, or does not know the language.
    """
    try:
        from pysbd import Segmenter
        from pysbd.languages import LANGUAGE_CODES
    except ImportError as error:
        raise RequestError(f"--split needs pySBD, which cannot be imported here ({error}); pip install pysbd") from None
    if language not in LANGUAGE_CODES:
        raise RequestError(f"--split: pySBD does not know the language {language}")
    segment: Callable[[str], list[str]] = Segmenter(language=language, clean=False).segment
    return lambda line: list(_sentences(" ".join(clean_line(line).split()), segment)) or [line]


def _sentences(text: str, segment: Callable[[str], list[str]]) -> Iterator[str]:
    while text:
        window = text if len(text) <= WINDOW else text[:WINDOW].rpartition(" ")[0] or text
        found = _whole(segment(window), window)
        if len(window) < len(text) and len(found) > 1:
            found.pop()  # it may go on
        yield from (sentence.strip() for sentence in found)
        text = text[sum(map(len, found)) :].lstrip()


def _whole(found: Sequence[str], text: str) -> list[str]:
    """The sentences, those that no space is between joined; the text alone where they are not the text."""
    if "".join(found) != text:
        return [text]
    sentences: list[str] = []
    for sentence in found:
        if sentences and not sentences[-1].endswith(" "):
            sentences[-1] += sentence
        else:
            sentences.append(sentence)
    return sentences


@dataclass(frozen=True)
class Part:
    """A sentence of a line."""

    text: str
    line: int
    place: int
    """Among the sentences of its line."""

    def number(self, before: int) -> int:
        """What a sample of its translation depends on: of a first sentence the line's number, no sentence has two.

        Args:
            before: lines before the first one.
        """
        return before + self.line + (self.place << 48)


def parts_of(lines: Sequence[str], split: Split) -> list[Part]:
    """The sentences of all lines, in their order."""
    return [Part(sentence, i, k) for i, line in enumerate(lines) for k, sentence in enumerate(split(line))]


def joined(lines: int, parts: Sequence[Part], found: Sequence[list[Translation]]) -> list[list[Translation]]:
    """The translations of lines from those of their sentences: the best of all, the second best of all, and so on."""
    each: list[list[list[Translation]]] = [[] for _ in range(lines)]
    for part, translations in zip(parts, found, strict=True):
        each[part.line].append(translations)
    return [
        [_joined([found[min(rank, len(found) - 1)] for found in sentences]) for rank in range(max(map(len, sentences)))]
        for sentences in each
    ]


def _joined(sentences: Sequence[Translation]) -> Translation:
    """One translation; its score is the sum."""
    if len(sentences) == 1:
        return sentences[0]
    alignments = [sentence.alignment for sentence in sentences if sentence.alignment is not None]
    return Translation(
        " ".join(sentence.text for sentence in sentences if sentence.text),
        sum(sentence.score for sentence in sentences),
        [token for sentence in sentences for token in _apart(sentence.tokens)],
        _joined_alignments(alignments) if alignments else None,
        any(sentence.cut for sentence in sentences),
    )


def _joined_alignments(alignments: Sequence[Alignment]) -> Alignment:
    """Nothing of one sentence looks at another; of the end marks, the last ones stay."""
    inner = [_without_end(alignment) for alignment in alignments[:-1]] + [alignments[-1]]
    source = [token for alignment in inner for token in _apart(alignment.source_tokens)]
    target = [token for alignment in inner for token in _apart(alignment.target_tokens)]
    weights_TS = np.zeros((len(target), len(source)))
    row = column = 0
    for alignment in inner:
        rows, columns = alignment.weights_TS.shape
        weights_TS[row : row + rows, column : column + columns] = alignment.weights_TS
        row, column = row + rows, column + columns
    return Alignment(source, target, weights_TS)


def _without_end(alignment: Alignment) -> Alignment:
    rows = len(alignment.target_tokens) - (alignment.target_tokens[-1:] == [END_MARK])
    columns = len(alignment.source_tokens) - (alignment.source_tokens[-1:] == [END_MARK])
    return Alignment(
        alignment.source_tokens[:columns], alignment.target_tokens[:rows], alignment.weights_TS[:rows, :columns]
    )


def _apart(tokens: Sequence[str]) -> list[str]:
    """The tokens of a sentence, the first of which begins a word."""
    if not tokens or tokens[0].startswith(WORD_START):
        return list(tokens)
    return [f"{WORD_START}{tokens[0]}", *tokens[1:]]
