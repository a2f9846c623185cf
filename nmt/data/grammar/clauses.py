"""Clauses and sentences: subjects, relative clauses, subordination, coordination, questions, commands."""

from __future__ import annotations

from dataclasses import replace

from nmt.data.grammar import english, verbs
from nmt.data.grammar.frames import adjuncts_of
from nmt.data.grammar.french import Features, agree
from nmt.data.grammar.nested import NestedFrames
from nmt.data.grammar.noun_phrases import NounPhrase
from nmt.data.grammar.nouns import NOUNS, PEOPLE
from nmt.data.grammar.predicates import Predicate
from nmt.data.grammar.source import DeadEnd
from nmt.data.grammar.tokens import Phrase, Word

SUBJECT_PRONOUNS = (
    ("I", "je", Features(1)), ("you", "tu", Features(2)), ("he", "il", Features(3)),
    ("she", "elle", Features(3, False, True)), ("we", "nous", Features(1, True)),
)  # fmt: skip
_THINGS = ("object", "document", "text", "vehicle", "furniture", "clothing", "food", "place", "event", "plant", "idea",
           "instrument", "opening", "landmark", "sound")  # fmt: skip
_GAP_FRAMES = "saying trying modal asking and_verb and_pronoun quality comparison profession state"


class Clauses(NestedFrames):
    """The rules of clauses and sentences."""

    def clause(self, n: int, time: str, without: str = "") -> Phrase:
        """Subject and predicate, n words."""
        return self.attempt(lambda: self._clause(n, time, without))

    def _clause(self, n: int, time: str, without: str) -> Phrase:
        subject, predicate = self._subject_and_predicate(n, time, without)
        return subject.phrase + self.finite(predicate, subject.features)

    def _subject_and_predicate(self, n: int, time: str, without: str) -> tuple[NounPhrase, Predicate]:
        subject, rest = self.subject(n, time)
        outer, self.discourse.now = self.discourse.now, time
        predicate = self.verb_phrase(rest, subject, time, without)
        self.discourse.now = outer
        return subject, predicate

    def subject(self, n: int, time: str, *, least: int = 2) -> tuple[NounPhrase, int]:
        """A subject for a clause of n words, and the words left for its predicate (at least `least`)."""
        extra = 1 if time in ("future", "reported") else 0
        most = min(n - 1 - extra if n <= 5 else n - least - extra, 8, max(3, n // 3))
        size = 1 if most < 2 or self.chance(0.3) else min(self.between(2, max(2, most)), self.between(2, max(2, most)))
        if size > n - 1 - extra:
            raise DeadEnd
        if size == 1 and self.chance(0.6):
            subject = self._pronoun()
        else:
            kinds = self.weighted(((6.0, PEOPLE), (1.2, ("animal",)), (1.8 if n - size >= 2 else 0.5, _THINGS)))
            if size == 1:
                kinds = PEOPLE  # no town does anything
            subject = self.noun_phrase(size, kinds, self.inner_time(time))
        self.discourse.previous = subject
        return subject, n - size

    def _pronoun(self) -> NounPhrase:
        """A subject pronoun. It and they stand for the subject of the clause before, they otherwise for men."""
        previous = self.discourse.previous
        if previous and previous.features.person == 3 and not previous.pronoun and self.chance(0.7):
            features = previous.features
            person = "she" if features.feminine else "he"
            text = "they" if features.plural else person if previous.kind in PEOPLE else "it"
            french = ("elle" if features.feminine else "il") + "s" * features.plural
            return NounPhrase(self.pair(text, french), features, previous.kind, pronoun=True)
        if previous is None and self.chance(0.15):
            return NounPhrase(self.pair("they", "ils"), Features(3, True), "person", pronoun=True)
        text, french, features = self.pick(SUBJECT_PRONOUNS)
        return NounPhrase(self.pair(text, french), features, "person", pronoun=True)

    # Relative clauses --------------------------------------------------------------------------------------------

    def relative(self, n: int, head: NounPhrase, time: str) -> Phrase:
        """A relative clause of n words: who, that, whose, where, with whom, that … about."""
        inner = self._relative_time(time)
        saved, self.discourse.previous = self.discourse.previous, _NOBODY
        outer, self.discourse.now = self.discourse.now, inner
        people = head.kind in PEOPLE
        usable = head.kind not in ("foodstuff", "drink")
        options = [
            (3.0 if n >= 2 and usable and (people or head.kind == "animal" or n >= 3) else 0.0, self._who),
            (3.0 if n >= 3 and self._gap_verbs(head.kind) else 0.0, self._that),
            (1.0 if n >= 4 and head.kind in ("person", "text", "event", "idea") else 0.0, self._about_which),
            (1.0 if n >= 4 and people else 0.0, self._with_whom),
            (1.0 if n >= 4 and people else 0.0, self._whose),
            (4.0 if n >= 3 and head.kind == "place" else 0.0, self._where),
        ]
        phrase = self.weighted(options)(n, head, inner)
        self.discourse.previous, self.discourse.now = saved, outer
        return phrase

    def _relative_time(self, time: str) -> str:
        if time in ("past", "reported"):
            return time
        return self.weighted(((5.0, "present"), (3.0, "past"), (0.4, "future")))

    def _who(self, n: int, head: NounPhrase, time: str) -> Phrase:
        predicate = self.verb_phrase(n - 1, head, time, "profession and_verb and_pronoun")
        pronoun = self.pair("who" if head.kind in PEOPLE else "that", "qui")
        return pronoun + self.finite(predicate, head.features)

    @staticmethod
    def _gap_verbs(kind: str) -> list[verbs.Verb]:
        return [item for item in verbs.TRANSITIVE if kind in item.objects and not item.preposition]

    def _that(self, n: int, head: NounPhrase, time: str) -> Phrase:
        """that Marie bought: "que Marie a achetée"."""
        subject, rest = self._person(n - 1, time)
        predicate = self.gap_predicate(rest, head, subject, time)
        return self.pair("that", "que") + subject.phrase + self.finite(predicate, subject.features)

    def gap_predicate(self, n: int, head: NounPhrase, subject: NounPhrase, time: str) -> Predicate:
        """A predicate whose direct object stands before it: the participle agrees with it."""
        predicate, rest = self.begin(self.pick(self._gap_verbs(head.kind)), n, 0, time)
        predicate.preceding = head.features
        return self._fill(rest, predicate, subject, time, adjuncts_of(predicate.verb))

    def _person(self, n: int, time: str) -> tuple[NounPhrase, int]:
        """Somebody, and what is left of n words."""
        extra = 1 if time in ("future", "reported") else 0
        size = 1 if n - extra < 3 or self.chance(0.5) else self.between(2, min(4, n - 1 - extra))
        subject = self._pronoun() if size == 1 and self.chance(0.5) else self.noun_phrase(size, PEOPLE, "present")
        return subject, n - size

    def _about_which(self, n: int, head: NounPhrase, time: str) -> Phrase:
        """that Marie speaks about: "dont Marie parle"; the preposition stays behind in English."""
        subject, rest = self._person(n - 1, time)
        verb = self.pick(verbs.ABOUT[:2])
        predicate, rest = self.begin(verb, rest, 0, time)
        of = predicate.preposition_link
        self._fill(rest, predicate, subject, time, "t")
        return Phrase((Word("that", (of,)),), (Word("dont", (of,)),)) + subject.phrase + self.finite(
            predicate, subject.features
        )  # fmt: skip

    def _with_whom(self, n: int, head: NounPhrase, time: str) -> Phrase:
        subject, rest = self._person(n - 2, time)
        verb = self.pick([item for item in verbs.INTRANSITIVE if item.infinitive in _TOGETHER])
        predicate, rest = self.begin(verb, rest, 0, time)
        self._fill(rest, predicate, subject, time, "ftp")
        return self.linked("with whom", "avec qui", "0-0 1-1") + subject.phrase + self.finite(
            predicate, subject.features
        )  # fmt: skip

    def _whose(self, n: int, head: NounPhrase, time: str) -> Phrase:
        """whose car is red: "dont la voiture est rouge"; the article is aligned to whose."""
        kinds = ("vehicle", "clothing", "instrument", "animal", "kin")
        link = self.link()
        outer = self.noun_phrase(2, kinds, "present", definite=True)
        article = "les" if outer.features.plural else "la" if outer.features.feminine else "le"
        noun = Phrase(outer.phrase.english[-1:], outer.phrase.french[-1:])
        if len(outer.phrase.english) != 2 or len(outer.phrase.french) != 2:
            raise DeadEnd
        start = Phrase((Word("whose", (link,)),), (Word("dont", (link,)), Word(article, (link,), "article")))
        predicate = self.verb_phrase(n - 2, outer, time, _GAP_FRAMES.replace("quality comparison", ""))
        return start + noun + self.finite(predicate, outer.features)

    def _where(self, n: int, head: NounPhrase, time: str) -> Phrase:
        subject, rest = self._person(n - 1, time)
        verb = self.pick([item for item in verbs.LOCATED if item.infinitive != "arriver"])
        predicate, rest = self.begin(verb, rest, 0, time)
        self._fill(rest, predicate, subject, time, "ftc")
        return self.pair("where", "où") + subject.phrase + self.finite(predicate, subject.features)

    # Sentences ---------------------------------------------------------------------------------------------------

    def sentence(self, n: int) -> Phrase:
        """A statement, question or command of exactly n English words."""
        choice = self.weighted(
            (
                (10.0, "statement"),
                (1.2 if n <= 25 else 0.1, "question"),
                (0.5 if n <= 16 else 0.0, "command"),
                (0.6 if 6 <= n <= 20 else 0.0, "there"),
            )
        )
        if choice == "question":
            return self._question(n) + self.pair("?", "?")
        if choice == "command":
            return self._command(n) + self.pair("!", "!")
        time = self.weighted(((5.0, "present"), (4.0, "past"), (1.5, "future")))
        return (self._there_is(n, time) if choice == "there" else self.statement(n, time)) + self.pair(".", ".")

    def statement(self, n: int, time: str, opening: bool = True) -> Phrase:
        """A main clause, alone, coordinated or with a subordinate clause before it (if `opening`); n words."""
        if n < 6 or (n < 24 and self.chance(0.6)):
            return self.clause(n, time)
        size = self.between(max(3, n // 4), n - max(3, n // 4))
        if opening and self.chance(0.35) and size <= 14:
            return self._subordinate(size, n, time)
        first = self.attempt(lambda: self.statement(size - 1, time, opening))
        english, french, comma = self.conjunction()
        link = (self.pair(",", ",") if comma else Phrase()) + self.pair(english, french)
        return first + link + self.attempt(lambda: self.statement(n - size, time, english in ("and", "but")))

    def conjunction(self) -> tuple[str, str, bool]:
        """A conjunction (and whether a comma precedes it), rather one that the sentence does not have yet."""
        options = [(0.3 ** self.discourse.conjunctions.count(item[0]), item) for item in _CONJUNCTIONS
                   if item[0] not in self.discourse.conjunctions[-1:]]  # fmt: skip
        choice = self.weighted(options)
        self.discourse.conjunctions += (choice[0],)
        return choice

    def _subordinate(self, size: int, n: int, time: str) -> Phrase:
        """when, while or if, a clause, a comma, the main clause."""
        if time == "future":
            english, french, inner = self.pick(
                (("when", "quand", "after when"), ("as soon as", "dès que", "after when"), ("if", "si", "present"))
            )
        else:
            english, french, inner = self.pick(
                (
                    ("when", "quand", time),
                    ("while", "pendant que", "while" if time == "past" else time),
                    ("as soon as", "dès que", "completed" if time == "past" else time),
                )
            )
        passing = self._passing(size - len(english.split()), inner, negated=english == "if")
        # What follows at once is an event: not "as soon as he came, she was singing".
        main = "completed" if inner == "completed" else time
        return self.pair(english, french) + passing + self.pair(",", ",") + self.statement(n - size, main, False)

    def _passing(self, n: int, time: str, *, negated: bool) -> Phrase:
        """A clause about something that happens, not a habit or a lasting state; or does not, where it may be negated:
        not "as soon as she never sings"."""

        def rule() -> Phrase:
            subject, predicate = self._subject_and_predicate(n, time, _LASTING)
            if predicate.verb.stative or (predicate.negation and not negated):
                raise DeadEnd
            return subject.phrase + self.finite(predicate, subject.features)

        self.discourse.banned = "ft"
        result = self.attempt(rule)
        self.discourse.banned = ""
        return result

    def _there_is(self, n: int, time: str) -> Phrase:
        self.discourse.flat = True
        size = self.between(2, min(5, n - 4 - (time == "future")))
        kinds = ("person", "animal", "object", "document", "furniture")
        thing = self.indefinite(size, kinds, self.inner_time(time))
        self.discourse.flat = False
        tense = time
        forms = {"present": "a", "past": "avait", "future": "aura"}
        link = self.link()
        words_ = ("will be",) if tense == "future" else (english.finite("be", tense, thing.features),)
        start = self.pair("there", "il y") + Phrase(
            tuple(Word(text, (link,)) for text in words_[0].split()), (Word(forms[tense], (link,)),)
        )
        rest = n - 1 - len(words_[0].split()) - size
        return start + thing.phrase + self.location(rest, thing.kind, self.inner_time(time))

    # Questions and commands --------------------------------------------------------------------------------------

    def _question(self, n: int) -> Phrase:
        time = self.weighted(((4.0, "present"), (3.0, "past"), (1.0, "future")))
        return self.weighted(
            ((3.0, self._polar), (1.5, self._adverbial), (1.0, self._who_question), (1.5, self._which))
        )(n, time)

    def _inverted(self, subject: NounPhrase, predicate: Predicate, before: Phrase) -> Phrase:
        """[before] auxiliary subject verb …: "[before] est-ce que" subject verb …; "est-ce que" is aligned to the
        auxiliary."""
        if predicate.negation not in ("", "not"):
            raise DeadEnd
        line = self.english_verb(predicate, subject.features, question=True)
        asked = self.link()
        front = replace(line[0], links=(*line[0].links, asked))
        left = (*before.english, front, *subject.phrase.english, *line[1:])
        right = (*before.french, Word("est-ce", (asked,)), Word("que", (asked,)), *subject.phrase.french)
        return Phrase(left, right + self.french_verb(predicate, subject.features)) + self.rest(predicate)

    def _polar(self, n: int, time: str) -> Phrase:
        support = int(time != "future")  # do
        subject, rest = self.subject(n - support, time)
        self.discourse.now, self.discourse.interrogative = time, True
        predicate = self.verb_phrase(rest + support, subject, time, "and_verb and_pronoun")
        return self._inverted(subject, predicate, Phrase())

    def _adverbial(self, n: int, time: str) -> Phrase:
        """why, when, where: without an adjunct that answers it."""
        english, french, self.discourse.banned = self.pick(
            (("why", "pourquoi", "s"), ("when", "quand", "ts"), ("where", "où", "ps"))
        )
        support = int(time != "future")  # do
        subject, rest = self.subject(n - 1 - support, time)
        without = "saying trying modal asking state quality comparison profession being_somewhere having about"
        if english != "why":
            without += " located directed belonging sudden thing_event passive"
        before = self.pair(english, french)
        self.discourse.now, self.discourse.interrogative = time, True
        predicate = self.verb_phrase(rest + support, subject, time, "and_verb and_pronoun " + without)
        if predicate.verb.stative or (predicate.negation and english != "why"):
            raise DeadEnd
        return self._inverted(subject, predicate, before)

    def _who_question(self, n: int, time: str) -> Phrase:
        """who opens the door: no inversion."""
        somebody = NounPhrase(self.pair("who", "qui"), Features(), "person")
        self.discourse.now, self.discourse.banned = time, "s"
        predicate = self.verb_phrase(n - 1, somebody, time, "and_verb and_pronoun profession comparison")
        return somebody.phrase + self.finite(predicate, somebody.features)

    def _which(self, n: int, time: str) -> Phrase:
        """which book did Marie buy: "quel livre est-ce que Marie a acheté"."""
        noun = self.pick([item for kind in ("object", "document", "clothing", "food", "vehicle", "animal", "plant")
                          for item in NOUNS[kind]])  # fmt: skip
        plural = self.chance(0.4)
        features = noun.features(plural)
        adjective = n > 6 and self.chance(0.3)
        quel = agree("quel", features)
        which = self.pair("which", quel)
        core = self.noun_core(int(adjective), noun, plural, which)
        subject, rest = self._person(n - len(core.english) - 1, time)
        self.discourse.interrogative = True
        predicate = self.gap_predicate(rest + 1, NounPhrase(core, features, noun.kind), subject, time)
        return self._inverted(subject, predicate, core)

    def _command(self, n: int) -> Phrase:
        """open the door; do not look at him."""
        somebody = NounPhrase(Phrase(), Features(2), "person", pronoun=True)
        negated = n >= 4 and self.chance(0.3)
        without = "sudden state quality comparison profession being_somewhere having saying modal and_verb and_pronoun"
        predicate = self.verb_phrase(n - 2 * negated, somebody, "bare", without)
        if predicate.verb.stative or (not negated and (predicate.clitics or predicate.verb.reflexive)):
            raise DeadEnd
        if negated and self.has_indefinite(predicate):
            raise DeadEnd
        finite, verb_link, negation = predicate.links[:3]
        left = (Word(predicate.verb.base, (finite, verb_link)), *self.particle(predicate))
        form = predicate.verb.conjugation.imperative_singular
        right = (*self.clitics(predicate, somebody.features), Word(form, (finite, verb_link)))
        if negated:
            left = (Word("do", (finite,)), Word("not", (negation,)), *left)
            right = (Word("ne", (negation,)), *right, Word("pas", (negation,)))
        if predicate.short_manner:
            right += predicate.manner.french
        return Phrase(left, right + self.after_verb(predicate)) + self.rest(predicate)


_NOBODY = NounPhrase(Phrase(), Features(), "person", pronoun=True)
_CONJUNCTIONS = (
    ("and", "et", False), ("but", "mais", True), ("so", "donc", True), ("because", "parce que", False),
    ("then", "puis", True), ("whereas", "alors que", False),
)  # fmt: skip
_LASTING = (
    "quality comparison profession being_somewhere belonging having state modal"  # what no "when" or "while" is about
)
_TOGETHER = ("travailler", "chanter", "danser", "voyager", "jouer", "manger")
