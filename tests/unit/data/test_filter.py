"""Pairs are dropped as pairs, for a counted reason, and an empty result is an error that names the keys."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keeping import keep
from nmt.config import FilterConfig
from nmt.data import duplicates
from nmt.data.duplicates import Near, repeated
from nmt.data.filter import PairFilter, Tally, is_blank
from nmt.errors import RequestError

WORDS = st.integers(0, 12).map(lambda count: " ".join(["mot"] * count))
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=30)


def filtered(pairs: list[tuple[str, str]], **settings: Any) -> tuple[list[tuple[str, str]], Tally]:
    """What is kept of the pairs, and the counts."""
    return keep(pairs, FilterConfig(**settings))


@pytest.mark.case
@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u00ad \u2060"])
def test_a_blank_side_drops_the_pair_and_shifts_none(blank: str) -> None:
    pairs = [("un", "1"), ("deux", "2"), ("trois", blank), ("quatre", "4"), (blank, "5"), ("six", "6")]
    kept, tally = filtered(pairs)
    assert kept == [("un", "1"), ("deux", "2"), ("quatre", "4"), ("six", "6")]
    assert tally.dropped == {"blank target": 1, "blank source": 1}


@pytest.mark.parametrize("text", ["?", "|", "'", "…", "0", " a "])
def test_a_text_with_anything_to_see_is_not_blank(text: str) -> None:
    assert not is_blank(text)


def test_the_longest_sentence_allowed_is_kept_and_one_word_more_is_not() -> None:
    five, six = "a b c d e", "a b c d e f"
    kept, tally = filtered([(five, five), (five, six), (six, five)], max_words=5)
    assert kept == [(five, five)]
    assert tally.dropped == {"too long": 2}


def test_the_length_ratio_is_taken_after_adding_five_to_both_sides() -> None:
    # max_ratio 2: (7 + 5) / (1 + 5) = 2 is kept, (8 + 5) / (1 + 5) > 2 is not, on either side.
    seven, eight = " ".join("abcdefg"), " ".join("abcdefgh")
    kept, tally = filtered([("a", seven), (seven, "a"), ("a", eight), (eight, "a")], max_ratio=2.0)
    assert kept == [("a", seven), (seven, "a")]
    assert tally.dropped == {"length ratio": 2}


def test_duplicates_are_equal_on_both_sides_and_the_first_one_stays() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("b", "a"), ("a b", "c"), ("a", "b c")]
    assert filtered(pairs)[0] == pairs
    kept, tally = filtered(pairs, drop_duplicates=True)
    assert kept == [("a", "b"), ("a", "c"), ("b", "a"), ("a b", "c"), ("a", "b c")]
    assert tally.dropped == {"duplicate": 1}


@given(PAIRS)
def test_every_pair_is_kept_or_counted_and_the_order_stays(pairs: list[tuple[str, str]]) -> None:
    kept, tally = filtered(pairs, max_words=8, max_ratio=1.5, drop_duplicates=True)
    rest = iter(pairs)
    assert all(pair in rest for pair in kept)
    assert len(kept) == tally.kept
    assert tally.kept + sum(tally.dropped.values()) == len(pairs) == tally.total


@given(PAIRS)
def test_swapping_the_languages_keeps_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    settings = {"max_words": 8, "max_ratio": 1.5}
    swapped = [(target, source) for source, target in pairs]
    assert filtered(swapped, **settings)[0] == [(t, s) for s, t in filtered(pairs, **settings)[0]]


@pytest.mark.case
def test_the_summary_is_one_line_with_the_most_frequent_reason_first() -> None:
    long = "a " * 300
    pairs = [("a", "b")] * 7 + [(long, long)] * 3 + [("", "b"), ("a", ""), ("a", "")]
    _, tally = filtered(pairs)
    assert tally.summary() == "kept 7 of 13 pairs (too long 3, blank target 2, blank source 1)"
    assert filtered([("a", "b")])[1].summary() == "kept 1 of 1 pairs"


def test_a_pair_rejected_later_moves_from_kept_to_its_reason() -> None:
    _, tally = filtered([("a", "b"), ("c", "d")])
    tally.reject("too many pieces")
    assert (tally.kept, tally.total) == (1, 2)
    assert tally.summary() == "kept 1 of 2 pairs (too many pieces 1)"
    tally.require_some(FilterConfig())
    tally.reject("too many pieces")
    with pytest.raises(RequestError, match=r"too many pieces 2 \(data\.filter\.max_pieces=256\)"):
        tally.require_some(FilterConfig())


@pytest.mark.case
def test_nothing_kept_is_an_error_that_names_the_reasons_and_the_keys() -> None:
    _, tally = filtered([("a b c", "a b c"), ("", "a"), ("a b c", "d e f")], max_words=2)
    with pytest.raises(RequestError) as caught:
        tally.require_some(FilterConfig(max_words=2))
    assert str(caught.value) == (
        "data.filter: none of the 3 training pairs is kept: too long 2 (data.filter.max_words=2), blank source 1"
    )
    with pytest.raises(RequestError, match="holds no pairs"):
        filtered([])[1].require_some(FilterConfig())


# What is for text of the web ---------------------------------------------------------------------------------------


def test_a_side_that_repeats_the_other_is_a_copy_whatever_else_differs() -> None:
    pairs = [
        ("Le chat dort.", "LE CHAT  dort !"),
        ("The cat sleeps.", "Le chat dort."),
        ("Paris", "Paris"),
        ("12:30", "12:30"),  # nothing to translate in it: few letters, but no copy
    ]
    kept, tally = filtered(pairs, drop_copies=True)
    assert kept == [pairs[1], pairs[3]]
    assert tally.dropped == {"copy": 2}
    assert filtered(pairs)[0] == pairs


def test_the_share_of_letters_is_taken_of_what_is_to_be_seen() -> None:
    # Two of four visible characters; an accent is part of its letter; spaces do not count.
    pairs = [("a b 1 2", "éà12"), ("a 1 2", "ab"), ("ab", "a-1"), ("日本語", "été")]
    kept, tally = filtered(pairs, min_letters=0.5)
    assert kept == [pairs[0], pairs[3]]
    assert tally.dropped == {"few letters": 2}


def test_sides_in_other_languages_are_told_apart() -> None:
    english = "The committee will discuss the report at its next meeting in the spring."
    french = "Le comité examinera le rapport lors de sa prochaine réunion au printemps."
    german = "Der Ausschuss wird den Bericht in seiner nächsten Sitzung im Frühjahr erörtern."
    pairs = [(english, french), (german, french), (english, german), (french, english), ("OK.", "Oui."), ("7", "7")]
    kept, tally = filtered(pairs, max_other_language=0.5)
    assert kept == [(english, french), ("OK.", "Oui."), ("7", "7")]
    assert tally.dropped == {"source in another language": 2, "target in another language": 1}


def test_a_language_that_is_not_known_names_its_key() -> None:
    with pytest.raises(
        RequestError, match=r"data\.target_language=xx: data\.filter\.max_other_language knows only .*, fr, "
    ):
        PairFilter(FilterConfig(max_other_language=0.5), "en", "xx")


def test_near_duplicates_are_those_that_hardly_differ_and_the_first_one_stays() -> None:
    words = "the old man who lived in the small house near the river had never seen the sea".split()  # noqa: SIM905
    first = (" ".join(words), " ".join(word[::-1] for word in words))
    pairs = [
        first,
        ("Something else entirely, with no word in common.", "Tout autre chose."),
        (first[0].upper() + " !", first[1] + "."),  # other case and punctuation
        (first[0].replace("sea", "lake"), first[1]),  # one word of more than thirty
        (" ".join(reversed(words)), first[1][::-1]),  # the same words in another order
        (first[0], "Tout autre chose que cela."),  # one side alone
    ]
    kept, tally = filtered(pairs, max_similarity=0.7)
    assert kept == [pairs[0], pairs[1], pairs[4], pairs[5]]
    assert tally.dropped == {"near duplicate": 2}
    assert filtered(pairs)[0] == pairs


def test_the_chance_to_be_found_rises_around_the_similarity_that_is_asked_for() -> None:
    # A changed word of a source of n words takes two of its n + 1 neighbours; the targets have two neighbours.
    near, generator = Near(0.8), random.Random(1)

    def share_found(words: int, changed: int) -> float:
        pairs = []
        for _ in range(60):
            texts = [f"w{generator.getrandbits(40)}" for _ in range(words)]
            other = [
                f"{word}changed" if place in range(1, 3 * changed, 3) else word for place, word in enumerate(texts)
            ]
            pairs += [(" ".join(texts), "a"), (" ".join(other), "a")]
        return float(repeated(near.digests(pairs), np.ones(len(pairs), dtype=bool)).sum()) / 60

    assert share_found(20, 0) == 1
    assert share_found(60, 1) > 0.9  # similarity (61 + 2 - 2) / (61 + 2 + 2) = 0.94
    assert share_found(12, 4) < 0.1  # similarity (13 + 2 - 8) / (13 + 2 + 8) = 0.3


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=40), st.integers(1, 7))
def test_repeated_is_what_a_set_finds_whatever_fits_in_memory(rows: list[tuple[int, int, bool]], at_once: int) -> None:
    # Numbers over the whole range of 64 bits, its ends included.
    digests = np.array([[a * (2**64 - 1) // 9, b * (2**64 - 1) // 9] for a, b, _ in rows], np.uint64).reshape(-1, 2)
    candidates = np.array([candidate for *_, candidate in rows], dtype=bool)
    seen: tuple[set[int], set[int]] = (set(), set())
    expected = []
    for first, second, candidate in rows:
        expected.append(candidate and (first in seen[0] or second in seen[1]))
        if candidate:
            seen[0].add(first)
            seen[1].add(second)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "AT_ONCE", at_once)
        assert repeated(digests, candidates).tolist() == expected
