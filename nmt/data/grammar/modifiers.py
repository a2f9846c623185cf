"""Adjectives, adverbs, time expressions: words that modify, and what they may modify."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.data.grammar import french
from nmt.data.grammar.french import Features
from nmt.data.grammar.nouns import LIVING, NOUNS, PEOPLE, PORTABLE

# Next to the English noun: colours, origins and the like. Other adjectives that follow the French noun come first:
# "a tired old man", "an old white horse".
_NEXT_TO_NOUN = (
    "red", "blue", "green", "white", "black", "yellow", "grey", "pink", "brown", "wild", "Italian", "English",
    "French", "Spanish", "German", "Japanese", "Hungarian", "foreign", "public", "secret", "round",
)  # fmt: skip
SOLIDS = ("object", "clothing", "instrument", "vehicle", "furniture", "opening")
THINGS = (*PORTABLE, "vehicle", "furniture", "opening")


@dataclass(frozen=True)
class Adjective:
    """An adjective in both languages; `before` tells where it stands in French."""

    english: str
    french: str
    feminine: str
    kinds: tuple[str, ...]
    before: bool = False
    comparative: str = ""

    @property
    def english_rank(self) -> int:
        """Order among the adjectives before an English noun: opinion, other qualities, size and age, colour, origin."""
        if self.before:
            return 0 if self.english in ("good", "bad", "beautiful", "handsome", "pretty", "dear") else 2
        return 3 if self.english in _NEXT_TO_NOUN else 1

    def suits(self, kind: str, feminine: bool) -> bool:
        """Men are handsome, women beautiful or pretty."""
        if kind in PEOPLE:
            return self.english not in (("handsome",) if feminine else ("beautiful", "pretty"))
        return True

    def agree(self, features: Features) -> str:
        """Its French form."""
        return french.agree(self.french, features, self.feminine)


_ALL = tuple(NOUNS)
_SOLID = (*THINGS, "plant", "landmark", "place")

# (kinds, "english french[/feminine] [comparative]; …")
_BEFORE: list[tuple[tuple[str, ...], str]] = [
    (("person", "animal", *_SOLID, "food"), "small petit smaller"),
    (("animal", *_SOLID, "food"), "big grand bigger"),
    (("person",), "tall grand taller"),
    (("person", "animal", *_SOLID), "beautiful beau/belle"),
    (("person",), "handsome beau/belle"),
    ((*LIVING, *_SOLID, "text", "idea", "sound"), "old vieux/vieille older"),
    ((*THINGS, "place", "text", "idea"), "new nouveau/nouvelle"),
    ((*THINGS, "text", "food", "foodstuff", "drink", "idea", "place"), "good bon better"),
    (("text", "idea", "event", "drink", "food"), "bad mauvais worse"),
    (("person", "animal", "kin"), "young jeune younger"),
    (("kin",), "dear cher"),
    ((*THINGS, "plant", "place", "person", "sound"), "pretty joli prettier"),
    (("text", "event"), "long long/longue longer"),
]
_AFTER: list[tuple[tuple[str, ...], str]] = [
    (
        (*SOLIDS, "plant"),
        "red rouge; blue bleu; green vert; white blanc; black noir; yellow jaune; grey gris; pink rose",
    ),
    (("animal",), "white blanc; black noir; grey gris; brown brun; wild sauvage; hungry affamé; dangerous dangereux"),
    (
        PEOPLE,
        "happy heureux happier; sad triste sadder; tired fatigué; kind gentil/gentille kinder; "
        "intelligent intelligent; shy timide; curious curieux; serious sérieux; jealous jaloux/jalouse; "
        "brave courageux braver; sick malade; "
        "honest honnête; polite poli; rich riche richer; famous célèbre; elegant élégant; lazy paresseux lazier; "
        "patient patient; generous généreux; nervous nerveux; discreet discret/discrète; active actif; proud fier",
    ),
    (
        ("person",),
        "Italian italien; English anglais; French français; Spanish espagnol; German allemand; Japanese japonais; "
        "Hungarian hongrois; foreign étranger",
    ),
    (
        ("food", "foodstuff", "drink"),
        "delicious délicieux; hot chaud hotter; cold froid colder; fresh frais/fraîche fresher; sweet sucré sweeter; "
        "expensive cher; Italian italien; Spanish espagnol",
    ),
    (
        SOLIDS,
        "heavy lourd heavier; light léger/légère lighter; expensive cher; dirty sale; clean propre cleaner; "
        "fragile fragile; broken cassé; useful utile; precious précieux; round rond; strange étrange; modern moderne",
    ),
    (
        ("place", "landmark"),
        "modern moderne; famous célèbre; quiet tranquille quieter; noisy bruyant; dark sombre darker; clean propre; "
        "strange étrange; public public/publique; immense immense",
    ),
    (
        ("text", "event", "idea"),
        "interesting intéressant; boring ennuyeux; important important; funny drôle funnier; "
        "difficult difficile; strange étrange; recent récent; terrible terrible",
    ),
    (("document",), "interesting intéressant; important important; strange étrange; precious précieux"),
    (("document", "idea"), "secret secret/secrète"),
    (("calamity",), "terrible terrible; dangerous dangereux; strange étrange"),
    (("sound",), "strange étrange; sad triste; soft doux/douce; loud fort; familiar familier"),
]


def _adjectives() -> list[Adjective]:
    merged: dict[tuple[str, str], Adjective] = {}
    for before, table in ((True, _BEFORE), (False, _AFTER)):
        for kinds, rows in table:
            for row in rows.split(";"):
                source, target, *comparative = row.split()
                masculine, _, feminine = target.partition("/")
                known = merged.get((source, masculine))
                all_kinds = (*known.kinds, *kinds) if known else kinds
                merged[source, masculine] = Adjective(
                    source,
                    masculine,
                    feminine,
                    tuple(kind for kind in _ALL if kind in all_kinds),
                    before,
                    comparative=comparative[0] if comparative else (known.comparative if known else ""),
                )
    return list(merged.values())


ADJECTIVES = _adjectives()
# what "very" goes with
_ABSOLUTE = (
    "red", "blue", "green", "white", "black", "yellow", "grey", "pink", "brown", "wild", "Italian", "English",
    "French", "Spanish", "German", "Japanese", "Hungarian", "foreign", "delicious", "broken", "round", "public",
    "immense", "secret", "terrible", "new", "dear",
)  # fmt: skip
# passing qualities: they go with times and frequencies
PASSING = (
    "happy", "sad", "tired", "nervous", "jealous", "sick", "hungry", "dirty", "clean", "quiet", "noisy", "dark",
    "hot", "cold", "patient", "active", "kind", "polite",
)  # fmt: skip
GRADABLE = [item.english for item in ADJECTIVES if item.english not in _ABSOLUTE]


@dataclass(frozen=True)
class Adverb:
    """An adverb in both languages; a short one stands between auxiliary and participle in French."""

    english: str
    french: str
    short: bool = False


# of manner, for what somebody does
MANNER = [
    Adverb("slowly", "lentement"), Adverb("quickly", "rapidement"), Adverb("quietly", "silencieusement"),
    Adverb("calmly", "calmement"), Adverb("carefully", "soigneusement"), Adverb("patiently", "patiemment"),
    Adverb("secretly", "secrètement"), Adverb("happily", "joyeusement"),
]  # fmt: skip
WELL = [Adverb("well", "bien", True), Adverb("badly", "mal", True)]
# of frequency: before the verb in English, after the finite verb in French
FREQUENCY = [
    Adverb("often", "souvent", True), Adverb("always", "toujours", True), Adverb("sometimes", "parfois", True),
    Adverb("rarely", "rarement", True),
]  # fmt: skip
DEGREE = [Adverb("very", "très"), Adverb("too", "trop")]


@dataclass(frozen=True)
class Expression:
    """A fixed expression with its links ("0-0 1-1", English-French) and the times of sentences that it suits."""

    english: str
    french: str
    links: str
    times: tuple[str, ...]


_TIME = """
progress past: yesterday | hier | 0-0
past: recently | récemment | 0-0
past: last week | la semaine dernière | 0-2 1-1 1-0
past: last year | l' année dernière | 0-2 1-1 1-0
past: two days ago | il y a deux jours | 0-3 1-4 2-0 2-1 2-2
past: ten years ago | il y a dix ans | 0-3 1-4 2-0 2-1 2-2
future: tomorrow | demain | 0-0
future: soon | bientôt | 0-0
future: next week | la semaine prochaine | 0-2 1-1 1-0
future: next year | l' année prochaine | 0-2 1-1 1-0
future: tomorrow morning | demain matin | 0-0 1-1
future: in three days | dans trois jours | 0-0 1-1 2-2
future: in ten minutes | dans dix minutes | 0-0 1-1 2-2
progress past future: this morning | ce matin | 0-0 1-1
progress past future: this evening | ce soir | 0-0 1-1
past future: on Monday | lundi | 0-0 1-0
past future: on Thursday | jeudi | 0-0 1-0
past future: on Saturday | samedi | 0-0 1-0
progress past future: at noon | à midi | 0-0 1-1
past future: today | aujourd'hui | 0-0
present: today | aujourd'hui | 0-0
present: now | maintenant | 0-0
present: every day | tous les jours | 0-0 0-1 1-2
present: every week | toutes les semaines | 0-0 0-1 1-2
present: in the evening | le soir | 0-0 1-0 2-1
present: in the morning | le matin | 0-0 1-0 2-1
progress past present future: during the night | pendant la nuit | 0-0 1-1 2-2
later: the next day | le lendemain | 0-0 1-1 2-1
earlier: the day before | la veille | 0-0 1-1 2-1
"""


def _expressions() -> list[Expression]:
    merged: dict[str, Expression] = {}
    for line in _TIME.strip().splitlines():
        times, rest = line.split(": ")
        source, target, links = (part.strip() for part in rest.split(" | "))
        known = merged[source].times if source in merged else ()
        merged[source] = Expression(source, target, links, (*known, *times.split()))
    return list(merged.values())


TIME = _expressions()
