"""Phrases that a text asks for in its translation: those of a glossary, and what is to be copied as it is.

Neither knows the languages: an entry is found as it is written, not in its inflected forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nmt.data.corpus import read_lines
from nmt.decoding.constraints import whole_words
from nmt.errors import RequestError

_EMOJI = "[\U0001f000-\U0001faff\u2600-\u27bf]"
_COPIED = re.compile(
    "|".join(
        [
            r"(?:https?://|www\.)\S*[\w/]",  # addresses of pages
            r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",  # and of people
            r"\{[^{}\s]*\}|%[sd]\b|<[^<>\s]+>|__\w+__",  # placeholders
            r"(?<!\w)[@#]\w+",  # names and topics on social media
            rf"{_EMOJI}[\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d{_EMOJI}\ufe0f?)*",
            r"(?<!\w)[A-Z][A-Za-z]*-?\d\w*",  # codes, such as A380
            r"(?<![\w.,])\d+(?:[.,:/-]\d+)*(?![\w])",  # numbers, times and dates, but not 3rd
        ]
    )
)


def copied(text: str) -> list[str]:
    """What must be the same in any language: addresses, placeholders, emoji, codes and numbers, each once."""
    return list(dict.fromkeys(_COPIED.findall(text)))


@dataclass(frozen=True)
class Glossary:
    """Source phrases and what they must be in the translation.

    A phrase in small letters is found whatever the case of the text; any other as it is written. Where two overlap,
    the one that begins first counts, and of two that begin together the longer one.
    """

    entries: dict[str, str]

    @classmethod
    def load(cls, path: Path) -> Glossary:
        """From a file with a line "source<TAB>target" for each entry; blank lines are passed over.

        Raises:
            RequestError: naming file and line: no pair, a blank side, a source phrase with two targets; or no entry.
        """
        entries: dict[str, str] = {}
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            sides = [" ".join(side.split()) for side in line.split("\t")]
            if len(sides) != 2 or not all(sides):
                raise RequestError(f"{path} line {number}: must be a source phrase, a tab and a target phrase")
            source, target = sides
            if entries.setdefault(source, target) != target:
                raise RequestError(f"{path} line {number}: {source} is to be {entries[source]} already")
        if not entries:
            raise RequestError(f"{path}: no entry")
        return cls(entries)

    def find(self, text: str) -> tuple[list[str], str]:
        """The target phrases of the entries that occur in a text as whole words, each once; and the rest of it."""
        text = " ".join(text.split())
        found: list[str] = []
        rest: list[str] = []
        done = 0
        for start, end, target in sorted(self._matches(text), key=lambda match: (match[0], -match[1])):
            if start >= done:
                found.append(target)
                rest.append(text[done:start])
                done = end
        return list(dict.fromkeys(found)), " ".join([*rest, text[done:]])

    def _matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        folded = text.lower()
        for source, target in self.entries.items():
            within = folded if source == source.lower() and len(folded) == len(text) else text
            if source in within:  # far quicker than the expression
                for match in re.finditer(whole_words(source), within):
                    yield match.start(), match.end(), target
