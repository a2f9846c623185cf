"""Verdicts on training pairs: a function of text and configuration, whatever the processes and however often killed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kills import killed_at_commit
from nmt.config import DataConfig, FilterConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.data import encoded, filtered
from nmt.data.corpus import Corpus, PairFiles
from nmt.data.encoded import encode_corpus
from nmt.data.filter import KEPT
from nmt.data.filtered import filter_corpus
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError

FILTER = FilterConfig(
    max_words=12, max_pieces=30, drop_copies=True, min_letters=0.5, drop_duplicates=True, max_similarity=0.8
)


def web_text(number: int) -> list[tuple[str, str]]:
    """Pairs of which many are to be dropped, for every reason that needs no model."""
    generator = random.Random(3)
    words = ["la", "maison", "rouge", "du", "vieux", "jardin", "et", "le", "petit", "chat", "noir", "de", "la", "rue"]
    pairs = []
    for _ in range(number):
        text = " ".join(generator.choices(words, k=generator.randint(1, 14)))
        kind = generator.randint(0, 30)
        if kind == 4 and pairs:
            pairs.append((f"{pairs[-1][0]} !", f"« {pairs[-1][1]} »"))
        else:
            pairs.append((text, {0: "", 1: text, 2: "12 345 67", 3: "x" * 60}.get(kind, text[::-1])))
    return pairs


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    files = PairFiles(tmp_path / "train.en", tmp_path / "train.fr")
    for side, path in enumerate((files.source, files.target)):
        path.write_text("".join(f"{pair[side]}\n" for pair in web_text(300)), encoding="utf-8")
    return Corpus("web", "en", "fr", [files], [])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (filtered, encoded):
        monkeypatch.setattr(module, "CHUNK", 7)
        monkeypatch.setattr(module, "COMMIT_PAIRS", 50)


def data(folder: Path, **changes: object) -> DataConfig:
    return replace(DataConfig("files", "web", cache=str(folder), filter=FILTER), **changes)  # type: ignore[arg-type]


def files_of(folder: Path) -> dict[str, bytes]:
    """Name and content of every file of a cache."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_verdicts_are_in_the_order_of_the_pairs_and_counted(corpus: Corpus, tmp_path: Path) -> None:
    found = filter_corpus(corpus, data(tmp_path / "cache"), pytest.fail)
    assert len(found.verdicts) == 300
    assert list(found.pairs()) == [
        pair for pair, verdict in zip(web_text(300), found.verdicts, strict=True) if verdict == KEPT
    ]
    assert found.tally.total == 300
    reasons = {"blank target", "too long", "copy", "few letters", "duplicate", "near duplicate"}
    assert set(found.tally.dropped) == reasons, "each of them has something to do"
    assert len(set(found.pairs())) == found.tally.kept


def test_verdicts_are_found_again_unless_something_changes(corpus: Corpus, tmp_path: Path) -> None:
    first = filter_corpus(corpus, data(tmp_path / "cache"), pytest.fail)
    again = data(tmp_path / "cache", filter=replace(FILTER, max_pieces=5), processes=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtered, "_judge", lambda *_: pytest.fail("judged again"))
        assert np.array_equal(filter_corpus(corpus, again, pytest.fail).verdicts, first.verdicts)
    fewer = filter_corpus(replace(corpus, max_train_pairs=20), data(tmp_path / "cache"), pytest.fail)
    assert np.array_equal(fewer.verdicts, first.verdicts[:20])
    other = filter_corpus(corpus, data(tmp_path / "cache", filter=replace(FILTER, max_words=9)), pytest.fail)
    assert other.tally.dropped["too long"] > first.tally.dropped["too long"]


@pytest.mark.parametrize("name", ["verdicts", "checksums.json"])
def test_a_bit_that_flipped_in_the_cache_is_found(corpus: Corpus, tmp_path: Path, name: str) -> None:
    first = filter_corpus(corpus, data(tmp_path / "cache"), pytest.fail)
    (path,) = (tmp_path / "cache").glob(f"filtered/*/{name}")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    said: list[str] = []
    assert np.array_equal(filter_corpus(corpus, data(tmp_path / "cache"), said.append).verdicts, first.verdicts)
    assert len(said) == 1
    assert "is damaged" in said[0]


def test_nothing_kept_is_refused_and_leaves_nothing(corpus: Corpus, tmp_path: Path) -> None:
    text = corpus.train[0].source
    copied = replace(corpus, train=[PairFiles(text, text)])
    reason = r"data\.filter: none of the 300 .*copy 300 \(data\.filter\.drop_copies=true\)"
    with pytest.raises(RequestError, match=reason):
        filter_corpus(copied, data(tmp_path / "cache", filter=FilterConfig(drop_copies=True)), pytest.fail)
    assert files_of(tmp_path / "cache") == {}


class Encoding:
    """The way from text to ids, with one tokenizer in any cache."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.corpus = corpus
        self.said: list[str] = []
        kept = filter_corpus(corpus, data(folder / "tokenizer"), pytest.fail).pairs()
        self.tokenizer = Tokenizer.train(TokenizerConfig(vocab_size=60), kept, folder, self.said.append)

    def __call__(self, cache: Path, processes: int | None = None) -> dict[str, bytes]:
        """The files that it leaves in the cache."""
        config = TrainConfig(ModelConfig("lstm", "x"), data(cache, processes=processes))
        kept = filter_corpus(self.corpus, config.data, self.said.append)
        encode_corpus(kept, self.tokenizer, config, self.said.append)
        return files_of(cache)


@pytest.mark.parametrize("commit", [1, 4, 6, 8, 11], ids=["first", "4", "6", "8", "last but few"])
def test_killed_at_any_commit_it_goes_on_to_the_same_files(corpus: Corpus, tmp_path: Path, commit: int) -> None:
    encoding = Encoding(corpus, tmp_path)
    whole = encoding(tmp_path / "whole")
    encoding.said.clear()
    killed_at_commit(commit, lambda: encoding(tmp_path / "killed"))
    assert encoding(tmp_path / "killed") == whole
    assert any("going on after" in line for line in encoding.said)


def test_several_processes_give_the_files_of_one(corpus: Corpus, tmp_path: Path) -> None:
    encoding = Encoding(corpus, tmp_path)
    assert encoding(tmp_path / "one", processes=1) == encoding(tmp_path / "two", processes=2)
    assert "encoding the training pairs in 2 processes" in encoding.said
