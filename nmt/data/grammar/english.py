"""English inflection: verbs with their auxiliaries, plurals.

`verb_group` is where English differs most from French: do-support in negations and questions, and auxiliaries where
French has endings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from nmt.data.grammar.french import Features

# base past participle
_IRREGULAR = """
be was been; have had had; do did done; go went gone; come came come; leave left left; sleep slept slept;
lie lied lied; run ran run; open opened opened; offer offered offered; see saw seen; know knew known; take took taken;
understand understood understood; put put put; say said said; read read read; write wrote written; drink drank drunk;
eat ate eaten; think thought thought; want wanted wanted; follow followed followed; laugh laughed laughed;
draw drew drawn; drive drove driven; build built built; get got got; send sent sent; give gave given;
show showed shown; lend lent lent; sell sold sold; bring brought brought; tell told told; buy bought bought;
find found found; lose lost lost; break broke broken; hide hid hidden; choose chose chosen; forget forgot forgotten;
sing sang sung; swim swam swum; fall fell fallen; speak spoke spoken; hear heard heard; hold held held;
begin began begun; cut cut cut; swear swore sworn; dream dreamed dreamed; feed fed fed; teach taught taught;
wake woke woken;
shine shone shone; wear wore worn; catch caught caught; keep kept kept; steal stole stolen; meet met met
"""
IRREGULAR = {row.split()[0]: tuple(row.split()[1:]) for row in _IRREGULAR.replace("\n", " ").split(";")}
_DOUBLING = (
    "travel",
    "prefer",
    "plan",
    "stop",
    "admit",
    "refer",
    "swim",
    "run",
    "put",
    "get",
    "cut",
    "forget",
    "begin",
)
_PLURALS = {"man": "men", "woman": "women", "child": "children", "mouse": "mice", "goose": "geese"}


@cache
def third_person(base: str) -> str:
    """sleeps, watches, carries."""
    if base in ("be", "have"):
        return {"be": "is", "have": "has"}[base]
    return _add_s(base)


def _add_s(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "z", "go", "do")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def plural(noun: str) -> str:
    """The plural of an English noun; compounds inflect their last part."""
    for singular, irregular in _PLURALS.items():
        if noun == singular or (noun.endswith("woman") and singular == "woman") or noun == "police" + singular:
            return noun.removesuffix(singular) + irregular
    if noun.endswith(("knife", "wife", "wolf", "shelf", "thief", "scarf")):
        return noun.removesuffix("fe").removesuffix("f") + "ves"
    if noun in ("tomato", "hero", "potato"):
        return noun + "es"
    return _add_s(noun)


@cache
def past(base: str) -> str:
    """The simple past."""
    return IRREGULAR[base][0] if base in IRREGULAR else _add_ed(base)


@cache
def participle(base: str) -> str:
    """The past participle."""
    return IRREGULAR[base][1] if base in IRREGULAR else _add_ed(base)


def _add_ed(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLING else "") + "ed"


@cache
def gerund(base: str) -> str:
    """sleeping, writing, swimming, lying."""
    if base == "lie":
        return "lying"
    if base.endswith("e") and not base.endswith("ee") and base != "be":
        return base[:-1] + "ing"
    return base + (base[-1] if base in _DOUBLING else "") + "ing"


def finite(base: str, tense: str, features: Features) -> str:
    """A simple form; `tense` is present or past."""
    if base == "be":
        if tense == "past":
            return "were" if features.plural or features.person == 2 else "was"
        if features.plural or features.person == 2:
            return "are"
        return "am" if features.person == 1 else "is"
    if tense == "past":
        return past(base)
    return third_person(base) if features.person == 3 and not features.plural else base


# auxiliary and form of the main verb
_COMPOUND: dict[str, tuple[str, Callable[[str], str]]] = {
    "progressive": ("be", gerund),
    "future": ("will", str),
    "conditional": ("would", str),
    "pluperfect": ("had", participle),
}
_MODALS = {("can", "present"): "can", ("can", "past"): "could", ("must", "present"): "must"}


def verb_group(
    base: str, tense: str, features: Features, negation: str = "", *, question: bool = False
) -> list[tuple[str, str]]:
    """The verb with its auxiliaries and negation, each word with its role: auxiliary, negation, adverb, verb.

    `tense` is present, past, progressive, future, conditional or pluperfect; `negation` is "", "not", "never" or
    "no longer". An empty word of role "adverb" marks where an adverb of frequency goes. In a question, the first word
    is the one that moves before the subject.
    """
    negations = [(word, "negation") for word in negation.split()]
    gap = ("", "adverb")
    if (base, tense) in _MODALS:
        modal = _MODALS[base, tense]
        if modal == "can" and negation == "not" and not question:
            return [("cannot", "verb+negation"), gap]
        return [(modal, "verb"), *negations, gap]
    if tense in _COMPOUND:
        auxiliary, form = _COMPOUND[tense]
        if auxiliary == "be":
            auxiliary = finite("be", "past", features)
        return [(auxiliary, "auxiliary"), *negations, gap, (form(base), "verb")]
    verb = (finite(base, tense, features), "verb")
    if base == "be":
        return [verb, *negations, gap]
    if negation == "not" or question:
        return [(finite("do", tense, features), "auxiliary"), *negations, gap, (base, "verb")]
    return [*negations, gap, verb]
