"""Properties of the way from bytes to pieces: whatever a file holds, its lines keep their number, or one line says why.

What generators make is rarely what people write, so each strategy mixes bytes or text of any kind with the characters
that have been trouble before.
"""

from __future__ import annotations

import gzip
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from keeping import keep
from nmt.config import FilterConfig, TokenizerConfig
from nmt.data.corpus import PairFiles, clean_line, count_lines, read_lines, reference_lines
from nmt.data.filter import is_blank
from nmt.data.tokenizer import CONTROLS, EOS, UNKNOWN, Tokenizer
from nmt.errors import RequestError
from nmt.evaluation.metrics import score_files

pytestmark = pytest.mark.case

# Line ends of all kinds, spaces of all kinds, what is not to be seen, what joins, and what other programs reserve.
ODD = [
    *"\r\v\f\x1c\x1d\x1e\x85\u2028\u2029 \t\u00a0\u202f\u3000\u00ad\u200b\u200d\u2060\ufeffe\u0301",
    *"éœ’…½²🙂漢\0\x1b\x7f▁▅|",
    *["<s>", "</s>", "<unk>", "<0x0A>", "e\u00ad\u0301", " ||| ", "@@ ", "￨"],
]
TEXT = st.lists(st.sampled_from(ODD) | st.text(max_size=4), max_size=20).map("".join)
BYTES = st.lists(
    st.binary(max_size=6)
    | st.sampled_from(ODD).map(str.encode)
    | st.sampled_from([b"\n", b"\n\n", b"\r\n", b"caf\xe9"]),
    max_size=20,
).map(b"".join)


def lines_in(content: bytes) -> int:
    """As many as there are LF, and one for what comes after the last."""
    return content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))


def fault_of(content: bytes) -> int | None:
    """The number of the first line that is no text."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            if "\0" in line.decode("utf-8"):
                return number
        except UnicodeDecodeError:
            return number
    return None


def one_line(refusal: pytest.ExceptionInfo[RequestError]) -> str:
    message = str(refusal.value)
    assert "\n" not in message
    return message


# Lines -----------------------------------------------------------------------------------------------------------


@examples(200)
@given(BYTES)
def test_a_file_has_its_lines_or_names_the_first_that_is_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    if content.startswith(b"\x1f\x8b"):
        return  # by definition gzip
    assert count_lines(path) == lines_in(content)
    fault = fault_of(content)
    for read in (read_lines, reference_lines):
        if fault is None:
            continue
        with pytest.raises(RequestError) as refusal:
            list(read(path))
        assert f"{path} line {fault}: " in one_line(refusal)
    if fault is None:
        lines, references = list(read_lines(path)), reference_lines(path)
        assert len(lines) == lines_in(content)
        assert lines == [clean_line(reference) for reference in references]
        assert "\n".join(references).encode() == content.removesuffix(b"\n").replace(b"\r\n", b"\n").removesuffix(
            b"\r" if content.endswith((b"\r\n", b"\r")) else b""
        )


@examples(200)
@given(TEXT)
def test_a_clean_line_is_one_line_and_clean(text: str) -> None:
    clean = clean_line(text)
    assert clean.splitlines() in ([], [clean])
    assert unicodedata.is_normalized("NFC", clean)
    assert clean_line(clean) == clean
    assert is_blank(clean) == is_blank(text)


@examples(200)
@given(BYTES, st.data())
def test_damaged_gzip_gives_the_lines_before_the_damage(tmp_path: Path, content: bytes, data: st.DataObject) -> None:
    content = (content + b"\n") * 50
    packed = bytearray(gzip.compress(content))
    cut = data.draw(st.booleans())
    if cut:
        del packed[data.draw(st.integers(2, len(packed))) :]
    else:
        packed[data.draw(st.integers(2, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "packed"
    path.write_bytes(packed)
    whole = [clean_line(line.removesuffix("\r")) for line in content.decode("utf-8", "replace").split("\n")]
    got: list[str] = []
    said = None
    try:
        got.extend(read_lines(path))
    except RequestError as error:
        said = str(error)
    if said is None:
        assert got == whole[:-1]
    else:
        assert said.startswith((f"{path} line ", f"cannot read {path}: "))
        assert "\n" not in said
        # There is no checksum before the end: of changed bytes, other text may come out first, but not in silence.
        assert not cut or got == whole[: len(got)]


@examples(100)
@given(BYTES, BYTES)
def test_pairs_are_line_by_line_or_refused(tmp_path: Path, source: bytes, target: bytes) -> None:
    paths = tmp_path / "a.en", tmp_path / "a.fr"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    pairs = PairFiles(*paths)
    if any(content.startswith(b"\x1f\x8b") for content in (source, target)):
        return
    equal = lines_in(source) == lines_in(target)
    if equal and fault_of(source) is None and fault_of(target) is None:
        assert list(pairs) == list(zip(read_lines(paths[0]), read_lines(paths[1]), strict=True))
        assert pairs.count() == len(pairs.references()) == len(pairs.sources()) == lines_in(source)
        return
    with pytest.raises(RequestError) as refusal:
        list(pairs)
    one_line(refusal)
    if not equal:
        with pytest.raises(RequestError, match=f"has {lines_in(source)} lines but .* has {lines_in(target)}"):
            pairs.count()


@examples(100)
@given(BYTES, BYTES | st.none())
def test_two_files_are_scored_or_refused(tmp_path: Path, hypotheses: bytes, references: bytes | None) -> None:
    """`None`: against itself, which is perfect unless there is next to nothing in it."""
    references = hypotheses if references is None else references
    paths = tmp_path / "hypotheses", tmp_path / "references"
    for path, content in zip(paths, (hypotheses, references), strict=True):
        path.write_bytes(content)
    if any(content.startswith(b"\x1f\x8b") for content in (hypotheses, references)):
        return
    lines = lines_in(hypotheses), lines_in(references)
    faults = lines[0] != lines[1] or lines[0] == 0 or any(fault_of(c) is not None for c in (hypotheses, references))
    if faults or all(is_blank(line) for line in reference_lines(paths[1])):
        with pytest.raises(RequestError) as refusal:
            score_files(*paths)
        one_line(refusal)
        return
    scores = score_files(*paths)
    assert 0 <= scores.bleu <= 100.0000001
    assert 0 <= scores.chrf <= 100.0000001
    assert scores.statistics.sentences == lines[0]
    if hypotheses == references and scores.statistics.length_ratio is not None:
        assert scores.statistics.length_ratio == 1
        assert scores.statistics.empty == 0


# Filter ----------------------------------------------------------------------------------------------------------

FILTERS = st.builds(
    FilterConfig,
    max_words=st.integers(1, 6),
    max_ratio=st.floats(1, 3),
    max_pieces=st.integers(1, 9),
    drop_copies=st.booleans(),
    min_letters=st.floats(0, 1),
    drop_duplicates=st.booleans(),
)


@examples(200)
@given(st.lists(st.tuples(TEXT, TEXT), max_size=12), FILTERS)
def test_each_pair_is_kept_in_its_place_or_counted(pairs: list[tuple[str, str]], config: FilterConfig) -> None:
    kept, tally = keep(pairs, config)
    rest = iter(pairs)
    assert all(any(pair is other for other in rest) for pair in kept), "in order, as pairs"
    assert tally.total == len(pairs)
    assert tally.kept == len(kept)
    assert "\n" not in tally.summary()
    assert keep(kept, config)[0] == kept, "what is kept once is kept again"
    for source, target in kept:
        assert not is_blank(source)
        assert not is_blank(target)
        assert max(len(source.split()), len(target.split())) <= config.max_words
    if config.drop_duplicates:
        assert len(set(kept)) == len(kept)
    if not kept:
        with pytest.raises(RequestError) as refusal:
            tally.require_some(config)
        one_line(refusal)


# Tokenizer -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def train(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tokenizer]:
    generator = random.Random(1)
    words = ["le", "vieux", "jardin", "élève", "où", "ça", "the", "old", "garden", "l'eau", "m²", "a=b"]
    texts = [" ".join(generator.choices(words, k=6)) for _ in range(100)]

    def tokenizer(**keys: object) -> Tokenizer:
        config = TokenizerConfig(model=request.param, **keys)  # type: ignore[arg-type]
        folder = tmp_path_factory.mktemp("tokenizer")
        return Tokenizer.train(config, zip(texts, texts, strict=True), folder, lambda line: None)

    return tokenizer


@pytest.fixture(scope="module")
def exact(train: Callable[..., Tokenizer]) -> Tokenizer:
    """A tokenizer that changes nothing and can write everything."""
    return train(vocab_size=330, byte_fallback=True, normalization="identity")


@pytest.fixture(scope="module")
def usual(train: Callable[..., Tokenizer]) -> Tokenizer:
    """A tokenizer as it is by default."""
    return train(vocab_size=60)


@examples(200)
@given(TEXT, st.integers(0, 9))
def test_what_is_encoded_comes_back_but_for_spaces(exact: Tokenizer, text: str, seed: int) -> None:
    expected = " ".join(CONTROLS.sub(" ", text).replace("▁", " ").split(" "))
    while "  " in expected:
        expected = expected.replace("  ", " ")
    for ids in (*exact.encode_target([text]), *exact.sample_target([text], seed, 0.3)):
        assert ids[-1] == EOS
        assert all(UNKNOWN < EOS < piece for piece in ids[:-1])
        assert exact.decode(ids) == expected.strip(" ")


@examples(200)
@given(st.lists(TEXT, max_size=5), st.integers(0, 9))
def test_any_text_is_pieces_and_any_pieces_are_one_line(usual: Tokenizer, texts: list[str], seed: int) -> None:
    encoded = usual.encode_source(texts)
    assert len(encoded) == len(texts)
    assert encoded == [usual.encode_source([text])[0] for text in texts]
    for ids in (*encoded, *usual.resample_source(encoded, seed, 0.5)):
        assert ids[-1] == EOS
        assert all(piece == UNKNOWN or EOS < piece < usual.source_size for piece in ids[:-1])
        decoded = usual.decode(ids)
        assert CONTROLS.search(decoded) is None
        assert "⁇" not in decoded
        assert decoded == decoded.strip(" ")
        assert usual.decode(usual.encode_target([decoded])[0]) == decoded, "what was decoded is stable"
