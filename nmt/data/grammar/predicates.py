"""Verbs with what surrounds them: tense, negation, clitics, adverbs, agreement of the participle.

The alignment of a verb has three links: the finite word (auxiliary), the verb that carries the meaning, the negation.
"did not sleep / n' a pas dormi": did–a, not–n', not–pas, sleep–dormi; "will sleep / dormira": both to dormira.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nmt.data.grammar import english, french
from nmt.data.grammar.french import Features
from nmt.data.grammar.noun_phrases import NounPhrases
from nmt.data.grammar.source import DeadEnd
from nmt.data.grammar.tokens import Phrase, Word
from nmt.data.grammar.verbs import Verb

NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
# tense of the sentence: English, French of a stative verb, French of another verb; "+" is auxiliary and participle
TENSES = {
    "present": ("present", "present", "present"),
    "past": ("past", "imperfect", "present+"),
    "progressive": ("progressive", "imperfect", "imperfect"),
    "future": ("future", "future", "future"),
    "after when": ("present", "future", "future"),  # when he comes: quand il viendra
    "conditional": ("conditional", "conditional", "conditional"),
    "pluperfect": ("pluperfect", "imperfect+", "imperfect+"),
}
# no "was seeing", no "was noticing"
_PUNCTUAL = ("voir", "entendre", "trouver", "perdre", "remarquer", "oublier", "rencontrer")
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
# object pronouns: French direct and indirect form, place in the row of clitics, features
OBJECT_PRONOUNS = {
    "me": ("me", "me", 0, Features(1)),
    "you": ("te", "te", 0, Features(2)),
    "us": ("nous", "nous", 0, Features(1, True)),
    "him": ("le", "lui", 1, Features(3)),
    "her": ("la", "lui", 1, Features(3, False, True)),
    "them": ("les", "leur", 1, Features(3, True)),
}


@dataclass
class Predicate:
    """A verb phrase before its subject is known."""

    verb: Verb
    tense: str = "bare"
    negation: str = ""
    complement: Phrase = field(default_factory=Phrase)
    adjuncts: Phrase = field(default_factory=Phrase)
    clitics: list[tuple[int, Word]] = field(default_factory=list)
    preceding: Features | None = None  # direct object before the verb: the participle agrees with it
    frequency: Phrase = field(default_factory=Phrase)
    manner: Phrase = field(default_factory=Phrase)
    short_manner: bool = False
    links: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)  # finite, verb, negation, preposition, fixed noun

    @property
    def preposition_link(self) -> int:
        """The link of the French preposition: its English counterpart's, else the verb's (answer: répondre à)."""
        own = len(self.verb.particle.split()) - bool(self.verb.noun)
        return self.links[3] if self.verb.preposition and own > 0 else self.links[1]

    @property
    def noun_link(self) -> int:
        """The link of the fixed noun: hungry–faim, but need–besoin."""
        return self.links[4] if self.verb.noun and self.verb.particle else self.links[1]


class Predicates(NounPhrases):
    """Realisation of predicates."""

    def begin(self, verb: Verb, n: int, least: int, time: str, *, affirmative: bool = False) -> tuple[Predicate, int]:
        """A predicate with its tense and negation, and how many of its n words are left (at least `least`).

        `time` is a key of what `_tense` knows, or "bare" for an infinitive or gerund.
        """
        question, self.discourse.interrogative = self.discourse.interrogative, False
        links = (self.link(), self.link(), self.link(), self.link(), self.link())
        particle = len(verb.particle.split())
        if time in ("bare", "gerund"):
            rest = n - 1 - particle
            if rest < least:
                raise DeadEnd
            return Predicate(verb, links=links), rest
        tense = self._tense(verb, time)
        options = [(0.8, "")]
        if tense not in ("after when", "pluperfect"):
            options.append((0.12, "not"))
        if not question and time not in ("after when", "while", "reported") and tense != "progressive":
            options.append((0.05, "never"))
            if tense in ("present", "future") or (verb.stative and tense == "past"):
                options.append((0.03, "no longer"))
        negation = "" if affirmative else self.weighted(options)
        for choice in (negation, ""):
            group = english.verb_group(verb.base, TENSES[tense][0], Features(), choice, question=question)
            rest = n - sum(bool(text) for text, _ in group) - particle
            if rest >= least:
                return Predicate(verb, tense, choice, links=links), rest
        raise DeadEnd

    def _tense(self, verb: Verb, time: str) -> str:
        """The tense of a verb in a clause about that time."""
        punctual = verb.infinitive in _PUNCTUAL
        ambiguous = english.past(verb.base) == verb.base  # "they read" is present or past
        if (time == "while" and punctual) or (time == "completed" and (ambiguous or verb.stative)):
            raise DeadEnd
        if time == "past" and ambiguous:
            return "progressive"
        if time == "completed":
            return "past"
        if time == "past":
            return "past" if punctual or verb.stative or self.chance(0.8) else "progressive"
        if time == "while":
            return "past" if verb.stative else "progressive"
        if time == "reported":  # under a verb in the past
            return self.weighted(
                [
                    (0.0 if punctual else 2.0, "past" if verb.stative else "progressive"),
                    (0.0 if verb.base in ("can", "must") else 2.0, "conditional"),
                    (0.0 if verb.stative else 2.0, "pluperfect"),
                ]
            )
        if verb.base in ("can", "must") and time in ("future", "after when"):
            raise DeadEnd
        return time

    def english_verb(self, predicate: Predicate, features: Features, *, question: bool = False) -> tuple[Word, ...]:
        """Auxiliaries, negation, adverb of frequency and verb; the first one moves in a question."""
        finite, verb, negation = predicate.links[:3]
        group = english.verb_group(
            predicate.verb.base, TENSES[predicate.tense][0], features, predicate.negation, question=question
        )
        alone = all(role != "auxiliary" for _, role in group)
        links = {
            "auxiliary": (finite,),
            "negation": (negation,),
            "verb": (finite, verb) if alone else (verb,),
            "verb+negation": (finite, verb, negation),
        }
        result: tuple[Word, ...] = ()
        for text, role in group:
            result += predicate.frequency.english if role == "adverb" else (Word(text, links[role]),)
        return result + self.particle(predicate)

    @staticmethod
    def particle(predicate: Predicate) -> tuple[Word, ...]:
        particles = predicate.verb.particle.split()
        links = [predicate.preposition_link] * len(particles)
        if predicate.verb.noun and particles:
            links[0] = predicate.noun_link
        return tuple(Word(text, (link,)) for text, link in zip(particles, links, strict=True))

    def french_verb(self, predicate: Predicate, features: Features) -> tuple[Word, ...]:
        """ne, clitics, finite verb, second negation, short adverbs, participle, long adverb."""
        finite, verb_link, negation = predicate.links[:3]
        verb = predicate.verb
        tense = TENSES[predicate.tense][2 - verb.stative]
        compound = tense.endswith("+")
        auxiliary = french.conjugation("être" if verb.etre else "avoir") if compound else verb.conjugation
        form = auxiliary.form(tense.rstrip("+"), features)
        line = self.clitics(predicate, features)
        line += (Word(form, (finite,) if compound else (finite, verb_link)),)
        if predicate.negation:
            line = (Word("ne", (negation,)), *line, Word(NEGATIONS[predicate.negation], (negation,)))
        line += predicate.frequency.french
        if predicate.short_manner:
            line += predicate.manner.french
        if compound:
            agreement = features if verb.etre else predicate.preceding
            participle = verb.conjugation.participle
            line += (Word(french.agree(participle, agreement) if agreement else participle, (verb_link,)),)
        return line + self.after_verb(predicate)

    def after_verb(self, predicate: Predicate) -> tuple[Word, ...]:
        noun = tuple(Word(text, (predicate.noun_link,)) for text in predicate.verb.noun.split())
        return noun + (() if predicate.short_manner else predicate.manner.french)

    @staticmethod
    def clitics(predicate: Predicate, features: Features) -> tuple[Word, ...]:
        clitics = list(predicate.clitics)
        if predicate.verb.reflexive:
            clitics.append((0, Word(REFLEXIVE[features.index], (predicate.links[1],))))
        return tuple(word for _, word in sorted(clitics, key=lambda item: item[0]))

    @staticmethod
    def has_indefinite(predicate: Predicate) -> bool:
        """Whether an object would have to change to "de" if the predicate were negated."""
        return any(word.kind == "partitive" or word.text in ("un", "une") for word in predicate.complement.french)

    def rest(self, predicate: Predicate) -> Phrase:
        """What follows the verb."""
        manner = Phrase(predicate.manner.english, ())
        return predicate.complement + manner + predicate.adjuncts

    def finite(self, predicate: Predicate, features: Features) -> Phrase:
        """The predicate of a statement."""
        verb = Phrase(self.english_verb(predicate, features), self.french_verb(predicate, features))
        return verb + self.rest(predicate)

    def non_finite(self, predicate: Predicate, features: Features, form: str) -> Phrase:
        """The infinitive, gerund ("gerund") or, in French only, present participle ("participle")."""
        finite, verb_link, negation = predicate.links[:3]
        verb = predicate.verb
        base = verb.base if form == "infinitive" else english.gerund(verb.base)
        left = (Word(base, (finite, verb_link)), *self.particle(predicate))
        text = verb.conjugation.present_participle if form == "participle" else verb.infinitive
        right = (*self.clitics(predicate, features), Word(text, (finite, verb_link)))
        if predicate.short_manner:  # bien chanter, en chantant bien
            manner = predicate.manner.french
            right = right + manner if form == "participle" else manner + right
        if predicate.negation:
            left = (Word("not", (negation,)), *left)
            right = (Word("ne", (negation,)), Word("pas", (negation,)), *right)
        return Phrase(left, right + self.after_verb(predicate)) + self.rest(predicate)
