"""Noun phrases: determiners, adjectives before and after, possession, attachment, coordination.

Every rule takes the exact number of English words that it must make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from nmt.data.grammar.french import Features
from nmt.data.grammar.modifiers import ADJECTIVES, GRADABLE
from nmt.data.grammar.nouns import (
    BUILDINGS,
    NAMES,
    NOUNS,
    ONLY,
    OWNED,
    PEOPLE,
    PLACES,
    PORTABLE,
    REGIONS,
    SPOUSES,
    Noun,
    Place,
)  # fmt: skip
from nmt.data.grammar.source import DeadEnd, Source
from nmt.data.grammar.tokens import Phrase, Word

T = TypeVar("T")

NUMBERS = (
    ("two", "deux"), ("three", "trois"), ("four", "quatre"), ("five", "cinq"), ("six", "six"), ("seven", "sept"),
    ("eight", "huit"), ("nine", "neuf"), ("ten", "dix"),
)  # fmt: skip
_QUANTITIES = (("many", "beaucoup de"), ("several", "plusieurs"))
# "vieille fille" is a spinster, "grand homme" a great man and not a tall one
_CLASHES = [
    *((age, noun) for age in ("old", "young") for noun in ("boy", "girl", "child")),
    *(("tall", noun.english) for noun in NOUNS["person"] if noun.english not in ("boy", "girl", "child")),
]
POSSESSIVES = (
    ("my", ("mon", "ma", "mes")), ("your", ("ton", "ta", "tes")), ("his", ("son", "sa", "ses")),
    ("her", ("son", "sa", "ses")), ("our", ("notre", "notre", "nos")), ("their", ("leur", "leur", "leurs")),
)  # fmt: skip
_ADJECTIVES = {
    (kind, feminine, before, very): [
        item
        for item in ADJECTIVES
        if kind in item.kinds and item.before == before and (not very or item.english in GRADABLE)
        if item.suits(kind, feminine)
    ]
    for kind in NOUNS
    for feminine in (True, False)
    for before in (True, False)
    for very in (True, False)
}


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase with what agrees with it and what it can do."""

    phrase: Phrase
    features: Features
    kind: str
    pronoun: bool = False
    named: bool = False  # a proper name
    joined: tuple[NounPhrase, NounPhrase] | None = None  # the parts of a coordination


def smallest(kinds: tuple[str, ...]) -> int:
    """Fewest words of a noun phrase of these kinds: one where names exist."""
    return 1 if any(kind in (*PEOPLE, "place") for kind in kinds) else 2


@dataclass
class Discourse:
    """What rules must know of the sentence so far."""

    now: str = "present"  # time of the innermost finite clause
    previous: NounPhrase | None = None  # subject of the clause before: what it and they stand for
    banned: str = ""  # adjuncts that a question asks for
    interrogative: bool = False  # the next predicate is that of a question: count do-support
    flat: bool = False  # no relative clauses
    conjunctions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class NounPhrases(Source):
    """The rules of noun phrases. `relative` is supplied by the rules of clauses."""

    def __init__(self, rng: Random, variety: int | None = None) -> None:
        super().__init__(rng, variety)
        self.discourse = Discourse()

    def attempt(self, rule: Callable[[], T]) -> T:
        """What the rule makes; after a dead end, the rule is tried again with other choices."""
        saved = replace(self.discourse)
        for _ in range(3):
            try:
                return rule()
            except DeadEnd:
                self.discourse = replace(saved)
        raise DeadEnd

    def relative(self, n: int, head: NounPhrase, time: str) -> Phrase:
        """A relative clause of n words about the head."""
        raise NotImplementedError

    def noun_phrase(
        self, n: int, kinds: tuple[str, ...], time: str, *, negated: bool = False, definite: bool = False,
        singular: bool = False,
    ) -> NounPhrase:  # fmt: skip
        """A noun phrase of n English words whose head is of one of the kinds.

        `negated`: it is the direct object of a negated verb (de instead of un, du, des); `definite`: no indefinite
        determiner; `singular`: no plural.
        """
        if n == 1:
            return self._name(kinds)
        if n >= 3 and not negated and not singular and self.chance(0.12 if n < 12 else 0.3):
            return self._coordination(n, kinds, time, definite)
        if n >= 2 and self.chance(0.12):
            return self._possession(n, kinds, time)
        noun = self.pick([item for kind in kinds for item in NOUNS[kind]])
        plural = not noun.mass and not singular and noun.english not in ONLY and self.chance(0.3)
        return self._modified(n, noun, plural, time, negated=negated, definite=definite)

    def _name(self, kinds: tuple[str, ...]) -> NounPhrase:
        if any(kind in PEOPLE for kind in kinds):
            name = self.pick([item for item in NAMES if item.text not in self.discourse.names[-4:]])
            self.discourse.names += (name.text,)
            return NounPhrase(self.pair(name.text, name.text), Features(feminine=name.feminine), "person", named=True)
        if "place" in kinds:
            town = self.pick([region for region in REGIONS if region.preposition == "à"])
            return NounPhrase(self.pair(town.english, town.french), Features(), "place")
        raise DeadEnd

    def _coordination(self, n: int, kinds: tuple[str, ...], time: str, definite: bool) -> NounPhrase:
        low = smallest(kinds)
        if n < 2 * low + 1:
            raise DeadEnd
        size = self.between(low, min(n - 1 - low, 5)) if n > 2 * low + 1 else low
        flat, self.discourse.flat = self.discourse.flat, True  # else "the man that she saw and Paul"
        first = self.noun_phrase(size, kinds, time, definite=definite)
        self.discourse.flat = flat
        second = self.noun_phrase(
            n - 1 - size, (first.kind,) if first.kind in kinds else kinds, time, definite=definite
        )
        phrase = first.phrase + self.pair("and", "et") + second.phrase
        feminine = first.features.feminine and second.features.feminine
        return NounPhrase(phrase, Features(3, True, feminine), first.kind, joined=(first, second))

    def governed(self, english: str, french: str, noun_phrase: NounPhrase) -> Phrase:
        """A noun phrase after a preposition; French repeats à, de before each part: "à Anne et au roi"."""
        link = (self.link(),)
        return self.governed_by(link, noun_phrase, french, tuple(Word(text, link) for text in english.split()))

    def governed_by(
        self, links: tuple[int, ...], noun_phrase: NounPhrase, french: str, english: tuple[Word, ...] = ()
    ) -> Phrase:
        """The same with the links of the preposition given."""
        preposition = tuple(Word(text, links) for text in french.split())
        if noun_phrase.joined and french.endswith(("à", "de")):
            first, second = noun_phrase.joined
            last = self.governed_by(links, second, french)
            return self.governed_by(links, first, french, english) + self.pair("and", "et") + last
        return Phrase(english + noun_phrase.phrase.english, preposition + noun_phrase.phrase.french)

    def _possession(self, n: int, kinds: tuple[str, ...], time: str) -> NounPhrase:
        """Marie's red car: "la voiture rouge de Marie"."""
        owned = [item for kind in kinds if kind in OWNED for item in NOUNS[kind]]
        noun = self.pick(owned)
        plural = noun.english not in ONLY and self.chance(0.2)
        owner = self.pick([item for item in NAMES if item.text not in self.discourse.names[-4:]])
        self.discourse.names += (owner.text,)
        name, of = self.link(), self.link()
        determiner = Phrase(
            (Word(owner.text, (name,)), Word("'s", (of,))),
            (Word(_article(noun.features(plural)), (of,), "article"),),
        )
        tail = Phrase((), (Word("de", (of,)), Word(owner.text, (name,))))
        size = n - 2 if n <= 4 else self.between(0, 2)
        core = self.noun_core(size, noun, plural, determiner)
        return self._extended(n + 1 - len(core.english), core, noun, plural, time, tail)

    def _modified(
        self, n: int, noun: Noun, plural: bool, time: str, *, negated: bool = False, definite: bool = False,
        indefinite: bool = False,
    ) -> NounPhrase:  # fmt: skip
        size = n - 2 if n <= 4 and self.chance(0.7) else self.between(0, min(2, n - 2))
        if n - 2 - size == 1:
            size += 1
        before = size > 0 and self.chance(0.5)
        if indefinite:
            determiner = self._indefinite(noun, plural, before=before, negated=negated)
        else:
            determiner = self._determiner(noun, plural, before=before, negated=negated, definite=definite)
        core = self.noun_core(size, noun, plural, determiner, before=before)
        return self._extended(n - len(core.english), core, noun, plural, time, Phrase())

    def indefinite(self, n: int, kinds: tuple[str, ...], time: str, *, negated: bool = False) -> NounPhrase:
        """A noun phrase of n words with a, an or some."""
        noun = self.pick([item for kind in kinds for item in NOUNS[kind]])
        return self._modified(n, noun, not noun.mass and self.chance(0.3), time, indefinite=True, negated=negated)

    def _determiner(self, noun: Noun, plural: bool, *, before: bool, negated: bool, definite: bool) -> Phrase:
        """A determiner of one English word (or "all the"); `before`: an adjective precedes the French noun."""
        features = noun.features(plural)
        choice = (
            "possessive"
            if noun.english in ONLY
            else self.weighted(
                [
                    (5.0 if noun.kind != "kin" else 1.0, "definite"),
                    (0.0 if definite else 3.0 if noun.kind != "kin" else 0.5, "indefinite"),
                    (0.0 if noun.mass else 0.8, "demonstrative"),
                    (3.0 if noun.kind == "kin" else 1.2 if noun.kind in OWNED else 0.0, "possessive"),
                    (1.2 if plural and not definite and noun.kind != "kin" else 0.0, "quantity"),
                    (0.5 if plural else 0.0, "number"),
                    (0.15 if not plural and not negated and not noun.mass and not definite else 0.0, "every"),
                ]
            )
        )
        if choice == "definite":
            return self.pair("the", _article(features), "article")
        if choice == "demonstrative":
            french = "ces" if plural else "cette" if features.feminine else "ce"
            return self.pair("these" if plural else "this", french)
        if choice == "possessive":
            english, forms = self.pick(POSSESSIVES[:4] if noun.english in SPOUSES else POSSESSIVES)
            return self.pair(english, forms[2 if plural else int(features.feminine)])
        if choice == "number":
            return self.pair(*self.pick(NUMBERS))
        if choice == "every":
            return self.pair("every", "chaque")
        if choice == "quantity":
            return self.pair(*self.pick(_QUANTITIES[:1] if negated else _QUANTITIES))
        return self._indefinite(noun, plural, before=before, negated=negated)

    def _indefinite(self, noun: Noun, plural: bool, *, before: bool, negated: bool) -> Phrase:
        if negated:
            return self.pair("any" if plural or noun.mass else "a", "de")
        if noun.mass:
            return self.pair("some", "de " + _article(noun.features(False)), "partitive")
        if plural:  # de belles fleurs
            return self.pair("some", "de" if before else "des", "partitive")
        return self.pair("a", "une" if noun.feminine else "un")

    def noun_core(
        self, size: int, noun: Noun, plural: bool, determiner: Phrase, *, before: bool | None = None
    ) -> Phrase:
        """Determiner, `size` words of adjectives, noun. `before` says whether an adjective precedes the French noun."""
        features = noun.features(plural)
        # (left adjective, with very; right adjective, with very)
        patterns = [
            pattern
            for pattern in _PATTERNS
            if sum(pattern) == size
            and (before is None or bool(pattern[1]) == before)
            and all(_ADJECTIVES[noun.kind, noun.feminine, side, very] for side, very in _sides(pattern))
        ]
        english, left = determiner.english, determiner.french
        right: tuple[Word, ...] = ()
        ranked: list[tuple[int, tuple[Word, ...]]] = []
        for side, very in _sides(self.weighted([(1.0 if sum(pattern[::2]) else 4.0, pattern) for pattern in patterns])):
            options = _ADJECTIVES[noun.kind, noun.feminine, side, very]
            adjective = self.pick([item for item in options if (item.english, noun.english) not in _CLASHES])
            form = self.pair(adjective.english, adjective.agree(features), "liaison" if side and not plural else "")
            item = (self.pair("very", "très") if very else Phrase()) + form
            ranked.append((adjective.english_rank, item.english))
            left, right = (left + item.french, right) if side else (left, right + item.french)
        english += tuple(word for _, item in sorted(ranked, key=lambda entry: entry[0]) for word in item)
        head = self.pair(noun.english_plural if plural else noun.english, noun.french_plural if plural else noun.french)
        return Phrase(english + head.english, left + head.french + right)

    def _extended(self, n: int, core: Phrase, noun: Noun, plural: bool, time: str, tail: Phrase) -> NounPhrase:
        """The core with n more words after it: a prepositional phrase or a relative clause."""
        features = noun.features(plural)
        phrase = core + tail
        if n == 0:
            return NounPhrase(phrase, features, noun.kind)
        # One or the other: so that a relative clause is about the noun just before it, in every sentence.
        attached = self._attachment(n, noun, core) if self.chance(0.6) and not tail.french else None
        if attached is None:
            if self.discourse.flat or n == 1:
                raise DeadEnd
            attached = self.relative(n, NounPhrase(phrase, features, noun.kind), time)
        return NounPhrase(phrase + attached, features, noun.kind)

    def _attachment(self, n: int, noun: Noun, core: Phrase) -> Phrase | None:
        """A prepositional phrase that says more about the noun; at most five words."""
        if n > 5 or n < 2:
            return None
        options: list[tuple[float, tuple[str, str, tuple[str, ...]]]] = []
        if core.english[0].text == "the" and noun.kind in (*PORTABLE, "vehicle", "furniture", "animal", "idea"):
            options.append((2.0, ("of", "de", PEOPLE)))
        if noun.kind in ("document", "text"):
            options.append((2.0, ("about", "sur", ("animal", "event", "calamity", "plant"))))
            options.append((2.0, ("from", "de", PEOPLE)))
        if noun.kind in ("document", "object", "food", "clothing"):
            options.append((1.5, ("for", "pour", PEOPLE)))
        if noun.kind in ("opening", "plant", "person", "landmark"):
            options.append((2.0, ("of" if noun.kind == "opening" else "near", "de" if noun.kind == "opening" else
                                  "près de", ("place",))))  # fmt: skip
        if noun.kind in ("place", "furniture", "landmark"):
            options.append((2.0, ("near", "près de", ("place", "landmark"))))
        if not self.discourse.flat and noun.kind in ("person", "animal", "object", "document", "furniture"):
            options.append((3.0, ("", "", ())))
        if not options:
            return None
        english, french, kinds = self.weighted(options)
        flat, self.discourse.flat = self.discourse.flat, True
        result = self._attached(n, noun, english, french, kinds)
        self.discourse.flat = flat
        return result

    def _attached(self, n: int, noun: Noun, english: str, french: str, kinds: tuple[str, ...]) -> Phrase | None:
        if not kinds:
            return self.location(n, noun.kind)
        if n - 1 < smallest(kinds) or (kinds == ("place",) and english == "of" and n < 3):
            return None
        return self.governed(english, french, self.noun_phrase(n - 1, kinds, "present", definite=True))

    def location(self, n: int, kind: str = "person", time: str = "present") -> Phrase:
        """Where something is: n words with the preposition that the place asks for."""
        if n == 2:
            region = self.pick(REGIONS)
            return self.pair("in", region.preposition) + self.pair(region.english, region.french)
        small = kind in ("object", "document", "food", "clothing", "instrument")
        supports = [("on", "sur"), ("under", "sous")] if small else [("behind", "derrière"), ("in front of", "devant")]
        if n >= 3 and self.chance(0.5 if small else 0.25):
            english, french = self.pick(supports)
            rest = n - len(english.split())
            if rest >= 2:
                support = self.pick(NOUNS["furniture"] if small else (*NOUNS["landmark"], *BUILDINGS))
                return self.pair(english, french) + self._modified(rest, support, False, time, definite=True).phrase
        place = self.pick(PLACES)
        return self.pair(*place.at) + self.place_phrase(n - 1, place, time)

    def place_phrase(self, n: int, place: Place, time: str) -> Phrase:
        """A definite singular phrase of n words about the place."""
        return self._modified(n, place, False, time, negated=False, definite=True).phrase


def _article(features: Features) -> str:
    return "les" if features.plural else "la" if features.feminine else "le"


# numbers of words of (very, adjective before the French noun, very, adjective after it)
_PATTERNS = tuple(
    (left_very, left, right_very, right)
    for left_very in (0, 1) for left in (0, 1) for right_very in (0, 1) for right in (0, 1)
    if left_very <= left and right_very <= right and left_very + right_very < 2
)  # fmt: skip


def _sides(pattern: tuple[int, int, int, int]) -> list[tuple[bool, bool]]:
    """(is it before the noun, is it with very) of each adjective of the pattern."""
    left_very, left, right_very, right = pattern
    return [(True, bool(left_very))] * left + [(False, bool(right_very))] * right
