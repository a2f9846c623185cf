"""Randomness, links and small phrases: what every rule of the grammar needs.

Only `Random.random` is used, the one method whose sequence Python promises never to change for a seed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from nmt.data.grammar.tokens import Phrase, Word

T = TypeVar("T")


class DeadEnd(Exception):
    """A rule cannot fill its number of words; the sentence is begun again."""


class Source:
    """A stream of choices and of fresh alignment links.

    variety: of how many words, the first of their list, one is picked; None: of all.
    """

    def __init__(self, rng: Random, variety: int | None = None) -> None:
        self._random = rng.random
        self._variety = variety or sys.maxsize
        self._links = 0

    def link(self) -> int:
        """A number that no other word carries."""
        self._links += 1
        return self._links

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self._random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, or of the first of them, each as likely."""
        if not options:
            raise DeadEnd
        return options[int(self._random() * min(len(options), self._variety))]

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        if high < low:
            raise DeadEnd
        return low + int(self._random() * (high - low + 1))

    def weighted(self, options: Sequence[tuple[float, T]]) -> T:
        """One of the options, by weight."""
        options = [option for option in options if option[0] > 0]
        if not options:
            raise DeadEnd
        point = self._random() * sum(weight for weight, _ in options)
        for weight, option in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][1]

    def pair(self, english: str, french: str, kind: str = "") -> Phrase:
        """A phrase whose English words are all aligned to all its French words; either may be empty."""
        links = (self.link(),)
        return Phrase(
            tuple(Word(text, links) for text in english.split()),
            tuple(Word(text, links, kind) for text in french.split()),
        )

    def linked(self, english: str, french: str, links: str) -> Phrase:
        """A phrase with its links given as "i-j" pairs of positions."""
        sources: list[list[int]] = [[] for _ in english.split()]
        targets: list[list[int]] = [[] for _ in french.split()]
        for item in links.split():
            i, j = (int(position) for position in item.split("-"))
            link = self.link()
            sources[i].append(link)
            targets[j].append(link)
        return Phrase(
            tuple(Word(text, tuple(own)) for text, own in zip(english.split(), sources, strict=True)),
            tuple(Word(text, tuple(own)) for text, own in zip(french.split(), targets, strict=True)),
        )
