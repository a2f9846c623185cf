"""Which training pairs are kept, with a count of every reason for dropping one.

A pair is dropped as a pair, so that the two sides can never shift against each other, and nothing is dropped without
being counted: a corpus of which a tenth survives says so in one line. Validation and test sets never pass through here.

Each test is a small class that looks at one pair and knows nothing of the others; what concerns several pairs, such as
duplicates, is in nmt.data.duplicates. The first reason that applies, in the order of REASONS, is the one that counts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.config import FilterConfig
from nmt.errors import RequestError

# Added to both lengths before their quotient is taken: "Oui." against "Yes, of course." is no sign of a bad pair.
RATIO_SMOOTHING = 5

BLANK_SOURCE = "blank source"
BLANK_TARGET = "blank target"
TOO_LONG = "too long"
LENGTH_RATIO = "length ratio"
COPY = "copy"
FEW_LETTERS = "few letters"
SOURCE_LANGUAGE = "source in another language"
TARGET_LANGUAGE = "target in another language"
DUPLICATE = "duplicate"
NEAR_DUPLICATE = "near duplicate"
TOO_MANY_PIECES = "too many pieces"

REASONS: dict[str, str | None] = {
    BLANK_SOURCE: None,
    BLANK_TARGET: None,
    TOO_LONG: "max_words",
    LENGTH_RATIO: "max_ratio",
    COPY: "drop_copies",
    FEW_LETTERS: "min_letters",
    SOURCE_LANGUAGE: "max_other_language",
    TARGET_LANGUAGE: "max_other_language",
    DUPLICATE: "drop_duplicates",
    NEAR_DUPLICATE: "max_similarity",
    TOO_MANY_PIECES: "max_pieces",
}
"""Every reason, and the key of data.filter that decides about it."""

Verdicts = NDArray[np.uint8]
KEPT = 0
VERDICTS = {reason: code for code, reason in enumerate(REASONS, start=1)}
"""The number that stands for a reason where there is one for each pair; KEPT is none."""

# Spaces of every kind, and the characters that take no space at all: zero-width ones, the soft hyphen, a stray BOM.
_NOTHING_VISIBLE = re.compile("[\\s\u00ad\u200b-\u200f\u2060\ufeff]*")


def is_blank(text: str) -> bool:
    """Whether there is nothing to be seen in a text."""
    return _NOTHING_VISIBLE.fullmatch(text) is not None


# Tests ------------------------------------------------------------------------------------------------------------


class PairTest(ABC):
    """One thing that a pair must satisfy."""

    @abstractmethod
    def reason(self, source: str, target: str) -> str | None:
        """Why a pair is to be dropped, or None."""


class NotBlank(PairTest):
    """Both sides have something to be seen."""

    def reason(self, source: str, target: str) -> str | None:
        if is_blank(source):
            return BLANK_SOURCE
        return BLANK_TARGET if is_blank(target) else None


class Length(PairTest):
    """Neither side is too long, nor much longer than the other."""

    def __init__(self, max_words: int, max_ratio: float) -> None:
        self.max_words, self.max_ratio = max_words, max_ratio

    def reason(self, source: str, target: str) -> str | None:
        shorter, longer = sorted((len(source.split()), len(target.split())))
        if longer > self.max_words:
            return TOO_LONG
        if longer + RATIO_SMOOTHING > self.max_ratio * (shorter + RATIO_SMOOTHING):
            return LENGTH_RATIO
        return None


class NotCopied(PairTest):
    """The two sides do not have the same letters: text that was never translated."""

    def reason(self, source: str, target: str) -> str | None:
        letters = _letters(source)
        return COPY if letters and letters == _letters(target) else None


class Letters(PairTest):
    """Enough of what is to be seen on each side is letters, not digits, punctuation or symbols."""

    def __init__(self, least: float) -> None:
        self.least = least

    def reason(self, source: str, target: str) -> str | None:
        for text in (source, target):
            visible = len("".join(text.split()))
            if sum(map(str.isalpha, text)) < self.least * visible:
                return FEW_LETTERS
        return None


class Language(PairTest):
    """Neither side is in another language with too high a probability, by py3langid, whose model comes with it.

    What is too short or too odd to be told apart, such as "Oui.", is in no language with a high probability, and stays.
    Raises RequestError for a language that is not known.
    """

    def __init__(self, most: float, source_language: str, target_language: str) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self.most = most
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._languages = (source_language, target_language)
        for side, language in zip(("source", "target"), self._languages, strict=True):
            if language not in self._identifier.labels:
                known = ", ".join(sorted(self._identifier.labels))
                raise RequestError(
                    f"data.{side}_language={language}: data.filter.max_other_language knows only {known}"
                )

    def reason(self, source: str, target: str) -> str | None:
        if self._is_other(source, self._languages[0]):
            return SOURCE_LANGUAGE
        return TARGET_LANGUAGE if self._is_other(target, self._languages[1]) else None

    def _is_other(self, text: str, language: str) -> bool:
        likeliest, probability = self._identifier.classify(text)
        return likeliest != language and probability >= self.most


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text)).casefold()


def tests(config: FilterConfig, source_language: str, target_language: str) -> list[PairTest]:
    """The tests that a configuration asks for, in the order of their reasons."""
    chosen: list[PairTest] = [NotBlank(), Length(config.max_words, config.max_ratio)]
    if config.drop_copies:
        chosen.append(NotCopied())
    if config.min_letters > 0:
        chosen.append(Letters(config.min_letters))
    if config.max_other_language is not None:
        chosen.append(Language(config.max_other_language, source_language, target_language))
    return chosen


class PairFilter:
    """All the tests of a configuration, one after the other."""

    def __init__(self, config: FilterConfig, source_language: str = "en", target_language: str = "fr") -> None:
        self._tests = tests(config, source_language, target_language)

    def reason(self, source: str, target: str) -> str | None:
        """Why a pair is to be dropped, or None."""
        for test in self._tests:
            reason = test.reason(source, target)
            if reason is not None:
                return reason
        return None

    def verdicts(self, pairs: Sequence[tuple[str, str]]) -> Verdicts:
        """For each pair, KEPT or the number of the reason for dropping it."""
        reasons = (self.reason(*pair) for pair in pairs)
        return np.fromiter((KEPT if reason is None else VERDICTS[reason] for reason in reasons), np.uint8, len(pairs))


# Counts -----------------------------------------------------------------------------------------------------------


class Tally:
    """How many pairs were kept, and how many were dropped for each reason."""

    def __init__(self, kept: int = 0, dropped: Mapping[str, int] | None = None) -> None:
        self.kept = kept
        self.dropped: Counter[str] = Counter(dropped or {})

    @classmethod
    def of(cls, verdicts: Verdicts) -> Tally:
        """The counts of what `PairFilter.verdicts` gives."""
        counts = np.bincount(verdicts, minlength=len(VERDICTS) + 1)
        return cls(int(counts[KEPT]), {reason: int(counts[code]) for reason, code in VERDICTS.items() if counts[code]})

    @property
    def total(self) -> int:
        """Pairs counted."""
        return self.kept + self.dropped.total()

    def reject(self, reason: str, count: int = 1) -> None:
        """Count pairs that had been kept as dropped after all, for a reason found later on."""
        self.kept -= count
        self.dropped[reason] += count

    def ranked(self) -> list[tuple[str, int]]:
        """Reasons and counts, the most frequent first."""
        return sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))

    def summary(self) -> str:
        """One line: "kept 7 of 12 pairs (too long 3, blank target 2)", the most frequent reason first."""
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.ranked())
        return f"kept {self.kept} of {self.total} pairs" + (f" ({reasons})" if reasons else "")

    def require_some(self, config: FilterConfig) -> None:
        """Raise RequestError, naming the reasons and the keys to change, if no pair was kept."""
        if self.kept > 0:
            return
        if self.total == 0:
            raise RequestError("data.train: the training corpus holds no pairs")
        reasons = ", ".join(f"{reason} {count}{key_of(reason, config)}" for reason, count in self.ranked())
        raise RequestError(f"data.filter: none of the {self.total} training pairs is kept: {reasons}")


def key_of(reason: str, config: FilterConfig) -> str:
    """The key that decides about a reason, with its value, in brackets; empty where there is none."""
    key = REASONS.get(reason)
    if key is None:
        return ""
    value = getattr(config, key)
    return f" (data.filter.{key}={str(value).lower() if isinstance(value, bool) else value})"
