"""Properties of translating: any bytes on stdin give as many lines as there are, or all before a fault and one error.

The models are untrained, so that their output is of every kind: too long, cut, of characters that belong together no
more. What comes out is one line for each line all the same.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from nmt import cli
from nmt.commands import translating
from nmt.config import SearchConfig
from nmt.data.corpus import clean_line
from nmt.data.tokenizer import CONTROLS
from nmt.decoding.search import max_length
from nmt.decoding.translator import Translator, has_content
from nmt.errors import RequestError
from untrained import untrained_run

pytestmark = pytest.mark.case

LINES = [
    b"Le vieux jardin.",
    b"",
    b" ",
    b"\xc2\xa0",
    b"a\tb",
    b"x",
    b"\xe2\x80\xa8",
    b"\r",
    b"\xef\xbb\xbfa",
    b"\xc2\xad",
    b"\x01",
]
LINES += ["漢字 🙂".encode(), b"caf\xe9", b"\0", b"<s> ||| </s>", b"le la " * 30]
STREAMS = st.lists(st.sampled_from(LINES) | st.binary(max_size=5), max_size=8).flatmap(
    lambda lines: st.sampled_from([b"\n", b"\r\n"]).map(lambda end: end.join(lines) + (end if len(lines) % 2 else b""))
)
OPTIONS = st.sampled_from([[], ["--json"], ["--n-best", "2"], ["--beam-size", "1"], ["--n-best", "3", "--json"]])


@pytest.fixture(scope="module", params=["luong-general-fed-in_order", "transformer-rotary", "decoder_only-post"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(untrained_run(tmp_path_factory.mktemp("runs") / "run", request.param))


@pytest.fixture
def loaded(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every RUN is the translator, which need not be loaded again for each example."""
    monkeypatch.setattr(translating, "load_translator", lambda runs: translator)


def nmt(arguments: list[str], stdin: list[bytes]) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command whose stdin arrives in these pieces."""
    pieces = iter([piece for piece in stdin if piece])

    def fileno() -> int:
        raise OSError

    before = sys.stdin
    sys.stdin = SimpleNamespace(buffer=SimpleNamespace(read=lambda size: next(pieces, b"")), fileno=fileno)  # type: ignore[assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = cli.main(arguments)
    finally:
        sys.stdin = before
    return status, out.getvalue(), err.getvalue()


def decoded(content: bytes) -> tuple[list[str], int | None]:
    """The lines up to the first that is no text, and the number of that one."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    texts: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError:
            return texts, number
        if "\0" in texts[-1]:
            return texts[:-1], number
    return texts, None


@pytest.mark.usefixtures("loaded")
@examples(40)
@given(STREAMS, OPTIONS, st.lists(st.integers(0, 60), max_size=3))
def test_a_line_for_each_line_or_all_before_a_fault_and_one_error(
    translator: Translator, content: bytes, options: list[str], cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), len(content)]
    pieces = [content[begin:end] for begin, end in itertools.pairwise(edges)]
    status, out, err = nmt(["translate", "RUN", *options], pieces)
    texts, fault = decoded(content)
    answers = out.split("\n")
    assert answers.pop() == ""
    assert len(answers) == len(texts)
    errors = [line for line in err.splitlines() if not line.startswith("warning: line")]
    if fault is None:
        assert (status, errors) == (0, [])
    else:
        assert status == 2
        assert len(errors) == 1
        assert errors[0].startswith(f"nmt: error: stdin line {fault}: ")
    for text, answer in zip(texts, answers, strict=True):
        clean = clean_line(text)
        asked = has_content(clean, len(translator.tokenizer.encode_source([clean])[0]))
        if "--json" in options:
            record = json.loads(answer, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
            found = [each["text"] for each in record.get("n_best", [record])]
            assert found[0] == record["text"]
            assert bool(record["tokens"]) == asked
        else:
            found = answer.split("\t")
        assert len(found) == (int(options[1]) if "--n-best" in options and asked else 1)
        assert all(CONTROLS.search(each) is None for each in found)
        assert asked or found == [""]


@pytest.mark.usefixtures("loaded")
@examples(15)
@given(STREAMS)
def test_a_file_is_translated_as_stdin_is(tmp_path: Path, content: bytes) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(content)
    target.unlink(missing_ok=True)
    if content.startswith(b"\x1f\x8b"):
        return
    expected, out, _ = nmt(["translate", "RUN"], [content])
    status, nothing, _ = nmt(["translate", "RUN", "--input", str(source), "--output", str(target)], [])
    assert (status, nothing) == (expected, "")
    assert target.exists() == (status == 0)
    if status == 0:
        assert target.read_text(encoding="utf-8") == out


@examples(25)
@given(st.lists(st.text(st.characters(), max_size=8), max_size=4), st.integers(1, 60))
def test_python_users_get_a_translation_for_each_text(
    translator: Translator, texts: list[str], batch_tokens: int
) -> None:
    whole = [text.encode("utf-8", "ignore").decode().replace("\0", "") for text in texts]
    if whole != texts:
        with pytest.raises(RequestError, match=r"text \d+ has a lone surrogate or NUL"):
            translator.translate(texts)
    together = translator.translate(whole)
    assert len(together) == len(texts)
    for text, translation in zip(whole, together, strict=True):
        assert CONTROLS.search(translation.text) is None
        assert translator.translate([text])[0].text == translation.text


SEARCHES = st.builds(
    SearchConfig,
    beam_size=st.integers(1, 6),
    n_best=st.integers(1, 3),
    length_penalty=st.sampled_from(["none", "average", "gnmt"]),
    length_alpha=st.floats(0, 10),
    min_length=st.integers(0, 4),
    max_length_ratio=st.floats(0, 2),
    max_length_extra=st.integers(1, 4),
    sampling=st.booleans(),
    temperature=st.floats(0, 1e9, exclude_min=True),
    top_k=st.integers(0, 400),
    epsilon=st.floats(0, 1, exclude_max=True),
    mbr_samples=st.sampled_from([0, 0, 1, 5]),
    mbr_beam=st.booleans(),
    seed=st.integers(0),
    batch_tokens=st.integers(1, 99),
)


@examples(30)
@given(SEARCHES)
def test_any_search_that_is_allowed_finds_something_within_its_limits(
    translator: Translator, search: SearchConfig
) -> None:
    texts = ["le vieux jardin", "", "x", "la maison de la rivière"]
    limit = search.mbr_samples or search.beam_size
    at_odds = search.sampling if search.mbr_samples else search.mbr_beam
    if at_odds or (search.n_best > limit and not search.sampling):
        with pytest.raises(RequestError):
            translator.n_best(texts, search)
        return
    for text, found in zip(texts, translator.n_best(texts, search), strict=True):
        assert 1 <= len(found) <= search.n_best
        [source] = translator.tokenizer.encode_source([text])
        for translation in found:
            assert math.isfinite(translation.score)
            limit = max_length(search, len(source))
            assert len(translation.tokens) <= limit
            assert translation.cut == (len(translation.tokens) == limit)
            assert text == "" or len(translation.tokens) >= search.min_length
        scores = [translation.score for translation in found]
        assert scores == sorted(scores, reverse=True)
