"""Words with alignment links, and how a list of them becomes text.

A synchronous rule makes the two sides at once, so a word knows from birth what it translates: an English and a French
word are aligned exactly where they share a link. Elision (l'arbre), contraction (du, aux) and forms before a vowel
(bel, cet, mon amie; an) depend on the neighbouring word only, hence they are one pass over the finished sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_TOKEN = re.compile(r"aujourd'hui|'s\b|\w[\w-]*?(?='s\b)|\w[\w-]*'(?=\w)|\w[\w-]*|[^\w\s]", re.IGNORECASE)

# h aspiré: no elision, no liaison form. Prefixes of every such word of the lexicon.
ASPIRATED = (
    "hache", "haie", "haine", "hall", "hameau", "hamster", "hangar", "hareng", "haricot", "harpe", "haut", "hérisson",
    "héros", "hibou", "hollande", "homard", "hongrie", "honte", "huit", "hurl",
)  # fmt: skip
ELISION = {
    "le": "l'", "la": "l'", "de": "d'", "ne": "n'", "je": "j'", "me": "m'", "te": "t'", "se": "s'", "que": "qu'",
    "jusque": "jusqu'", "ma": "mon", "ta": "ton", "sa": "son", "ce": "cet",
}  # fmt: skip
LIAISON = {"beau": "bel", "vieux": "vieil", "nouveau": "nouvel"}
CONTRACTION = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
# Spelled with a vowel but spoken with a consonant, and the reverse.
_CONSONANT_SOUND = ("uni", "use", "euro", "one")
_VOWEL_SOUND = ("honest", "hour")


def words(text: str) -> list[str]:
    """The tokens of a text that alignments refer to; the same function for English and French.

    Whitespace separates tokens; a token ends after the apostrophe of an elision (l' | arbre) and before that of an
    English possessive (Marie | 's); each punctuation mark is a token. Hyphenated words and "aujourd'hui" are whole.
    """
    return _TOKEN.findall(text)


@dataclass(frozen=True)
class Word:
    """One token. `kind` is "" or what the neighbours need to know: article, partitive, liaison."""

    text: str
    links: tuple[int, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Phrase:
    """A constituent on both sides."""

    english: tuple[Word, ...] = ()
    french: tuple[Word, ...] = ()

    def __add__(self, other: Phrase) -> Phrase:
        return Phrase(self.english + other.english, self.french + other.french)


@dataclass(frozen=True)
class Pair:
    """An English sentence, its French translation, and the gold links (English index, French index) over `words`."""

    english: str
    french: str
    alignment: tuple[tuple[int, int], ...]


def starts_with_vowel(text: str) -> bool:
    """Whether a French word makes the word before it elide."""
    lowered = text.lower()
    return lowered[0] in "aeiouyàâéèêëîïôöùûüœh" and not lowered.startswith(ASPIRATED)


def english_surface(line: Sequence[Word]) -> list[Word]:
    """The English side with `a` and `an` chosen."""
    result = list(line)
    for index, word in enumerate(result[:-1]):
        if word.text == "a":
            following = result[index + 1].text.lower()
            vowel = following[0] in "aeiou" and not following.startswith(_CONSONANT_SOUND)
            if vowel or following.startswith(_VOWEL_SOUND):
                result[index] = replace(word, text="an")
    return result


def french_surface(line: Sequence[Word]) -> list[Word]:
    """The French side with elisions, contractions and forms before a vowel; from right to left.

    The order matters: an article that elides (l'arbre) no longer contracts with the preposition before it.
    """
    result: list[Word] = []  # reversed
    for word in reversed(_without_partitives(line)):
        following = result[-1] if result else Word(".")
        contracted = CONTRACTION.get((word.text, following.text))
        if contracted and following.kind in ("article", "partitive"):
            result[-1] = Word(contracted, word.links + following.links)
            continue
        if word.text == "si" and following.text in ("il", "ils"):
            word = replace(word, text="s'")
        elif starts_with_vowel(following.text):
            forms = LIAISON if word.kind == "liaison" else ELISION
            word = replace(word, text=forms.get(word.text, word.text))
        result.append(word)
    return result[::-1]


def _without_partitives(line: Sequence[Word]) -> list[Word]:
    """Drops du, de la, des after the preposition de: "près de maisons", "beaucoup de pain"."""
    result: list[Word] = []
    for word in line:
        if word.kind == "partitive" and result and result[-1].text == "de" and result[-1].kind == "":
            result[-1] = replace(result[-1], links=result[-1].links + word.links)
        else:
            result.append(word)
    return result


def join(line: Iterable[Word], *, space_before: str = "") -> str:
    """The text of a line: no space after an elision, before 's and punctuation except for `space_before`."""
    text = ""
    for word in line:
        if text and not text.endswith("'") and (word.text in space_before or word.text not in ",.?!'s"):
            text += " "
        text += word.text
    return text[:1].upper() + text[1:]


def realise(phrase: Phrase) -> Pair:
    """The sentence as text, with the alignment that its links say."""
    english, french = english_surface(phrase.english), french_surface(phrase.french)
    positions: dict[int, list[int]] = {}
    for index, word in enumerate(french):
        for link in word.links:
            positions.setdefault(link, []).append(index)
    alignment = {(i, j) for i, word in enumerate(english) for link in word.links for j in positions.get(link, ())}
    return Pair(join(english), join(french, space_before="?!"), tuple(sorted(alignment)))
