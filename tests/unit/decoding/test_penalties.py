"""Length penalties by hand, and the growth with length that the search's bound relies on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.decoding.penalties import length_penalty

NAMES = ["none", "average", "gnmt"]


def test_by_hand() -> None:
    assert [length_penalty("none", 2.0)(length) for length in (1, 7)] == [1, 1]
    assert [length_penalty("average", 1.0)(length) for length in (1, 7)] == [1, 7]
    assert length_penalty("average", 0.5)(16) == 4
    assert length_penalty("gnmt", 1.0)(7) == 2
    assert length_penalty("gnmt", 2.0)(13) == pytest.approx(9)


@given(st.sampled_from(NAMES), st.floats(0, 3), st.integers(1, 500))
def test_no_penalty_falls_with_length(name: str, alpha: float, length: int) -> None:
    penalty = length_penalty(name, alpha)
    assert penalty(1) == 1
    assert penalty(length) <= penalty(length + 1)


@given(st.sampled_from(NAMES), st.integers(1, 500))
def test_an_exponent_of_zero_is_no_penalty(name: str, length: int) -> None:
    assert length_penalty(name, 0.0)(length) == 1


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'wu'"):
        length_penalty("wu", 1.0)
