"""Frames: what a verb takes, from "sleeps" to "asks her to try to repair it".

Each frame is a method that makes a predicate of exactly n words for a subject and a time; `verb_phrase` chooses among
those that fit. What is left over after the verb and its objects goes into adjuncts.
"""

from __future__ import annotations

from nmt.data.grammar import verbs
from nmt.data.grammar.adjuncts import NON_FINITE, Adjuncts, subject_type
from nmt.data.grammar.french import Features
from nmt.data.grammar.modifiers import ADJECTIVES, DEGREE, GRADABLE, PASSING, Adjective
from nmt.data.grammar.noun_phrases import NounPhrase, smallest
from nmt.data.grammar.nouns import PEOPLE
from nmt.data.grammar.predicates import OBJECT_PRONOUNS, Predicate
from nmt.data.grammar.source import DeadEnd
from nmt.data.grammar.tokens import Phrase, Word
from nmt.data.grammar.verbs import UNWILLED, Verb

_UNSETTLED = ("future", "after when", "reported", *NON_FINITE)  # when nobody is said to be German
_PROFESSIONS = (  # men, women
    (
        ("teacher", "professeur"), ("doctor", "médecin"), ("baker", "boulanger"), ("student", "étudiant"),
        ("lawyer", "avocat"), ("musician", "musicien"), ("nurse", "infirmier"), ("journalist", "journaliste"),
        ("gardener", "jardinier"), ("singer", "chanteur"),
    ),
    (
        ("teacher", "professeure"), ("doctor", "médecin"), ("baker", "boulangère"), ("student", "étudiante"),
        ("lawyer", "avocate"), ("musician", "musicienne"), ("nurse", "infirmière"), ("journalist", "journaliste"),
        ("gardener", "jardinière"), ("singer", "chanteuse"),
    ),
)  # fmt: skip

# weight, fewest and usual most words, frame, kinds of subject (p person, a animal, t thing)
_FRAMES = (
    (3.0, 1, 40, "intransitive", "pa"),
    (1.5, 1, 20, "sudden", "pa"),
    (0.7, 2, 3, "state", "pa"),
    (2.0, 2, 5, "quality", "pat"),
    (0.8, 4, 12, "comparison", "pa"),
    (0.6, 3, 3, "profession", "p"),
    (0.8, 3, 9, "being_somewhere", "pat"),
    (8.0, 2, 40, "transitive", "pa"),
    (1.2, 3, 25, "about", "p"),
    (1.5, 2, 20, "dative", "p"),
    (2.0, 4, 30, "giving", "p"),
    (1.5, 2, 30, "located", "pa"),
    (1.8, 2, 30, "directed", "pa"),
    (1.0, 3, 15, "having", "p"),
    (1.0, 1, 12, "thing_event", "t"),
    (0.8, 3, 10, "belonging", "t"),
    (1.2, 4, 20, "passive", "t"),
    (2.0, 4, 60, "saying", "p"),
    (2.0, 3, 50, "trying", "p"),
    (1.2, 2, 50, "modal", "pa"),
    (1.5, 4, 50, "asking", "p"),
    (1.2, 3, 50, "and_verb", "pa"),
    (1.2, 6, 50, "and_pronoun", "p"),
)


class Frames(Adjuncts):
    """The rules of verb phrases. `clause` is supplied by the rules of clauses."""

    def verb_phrase(self, n: int, subject: NounPhrase, time: str, without: str = "") -> Predicate:
        """A predicate of n words (auxiliaries, verb and all that follows), made by none of the frames in `without`."""
        extra = 1 if time in ("future", "reported") else 0
        kind = subject_type(subject.kind)
        options = [
            (weight * (0.05 if n > most else 1.0), name)
            for weight, least, most, name, kinds in _FRAMES
            if n >= least + extra and kind in kinds and name not in without.split()
        ]

        def rule() -> Predicate:
            predicate: Predicate = getattr(self, "_" + self.weighted(options))(n, subject, time)
            return predicate

        return self.attempt(rule)

    # One verb ----------------------------------------------------------------------------------------------------

    def choose(self, items: list[Verb], subject: NounPhrase, time: str) -> Verb:
        """A verb that the subject can be said to do; on purpose, where the form is not finite."""
        animal, willed = subject.kind == "animal", time in NON_FINITE
        return self.pick(
            [item for item in items if (item.animal or not animal) and not (willed and item.infinitive in UNWILLED)]
        )

    def _intransitive(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(self.choose(verbs.INTRANSITIVE, subject, time), n, 0, time)
        return self._fill(rest, predicate, subject, time)

    def _sudden(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(self.choose(verbs.SUDDEN, subject, time), n, 0, time)
        return self._fill(rest, predicate, subject, time, "tcs")

    def _thing_event(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(
            self.pick([v for v in verbs.THING_EVENTS if subject.kind in v.objects]), n, 0, time
        )
        return self._fill(rest, predicate, subject, time, "tp")

    def _state(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(self.choose(verbs.STATES, subject, time), n, 0, time)
        return self._fill(rest, predicate, subject, time, "ft")

    def _adjective(
        self, subject: NounPhrase, *, gradable: bool = False, comparative: bool = False, passing: bool = False
    ) -> Adjective:
        kind = "person" if subject.kind == "kin" else subject.kind
        return self.pick(
            [
                item
                for item in ADJECTIVES
                if kind in item.kinds
                and (not gradable or item.english in GRADABLE)
                and (not comparative or item.comparative)
                and (not passing or item.english in PASSING)
                and item.suits(subject.kind, subject.features.feminine)
                and item.english not in ("new", "dear", "secret", "wild", "foreign", "hungry")
            ]
        )

    def _quality(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(verbs.BE, n, 1, time)
        very = rest > 1 and self.chance(0.5)
        adjective = self._adjective(subject, gradable=very, passing=rest > 1 + very or time in _UNSETTLED)
        if very:
            predicate.complement += self.pair(*self._degree())
        predicate.complement += self.pair(adjective.english, adjective.agree(subject.features))
        return self._fill(rest - 1 - very, predicate, subject, time, "ft")

    def _degree(self) -> tuple[str, str]:
        degree = self.pick(DEGREE)
        return degree.english, degree.french

    def _comparison(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """taller than Marie; as patient as Marie."""
        predicate, rest = self.begin(verbs.BE, n, 3, time)
        kinds = PEOPLE if subject.kind in PEOPLE else (subject.kind,)
        than = rest < 4 or self.chance(0.5)
        adjective = self._adjective(subject, gradable=True, comparative=than)
        form = adjective.agree(subject.features)
        if than:
            predicate.complement += self.linked(adjective.comparative + " than", f"plus {form} que", "0-0 0-1 1-2")
            if form in ("bon", "bonne", "bons", "bonnes", "mauvais"):
                raise DeadEnd
        else:
            predicate.complement += self.linked(f"as {adjective.english} as", f"aussi {form} que", "0-0 1-1 2-2")
        rest -= 2 if than else 3
        other = self.noun_phrase(rest, kinds, self.inner_time(time), definite=True)
        predicate.complement += other.phrase
        return predicate

    def _profession(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        if subject.features.plural or not (subject.named or subject.pronoun or subject.kind == "kin"):
            raise DeadEnd
        feminine = subject.features.feminine
        english, french = self.pick(_PROFESSIONS[feminine])
        predicate, rest = self.begin(verbs.BE, n, 2, time)
        predicate.complement += self.linked("a " + english, french, "0-0 1-0")
        if rest > 2:
            raise DeadEnd
        return predicate

    def _being_somewhere(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        if subject.kind in ("place", "landmark", "opening", "event", "idea", "sound", "foodstuff", "drink", "plant"):
            raise DeadEnd
        predicate, rest = self.begin(verbs.BE, n, 2, time)
        size = rest if rest < 5 else self.between(2, rest)
        predicate.complement += self.location(size, subject.kind, self.inner_time(time))
        return self._fill(rest - size, predicate, subject, time, "t")

    def _transitive(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        verb = self.choose(verbs.TRANSITIVE, subject, time)
        people = any(kind in PEOPLE for kind in verb.objects)
        predicate, rest = self.begin(verb, n, 1 if people or smallest(verb.objects) == 1 else 2, time)
        if people and (rest == 1 or self.chance(0.2)) and self.chance(0.6):
            self.pronoun_object(predicate, subject)
            size = 1
        else:
            size = rest if verb.stative else self._split(rest, 2 if rest > 1 else 1)
            kinds = tuple(k for k in verb.objects if size > 1 or k in (*PEOPLE, "place"))
            if subject.kind == "animal":
                kinds = tuple(k for k in kinds if k not in ("document", "place", "landmark", "instrument"))
            self._direct_object(size, predicate, kinds, time)
        return self._fill(rest - size, predicate, subject, time, adjuncts_of(verb))

    def _direct_object(self, n: int, predicate: Predicate, kinds: tuple[str, ...], time: str) -> None:
        negated = predicate.negation != "" and not predicate.verb.preposition
        definite = bool(predicate.verb.preposition) or predicate.verb.stative
        playing = predicate.verb.infinitive == "jouer"  # one piano at a time
        result = self.noun_phrase(
            n, kinds, self.inner_time(time), negated=negated or playing, definite=definite, singular=playing
        )
        if predicate.verb.preposition:
            predicate.complement += self.governed_by((predicate.links[1],), result, predicate.verb.preposition)
        else:
            predicate.complement += result.phrase

    def pronoun_object(self, predicate: Predicate, subject: NounPhrase, *, dative: bool = False) -> Features:
        """A personal pronoun as object: after the verb in English, before it in French."""
        own = {1: ("me", "us"), 2: ("you",)}.get(subject.features.person, ())
        english = self.pick([item for item in OBJECT_PRONOUNS if item not in own])
        direct, indirect, rank, features = OBJECT_PRONOUNS[english]
        link = self.link()
        of = predicate.preposition_link
        links = (link, of) if dative and of != predicate.links[1] else (link,)  # speaks to him: lui
        predicate.complement += Phrase((Word(english, (link,)),))
        predicate.clitics.append((rank + (dative and rank == 1), Word(indirect if dative else direct, links)))
        if not dative:
            predicate.preceding = features
        return features


def adjuncts_of(verb: Verb) -> str:
    """Which adjuncts suit a transitive verb."""
    if verb.stative:
        return ""
    if "place" in verb.objects and len(verb.objects) == 1:
        return "ftcs"
    if verb.infinitive in ("voir", "trouver", "perdre", "entendre", "casser", "rencontrer", "découvrir", "quitter",
                           "interrompre", "comprendre", "accepter", "porter", "arrêter"):  # fmt: skip
        return "fts"
    return "fmtpcs"
