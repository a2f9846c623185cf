"""What the options of `nmt translate` ask of each answer: a prefix, a glossary's phrases, what is to be copied."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

from nmt.data.corpus import clean_line, read_lines
from nmt.decoding.constraints import Constraints
from nmt.decoding.glossary import Glossary, copied
from nmt.errors import RequestError


@dataclass(frozen=True)
class Constraining:
    """The options, read."""

    prefix: str
    prefixes: list[str] | None
    """One for each line, instead of the same for all."""
    glossary: Glossary | None
    copy: bool
    name: str
    """Of the file that the prefixes are from."""

    @classmethod
    def read(cls, options: Namespace) -> Constraining | None:
        """None where nothing is asked. Raises RequestError for a file that cannot be read as what it should be."""
        if not (options.prefix or options.prefixes or options.glossary or options.copy):
            return None
        prefixes = list(read_lines(options.prefixes)) if options.prefixes else None
        glossary = Glossary.load(options.glossary) if options.glossary else None
        return cls(options.prefix or "", prefixes, glossary, options.copy, str(options.prefixes))

    def of(self, text: str, number: int, begins: bool = True) -> Constraints:
        """What the answer to a text must contain.

        Args:
            number: of its line, from 0.
            begins: whether it is at the beginning of the line, where a prefix belongs.

        Raises:
            RequestError: there is no prefix for that line.
        """
        prefix = self.prefix
        if self.prefixes is not None:
            if number >= len(self.prefixes):
                raise RequestError(f"{self.name} has {len(self.prefixes)} lines, and there is a line {number + 1}")
            prefix = self.prefixes[number]
        clean = clean_line(text)
        phrases, rest = self.glossary.find(clean) if self.glossary else ([], clean)
        if self.copy:
            phrases += [each for each in copied(rest) if each not in phrases]
        return Constraints(prefix if begins else "", tuple(phrases))

    def require_all_used(self, lines: int) -> None:
        """Raises RequestError where there are prefixes for more lines than there were."""
        if self.prefixes is not None and len(self.prefixes) > lines:
            raise RequestError(f"{self.name} has {len(self.prefixes)} lines, and the input {lines}")
