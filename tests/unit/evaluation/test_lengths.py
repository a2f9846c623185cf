"""Buckets of source length: every sentence in one, none too small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nmt.evaluation.lengths import length_buckets


def labels(lengths: list[int], **settings: object) -> list[tuple[str, int]]:
    return [(b.label, len(b.indices)) for b in length_buckets(lengths, **settings)]  # type: ignore[arg-type]


def test_an_even_test_set_has_a_bucket_of_each_ten_words() -> None:
    lengths = [length for length in range(1, 66) for _ in range(4)]
    expected = [("1–10", 40), ("11–20", 40), ("21–30", 40), ("31–40", 40), ("41–50", 40), ("51–60", 40), (">60", 20)]
    assert labels(lengths) == expected


def test_sparse_buckets_join_their_neighbours() -> None:
    captions = [8] * 30 + [15] * 60 + [25] * 5 + [37] * 2
    assert labels(captions) == [("1–10", 30), ("11–40", 67)]
    assert labels([8] * 3 + [15] * 60) == [("1–20", 63)]
    assert labels([8] * 40 + [75] * 3) == [(">0", 43)]


def test_a_handful_is_one_bucket() -> None:
    assert labels([3, 4, 30]) == [("1–30", 3)]
    assert labels([0, 0]) == []
    assert labels([]) == []


def test_limits_can_be_chosen() -> None:
    assert labels([5] * 20 + [30] * 20 + [50] * 20, limits=(10, 40, 60)) == [("1–10", 20), ("11–40", 20), ("41–60", 20)]


@given(st.lists(st.integers(0, 90)), st.sets(st.integers(1, 80), min_size=1))
def test_every_sentence_with_words_is_in_the_bucket_of_its_length(lengths: list[int], limits: set[int]) -> None:
    buckets = length_buckets(lengths, sorted(limits))
    assert sorted(i for b in buckets for i in b.indices) == [i for i, length in enumerate(lengths) if length]
    for bucket in buckets:
        assert all(bucket.shortest <= lengths[i] <= (bucket.longest or 90) for i in bucket.indices)
        assert bucket.indices == sorted(bucket.indices)
        assert len(bucket.indices) >= 20 or len(buckets) == 1
