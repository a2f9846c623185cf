"""Pairs are dropped as pairs, for a counted reason, and an empty result is an error that names the keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import FilterConfig
from nmt.data.filter import PairFilter, is_blank
from nmt.errors import RequestError

WORDS = st.integers(0, 12).map(lambda count: " ".join(["mot"] * count))
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=30)


def filtered(pairs: list[tuple[str, str]], **settings: object) -> tuple[list[tuple[str, str]], PairFilter]:
    pair_filter = PairFilter(FilterConfig(**settings))
    return list(pair_filter(pairs)), pair_filter


@pytest.mark.case
@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u00ad \u2060"])
def test_a_blank_side_drops_the_pair_and_shifts_none(blank: str) -> None:
    pairs = [("un", "1"), ("deux", "2"), ("trois", blank), ("quatre", "4"), (blank, "5"), ("six", "6")]
    kept, pair_filter = filtered(pairs)
    assert kept == [("un", "1"), ("deux", "2"), ("quatre", "4"), ("six", "6")]
    assert pair_filter.dropped == {"blank target": 1, "blank source": 1}


@pytest.mark.parametrize("text", ["?", "|", "'", "…", "0", " a "])
def test_a_text_with_anything_to_see_is_not_blank(text: str) -> None:
    assert not is_blank(text)


def test_the_longest_sentence_allowed_is_kept_and_one_word_more_is_not() -> None:
    five, six = "a b c d e", "a b c d e f"
    kept, pair_filter = filtered([(five, five), (five, six), (six, five)], max_words=5)
    assert kept == [(five, five)]
    assert pair_filter.dropped == {"too long": 2}


def test_the_length_ratio_is_taken_after_adding_five_to_both_sides() -> None:
    # max_ratio 2: (7 + 5) / (1 + 5) = 2 is kept, (8 + 5) / (1 + 5) > 2 is not, on either side.
    seven, eight = " ".join("abcdefg"), " ".join("abcdefgh")
    kept, pair_filter = filtered([("a", seven), (seven, "a"), ("a", eight), (eight, "a")], max_ratio=2.0)
    assert kept == [("a", seven), (seven, "a")]
    assert pair_filter.dropped == {"length ratio": 2}


def test_duplicates_are_equal_on_both_sides_and_the_first_one_stays() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("b", "a"), ("a b", "c"), ("a", "b c")]
    assert filtered(pairs)[0] == pairs
    kept, pair_filter = filtered(pairs, drop_duplicates=True)
    assert kept == [("a", "b"), ("a", "c"), ("b", "a"), ("a b", "c"), ("a", "b c")]
    assert pair_filter.dropped == {"duplicate": 1}


@given(PAIRS)
def test_every_pair_is_kept_or_counted_and_the_order_stays(pairs: list[tuple[str, str]]) -> None:
    kept, pair_filter = filtered(pairs, max_words=8, max_ratio=1.5, drop_duplicates=True)
    rest = iter(pairs)
    assert all(pair in rest for pair in kept)
    assert len(kept) == pair_filter.kept
    assert pair_filter.kept + sum(pair_filter.dropped.values()) == len(pairs) == pair_filter.total


@given(PAIRS)
def test_swapping_the_languages_keeps_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    settings = {"max_words": 8, "max_ratio": 1.5}
    swapped = [(target, source) for source, target in pairs]
    assert filtered(swapped, **settings)[0] == [(t, s) for s, t in filtered(pairs, **settings)[0]]


@pytest.mark.case
def test_the_summary_is_one_line_with_the_most_frequent_reason_first() -> None:
    long = "a " * 300
    pairs = [("a", "b")] * 7 + [(long, long)] * 3 + [("", "b"), ("a", ""), ("a", "")]
    _, pair_filter = filtered(pairs)
    assert pair_filter.summary() == "kept 7 of 13 pairs (too long 3, blank target 2, blank source 1)"
    assert filtered([("a", "b")])[1].summary() == "kept 1 of 1 pairs"


def test_a_pair_rejected_later_moves_from_kept_to_its_reason() -> None:
    _, pair_filter = filtered([("a", "b"), ("c", "d")])
    pair_filter.reject("too many pieces")
    assert (pair_filter.kept, pair_filter.total) == (1, 2)
    assert pair_filter.summary() == "kept 1 of 2 pairs (too many pieces 1)"
    pair_filter.require_some()
    pair_filter.reject("too many pieces")
    with pytest.raises(RequestError, match=r"too many pieces 2 \(data\.filter\.max_pieces=256\)"):
        pair_filter.require_some()


@pytest.mark.case
def test_nothing_kept_is_an_error_that_names_the_reasons_and_the_keys() -> None:
    _, pair_filter = filtered([("a b c", "a b c"), ("", "a"), ("a b c", "d e f")], max_words=2)
    with pytest.raises(RequestError) as caught:
        pair_filter.require_some()
    assert str(caught.value) == (
        "data.filter: none of the 3 training pairs is kept: too long 2 (data.filter.max_words=2), blank source 1"
    )
    with pytest.raises(RequestError, match="holds no pairs"):
        filtered([])[1].require_some()
