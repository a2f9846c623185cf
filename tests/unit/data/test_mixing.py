"""Texts mixed with weights: how often an epoch has each pair, and that every pair gets its turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import FilePair, FilesData, FilterConfig, MixedText, ModelConfig, TokenizerConfig, TrainConfig
from nmt.configuration import compose
from nmt.data import encoded, filtered
from nmt.data.batching import plan_batches
from nmt.data.corpus import Corpus, prepare_corpus
from nmt.data.encoded import encode_corpus
from nmt.data.filtered import filter_corpus
from nmt.data.mixing import epoch_rows, weights
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError

GROUPS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 3.75])), min_size=1, max_size=4
)


@given(GROUPS, st.integers(0, 5), st.integers(1, 9))
def test_after_any_epoch_each_pair_has_had_its_share(groups: list[tuple[int, float]], seed: int, epochs: int) -> None:
    sizes, shares = [size for size, _ in groups], [weight for _, weight in groups]
    seen: Counter[int] = Counter()
    for epoch in range(epochs):
        rows = epoch_rows(sizes, shares, seed, epoch)
        seen.update(range(sum(sizes)) if rows is None else rows.tolist())
    start = 0
    for size, weight in groups:
        counts = [seen[row] for row in range(start, start + size)]
        if size:
            assert max(counts) - min(counts) <= 1
            # Rounding is to whole pairs, and at least one.
            assert abs(sum(counts) - epochs * weight * size) <= epochs
            assert weight >= 1 or sum(counts) >= epochs
        start += size
    assert set(seen) <= set(range(start))


def test_weights_of_one_change_nothing() -> None:
    assert epoch_rows([5, 3], [1.0, 1.0], 1, 0) is None


def test_another_seed_takes_other_pairs_and_the_next_epoch_the_rest() -> None:
    first, second, other = (epoch_rows([100], [0.5], seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0)))
    assert first is not None and second is not None and other is not None
    assert sorted([*first, *second]) == list(range(100))
    assert sorted(first) != sorted(other)


def test_a_plan_has_the_pairs_of_the_epoch_as_often_as_they_are_in_it() -> None:
    lengths = np.arange(1, 41)
    rows = epoch_rows([30, 10], [0.5, 3.0], 1, 0)
    assert rows is not None
    plan = plan_batches(lengths, lengths[::-1].copy(), 60, 1, 0, rows)
    assert sorted(np.concatenate(plan)) == sorted(rows)
    assert all(max(lengths[batch].max(), lengths[::-1][batch].max()) * len(batch) <= 60 for batch in plan)


# From files to pairs ----------------------------------------------------------------------------------------------


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate(("en", "fr")):
        (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


OWN = [(f"own {i}", f"le mien {i}") for i in range(12)] + [("", "vide")]
BACK = [(f"back {i} x{' y' * (40 * (i == 3))}", f"retour {i}") for i in range(8)]


@pytest.fixture
def mixed(tmp_path: Path) -> FilesData:
    write(tmp_path, "train", OWN)
    write(tmp_path, "valid", OWN[:2])
    write(tmp_path, "back", BACK)
    pairs = {split: [FilePair(f"{split}.en", f"{split}.fr")] for split in ("train", "valid")}
    text = MixedText(source=str(tmp_path / "back.en"), target=str(tmp_path / "back.fr"), weight=2.0)
    filter_ = FilterConfig(max_pieces=30)
    return FilesData(
        "files", "own", dir=str(tmp_path), cache=str(tmp_path / "cache"), filter=filter_, mix={"back": text}, **pairs
    )


def test_the_groups_are_counted_after_all_that_is_dropped(
    mixed: FilesData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (filtered, encoded):
        monkeypatch.setattr(module, "CHUNK", 5)  # chunks lie across the boundary
    for limit, own in ((None, 12), (7, 7)):
        config = TrainConfig(ModelConfig("lstm", "x"), replace(mixed, max_train_pairs=limit))
        corpus = prepare_corpus(config.data, pytest.fail)
        assert list(corpus.training_pairs()) == [*OWN[:limit], *BACK]
        kept = filter_corpus(corpus, config.data, pytest.fail)
        tokenizer = Tokenizer.train(
            TokenizerConfig(vocab_size=60, model="bpe"), kept.pairs(), tmp_path, lambda line: None
        )
        found = encode_corpus(kept, tokenizer, config, lambda line: None)
        assert list(found.groups) == [own, 7], "one of its own is blank, one that is mixed in has too many pieces"
        rows = epoch_rows(found.groups, weights(config.data), 1, 0)
        assert rows is not None
        texts = Counter(tokenizer.decode(found.target[row][:-1].tolist()) for row in rows)
        assert texts == Counter(
            [f"le mien {i}" for i in range(own)] + 2 * [t for i, (_, t) in enumerate(BACK) if i != 3]
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{source: a.en}", r"data\.mix\.back: give either source and target, which are files, or path, a dataset"),
        ("{source: a.en, target: a.fr, path: x/y}", r"data\.mix\.back: give either"),
        ("{source: a.en, target: a.fr, weight: 0}", r"data\.mix\.back\.weight=0.*above 0"),
        ("{source: a.en, target: a.fr, wieght: 2}", r"wieght"),
    ],
)
def test_a_mixture_that_cannot_be_is_one_line(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        compose(["data=grammar", f"data.mix={{back: {text}}}"])
    assert "\n" not in str(caught.value)


def test_a_mixture_is_given_as_an_override() -> None:
    for override in ("data.mix={back: {source: a.en, target: a.fr, weight: 0.5}}", "data.mix.back.path=x/y"):
        (text,) = compose([override, "data.weight=2"]).data.mix.values()
        assert text.weight in (0.5, 1.0)


def test_a_missing_file_names_its_key(mixed: FilesData, tmp_path: Path) -> None:
    (tmp_path / "back.fr").unlink()
    with pytest.raises(RequestError, match=r"data\.mix\.back: no file .*back\.fr"):
        prepare_corpus(mixed, pytest.fail)


def test_a_dataset_is_mixed_in(mixed: FilesData, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    file = tmp_path / "web" / "train.parquet"
    datasets.Dataset.from_list([{"translation": {"en": "web", "fr": "toile"}}]).to_parquet(file)
    text = MixedText(path=str(tmp_path / "web"))
    corpus: Corpus = prepare_corpus(replace(mixed, mix={"web": text}), lambda line: None)
    assert list(corpus.training_pairs()) == [*OWN, ("web", "toile")]
    assert corpus.group_sizes() == [13, 1]
