"""Noun phrases: determiners, adjectives before and after, possession, attachment, coordination.

Every rule takes the exact number of English words that it must make.
"""

from __future__ import annotations

from dataclasses import dataclass

from nmt.data.grammar import nouns
from nmt.data.grammar.french import Features
from nmt.data.grammar.modifiers import ADJECTIVES, GRADABLE, Adjective
from nmt.data.grammar.nouns import LIVING, NAMES, NOUNS, OWNED, PEOPLE, PLACES, PORTABLE, REGIONS, Noun, Place
from nmt.data.grammar.source import DeadEnd, Source
from nmt.data.grammar.tokens import Phrase, Word

NUMBERS = (
    ("two", "deux"), ("three", "trois"), ("four", "quatre"), ("five", "cinq"), ("six", "six"), ("seven", "sept"),
    ("eight", "huit"), ("nine", "neuf"), ("ten", "dix"),
)  # fmt: skip
POSSESSIVES = (
    ("my", ("mon", "ma", "mes")), ("your", ("ton", "ta", "tes")), ("his", ("son", "sa", "ses")),
    ("her", ("son", "sa", "ses")), ("our", ("notre", "notre", "nos")), ("their", ("leur", "leur", "leurs")),
)  # fmt: skip
_ADJECTIVES = {
    (kind, before): [item for item in ADJECTIVES if kind in item.kinds and item.before == before]
    for kind in NOUNS
    for before in (True, False)
}


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase with what agrees with it and what it can do."""

    phrase: Phrase
    features: Features
    kind: str
    pronoun: str = ""  # the English subject pronoun that it is
    plain: bool = False  # one noun with a determiner: what a pronoun can stand for


def smallest(kinds: tuple[str, ...]) -> int:
    """Fewest words of a noun phrase of these kinds: one where names exist."""
    return 1 if any(kind in (*PEOPLE, "place") for kind in kinds) else 2


class NounPhrases(Source):
    """The rules of noun phrases. `relative` is supplied by the rules of clauses."""

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
        plural = not noun.mass and not singular and self.chance(0.3)
        return self._modified(n, noun, plural, time, negated=negated, definite=definite)

    def _name(self, kinds: tuple[str, ...]) -> NounPhrase:
        if any(kind in PEOPLE for kind in kinds):
            name = self.pick(NAMES)
            return NounPhrase(self.pair(name.text, name.text), Features(feminine=name.feminine), "person")
        if "place" in kinds:
            town = self.pick([region for region in REGIONS if region.preposition == "à"])
            return NounPhrase(self.pair(town.english, town.french), Features(), "place")
        raise DeadEnd

    def _coordination(self, n: int, kinds: tuple[str, ...], time: str, definite: bool) -> NounPhrase:
        low = smallest(kinds)
        if n < 2 * low + 1:
            raise DeadEnd
        size = self.between(low, min(n - 1 - low, 5)) if n > 2 * low + 1 else low
        first = self.noun_phrase(size, kinds, time, definite=definite)
        second = self.noun_phrase(n - 1 - size, (first.kind,) if first.kind in kinds else kinds, time, definite=definite)
        phrase = first.phrase + self.pair("and", "et") + second.phrase
        feminine = first.features.feminine and second.features.feminine
        return NounPhrase(phrase, Features(3, True, feminine), first.kind)

    def _possession(self, n: int, kinds: tuple[str, ...], time: str) -> NounPhrase:
        """Marie's red car: "la voiture rouge de Marie"."""
        owned = [item for kind in kinds if kind in OWNED for item in NOUNS[kind]]
        noun = self.pick(owned)
        plural = self.chance(0.2)
        owner = self.pick(NAMES)
        name, of = self.link(), self.link()
        determiner = Phrase(
            (Word(owner.text, (name,)), Word("'s", (of,))),
            (Word(_article(noun.features(plural)), (of,), "article"),),
        )
        tail = Phrase((), (Word("de", (of,)), Word(owner.text, (name,))))
        size = n - 2 if n <= 4 else self.between(0, 2)
        core = self._core(size, noun, plural, determiner)
        return self._extended(n - 2 - size, core, noun, plural, time, tail)

    def _modified(
        self, n: int, noun: Noun, plural: bool, time: str, *, negated: bool, definite: bool
    ) -> NounPhrase:  # fmt: skip
        size = n - 2 if n <= 4 and self.chance(0.7) else self.between(0, min(2, n - 2))
        before = size > 0 and bool(_ADJECTIVES[noun.kind, True]) and self.chance(0.5)
        determiner = self._determiner(noun, plural, before=before, negated=negated, definite=definite)
        size = min(size, n - 1 - len(determiner.english))
        core = self._core(size, noun, plural, determiner, before=before)
        return self._extended(n - len(core.english), core, noun, plural, time, Phrase())

    def _determiner(self, noun: Noun, plural: bool, *, before: bool, negated: bool, definite: bool) -> Phrase:
        """A determiner of one English word (or "all the"); `before`: an adjective precedes the French noun."""
        features = noun.features(plural)
        choice = self.weighted(
            [
                (5.0 if noun.kind != "kin" else 1.0, "definite"),
                (0.0 if definite else 3.0 if noun.kind != "kin" else 0.5, "indefinite"),
                (0.0 if noun.mass else 0.8, "demonstrative"),
                (3.0 if noun.kind == "kin" else 1.2 if noun.kind in OWNED else 0.15, "possessive"),
                (1.2 if plural and not definite and noun.kind != "kin" else 0.0, "quantity"),
                (0.5 if plural else 0.0, "number"),
                (0.3 if not plural and not negated and not noun.mass and not definite else 0.0, "every"),
            ]
        )
        if choice == "definite":
            return self.pair("the", _article(features), "article")
        if choice == "demonstrative":
            french = "ces" if plural else "cette" if features.feminine else "ce"
            return self.pair("these" if plural else "this", french)
        if choice == "possessive":
            english, forms = self.pick(POSSESSIVES)
            return self.pair(english, forms[2 if plural else int(features.feminine)])
        if choice == "number":
            return self.pair(*self.pick(NUMBERS))
        if choice == "every":
            return self.pair("every", "chaque")
        if choice == "quantity":
            return self.pair(*self.pick((("many", "beaucoup de"), ("several", "plusieurs"), ("few", "peu de"))))
        return self._indefinite(noun, plural, before=before, negated=negated)

    def _indefinite(self, noun: Noun, plural: bool, *, before: bool, negated: bool) -> Phrase:
        if negated:
            return self.pair("any" if plural or noun.mass else "a", "de")
        if noun.mass:
            return self.pair("some", "de " + _article(noun.features(False)), "partitive")
        if plural:  # de belles fleurs
            return self.pair("some", "de" if before else "des", "partitive")
        return self.pair("a", "une" if noun.feminine else "un")

    def _core(self, size: int, noun: Noun, plural: bool, determiner: Phrase, *, before: bool | None = None) -> Phrase:
        """Determiner, `size` words of adjectives, noun. `before` says whether an adjective precedes the French noun."""
        features = noun.features(plural)
        if before is None:
            before = self.chance(0.5)
        first, last = _ADJECTIVES[noun.kind, True], _ADJECTIVES[noun.kind, False]
        before = before and bool(first) and size > 0
        after = bool(last) and size > (1 if before else 0)
        degree = size - before - after
        left = self.pick(first) if before else None
        right = self.pick(last) if after else None
        left_very = bool(left) and degree > 0 and _gradable(left)
        right_very = bool(right) and degree > left_very and _gradable(right)
        english, french = determiner.english, determiner.french
        for adjective, very in ((left, left_very), (right, right_very)):
            if adjective is None:
                continue
            item = self.pair("very", "très") if very else Phrase()
            item += self.pair(adjective.english, adjective.agree(features), "" if very and not before else "liaison")
            english += item.english
            if adjective is left:
                french += item.french
            else:
                tail = item.french
        head = self.pair(
            noun.english_plural if plural else noun.english, noun.french_plural if plural else noun.french
        )
        english, french = english + head.english, french + head.french
        return Phrase(english, french + (tail if right else ()))

    def _extended(
        self, n: int, core: Phrase, noun: Noun, plural: bool, time: str, tail: Phrase
    ) -> NounPhrase:
        """The core with n more words after it: a prepositional phrase, a relative clause, or both."""
        features = noun.features(plural)
        phrase = core + tail
        if n == 0:
            return NounPhrase(phrase, features, noun.kind, plain=True)
        size = n if n < 5 or self.chance(0.5) else self.between(2, 4)
        attached = self._attachment(size, noun) if self.chance(0.6) else None
        if attached is not None:
            phrase += attached
            n -= size
        elif size == 1:
            raise DeadEnd
        if n:
            phrase += self.relative(n, NounPhrase(phrase, features, noun.kind), time)
        return NounPhrase(phrase, features, noun.kind)

    def _attachment(self, n: int, noun: Noun) -> Phrase | None:
        """A prepositional phrase that says more about the noun; at most five words."""
        if n > 5 or n < 2:
            return None
        options: list[tuple[float, tuple[str, str, tuple[str, ...]]]] = []
        if noun.kind in (*PORTABLE, "vehicle", "furniture", "animal", "idea"):
            options.append((2.0, ("of", "de", PEOPLE)))
        if noun.kind == "document":
            options.append((2.0, ("about", "sur", ("animal", "event", "plant"))))
            options.append((2.0, ("from", "de", PEOPLE)))
        if noun.kind in ("document", "object", "food", "clothing"):
            options.append((1.5, ("for", "pour", PEOPLE)))
        if noun.kind in ("opening", "plant", "person", "landmark"):
            options.append((2.0, ("of" if noun.kind == "opening" else "near", "de" if noun.kind == "opening" else
                                  "près de", ("place",))))  # fmt: skip
        if noun.kind in ("place", "furniture", "landmark"):
            options.append((2.0, ("near", "près de", ("place", "landmark"))))
        if noun.kind in ("person", "animal", "object", "document", "furniture", "food"):
            options.append((3.0, ("", "", ())))
        if not options:
            return None
        english, french, kinds = self.weighted(options)
        if not kinds:
            return self.location(n, noun.kind)
        if n - 1 < smallest(kinds) or kinds == ("place",) and english == "of" and n < 3:
            return None
        return self.pair(english, french) + self.noun_phrase(n - 1, kinds, "present", definite=True).phrase

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
                kinds: tuple[str, ...] = ("furniture",) if small else ("landmark", "place")
                noun_phrase = self.noun_phrase(rest, kinds, time, definite=True, singular=True)
                return self.pair(english, french) + noun_phrase.phrase
        place = self.pick(PLACES)
        return self.pair(*place.at) + self.place_phrase(n - 1, place, time)

    def place_phrase(self, n: int, place: Place, time: str) -> Phrase:
        """A definite singular phrase of n words about the place."""
        return self._modified(n, place, False, time, negated=False, definite=True).phrase


def _article(features: Features) -> str:
    return "les" if features.plural else "la" if features.feminine else "le"


def _gradable(adjective: Adjective | None) -> bool:
    return adjective is not None and adjective.english in GRADABLE


__all__ = ["LIVING", "NounPhrase", "NounPhrases", "nouns", "smallest"]
