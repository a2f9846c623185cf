"""The data sets: reproducible, disjoint, of the lengths asked for, aligned. And what they must refuse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nmt.config import GrammarData
from nmt.data.grammar import generate_pair, words, write_grammar_corpus
from nmt.data.grammar.corpus import even_lengths, mixed_lengths, skewed_lengths
from nmt.errors import RequestError

NAMES = ("train", "valid", "test")


def configuration(**changes: Any) -> GrammarData:
    settings: dict[str, Any] = {"train_pairs": 400, "valid_pairs": 50, "test_pairs": 116, **changes}
    return GrammarData(kind="grammar", name="grammar", **settings)


def written(directory: Path, **changes: Any) -> dict[str, bytes]:
    directory.mkdir()
    write_grammar_corpus(configuration(**changes), directory)
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return written(tmp_path_factory.mktemp("grammar") / "a")


def lines(content: bytes) -> list[str]:
    assert content.endswith(b"\n") and b"\r" not in content
    return content.decode("utf-8").split("\n")[:-1]


def test_same_seed_same_bytes_other_seed_other_sentences(files: dict[str, bytes], tmp_path: Path) -> None:
    assert written(tmp_path / "b") == files
    other = written(tmp_path / "c", seed=2)
    assert other.keys() == files.keys()
    assert all(other[name] != files[name] for name in files)


def test_test_set_does_not_depend_on_the_number_of_training_pairs(files: dict[str, bytes], tmp_path: Path) -> None:
    fewer = written(tmp_path / "fewer", train_pairs=10)
    assert all(fewer[name] == files[name] for name in files if not name.startswith("train"))
    assert files["train.en"].startswith(fewer["train.en"])


@pytest.mark.parametrize("language", ["en", "fr"])
def test_no_sentence_occurs_twice(files: dict[str, bytes], language: str) -> None:
    sentences = [line for name in NAMES for line in lines(files[f"{name}.{language}"])]
    assert len(sentences) == 400 + 50 + 116 == len(set(sentences))


def test_training_lengths_are_even_where_asked_for(files: dict[str, bytes], tmp_path: Path) -> None:
    even = written(tmp_path / "even", lengths="even")
    for name, count in (("train", 400), ("valid", 50)):
        found = Counter(len(line.split()) for line in lines(even[f"{name}.en"]))
        assert sum(found.values()) == count
        assert max(found.values()) - min(found.get(length, 0) for length in range(3, 61)) <= 1
    assert all(even[name] == files[name] for name in files if name.startswith("test"))


def test_mixed_training_lengths_are_half_of_either_kind(files: dict[str, bytes], tmp_path: Path) -> None:
    mixed = written(tmp_path / "mixed", lengths="mixed")
    found = [len(line.split()) for line in lines(mixed["train.en"])]
    assert len(found) == 400
    assert Counter(found[1::2]) == Counter(even_lengths(3, 60, 200))
    assert sum(length <= 10 for length in found[0::2]) > 60 > sum(length > 40 for length in found[0::2])
    assert all(mixed[name] == files[name] for name in files if name.startswith("test"))
    assert list(mixed_lengths(Random("x"), 5, 5, 3)) == [5, 5, 5]


def test_test_set_has_each_length_equally_often(files: dict[str, bytes]) -> None:
    lengths = Counter(len(line.split()) for line in lines(files["test.en"]))
    assert lengths == dict.fromkeys(range(3, 61), 2)


def test_training_set_has_many_short_sentences_and_some_long_ones() -> None:
    lengths = Counter(skewed_lengths(Random("x"), 3, 60, 30_000))
    assert set(lengths) == set(range(3, 61))
    assert 12 < sum(length * count for length, count in lengths.items()) / 30_000 < 15
    assert lengths[3] > lengths[13] > lengths[30] > lengths[60]
    assert list(skewed_lengths(Random("x"), 7, 7, 3)) == [7, 7, 7]
    assert list(even_lengths(3, 5, 7)) == [3, 4, 5, 3, 4, 5, 3]


@pytest.mark.parametrize("length", range(3, 61))
def test_a_sentence_has_exactly_the_words_asked_for(length: int) -> None:
    for seed in range(12):
        assert len(generate_pair(Random(f"{length} {seed}"), length).english.split()) == length


@pytest.mark.parametrize("length", [2, 61, 0, -1])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="3 to 60"):
        generate_pair(Random(1), length)


def test_alignment_is_within_range_and_covers_every_word(files: dict[str, bytes]) -> None:
    for name in NAMES:
        rows = zip(*(lines(files[f"{name}.{suffix}"]) for suffix in ("en", "fr", "align")), strict=True)
        for english, french, links in rows:
            pairs = [tuple(int(index) for index in link.split("-")) for link in links.split()]
            assert pairs == sorted(set(pairs))
            assert {i for i, _ in pairs} == set(range(len(words(english)))), english
            assert {j for _, j in pairs} == set(range(len(words(french)))), french


def test_reverse_direction_has_the_same_text_and_turned_links(files: dict[str, bytes], tmp_path: Path) -> None:
    reverse = written(tmp_path / "fr", source_language="fr", target_language="en")
    for name in NAMES:
        assert reverse[f"{name}.en"] == files[f"{name}.en"]
        assert reverse[f"{name}.fr"] == files[f"{name}.fr"]
        for there, back in zip(lines(files[f"{name}.align"]), lines(reverse[f"{name}.align"]), strict=True):
            assert sorted(link.split("-")[::-1] for link in back.split()) == sorted(
                link.split("-") for link in there.split()
            )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"min_words": 9, "max_words": 8}, "data.min_words"),
        ({"min_words": 2}, "data.min_words"),
        ({"max_words": 61}, "data.max_words"),
        ({"target_language": "de"}, "data.target_language"),
        ({"source_language": "fr"}, "data.source_language"),
    ],
)
def test_impossible_configurations_are_refused_by_key(changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=key):
        write_grammar_corpus(configuration(**changes), tmp_path)


def test_more_sentences_than_the_grammar_makes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pair = generate_pair(Random(1), 3)
    monkeypatch.setattr("nmt.data.grammar.corpus.generate_pair", lambda rng, length, variety: pair)
    with pytest.raises(RequestError, match=r"data.test_pairs is 2: .* of 3 words"):
        write_grammar_corpus(configuration(min_words=3, max_words=3, test_pairs=2), tmp_path)


def test_variety_is_how_many_words_there_are_to_choose_from() -> None:
    def vocabulary(variety: int | None) -> set[str]:
        pairs = [generate_pair(Random(f"{seed}"), 3 + seed % 20, variety) for seed in range(200)]
        return {word for pair in pairs for word in pair.english.split()}

    sizes = [len(vocabulary(variety)) for variety in (3, 8, 100)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert vocabulary(1_000) == vocabulary(None)  # more than any list has: nothing changes


def test_fewer_words_make_fewer_sentences(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"data.train_pairs is 5000: .* of 3 words; raise .*data.variety"):
        write_grammar_corpus(configuration(min_words=3, max_words=3, train_pairs=5_000, variety=2), tmp_path)
