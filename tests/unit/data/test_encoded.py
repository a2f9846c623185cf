"""Encoded corpora: what is kept and counted, what is cached and when it is found again, and draws for an epoch."""

from __future__ import annotations

import functools
import random
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt.config import DataConfig, FilterConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.data import encoded as module
from nmt.data.corpus import Corpus, PairFiles
from nmt.data.encoded import EncodedCorpus, EncodedSide, draw_segmentations, encode_corpus, encode_pairs, report_unknown
from nmt.data.filtered import filter_corpus
from nmt.data.tokenizer import EOS, UNKNOWN, Tokenizer
from nmt.errors import RequestError, WorkError

SOURCE_WORDS = [
    "the",
    "a",
    "old",
    "young",
    "small",
    "garden",
    "house",
    "river",
    "teacher",
    "child",
    "reads",
    "sees",
    "eats",
    "takes",
    "opens",
]
TARGET_WORDS = [
    "le",
    "la",
    "un",
    "vieux",
    "jeune",
    "petit",
    "jardin",
    "maison",
    "rivière",
    "élève",
    "enfant",
    "lit",
    "voit",
    "mange",
    "prend",
    "ouvre",
]


def made_pairs(number: int) -> list[tuple[str, str]]:
    generator = random.Random(2)
    return [
        (
            " ".join(generator.choices(SOURCE_WORDS, k=generator.randint(3, 9))),
            " ".join(generator.choices(TARGET_WORDS, k=generator.randint(3, 9))),
        )
        for _ in range(number)
    ]


class Run:
    """A corpus on disk with its tokenizer, configuration and cache."""

    def __init__(self, folder: Path, pairs: list[tuple[str, str]]) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.corpus = Corpus("made", "en", "fr", [self.write("train", pairs)], [])
        self.config = TrainConfig(
            model=ModelConfig(family="lstm", name="lstm"),
            data=DataConfig(kind="files", name="made", cache=str(folder / "cache")),
            tokenizer=TokenizerConfig(vocab_size=100),
        )
        self.tokenizer = Tokenizer.train(self.config.tokenizer, made_pairs(300), folder / "run", self.lines.append)

    def write(self, name: str, pairs: list[tuple[str, str]]) -> PairFiles:
        files = PairFiles(self.folder / f"{name}.en", self.folder / f"{name}.fr")
        for side, path in enumerate((files.source, files.target)):
            path.write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
        return files

    def encode(self) -> EncodedCorpus:
        self.lines.clear()
        filtered = filter_corpus(self.corpus, self.config.data, self.lines.append)
        return encode_corpus(filtered, self.tokenizer, self.config, self.lines.append)

    def cached(self) -> set[Path]:
        return set((self.folder / "cache" / "encoded").glob("*"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, made_pairs(200))


def sentences(side: EncodedSide) -> list[list[int]]:
    return [side[index].tolist() for index in range(len(side))]


def test_the_ids_are_those_of_the_tokenizer_in_order(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    encoded = run.encode()
    sources, targets = zip(*made_pairs(200), strict=True)
    assert sentences(encoded.source) == run.tokenizer.encode_source(sources)
    assert sentences(encoded.target) == run.tokenizer.encode_target(targets)
    assert encoded.source.lengths.tolist() == [len(ids) for ids in run.tokenizer.encode_source(sources)]
    assert encoded.source.ids.dtype == np.uint16
    assert not encoded.source.ids.flags.writeable
    assert run.lines == ["kept 200 of 200 pairs", "train: unknown pieces: source 0.00 %, target 0.00 %"]
    with pytest.raises(IndexError):
        encoded.source[200]


def test_pairs_of_no_use_are_dropped_as_pairs_and_counted(tmp_path: Path) -> None:
    good = made_pairs(40)
    bad = [("", "un"), ("the", " "), ("the " * 30, "le " * 30), ("a" * 50, "le petit"), ("the", "\x01"), good[0]]
    run = Run(tmp_path, [*bad[:5], *good, bad[5]])
    run.config.data.filter = FilterConfig(max_words=20, max_pieces=30, drop_duplicates=True)
    encoded = run.encode()
    assert run.lines[0] == (
        "kept 40 of 46 pairs (blank target 2, blank source 1, duplicate 1, too long 1, too many pieces 1)"
    )
    assert sentences(encoded.source) == run.tokenizer.encode_source([source for source, _ in good])
    assert sentences(encoded.target) == run.tokenizer.encode_target([target for _, target in good])


def test_the_greatest_number_of_pieces_is_still_kept(run: Run) -> None:
    longest = int(max(run.encode().source.lengths.max(), run.encode().target.lengths.max())) - 1
    run.config.data.filter.max_pieces = longest
    run.encode()
    assert run.lines[0] == "kept 200 of 200 pairs"
    run.config.data.filter.max_pieces = longest - 1
    kept = run.encode()
    assert max(kept.source.lengths.max(), kept.target.lengths.max()) == longest  # with the end mark
    assert "too many pieces" in run.lines[0]


def test_nothing_kept_is_refused_and_not_cached(run: Run) -> None:
    run.config.data.filter.max_pieces = 1
    with pytest.raises(RequestError, match=r"data\.filter\.max_pieces"):
        run.encode()
    assert not run.cached()


def test_the_cache_is_found_again_and_says_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run.encode()
    said = list(run.lines)
    monkeypatch.setattr(module, "_write", lambda *_: pytest.fail("encoded again"))
    # The same content in other files.
    run.corpus = replace(run.corpus, train=[run.write("copy", made_pairs(200))])
    second = run.encode()
    assert sentences(second.target) == sentences(first.target)
    assert run.lines == said


@pytest.mark.parametrize("changed", ["text", "filter", "pairs", "tokenizer", "sides"])
def test_whatever_changes_the_ids_is_encoded_anew(run: Run, changed: str) -> None:
    run.encode()
    if changed == "text":
        run.write("train", [*made_pairs(200), ("the house", "la maison")])
    elif changed == "filter":
        run.config.data.filter.drop_duplicates = True
    elif changed == "pairs":
        run.corpus = replace(run.corpus, max_train_pairs=150)
    elif changed == "tokenizer":
        config = replace(run.config.tokenizer, vocab_size=40)
        run.tokenizer = Tokenizer.train(config, made_pairs(300), run.folder / "run", lambda line: None)
    else:
        run.corpus = replace(run.corpus, train=[run.write("swapped", [(b, a) for a, b in made_pairs(200)])])
    encoded = run.encode()
    assert len(run.cached()) == 2
    if changed in ("text", "pairs"):
        assert len(encoded) == {"text": 201, "pairs": 150}[changed]


@pytest.mark.parametrize("damage", ["cut", "gone", "meta"])
def test_a_damaged_cache_is_encoded_again(run: Run, damage: str) -> None:
    expected = sentences(run.encode().source)
    (directory,) = run.cached()
    if damage == "cut":
        content = (directory / "source.ids").read_bytes()
        (directory / "source.ids").write_bytes(content[:-2])
    elif damage == "gone":
        (directory / "target.offsets").unlink()
    else:
        (directory / "meta.json").write_text("{")
    with pytest.raises(WorkError, match="not a complete encoded corpus"):
        EncodedCorpus.open(directory)
    assert sentences(run.encode().source) == expected
    assert "is broken" in run.lines[0]
    assert run.cached() == {directory}


@pytest.mark.case
@pytest.mark.parametrize("name", ["source.ids", "source.offsets", "target.ids", "target.offsets", "meta.json"])
def test_a_bit_that_flipped_in_the_cache_is_found(run: Run, name: str) -> None:
    """Its size is right, and whatever it says is in range: only a checksum tells."""
    expected = sentences(run.encode().source), sentences(run.encode().target)
    [directory] = run.cached()
    data = bytearray((directory / name).read_bytes())
    data[data.index(b'"unknown": ') + 11 if name == "meta.json" else len(data) // 2] ^= 1
    (directory / name).write_bytes(data)
    with pytest.raises(WorkError, match=f"not a complete encoded corpus \\({name} is not what was written\\)"):
        EncodedCorpus.open(directory)
    run.lines.clear()
    again = run.encode()
    assert (sentences(again.source), sentences(again.target)) == expected
    assert "is broken" in run.lines[0]


def test_an_unreadable_training_file_leaves_nothing(run: Run) -> None:
    run.corpus.train[0].target.write_bytes(b"un\n\xe9\n")
    with pytest.raises(RequestError, match=r"train\.fr line 2"):
        run.encode()
    assert not run.cached()


@pytest.mark.case
def test_too_many_unknown_pieces_are_refused(run: Run) -> None:
    foreign = [(source, "漢 字 " + target) for source, target in made_pairs(200)]
    run.corpus = replace(run.corpus, train=[run.write("foreign", foreign)])
    for _ in range(2):  # the second time from the cache
        with pytest.raises(RequestError, match=r"target pieces are unknown .*tokenizer\.character_coverage"):
            run.encode()
        assert run.lines[1].startswith("train: unknown pieces: source 0.00 %, target ")


def test_unknown_shares_by_hand(run: Run) -> None:
    valid = encode_pairs([("漢", "la"), ("a", "")], run.tokenizer)
    # Source: "▁" and the unknown piece, then "▁a". The end marks do not count.
    assert [len(ids) for ids in sentences(valid.source)] == [3, 2]
    assert valid.source.unknown == sum(ids.count(UNKNOWN) for ids in sentences(valid.source)) == 1
    assert valid.source.unknown_share == pytest.approx(1 / 3)
    with pytest.raises(RequestError, match=r"valid: 33\.3 % of the source"):
        report_unknown("valid", valid, run.lines.append)
    assert run.lines[-1] == "valid: unknown pieces: source 33.33 %, target 0.00 %"


@pytest.mark.case
def test_validation_pairs_are_never_dropped(run: Run) -> None:
    pairs = [("", ""), ("the " * 900, "le"), ("a", "a"), ("a", "a"), ("\u3000", "le")]
    valid = encode_pairs(iter(pairs), run.tokenizer)
    assert len(valid) == len(valid.target) == 5
    assert sentences(valid.source)[0] == sentences(valid.target)[0] == sentences(valid.source)[4] == [EOS]
    assert valid.source.lengths[1] > 900
    empty = encode_pairs([], run.tokenizer)
    assert len(empty) == 0
    assert empty.source.lengths.tolist() == []


def test_a_large_vocabulary_needs_wider_ids() -> None:
    assert EncodedSide.of([[65_535]], 2**16).ids.dtype == np.uint16
    wide = EncodedSide.of([[65_536, EOS], [EOS]], 2**16 + 1)
    assert wide.ids.dtype == np.int32
    assert sentences(wide) == [[65_536, EOS], [EOS]]


def test_an_epochs_draw_is_a_function_of_seed_and_epoch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 32)
    corpus = run.encode()
    draws = {
        (seed, epoch): draw_segmentations(corpus, run.tokenizer, replaced(run.config, seed), epoch)
        for seed, epoch in [(1, 0), (1, 1), (2, 0)]
    }
    again = draw_segmentations(corpus, run.tokenizer, replaced(run.config, 1), 0)
    assert sentences(again.source) == sentences(draws[1, 0].source)
    assert sentences(again.target) == sentences(draws[1, 0].target)
    assert sentences(draws[1, 1].source) != sentences(draws[1, 0].source) != sentences(draws[2, 0].source)
    for draw in draws.values():
        assert len(draw) == len(corpus)
        for ids, (_, text) in zip(sentences(draw.target), made_pairs(200), strict=True):
            assert run.tokenizer.decode(ids) == unicodedata.normalize("NFKC", text)


def test_a_draw_stays_within_the_greatest_number_of_pieces(run: Run) -> None:
    corpus = run.encode()
    free = draw_segmentations(corpus, run.tokenizer, run.config, 0)
    limit = int(np.median(free.source.lengths)) - 1  # without the end mark
    run.config.data.filter.max_pieces = limit
    bounded = draw_segmentations(corpus, run.tokenizer, run.config, 0)
    too_long = free.source.lengths > limit + 1
    assert too_long.any()
    assert not too_long.all()
    for index, replaced_ in enumerate(too_long):
        expected = corpus.source[index] if replaced_ else free.source[index]
        assert bounded.source[index].tolist() == expected.tolist()


@pytest.mark.case
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_no_room_for_an_epochs_draw(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = run.encode()
    monkeypatch.setattr(module.tempfile, "TemporaryFile", functools.partial(open, "/dev/full", "w+b"))
    with pytest.raises(
        WorkError, match=r"^cannot write the segmentations of epoch 3 in \S+: No space left on device; set"
    ):
        draw_segmentations(corpus, run.tokenizer, run.config, 3)


def replaced(config: TrainConfig, seed: int) -> TrainConfig:
    return replace(config, trainer=replace(config.trainer, seed=seed))
