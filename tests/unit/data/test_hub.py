"""Datasets of Hugging Face become the same text files that anything else is read from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kills import killed_at_commit
from nmt.config import FilePair, FilesData, HubData, TokenizerConfig
from nmt.data import hub
from nmt.data.corpus import Corpus, prepare_corpus, read_lines
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError, WorkError

datasets = pytest.importorskip("datasets")

# One of each that a reader of lines could stumble over.
ROWS = [
    ("A red car.", "Une voiture rouge."),
    ("two\nlines", "deux\r\nlignes"),
    ("carriage\rreturn", "sépa\u2028rateur"),
    ("nul\0byte", "e\u0301"),
    (None, "rien"),
    ("  the end ", "« la fin »\u00a0!"),
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


def rows(count: int, flat: bool) -> Iterator[dict[str, Any]]:
    for number in range(count):
        source, target = ROWS[number % len(ROWS)]
        texts = {"en": source, "fr": target}
        yield texts if flat else {"id": number, "translation": texts}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, count in (("train", 12), ("validation", 6), ("test", 7)):
        file = tmp_path / "books" / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_list(list(rows(count, flat=False))).to_parquet(file)
    return tmp_path / "books"


def hub_corpus(path: Path | str, cache: Path, report: Any = lambda line: None, **changes: Any) -> Corpus:
    values = {"kind": "hub", "name": "books", "path": str(path), "cache": str(cache), "test": {"news": "test"}}
    return prepare_corpus(HubData(**(values | changes)), report)


def test_parquet_becomes_pairs_one_for_each_row(folder: Path, tmp_path: Path) -> None:
    reported: list[str] = []
    corpus = hub_corpus(folder, tmp_path / "cache", reported.append)
    pairs = list(corpus.training_pairs())
    assert pairs[:6] == pairs[6:]
    assert pairs[:6] == [
        ("A red car.", "Une voiture rouge."),
        ("two lines", "deux lignes"),
        ("carriage return", "sépa rateur"),
        ("nul byte", "é"),
        ("", "rien"),
        ("  the end ", "« la fin »\u00a0!"),
    ]
    assert [text.count() for text in corpus.valid] == [6]
    assert corpus.test["news"].count() == 7
    # A reference keeps all that a line of a file can hold.
    assert corpus.test["news"].references()[2:4] == ["sépa\u2028rateur", "e\u0301"]
    assert "line breaks inside 8 texts of split train became spaces" in reported


def test_it_is_read_once_and_again_when_the_files_have_changed(folder: Path, tmp_path: Path) -> None:
    first: list[str] = []
    corpus = hub_corpus(folder, tmp_path / "cache", first.append)
    assert len(first) > 0
    assert hub_corpus(folder, tmp_path / "cache", pytest.fail) == corpus
    assert hub_corpus(folder, tmp_path / "cache", pytest.fail, name="other").train == corpus.train
    os.utime(folder / "data" / "train-00000-of-00001.parquet", ns=(1, 1))
    assert hub_corpus(folder, tmp_path / "cache").train != corpus.train


def test_the_reversed_direction_reverses_the_pairs(folder: Path, tmp_path: Path) -> None:
    forward = hub_corpus(folder, tmp_path / "cache")
    backward = hub_corpus(folder, tmp_path / "cache", source_language="fr", target_language="en")
    assert list(backward.training_pairs()) == [(target, source) for source, target in forward.training_pairs()]


def test_only_the_wanted_number_of_training_pairs_is_read(folder: Path, tmp_path: Path) -> None:
    corpus = hub_corpus(folder, tmp_path / "cache", max_train_pairs=3)
    assert len(list(read_lines(corpus.train[0].source))) == 3
    assert corpus.valid[0].count() == 6


def test_a_part_of_a_split_may_stand_in_for_a_missing_one(folder: Path, tmp_path: Path) -> None:
    corpus = hub_corpus(folder, tmp_path / "cache", valid="train[:25%]", train="train[25%:]", test={})
    assert (corpus.valid[0].count(), corpus.train[0].count()) == (3, 9)


def test_json_lines_with_a_column_for_each_language(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        path = tmp_path / "flat" / f"{split}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(2, flat=True)), encoding="utf-8")
    corpus = hub_corpus(tmp_path / "flat", tmp_path / "cache", column=None, test={})
    assert list(corpus.training_pairs()) == [("A red car.", "Une voiture rouge."), ("two lines", "deux lignes")]


@pytest.mark.case
def test_the_tokenizer_is_that_of_the_same_text_in_files(folder: Path, tmp_path: Path) -> None:
    corpus = hub_corpus(folder, tmp_path / "cache")
    lines = [[pair[side] for pair in corpus.training_pairs()] for side in (0, 1)]
    for language, side in zip(("en", "fr"), lines, strict=True):
        for split in ("train", "valid"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    pairs = {split: [FilePair(f"{split}.en", f"{split}.fr")] for split in ("train", "valid")}
    files = prepare_corpus(FilesData("files", "x", dir=str(tmp_path), **pairs), pytest.fail)
    identities = {
        Tokenizer.train(
            TokenizerConfig(vocab_size=90), each.training_pairs(), tmp_path / "t", lambda line: None
        ).identity
        for each in (corpus, files)
    }
    assert len(identities) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"column": "pairs"}, r"data\.column=pairs: no such column of texts by language; it has id, translation"),
        ({"column": "id"}, r"data\.column=id: no such column of texts"),
        ({"column": None}, r"data\.source_language=en: no such language in the dataset; it has id, translation"),
        ({"target_language": "de"}, r"data\.target_language=de: no such language in the dataset; it has en, fr"),
        ({"valid": "dev"}, r"data\.valid=dev: .*dev.*; correct it, or use data=files with data\.dir"),
        ({"test": {"news": "newstest"}}, r"data\.test\.news=newstest: .*newstest"),
        ({"subset": "de-fr"}, r"data\.subset=de-fr.*de-fr"),
        ({"path": "./absent"}, r"data\.path=\./absent: there is no such folder"),
    ],
)
def test_what_is_not_there_is_named_with_its_key_and_nothing_is_left(
    folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    changes = dict(changes)
    with pytest.raises(RequestError, match=message) as caught:
        hub_corpus(changes.pop("path", folder), tmp_path / "cache", **changes)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache" / "hub").glob("*"))


def test_a_broken_file_is_one_line(folder: Path, tmp_path: Path) -> None:
    file = folder / "data" / "train-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(RequestError, match=r"data\.path=.*data\.train=train: ") as caught:
        hub_corpus(folder, tmp_path / "cache")
    assert "\n" not in str(caught.value)


@pytest.mark.case
def test_a_dataset_that_is_a_script_suggests_files(tmp_path: Path) -> None:
    script = tmp_path / "wmt" / "wmt.py"
    script.parent.mkdir()
    script.write_text("import datasets\n")
    with pytest.raises((RequestError, WorkError), match=r"use data=files with data\.dir"):
        hub_corpus(tmp_path / "wmt", tmp_path / "cache")


@pytest.mark.case
def test_without_network_the_message_suggests_files(tmp_path: Path) -> None:
    with pytest.raises((RequestError, WorkError), match=r"data\.path=someone/books.*use data=files with data\.dir"):
        hub_corpus("someone/books", tmp_path / "cache")


class Stream:
    """A stream whose connection breaks after some rows, unless it has been opened `breaks` times before."""

    def __init__(self, opened: list[int], breaks: int, after: int) -> None:
        self.opened, self.breaks, self.after, self.place = opened, breaks, after, 0

    def __call__(self, *arguments: Any, **options: Any) -> Stream:
        assert options["streaming"]
        self.place = 0
        return self

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]

    def iter(self, batch_size: int) -> Iterator[dict[str, list[Any]]]:
        self.opened.append(self.place)
        while self.place < 12:
            if self.place >= self.after and len(self.opened) <= self.breaks:
                raise TransportError("peer closed the connection\nwithout sending all")
            batch = list(rows(12, flat=False))[self.place : self.place + batch_size]
            self.place += len(batch)
            yield {name: [row[name] for row in batch] for name in batch[0]}


class TransportError(Exception):
    """As HTTP clients have them: neither an OSError nor anything that `datasets` declares."""


def test_a_connection_that_breaks_at_the_beginning_is_one_line_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", Stream([], 1, after=0))
    with pytest.raises(WorkError, match=r"TransportError: peer closed the connection, or use data=files") as caught:
        hub_corpus(folder, tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache" / "hub").glob("*"))


def test_reading_goes_on_where_the_connection_broke(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = hub_corpus(folder, tmp_path / "other")
    monkeypatch.setattr(hub, "ROWS", 2)
    monkeypatch.setattr(hub, "COMMIT_ROWS", 4)
    opened: list[int] = []
    reported: list[str] = []
    monkeypatch.setattr(datasets, "load_dataset", Stream(opened, 2, after=10))
    for _ in range(2):
        with pytest.raises(WorkError, match="peer closed the connection"):
            hub_corpus(folder, tmp_path / "cache", test={})
    corpus = hub_corpus(folder, tmp_path / "cache", reported.append, test={})
    assert opened[:3] == [0, 8, 8]  # the last multiple of four that was whole
    assert list(corpus.training_pairs()) == list(expected.training_pairs())
    assert "going on after 8 pairs" in reported
    assert "line breaks inside 8 texts of split train became spaces" in reported


@pytest.mark.parametrize("part", ["train", "train[1:]"])
def test_a_process_that_is_killed_goes_on_to_the_same_text(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    expected = hub_corpus(folder, tmp_path / "other", train=part)
    monkeypatch.setattr(hub, "ROWS", 2)
    monkeypatch.setattr(hub, "COMMIT_ROWS", 4)
    killed_at_commit(2, lambda: hub_corpus(folder, tmp_path / "cache", train=part))
    (unfinished,) = (tmp_path / "cache" / "hub").glob(".*.unfinished")
    (text,) = unfinished.glob("train.en")
    with open(text, "ab") as file:
        file.write(b"half a li")  # what the page cache may hold when a process dies between two commits
    reported: list[str] = []
    corpus = hub_corpus(folder, tmp_path / "cache", reported.append, train=part)
    assert "going on after 8 pairs" in reported
    for mine, other in ((corpus.train[0], expected.train[0]), (corpus.test["news"], expected.test["news"])):
        assert mine.source.read_bytes() == other.source.read_bytes()
        assert mine.target.read_bytes() == other.target.read_bytes()
