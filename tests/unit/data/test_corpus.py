"""Lines and pairs: what `wc -l` counts is what is read, on both sides alike, and faults name file and line."""

from __future__ import annotations

import gzip
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from nmt.config import DataConfig, Download, FilePair, FilesData, GrammarData
from nmt.data import corpus as corpus_module
from nmt.data.corpus import Corpus, PairFiles, count_lines, prepare_corpus, read_lines, reference_lines
from nmt.errors import RequestError, WorkError

# Everything at which Python's str.splitlines breaks, but for LF.
LINE_BREAKS = ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
NO_REPORT = [].append


def written(path: Path, content: str | bytes, *, compress: bool = False) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if compress else data)
    return path


def pair_files(folder: Path, source: str | bytes, target: str | bytes) -> PairFiles:
    return PairFiles(written(folder / "a.en", source), written(folder / "a.fr", target))


# Lines


@pytest.mark.case
@pytest.mark.parametrize("character", LINE_BREAKS)
@pytest.mark.parametrize("compress", [False, True])
def test_only_lf_ends_a_line_and_other_breaks_are_spaces(tmp_path: Path, character: str, compress: bool) -> None:
    file = written(tmp_path / "text", f"a{character}b\nc\n", compress=compress)
    assert list(read_lines(file)) == ["a b", "c"]
    assert reference_lines(file) == [f"a{character}b", "c"]
    assert count_lines(file) == 2


@pytest.mark.case
@examples(150)
@given(
    content=st.binary(max_size=60)
    | st.text(st.sampled_from(["a", "é", " ", "\n", "\n", *LINE_BREAKS, "\ufeff", "e", "\u0301"])).map(str.encode)
)
@pytest.mark.parametrize("compress", [False, True])
def test_any_bytes_give_as_many_lines_as_lf_or_an_error(tmp_path: Path, content: bytes, compress: bool) -> None:
    if content.startswith(b"\x1f\x8b"):
        return  # by definition gzip
    file = written(tmp_path / "text", content, compress=compress)
    expected = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    assert count_lines(file) == expected
    try:
        content.decode()
        valid = b"\0" not in content
    except UnicodeDecodeError:
        valid = False
    if not valid:
        for read in (lambda: list(read_lines(file)), lambda: reference_lines(file)):
            with pytest.raises(RequestError, match=r"text line \d+: (not UTF-8|a NUL byte)") as caught:
                read()
            assert "\n" not in str(caught.value)
        return
    lines = list(read_lines(file))
    assert len(lines) == len(reference_lines(file)) == expected
    for line in lines:
        assert line.splitlines() in ([line], [])
        assert unicodedata.is_normalized("NFC", line)


def test_one_cr_before_lf_is_part_of_the_line_end_and_a_second_is_not(tmp_path: Path) -> None:
    file = written(tmp_path / "text", b"a\r\nb\r\r\n\r\nc\r")
    assert list(read_lines(file)) == ["a", "b ", "", "c"]
    assert reference_lines(file) == ["a", "b\r", "", "c"]


def test_texts_are_nfc_and_without_invisible_characters_but_references_are_as_they_are(tmp_path: Path) -> None:
    file = written(tmp_path / "text", "\ufeffe\u0301te\u00ad\u0301  \nx\u200b\u200ey \n")
    assert list(read_lines(file)) == ["été  ", "xy "]
    assert reference_lines(file) == ["\ufeffe\u0301te\u00ad\u0301  ", "x\u200b\u200ey "]


@pytest.mark.case
@pytest.mark.parametrize("compress", [False, True])
def test_a_latin_1_byte_is_reported_with_file_line_and_column(tmp_path: Path, compress: bool) -> None:
    file = written(tmp_path / "text", b"ok\n" * 11 + b"\xc3\xa9t\xe9 ici\n", compress=compress)
    lines = read_lines(file)
    assert [next(lines) for _ in range(11)] == ["ok"] * 11
    with pytest.raises(RequestError, match=r"text line 12: not UTF-8 \(byte 0xe9 at column 3\)"):
        next(lines)
    with pytest.raises(RequestError, match=r"text line 12: not UTF-8 \(byte 0xe9 at column 3\)"):
        reference_lines(file)


def test_a_binary_file_is_one_clear_line(tmp_path: Path) -> None:
    file = written(tmp_path / "text", b"fine\nPK\x03\x04\0\0\n")
    with pytest.raises(RequestError, match=r"text line 2: a NUL byte at column 5; not a text file\?$"):
        list(read_lines(file))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "MAX_LINE_BYTES", 10)
    assert list(read_lines(written(tmp_path / "fits", b"12345678\n"))) == ["12345678"]
    with pytest.raises(RequestError, match="long line 2: longer than 10 bytes"):
        list(read_lines(written(tmp_path / "long", b"x\n12345678901\n")))


@pytest.mark.parametrize("kept", [3, 12, 100, 2000, -9, -1])
def test_a_gzip_file_that_is_cut_off_is_reported_with_a_line_and_after_all_whole_lines(
    tmp_path: Path, kept: int
) -> None:
    expected = [f"line {number} {number * 7919 % 10007}" for number in range(3000)]
    whole = gzip.compress("".join(f"{line}\n" for line in expected).encode())
    lines = read_lines(written(tmp_path / "text.gz", whole[:kept]))
    got: list[str] = []
    with pytest.raises(RequestError, match=r"text\.gz line (\d+): the gzip file is cut off or damaged") as caught:
        got.extend(lines)
    assert f"line {len(got) + 1}:" in str(caught.value)
    assert got == expected[: len(got)]


def test_a_damaged_gzip_file_is_reported(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"some text\n" * 1000))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(RequestError, match=r"text line \d+: the gzip file is cut off or damaged"):
        list(read_lines(written(tmp_path / "text", bytes(data))))


def test_gzip_is_recognised_by_its_bytes_not_by_its_name(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path / "plain.gz", "a\n"))) == ["a"]
    assert list(read_lines(written(tmp_path / "packed", "a\n", compress=True))) == ["a"]
    two_members = gzip.compress(b"a\nb") + gzip.compress(b"c\n")
    assert list(read_lines(written(tmp_path / "two.gz", two_members))) == ["a", "bc"]


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="absent: No such file or directory"):
        list(read_lines(tmp_path / "absent"))
    with pytest.raises(RequestError, match=f"{tmp_path}: Is a directory"):
        reference_lines(tmp_path)


# Pairs


@pytest.mark.case
def test_a_cr_inside_a_line_makes_no_third_pair(tmp_path: Path) -> None:
    pairs = pair_files(tmp_path, "x\ny\n", "a\rb\nc\n")
    assert list(pairs) == [("x", "a b"), ("y", "c")]
    assert pairs.count() == 2
    assert pairs.sources() == ["x", "y"]
    assert pairs.references() == ["a\rb", "c"]


@pytest.mark.case
@examples(150)
@given(counts=st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_unequal_line_counts_are_refused_with_both_counts(tmp_path: Path, counts: tuple[int, int]) -> None:
    pairs = pair_files(tmp_path, "x\n" * counts[0], "y\n" * counts[1])
    if counts[0] == counts[1]:
        assert list(pairs) == [("x", "y")] * pairs.count() == [("x", "y")] * counts[0]
        return
    for read in (lambda: list(pairs), pairs.count):
        with pytest.raises(RequestError, match=f"a.en has {counts[0]} lines but .*a.fr has {counts[1]}:"):
            read()


def test_pairs_are_streamed(tmp_path: Path) -> None:
    pairs = pair_files(tmp_path, b"x\n\xff\n", b"y\nz\n")
    assert next(iter(pairs)) == ("x", "y")


# Corpora of files


def files_config(folder: Path | str | None, **changes: object) -> FilesData:
    values = {
        "kind": "files",
        "name": "my corpus",
        "dir": None if folder is None else str(folder),
        "train": [FilePair("train.en", "train.fr")],
        "valid": [FilePair("valid.en", "valid.fr")],
        "test": {"news": FilePair("test.en", "test.fr")},
    }
    return FilesData(**(values | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, count in (("train", 5), ("valid", 2), ("test", 3)):
        for language in ("en", "fr"):
            text = "".join(f"{split} {language} {number}\n" for number in range(count))
            written(tmp_path / "data" / f"{split}.{language}", text)
    return tmp_path / "data"


def test_files_are_found_in_data_dir(folder: Path) -> None:
    corpus = prepare_corpus(files_config(folder, literature_score=True), NO_REPORT)
    assert (corpus.name, corpus.source_language, corpus.target_language) == ("my corpus", "en", "fr")
    assert corpus.train == [PairFiles(folder / "train.en", folder / "train.fr")]
    assert [text.count() for text in corpus.valid] == [2]
    assert list(corpus.test["news"])[2] == ("test en 2", "test fr 2")
    assert corpus.literature_score


def test_data_dir_is_relative_to_where_the_command_runs_and_may_begin_with_a_tilde(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    for given_dir in ("data", "./data/", "../" + folder.parent.name + "/data", "~/data"):
        corpus = prepare_corpus(files_config(given_dir), NO_REPORT)
        monkeypatch.chdir("/")
        assert len(list(corpus.training_pairs())) == 5
        monkeypatch.chdir(folder.parent)


def test_a_name_stands_for_the_plain_and_the_gzip_file(folder: Path) -> None:
    plain = list(prepare_corpus(files_config(folder), NO_REPORT).training_pairs())
    for name in ("train.en", "train.fr"):
        written(folder / f"{name}.gz", (folder / name).read_bytes(), compress=True)
        (folder / name).unlink()
    assert list(prepare_corpus(files_config(folder), NO_REPORT).training_pairs()) == plain
    named = files_config(folder, train=[FilePair("train.en.gz", "train.fr.gz")])
    named.valid = [FilePair("valid.en.gz", "valid.fr.gz")]
    assert list(prepare_corpus(named, NO_REPORT).training_pairs()) == plain


def test_several_training_files_follow_each_other_up_to_the_limit(folder: Path) -> None:
    train = [FilePair("valid.en", "valid.fr"), FilePair("train.en", "train.fr")]
    corpus = prepare_corpus(files_config(folder, train=train, max_train_pairs=3), NO_REPORT)
    assert [source for source, _ in corpus.training_pairs()] == ["valid en 0", "valid en 1", "train en 0"]


def test_a_missing_file_is_named_with_the_key_and_the_files_that_are_alike(folder: Path) -> None:
    with pytest.raises(RequestError) as caught:
        prepare_corpus(files_config(folder, train=[FilePair("trian.en", "train.fr")]), NO_REPORT)
    message = str(caught.value)
    assert message.startswith(f"data.dir={folder}: no file trian.en or trian.en.gz; it holds train.en")
    assert "\n" not in message
    with pytest.raises(RequestError, match=r"data\.dir=.*no such folder"):
        prepare_corpus(files_config(folder / "absent"), NO_REPORT)
    with pytest.raises(RequestError, match=r"data\.dir is not set"):
        prepare_corpus(files_config(None), NO_REPORT)


@pytest.mark.case
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_every_set_is_checked_before_training(folder: Path, split: str) -> None:
    good = (folder / f"{split}.fr").read_text()
    written(folder / f"{split}.fr", good + "\n")
    with pytest.raises(RequestError, match=rf"{split}\.en has (\d) lines but .*{split}\.fr has \d:"):
        prepare_corpus(files_config(folder), NO_REPORT)
    for language in ("en", "fr"):
        written(folder / f"{split}.{language}", "")
    with pytest.raises(RequestError, match=rf"data\.{split}.*: no pairs, .*{split}\... is empty"):
        prepare_corpus(files_config(folder), NO_REPORT)


@pytest.mark.parametrize("side", ["en", "fr"])
def test_a_bad_byte_in_the_last_test_set_shows_before_training(folder: Path, side: str) -> None:
    written(folder / f"test.{side}", b"a\nb\n\xe9\n")
    with pytest.raises(RequestError, match=rf"test\.{side} line 3: not UTF-8"):
        prepare_corpus(files_config(folder), NO_REPORT)


@pytest.mark.parametrize("key", ["train", "valid"])
def test_a_run_without_files_is_refused(folder: Path, key: str) -> None:
    with pytest.raises(RequestError, match=rf"data\.{key}: no files"):
        prepare_corpus(files_config(folder, **{key: []}), NO_REPORT)


def test_files_without_data_dir_are_fetched_below_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def fetch(url: str, sha256: str, destination: Path, report: object) -> Path:
        asked.append((url, sha256))
        return written(destination, (folder / destination.name).read_bytes())

    monkeypatch.setattr(corpus_module, "fetch", fetch)
    names = [path.name for path in folder.iterdir()]
    downloads = {name: Download(f"https://example.org/{name}", name * 2) for name in [*names, "unused"]}
    cache = folder.parent / "cache"
    corpus = prepare_corpus(files_config(None, downloads=downloads, cache=str(cache)), NO_REPORT)
    assert corpus.train[0].source == cache / "downloads" / "my_corpus" / "train.en"
    assert sorted(asked) == sorted((f"https://example.org/{name}", name * 2) for name in names)
    with pytest.raises(RequestError, match=r"data\.downloads has no address for x: .*data\.dir"):
        prepare_corpus(files_config(None, downloads=downloads, test={"t": FilePair("x", "x")}), NO_REPORT)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RequestError, match=r"data\.kind=books"):
        prepare_corpus(DataConfig(kind="books", name="x"), NO_REPORT)


# The grammar's corpus


class Grammar:
    """Stands in for nmt.data.grammar: writes tiny files, and counts how often."""

    GRAMMAR_VERSION = 1

    def __init__(self) -> None:
        self.written = 0

    def write_grammar_corpus(self, config: GrammarData, directory: Path) -> None:
        self.written += 1
        for split in ("train", "valid", "test"):
            written(directory / f"{split}.en", f"red car {config.seed}\n")
            written(directory / f"{split}.fr", f"voiture rouge {config.seed}\n")
            written(directory / f"{split}.align", "0-1 1-2 2-0\n")


@pytest.fixture
def grammar(monkeypatch: pytest.MonkeyPatch) -> Grammar:
    import nmt.data

    grammar = Grammar()
    monkeypatch.setattr(nmt.data, "grammar", grammar, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "nmt.data.grammar", grammar)
    return grammar


def grammar_corpus(cache: Path, **changes: object) -> Corpus:
    return prepare_corpus(GrammarData(**({"kind": "grammar", "name": "g", "cache": str(cache)} | changes)), NO_REPORT)


def test_the_grammar_is_asked_once_for_each_set_of_parameters(tmp_path: Path, grammar: Grammar) -> None:
    first = grammar_corpus(tmp_path)
    assert grammar_corpus(tmp_path) == first
    assert grammar_corpus(tmp_path, max_train_pairs=1, name="other").train == first.train
    assert grammar.written == 1
    for key, value in (("lengths", "even"), ("max_words", 59), ("min_words", 4), ("train_pairs", 3)):
        assert grammar_corpus(tmp_path, **{key: value}).train != first.train, key
    assert grammar_corpus(tmp_path, seed=2).train != first.train
    grammar.GRAMMAR_VERSION = 2
    assert grammar_corpus(tmp_path).train != first.train
    assert grammar.written == 7


def test_the_reversed_direction_has_the_reversed_alignment(tmp_path: Path) -> None:
    few = {"train_pairs": 20, "valid_pairs": 5, "test_pairs": 58}
    forward = grammar_corpus(tmp_path, **few)
    backward = grammar_corpus(tmp_path, source_language="fr", target_language="en", **few)
    assert list(backward.training_pairs()) == [(french, english) for english, french in forward.training_pairs()]
    there, back = (corpus.test["test"].alignment for corpus in (forward, backward))
    assert there is not None
    assert back is not None
    for line, turned in zip(read_lines(there), read_lines(back), strict=True):
        assert {tuple(link.split("-")) for link in line.split()} == {
            tuple(link.split("-")[::-1]) for link in turned.split()
        }


def test_a_generation_that_fails_is_not_taken_for_a_corpus(tmp_path: Path, grammar: Grammar) -> None:
    def fail(config: GrammarData, directory: Path) -> None:
        written(directory / "train.en", "half\n")
        raise OSError(28, "No space left on device")

    grammar.write_grammar_corpus = fail  # type: ignore[method-assign]
    with pytest.raises(WorkError, match="No space left on device"):
        grammar_corpus(tmp_path)
    del grammar.write_grammar_corpus
    assert len(list(grammar_corpus(tmp_path).training_pairs())) == 1


def test_the_grammar_refuses_other_languages_and_impossible_lengths(tmp_path: Path, grammar: Grammar) -> None:
    with pytest.raises(RequestError, match=r"data\.source_language=de"):
        grammar_corpus(tmp_path, source_language="de")
    with pytest.raises(RequestError, match=r"data\.min_words=9 is above data\.max_words=5"):
        grammar_corpus(tmp_path, min_words=9, max_words=5)
