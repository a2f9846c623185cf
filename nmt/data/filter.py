"""Which training pairs are kept, with a count of every reason for dropping one.

A pair is dropped as a pair, so that the two sides can never shift against each other, and nothing is dropped without
being counted: a corpus of which a tenth survives says so in one line. Validation and test sets never pass through here.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from nmt.config import FilterConfig
from nmt.errors import RequestError

# Added to both lengths before their quotient is taken: "Oui." against "Yes, of course." is no sign of a bad pair.
RATIO_SMOOTHING = 5

BLANK_SOURCE = "blank source"
BLANK_TARGET = "blank target"
TOO_LONG = "too long"
LENGTH_RATIO = "length ratio"
DUPLICATE = "duplicate"
TOO_MANY_PIECES = "too many pieces"

_KEYS = {TOO_LONG: "max_words", LENGTH_RATIO: "max_ratio", DUPLICATE: "drop_duplicates", TOO_MANY_PIECES: "max_pieces"}

# Spaces of every kind, and the characters that take no space at all: zero-width ones, the soft hyphen, a stray BOM.
_NOTHING_VISIBLE = re.compile("[\\s\u00ad\u200b-\u200f\u2060\ufeff]*")


def is_blank(text: str) -> bool:
    """Whether there is nothing to be seen in a text."""
    return _NOTHING_VISIBLE.fullmatch(text) is not None


class PairFilter:
    """Decides about pairs one after the other, and counts. One filter serves one pass over a corpus."""

    def __init__(self, config: FilterConfig) -> None:
        self.config = config
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self._seen: set[bytes] = set()

    @property
    def total(self) -> int:
        """Pairs seen so far."""
        return self.kept + self.dropped.total()

    def keep(self, pair: tuple[str, str]) -> bool:
        """Whether a pair (source, target) is kept. Counts it either way; the first reason that applies is the one."""
        reason = self._reason(*pair)
        if reason is None:
            self.kept += 1
            return True
        self.dropped[reason] += 1
        return False

    def reject(self, reason: str) -> None:
        """Count one pair that `keep` had kept as dropped after all, for a reason found later on."""
        self.kept -= 1
        self.dropped[reason] += 1

    def __call__(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Those of the pairs that are kept."""
        return filter(self.keep, pairs)

    def summary(self) -> str:
        """One line: "kept 7 of 12 pairs (too long 3, blank target 2)", the most frequent reason first."""
        reasons = ", ".join(f"{reason} {count}" for reason, count in self._ranked())
        return f"kept {self.kept} of {self.total} pairs" + (f" ({reasons})" if reasons else "")

    def require_some(self) -> None:
        """Raise RequestError, naming the reasons and the keys to change, if no pair was kept."""
        if self.kept > 0:
            return
        if self.total == 0:
            raise RequestError("data.train: the training corpus holds no pairs")
        reasons = ", ".join(f"{reason} {count}{self._key(reason)}" for reason, count in self._ranked())
        raise RequestError(f"data.filter: none of the {self.total} training pairs is kept: {reasons}")

    def _ranked(self) -> list[tuple[str, int]]:
        return sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))

    def _key(self, reason: str) -> str:
        key = _KEYS.get(reason)
        return "" if key is None else f" (data.filter.{key}={getattr(self.config, key)})"

    def _reason(self, source: str, target: str) -> str | None:
        """Why a pair is to be dropped, or None."""
        if is_blank(source):
            return BLANK_SOURCE
        if is_blank(target):
            return BLANK_TARGET
        shorter, longer = sorted((len(source.split()), len(target.split())))
        if longer > self.config.max_words:
            return TOO_LONG
        if longer + RATIO_SMOOTHING > self.config.max_ratio * (shorter + RATIO_SMOOTHING):
            return LENGTH_RATIO
        if self.config.drop_duplicates and not self._is_new(source, target):
            return DUPLICATE
        return None

    def _is_new(self, source: str, target: str) -> bool:
        """Whether this pair has not come before. A digest stands for the pair: the texts would fill the memory."""
        # Lone surrogates cannot come from a UTF-8 file; "surrogatepass" is for pairs that were made in Python.
        digest = hashlib.blake2b(f"{source}\n{target}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._seen:
            return False
        self._seen.add(digest)
        return True
