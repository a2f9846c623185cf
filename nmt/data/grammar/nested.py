"""Frames with more than one participant or more than one verb: giving, going, saying, wanting, asking, passives."""

from __future__ import annotations

from nmt.data.grammar import english, french, verbs
from nmt.data.grammar.adjuncts import NESTED, NON_FINITE, PAST
from nmt.data.grammar.frames import Frames
from nmt.data.grammar.french import Features
from nmt.data.grammar.noun_phrases import NounPhrase
from nmt.data.grammar.nouns import PEOPLE, PLACES, PORTABLE, REGIONS
from nmt.data.grammar.predicates import Predicate
from nmt.data.grammar.source import DeadEnd
from nmt.data.grammar.tokens import Phrase, Word


class NestedFrames(Frames):
    """The remaining rules of verb phrases."""

    def _about(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(self.pick(verbs.ABOUT), n, 2, time)
        size = rest if predicate.verb.stative else self._split(rest, 2)
        noun_phrase = self.noun_phrase(size, predicate.verb.objects, self.inner_time(time), definite=True)
        predicate.complement += self.governed_by((predicate.preposition_link,), noun_phrase, predicate.verb.preposition)
        return self._fill(rest - size, predicate, subject, time, "ft")

    def _dative(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(self.pick(verbs.DATIVE), n, 1, time)
        if self.chance(0.5):
            self.pronoun_object(predicate, subject, dative=True)
            return self._fill(rest - 1, predicate, subject, time, "fts")
        size = self._split(rest, 1)
        noun_phrase = self.noun_phrase(size, PEOPLE, self.inner_time(time), definite=True)
        predicate.complement += self.governed_by((predicate.preposition_link,), noun_phrase, predicate.verb.preposition)
        return self._fill(rest - size, predicate, subject, time, "fts")

    def _giving(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """gives her the book; gives the book to Marie."""
        predicate, rest = self.begin(self.pick(verbs.GIVING), n, 3, time)
        kinds, negated = predicate.verb.objects, predicate.negation != ""
        if rest == 3 or self.chance(0.4):
            self.pronoun_object(predicate, subject, dative=True)
            size = self._split(rest - 1, 2)
            predicate.complement += self.noun_phrase(size, kinds, self.inner_time(time), negated=negated).phrase
            return self._fill(rest - 1 - size, predicate, subject, time, "fts")
        size = self.between(2, min(4, rest - 2))
        thing = self.noun_phrase(size, kinds, self.inner_time(time), negated=negated)
        rest -= size + 1
        size = self._split(rest, 1)
        recipient = self.noun_phrase(size, PEOPLE, self.inner_time(time), definite=True)
        predicate.complement += thing.phrase + self.governed("to", "à", recipient)
        return self._fill(rest - size, predicate, subject, time, "fts")

    def _located(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(self.choose(verbs.LOCATED, subject, time), n, 1, time)
        if rest == 1 or self.chance(0.15):
            self._there(predicate)
            return self._fill(rest - 1, predicate, subject, time, "tcs")
        size = self._split(rest, 2, 4)
        predicate.complement += self.location(size, time=self.inner_time(time))
        return self._fill(rest - size, predicate, subject, time, "c" if predicate.verb.stative else "ftcs")

    def _there(self, predicate: Predicate) -> None:
        there = self.link()
        predicate.complement += Phrase((Word("there", (there,)),))
        predicate.clitics.append((3, Word("y", (there,))))

    def _directed(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """goes to the market, comes from Canada."""
        predicate, rest = self.begin(self.choose(verbs.DIRECTED, subject, time), n, 1, time)
        future = predicate.tense in ("future", "conditional", "after when")
        come = predicate.verb.infinitive == "venir"
        if rest == 1 or (self.chance(0.15) and not come):
            if (predicate.verb.infinitive == "aller" and future) or come:  # never "y ira"
                raise DeadEnd
            self._there(predicate)
            return self._fill(rest - 1, predicate, subject, time, "tcs")
        size = self._split(rest, 2, 4)
        predicate.complement += self._origin(size, time) if come else self._destination(size, time)
        return self._fill(rest - size, predicate, subject, time, "tcs")

    def _destination(self, n: int, time: str) -> Phrase:
        if n == 2:
            region = self.pick(REGIONS)
            return self.pair("to", region.preposition) + self.pair(region.english, region.french)
        place = self.pick([item for item in PLACES if item.to])
        assert place.to
        return self.pair(*place.to) + self.place_phrase(n - 1, place, self.inner_time(time))

    def _origin(self, n: int, time: str) -> Phrase:
        if n == 2:
            region = self.pick(REGIONS)
            phrase = self.pair("from", "de")
            if region.preposition == "au":
                phrase += Phrase((), (Word("le", phrase.french[0].links, "article"),))
            return phrase + self.pair(region.english, region.french)
        return self.pair("from", "de") + self.place_phrase(n - 1, self.pick(PLACES), self.inner_time(time))

    def _having(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        predicate, rest = self.begin(verbs.HAVE, n, 2, time)
        kinds = ("vehicle", "instrument", "animal", "object", "clothing")
        predicate.complement += self.indefinite(
            rest, kinds, self.inner_time(time), negated=predicate.negation != ""
        ).phrase
        return predicate

    def _belonging(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        if subject.kind not in (*PORTABLE, "vehicle", "furniture"):
            raise DeadEnd
        predicate, rest = self.begin(verbs.BELONG, n, 1, time)
        noun_phrase = self.noun_phrase(rest, PEOPLE, self.inner_time(time), definite=True)
        predicate.complement += self.governed_by((predicate.preposition_link,), noun_phrase, predicate.verb.preposition)
        return predicate

    def _passive(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """was written by Marie: "a été écrite par Marie"."""
        options = [v for v in verbs.TRANSITIVE if subject.kind in v.objects and not (v.stative or v.particle)]
        verb = self.pick([v for v in options if not v.preposition and v.infinitive not in _NO_PASSIVE])
        predicate, rest = self.begin(verbs.BE_DONE, n, 3, time)
        participle = self.link()
        predicate.complement += Phrase(
            (Word(english.participle(verb.base), (participle,)),),
            (Word(french.agree(verb.conjugation.participle, subject.features), (participle,)),),
        )
        size = self._split(rest - 2, 1)
        agent = self.noun_phrase(size, PEOPLE, self.inner_time(time), definite=True)
        predicate.complement += self.pair("by", "par") + agent.phrase
        return self._fill(rest - 2 - size, predicate, subject, time, "t")

    # Verbs inside verbs ------------------------------------------------------------------------------------------

    def _saying(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        verb = self.pick(verbs.SAYING)
        certain = verb.infinitive in ("savoir", "remarquer")  # no subjunctive after their negation
        predicate, rest = self.begin(verb, n, 3, time, affirmative=not certain)
        if certain and predicate.negation not in ("", "not"):
            raise DeadEnd
        if (self.discourse.now in PAST and time in NON_FINITE) or predicate.tense in (
            "past", "progressive", "conditional", "pluperfect",
        ):  # fmt: skip
            inner = "reported"
        else:
            inner = "future" if verb.base == "hope" else self.weighted(((5, "present"), (3, "past"), (2, "future")))
        predicate.complement += self.pair("that", "que") + self.clause(rest - 1, inner)
        return predicate

    def infinitive(self, predicate: Predicate, features: Features, preposition: str) -> Phrase:
        """to + infinitive; "to" is aligned to the French preposition, or to the verb where there is none."""
        verb = self.non_finite(predicate, features, "infinitive")
        link = self.link() if preposition else predicate.links[1]
        to, left = Word("to", (link,)), verb.english
        left = (left[0], to, *left[1:]) if predicate.negation else (to, *left)  # not to sleep: ne pas dormir
        return Phrase(left, ((Word(preposition, (link,)),) if preposition else ()) + verb.french)

    def _trying(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        verb = self.pick(verbs.TRYING)
        predicate, rest = self.begin(verb, n, 2, time)
        negated = verb.infinitive in ("décider", "promettre", "préférer") and rest > 2 and self.chance(0.3)
        inner = self.verb_phrase(
            rest - 1 - negated,
            subject,
            "bare",
            "trying modal and_verb and_pronoun " + (_LASTING[8:] if verb.base == "want" else _LASTING),
        )
        if inner.verb.stative and (verb.base != "want" or inner.verb.noun or inner.verb.infinitive in _UNWANTED):
            raise DeadEnd
        if negated and (predicate.negation or self.has_indefinite(inner)):
            raise DeadEnd
        inner.negation = "not" if negated else ""
        predicate.complement += self.infinitive(inner, subject.features, verb.preposition)
        return predicate

    def _modal(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        if time in (*NON_FINITE, "future", "after when"):
            raise DeadEnd
        verb = self.pick((verbs.CAN, verbs.MUST)) if time == "present" else verbs.CAN
        predicate, rest = self.begin(verb, n, 1, time)
        if predicate.negation == "no longer":
            raise DeadEnd
        inner = self.verb_phrase(rest, subject, "bare", NESTED + " state comparison profession being_somewhere")
        predicate.complement += self.non_finite(inner, subject.features, "infinitive")
        return predicate

    def _asking(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """asks her to come: "lui demande de venir"; helps her to come: "l'aide à venir"."""
        verb = self.pick(verbs.ASKING)
        predicate, rest = self.begin(verb, n, 3, time)
        if self.chance(0.4):
            features = self.pronoun_object(predicate, subject, dative=verb.preposition == "à")
            size, other = 1, NounPhrase(Phrase(), features, "person")
        else:
            size = self.between(1, min(4, rest - 2))
            other = self.noun_phrase(size, PEOPLE, self.inner_time(time), definite=True)
            predicate.complement += self.governed_by((predicate.preposition_link,), other, verb.preposition)
        inner = self.verb_phrase(rest - size - 1, other, "bare", "trying modal saying and_verb and_pronoun " + _LASTING)
        if inner.verb.stative:
            raise DeadEnd
        predicate.complement += self.infinitive(inner, other.features, "de" if verb.preposition else "à")
        return predicate

    def _and_verb(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """sings and dances."""
        if time in NON_FINITE:
            raise DeadEnd
        size = self.between(1 + (time == "future"), min(6, n // 2)) if n > 3 else 1
        self.discourse.flat = True
        first = self.verb_phrase(size, subject, time, NESTED + " state quality")
        self.discourse.flat = False
        second = self.verb_phrase(n - 1 - size, subject, time, "and_verb and_pronoun")
        if first.verb.infinitive == second.verb.infinitive or first.verb.stative != second.verb.stative:
            raise DeadEnd
        if first.tense != second.tense:  # not "worked and was sleeping"
            raise DeadEnd
        first.adjuncts += self.pair("and", "et") + self.finite(second, subject.features)
        return first

    def _and_pronoun(self, n: int, subject: NounPhrase, time: str) -> Predicate:
        """buys the apple and eats it: "it" is the direct object of the verb before."""
        if time in NON_FINITE:
            raise DeadEnd
        candidates = [v for v in verbs.TRANSITIVE if not v.stative and not v.preposition and "place" not in v.objects]
        first_verb = self.pick([v for v in candidates if v.infinitive in _FIRST])
        first, rest = self.begin(first_verb, n, 5, time, affirmative=True)
        most = rest - 3 - (first.tense != "past" and first.tense != "present")
        size = self.between(2, min(5, most)) if most > 4 else most
        self.discourse.flat = True
        thing = self.noun_phrase(size, first_verb.objects, self.inner_time(time))
        self.discourse.flat = False
        second_verb = self.pick([v for v in candidates if thing.kind in v.objects and v.infinitive in _SECOND
                                 and v.base != first_verb.base])  # fmt: skip
        first.complement += thing.phrase
        left = rest - 1 - size
        second, spare = self.begin(second_verb, left, 1, time, affirmative=True)
        self._refer(second, thing)
        self._fill(spare - 1, second, subject, time, "mtp")
        first.adjuncts += self.pair("and", "et") + self.finite(second, subject.features)
        return first

    def _refer(self, predicate: Predicate, thing: NounPhrase) -> None:
        """A pronoun that stands for the noun phrase, as direct object."""
        features, link = thing.features, self.link()
        person = "her" if features.feminine else "him"
        text = "them" if features.plural else person if thing.kind in PEOPLE else "it"
        french = "les" if features.plural else "la" if features.feminine else "le"
        predicate.complement += Phrase((Word(text, (link,)),))
        predicate.clitics.append((1, Word(french, (link,))))
        predicate.preceding = features


# states that nobody tries to be in; "quality" first
_LASTING = "quality comparison profession being_somewhere having belonging state"
_UNWANTED = ("craindre", "détester")
_NO_PASSIVE = ("voir", "trouver", "perdre", "porter", "prendre", "quitter", "apporter", "goûter", "commander")
_FIRST = ("chercher", "trouver", "acheter", "préparer", "prendre", "choisir", "laver", "ouvrir", "voler", "attraper",
          "réparer", "écrire", "traduire", "regarder", "saluer", "rencontrer", "attendre", "inviter")  # fmt: skip
_SECOND = ("vendre", "manger", "lire", "cacher", "casser", "réparer", "nettoyer", "laver", "dessiner", "publier",
           "admirer", "boire", "fermer", "embrasser", "remercier", "suivre", "aider", "nourrir", "plier",
           "décrire")  # fmt: skip
