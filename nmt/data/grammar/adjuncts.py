"""Adjuncts: adverbs, time, place, company, purpose, reason: they take up the words that verb and objects leave."""

from __future__ import annotations

from nmt.data.grammar.modifiers import FREQUENCY, MANNER, TIME, WELL
from nmt.data.grammar.noun_phrases import NounPhrase
from nmt.data.grammar.nouns import PEOPLE
from nmt.data.grammar.predicates import Predicate, Predicates
from nmt.data.grammar.source import DeadEnd
from nmt.data.grammar.tokens import Phrase
from nmt.data.grammar.verbs import UNWILLED

_SKILLS = ("travailler", "chanter", "danser", "nager")
_NO_MANNER = (
    "hésiter",
    "tousser",
    "hurler",
    "crier",
    "siffler",
    "pleurer",
    "reposer",
    "rire",
    "mentir",
    "habiter",
    "rester",
    "arriver",
)
NON_FINITE = ("bare", "gerund")
# frames with a verb inside
NESTED = "saying trying modal asking and_verb and_pronoun"
PAST = ("past", "completed", "while", "reported")


def subject_type(kind: str) -> str:
    """p person, a animal, t thing."""
    return "p" if kind in PEOPLE else "a" if kind == "animal" else "t"


class Adjuncts(Predicates):
    """The rules of adjuncts. `clause` and `verb_phrase` are supplied further down the chain."""

    def clause(self, n: int, time: str) -> Phrase:
        """A clause of n words with its own subject."""
        raise NotImplementedError

    def verb_phrase(self, n: int, subject: NounPhrase, time: str, without: str = "") -> Predicate:
        """A predicate of n words."""
        raise NotImplementedError

    def inner_time(self, time: str) -> str:
        """The time of clauses inside a noun phrase of a clause of that time."""
        time = self.discourse.now if time in NON_FINITE else time
        return {"after when": "present", "while": "past", "completed": "past"}.get(time, time)

    def _fill(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, allowed: str = "fmtpcs") -> Predicate:
        """Adds adjuncts of n words: f frequency, m manner, t time, p place, c company, s subordinate clause."""
        allowed = "".join(letter for letter in allowed if letter not in self.discourse.banned)
        if predicate.negation == "never":  # not "never two days ago"
            allowed = allowed.replace("t", "")
        while n > 0:
            choice = self.weighted(
                [
                    (
                        1.0 if "f" in allowed and time not in NON_FINITE and predicate.negation in ("", "not") else 0.0,
                        "f",
                    ),
                    (1.2 if "m" in allowed and predicate.negation != "never" else 0.0, "m"),
                    (2.0 if "t" in allowed else 0.0, "t"),
                    (2.0 if "p" in allowed and n >= 2 else 0.0, "p"),
                    (1.0 if "c" in allowed and n >= 2 else 0.0, "c"),
                    (1.2 if "s" in allowed and n >= 2 else 0.0, "s"),
                ]
            )
            allowed = allowed.replace(choice, "")
            if choice in "fm" and n > 4 and self.chance(0.6):
                continue
            clash = {"f": "mt", "t": "f", "m": "f"}.get(choice, "")  # not "often yesterday", "rarely quickly"
            allowed = "".join(letter for letter in allowed if letter not in clash)
            used = getattr(self, "_adjunct_" + choice)(n, predicate, subject, time, bool(allowed))
            n -= used
        return predicate

    def _adjunct_f(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, more: bool) -> int:
        if predicate.tense in ("pluperfect", "progressive", "after when"):
            return 0
        options = FREQUENCY[:1] if predicate.negation else FREQUENCY
        adverb = self.pick(options)
        predicate.frequency = self.pair(adverb.english, adverb.french)
        return 1

    def _adjunct_m(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, more: bool) -> int:
        verb = predicate.verb.infinitive
        skilled = verb == "dormir" or (verb in _SKILLS and self.chance(0.5))
        # after a long object the adverb would seem to belong to a verb inside it
        if verb in _NO_MANNER or len(predicate.complement.english) > 3 or (predicate.negation and not skilled):
            return 0
        adverb = self.pick(WELL[:1] if predicate.negation else WELL if skilled else MANNER)
        phrase = self.pair(adverb.english, adverb.french)
        very = n > 1 and not (adverb.short and time in NON_FINITE) and adverb.english != "secretly" and self.chance(0.4)
        predicate.manner = self.pair("very", "très") + phrase if very else phrase
        predicate.short_manner = adverb.short
        return 1 + very

    def _adjunct_t(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, more: bool) -> int:
        key = {"pluperfect": "earlier", "conditional": "later", "after when": "future", "progressive": "progress"}.get(
            predicate.tense, predicate.tense
        )
        if time == "bare":  # wants to leave tomorrow, wanted to leave the next day
            key = "later" if self.discourse.now in PAST else "future"
        if (time in ("while", "reported") and key in ("past", "progress")) or (key == "present" and predicate.negation):
            return 0
        options = [item for item in TIME if key in item.times and len(item.english.split()) <= n]
        if not options:
            return 0
        item = self.pick(options)
        predicate.adjuncts += self.linked(item.english, item.french, item.links)
        return len(item.english.split())

    def _adjunct_p(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, more: bool) -> int:
        size = n if n < 5 or (not more and n < 9) else self.between(2, 5)
        predicate.adjuncts += self.location(size, time=time)
        return size

    def _adjunct_c(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, more: bool) -> int:
        size = n if n < 5 or (not more and n < 9) else self.between(2, 5)
        inner = self.noun_phrase(size - 1, PEOPLE, self.inner_time(time), definite=True).phrase
        predicate.adjuncts += self.pair("with", "avec") + inner
        return size

    def _adjunct_s(self, n: int, predicate: Predicate, subject: NounPhrase, time: str, more: bool) -> int:
        """to open, without opening, before opening, while opening, because she opens."""
        if subject_type(subject.kind) != "p" or predicate.verb.stative or time == "gerund":  # one inside another
            return 0
        if (
            n >= 3
            and time not in NON_FINITE
            and (n > 14 or self.chance(0.5 * 0.3 ** self.discourse.conjunctions.count("because")))
        ):
            self.discourse.conjunctions += ("because",)
            inner = {"while": "past", "completed": "past", "after when": "present"}.get(time, time)
            predicate.adjuncts += self.pair("because", "parce que") + self.clause(n - 1, inner)
            return n
        size = n if n < 8 or not more else self.between(3, 7)
        left, right = self.pick((("to", "pour"), ("without", "sans"), ("before", "avant de"), ("while", "en")))
        if right == "en" and predicate.verb.infinitive in ("dormir", "réveiller", "tomber"):
            raise DeadEnd
        if left == "to" and predicate.verb.infinitive in UNWILLED:  # nobody falls to swim
            raise DeadEnd
        without = NESTED + (" sudden" if left in ("to", "while") else "")
        inner_predicate = self.verb_phrase(size - 1, subject, "gerund", without)
        if inner_predicate.verb.stative or inner_predicate.verb.infinitive == predicate.verb.infinitive:
            raise DeadEnd
        form = "infinitive" if left == "to" else "participle" if right == "en" else "gerund"
        predicate.adjuncts += self.pair(left, right) + self.non_finite(inner_predicate, subject.features, form)
        return size

    def _split(self, n: int, least: int, usual: int = 5) -> int:
        """How many of n words the object gets; the rest goes to adjuncts."""
        if n <= least or self.chance(0.3):
            return n
        return self.between(least, min(n, max(usual, n // 2)))
