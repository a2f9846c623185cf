"""Tokens, elision, contraction, and the text that comes of them: values written by hand."""

from __future__ import annotations

import pytest

from nmt.data.grammar.tokens import Phrase, Word, english_surface, french_surface, join, realise, words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("L'arbre n'est pas d'ici.", "L' arbre n' est pas d' ici ."),
        ("Est-ce qu'il dort aujourd'hui ?", "Est-ce qu' il dort aujourd'hui ?"),
        ("Marie's car, Louis's car!", "Marie 's car , Louis 's car !"),
        ("S'il vient, sa grand-mère s'en va.", "S' il vient , sa grand-mère s' en va ."),
        ("", ""),
    ],
)
def test_words_split_at_apostrophes_and_punctuation(text: str, tokens: str) -> None:
    assert words(text) == tokens.split()


def french(line: str) -> str:
    """The surface of a line whose articles are marked with *, partitives with +, liaison with ~."""
    kinds = {"*": "article", "+": "partitive", "~": "liaison"}
    return join(french_surface([Word(w.strip("*+~"), (), kinds.get(w[-1], "")) for w in line.split()]))


@pytest.mark.parametrize(
    ("line", "surface"),
    [
        ("le* arbre", "L'arbre"),
        ("le* héros", "Le héros"),
        ("la* haine", "La haine"),
        ("la* horloge", "L'horloge"),
        ("le* homard", "Le homard"),
        ("à le* marché", "Au marché"),
        ("à le* hôtel", "À l'hôtel"),
        ("à le* hibou", "Au hibou"),
        ("de les* rois", "Des rois"),
        ("de le* roi", "Du roi"),
        ("de la* reine", "De la reine"),
        ("à les* amis", "Aux amis"),
        ("essaie de le voir", "Essaie de le voir"),  # a pronoun does not contract
        ("près de des+ maisons", "Près de maisons"),
        ("besoin de de+ la+ eau", "Besoin d'eau"),
        ("beaucoup de amis", "Beaucoup d'amis"),
        ("de+ le+ pain", "Du pain"),
        ("de+ le+ argent", "De l'argent"),
        ("un beau~ arbre", "Un bel arbre"),
        ("un très vieux~ hôpital", "Un très vieil hôpital"),
        ("un nouveau~ hamster", "Un nouveau hamster"),
        ("il est beau et vieux", "Il est beau et vieux"),
        ("ma amie", "Mon amie"),
        ("sa écharpe", "Son écharpe"),
        ("sa hache", "Sa hache"),
        ("ce oiseau", "Cet oiseau"),
        ("ce héros", "Ce héros"),
        ("si il vient", "S'il vient"),
        ("si elle vient", "Si elle vient"),
        ("je ne y vais pas", "Je n'y vais pas"),
        ("parce que Hélène me aime", "Parce qu'Hélène m'aime"),
        ("de Émile", "D'Émile"),
    ],
)
def test_french_forms_depend_on_the_next_word(line: str, surface: str) -> None:
    assert french(line) == surface


@pytest.mark.parametrize(
    ("line", "surface"),
    [
        ("a apple", "An apple"),
        ("a old man", "An old man"),
        ("a university", "A university"),
        ("a uniform", "A uniform"),
        ("a useful tool", "A useful tool"),
        ("a honest man", "An honest man"),
        ("a hotel", "A hotel"),
        ("a umbrella", "An umbrella"),
    ],
)
def test_an_before_a_vowel_sound(line: str, surface: str) -> None:
    assert join(english_surface([Word(word) for word in line.split()])) == surface


def test_contraction_keeps_both_links_and_punctuation_its_place() -> None:
    phrase = Phrase(
        (Word("go", (1,)), Word("to", (2,)), Word("the", (3,)), Word("zoo", (4,)), Word("!", (5,))),
        (Word("va", (1,)), Word("à", (2,)), Word("le", (3,), "article"), Word("zoo", (4,)), Word("!", (5,))),
    )
    pair = realise(phrase)
    assert (pair.english, pair.french) == ("Go to the zoo!", "Va au zoo !")
    assert pair.alignment == ((0, 0), (1, 1), (2, 1), (3, 2), (4, 3))
