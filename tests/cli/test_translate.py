"""`nmt translate`: one line for each line, whatever is in it and however it comes, as soon as it comes."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt as library
from nmt.commands import reading
from nmt.data.tokenizer import Tokenizer
from nmt.decoding.translator import Translator
from nmt.errors import RequestError

Command = Callable[..., Any]

SENTENCES = [
    "The cat sees a horse.",
    "The old man waits for the red house.",
    "My sister draws the summer.",
    "A bird hears the sea.",
    "The teacher likes an apple.",
]
# Each is one line to this project, whatever other programs make of it.
ODD_LINES = {
    "separators": "a ||| b ￨ c ▁ @@ <s> </s> <unk> <pad> | d",
    "tab": "the\tcat\tsees",
    "line separator": "The cat\u2028sees\u2029a horse.",
    "vertical tab": "The cat\x0bsees\x0ca\x1chorse\x85.",
    "lone CR": "The cat\rsees a horse.",
    "unknown characters": "漢字 🙂 ŉ…½",
    "one letter": "a",
    "punctuation": "?!",
    "capitals": "THE CAT SEES A HORSE.",
    "long": "the cat sees " * 60,
    "BOM": "\ufeffThe cat sees a horse.",
}


def as_lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return library.load(trained_run)


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    """The translations of SENTENCES from Python."""
    texts = [translation.text for translation in translator.translate(SENTENCES)]
    assert texts[0] == "Le chat voit un cheval."
    assert len(set(texts)) == 5
    return texts


# Ways in and out -------------------------------------------------------------------------------------------------


@pytest.mark.case
def test_text_file_and_stdin_agree(nmt: Command, trained_run: Path, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(as_lines(SENTENCES))
    lines = "".join(f"{text}\n" for text in expected)
    assert nmt("translate", trained_run, stdin=as_lines(SENTENCES)) == nmt(
        "translate", trained_run, "--input", tmp_path / "in"
    )
    from_file = nmt("translate", trained_run, "--input", tmp_path / "in")
    assert (from_file.status, from_file.out, from_file.err) == (0, lines, "")
    to_file = nmt("translate", trained_run, "--input", tmp_path / "in", "--output", tmp_path / "new" / "out")
    assert (to_file.status, to_file.out, to_file.err) == (0, "", "")
    assert (tmp_path / "new" / "out").read_text(encoding="utf-8") == lines
    for sentence, text in zip(SENTENCES, expected, strict=True):
        assert nmt("translate", trained_run, "--text", sentence).out == f"{text}\n"


def test_run_is_also_a_checkpoint(nmt: Command, trained_run: Path, expected: list[str]) -> None:
    outcome = nmt("translate", trained_run / "checkpoints" / "best", "--text", SENTENCES[1])
    assert (outcome.status, outcome.out) == (0, f"{expected[1]}\n")


@pytest.mark.case
def test_in_a_locale_without_accents(nmt_process: Command, trained_run: Path) -> None:
    process = nmt_process("translate", trained_run, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    out, err = process.communicate("été\n\nmy sister\n".encode(), timeout=120)
    assert (process.returncode, err) == (0, b"")
    lines = out.decode("utf-8").split("\n")
    assert len(lines) == 4
    assert lines[0]
    assert lines[1] == lines[3] == ""
    assert "sœur" in lines[2]


@pytest.mark.case
def test_a_line_is_answered_before_the_next_one_comes(
    nmt_process: Command, trained_run: Path, expected: list[str]
) -> None:
    with nmt_process("translate", trained_run) as process:
        for number, sentence in enumerate([*SENTENCES[:2], ""]):
            process.stdin.write(f"{sentence}\n".encode())
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], 120)
            assert ready, f"no answer to line {number + 1}"
            assert process.stdout.readline().decode() == f"{[*expected[:2], ''][number]}\n"
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == b""


def test_more_lines_than_are_translated_at_once(
    nmt: Command, trained_run: Path, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reading, "LINES_AT_ONCE", 3)
    (tmp_path / "in").write_bytes(as_lines(SENTENCES * 4))
    for outcome in (
        nmt("translate", trained_run, stdin=as_lines(SENTENCES * 4)),
        nmt("translate", trained_run, "--input", tmp_path / "in"),
    ):
        assert outcome.out.splitlines() == expected * 4


# Lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize(
    ("raw", "translated"),
    [
        (b"", []),
        (b"\n", [None]),
        (b"{0}", [0]),
        (b"{0}\n", [0]),
        (b"{0}\r\n{1}\r\n", [0, 1]),
        (b"{0}\n\n{1}\n", [0, None, 1]),
        (b"\n\n{0}", [None, None, 0]),
        (b"{0}\n \n\t\n\xc2\xa0\n\xe3\x80\x80\n\xe2\x80\x8b\n{1}\n", [0, None, None, None, None, None, 1]),
        (b"\xef\xbb\xbf{0}\n{1}\n", [0, 1]),
    ],
    ids=repr,
)
def test_as_many_lines_as_were_read(
    raw: bytes, translated: list[int | None], nmt: Command, trained_run: Path, expected: list[str], tmp_path: Path
) -> None:
    for number in (0, 1):
        raw = raw.replace(f"{{{number}}}".encode(), SENTENCES[number].encode())
    wanted = "".join(f"{'' if which is None else expected[which]}\n" for which in translated)
    assert nmt("translate", trained_run, stdin=raw).out == wanted
    (tmp_path / "in").write_bytes(raw)
    outcome = nmt("translate", trained_run, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert outcome.status == 0
    assert (tmp_path / "out").read_bytes() == wanted.encode()


@pytest.mark.case
def test_odd_lines(nmt: Command, trained_run: Path) -> None:
    lines = list(ODD_LINES.values())
    outcome = nmt("translate", trained_run, "--n-best", "2", stdin=as_lines(lines))
    assert outcome.status == 0
    found = outcome.out.split("\n")
    assert found.pop() == ""
    assert len(found) == len(lines)
    for name, line in zip(ODD_LINES, found, strict=True):
        assert re.search("[\v\f\r\x1c-\x1e\x85\u2028\u2029]|⁇|<unk>|<0x", line) is None, name
        assert len(line.split("\t")) == 2, name
        assert line.split("\t")[0].strip(), name
    plain = nmt("translate", trained_run, "--text", "The cat sees a horse.").out
    assert found[list(ODD_LINES).index("BOM")].split("\t")[0] == plain.strip()
    assert found[list(ODD_LINES).index("line separator")].split("\t")[0] == plain.strip()


@pytest.mark.parametrize(
    "text",
    ["-No!", "--", "--help", "- The cat sees a horse.", "-5", "=", "a=b, c", "${x}", "l'été", "one\ntwo\n", "", "{0}"],
)
def test_any_text_is_text(text: str, nmt: Command, trained_run: Path) -> None:
    joined, apart = nmt("translate", trained_run, f"--text={text}"), nmt("translate", trained_run, "--text", text)
    assert (joined.status, joined.err) == (0, "")
    assert joined.out.count("\n") == 1
    assert bool(joined.out.strip()) == bool(text)
    if text != "--help":
        assert apart == joined


@pytest.mark.case
def test_bytes_that_are_not_utf8(nmt: Command, trained_run: Path, expected: list[str], tmp_path: Path) -> None:
    raw = f"{SENTENCES[0]}\n".encode() + b"caf\xe9\n" + as_lines(SENTENCES)
    outcome = nmt("translate", trained_run, stdin=raw)
    assert (outcome.status, outcome.out) == (2, f"{expected[0]}\n")
    assert outcome.err.startswith("nmt: error: stdin line 2: not UTF-8 (byte 0xe9 at column 4)")
    assert outcome.err.count("\n") == 1
    (tmp_path / "in").write_bytes(raw)
    outcome = nmt("translate", trained_run, "--input", tmp_path / "in")
    assert (outcome.status, outcome.out) == (2, f"{expected[0]}\n"), "what came before it is not lost"
    assert outcome.err.startswith(f"nmt: error: {tmp_path / 'in'} line 2: not UTF-8 (byte 0xe9 at column 4)")
    assert outcome.err.count("\n") == 1
    outcome = nmt("translate", trained_run, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert outcome.status == 2
    assert f"{tmp_path / 'in'} line 2" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.case
@pytest.mark.parametrize("before", range(5))
def test_a_bad_line_anywhere_in_a_chunk(
    before: int,
    nmt: Command,
    trained_run: Path,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(reading, "LINES_AT_ONCE", 2)
    (tmp_path / "in").write_bytes(as_lines(SENTENCES[:before]) + b"\xff\n" + as_lines(SENTENCES))
    outcome = nmt("translate", trained_run, "--input", tmp_path / "in")
    assert (outcome.status, outcome.out.splitlines()) == (2, expected[:before])
    assert f"in line {before + 1}: not UTF-8" in outcome.err


@pytest.mark.case
def test_gzip_on_stdin_is_named_as_such(nmt: Command, trained_run: Path) -> None:
    outcome = nmt("translate", trained_run, stdin=gzip.compress(as_lines(SENTENCES)))
    says = "nmt: error: stdin is a gzip file: unpack it with zcat, or name it with --input\n"
    assert (outcome.status, outcome.out, outcome.err) == (2, "", says)


@pytest.mark.case
@pytest.mark.parametrize("place", range(5))
def test_a_line_that_cannot_be_translated_takes_none_before_it_along(
    place: int,
    nmt: Command,
    trained_run: Path,
    translator: Translator,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though they were to be translated together."""
    texts = [*SENTENCES[:place], "too long", *SENTENCES[place:]]
    search_ids = Translator.search_ids

    def refusing(self: Translator, sources: Any, *arguments: Any, **named: Any) -> Any:
        for number, source in zip(named["numbers"], sources, strict=True):
            if source == refused:
                raise RequestError(f"line {number + 1} is refused")
        return search_ids(self, sources, *arguments, **named)

    [refused] = translator.tokenizer.encode_source(["too long"])
    monkeypatch.setattr(Translator, "search_ids", refusing)
    outcome = nmt("translate", trained_run, stdin=as_lines(texts))
    assert (outcome.status, outcome.out.splitlines()) == (2, expected[:place])
    assert outcome.err == f"nmt: error: line {place + 1} is refused\n"


def test_a_translation_without_text_is_told(nmt: Command, trained_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may answer with a space and nothing else: the line stays, and is empty."""
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "")
    outcome = nmt("translate", trained_run, stdin=as_lines([SENTENCES[0], "", SENTENCES[1]]))
    assert (outcome.status, outcome.out) == (0, "\n\n\n")
    says = "warning: lines 1, 3: the model's translation has no text; it answered with nothing but spaces\n"
    assert outcome.err == says


# Exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.invariant
@pytest.mark.parametrize("beam_size", [1, 4])
def test_neighbours_and_batch_size_do_not_matter(beam_size: int, translator: Translator) -> None:
    texts = [*SENTENCES, *ODD_LINES.values(), *SENTENCES[::-1], ""]
    settings = dataclasses.replace(translator.search, beam_size=beam_size, n_best=beam_size)

    def translate(texts: list[str], batch_tokens: int) -> list[list[tuple[str, list[str]]]]:
        found = translator.n_best(texts, dataclasses.replace(settings, batch_tokens=batch_tokens))
        return [[(translation.text, translation.tokens) for translation in each] for each in found]

    together = translate(texts, 100_000)
    assert together == translate(texts, 1)
    assert together == translate(texts, 150)
    assert together[::-1] == translate(texts[::-1], 150)
    assert [len(each) for each in together] == [beam_size] * (len(texts) - 1) + [1]


# Options ---------------------------------------------------------------------------------------------------------


def test_beam_size(nmt: Command, trained_run: Path, translator: Translator) -> None:
    texts = list(ODD_LINES.values())
    for beam_size in (1, 3):
        found = nmt("translate", trained_run, "--beam-size", str(beam_size), stdin=as_lines(texts)).out
        assert found.split("\n")[:-1] == [t.text for t in translator.translate(texts, beam_size=beam_size)]


def test_minimum_bayes_risk(nmt: Command, trained_run: Path, translator: Translator) -> None:
    """The same from the command as from Python; n-best lists and scores are of expected chrF; other seeds, others."""
    options = ("--mbr", "6", "--search", "temperature=2", "--search", "search.seed=3", "--n-best", "3")
    stdin = as_lines([*SENTENCES, ""])
    plain = nmt("translate", trained_run, *options, stdin=stdin).out.split("\n")[:-1]
    records = [
        json.loads(line) for line in nmt("translate", trained_run, *options, "--json", stdin=stdin).out.splitlines()
    ]
    search = dataclasses.replace(translator.search, mbr_samples=6, n_best=3, temperature=2.0, seed=3)
    expected = translator.n_best([*SENTENCES, ""], search)
    assert plain == ["\t".join(each.text for each in found) for found in expected]
    assert max(map(len, expected)) > 1
    for record, found in zip(records, expected, strict=True):
        scores = [each["score"] for each in record.get("n_best", [record])]
        assert scores == pytest.approx([each.score for each in found])
        assert all(0 <= score <= 100 for score in scores)
    other = nmt("translate", trained_run, *options, "--search", "seed=4", stdin=stdin).out.split("\n")[:-1]
    assert other != plain


@pytest.mark.parametrize("count", [1, 3, 8])
def test_n_best_and_json_say_the_same(count: int, nmt: Command, trained_run: Path, translator: Translator) -> None:
    """Eight hypotheses widen the beam of five."""
    stdin = as_lines([*SENTENCES, ""])
    plain = nmt("translate", trained_run, "--n-best", str(count), stdin=stdin).out.split("\n")[:-1]
    records = [
        json.loads(line)
        for line in nmt("translate", trained_run, "--n-best", str(count), "--json", stdin=stdin).out.splitlines()
    ]
    assert len(plain) == len(records) == 6
    search = dataclasses.replace(translator.search, n_best=count, beam_size=max(5, count))
    for line, record, found in zip(plain, records, translator.n_best([*SENTENCES, ""], search), strict=True):
        columns = line.split("\t")
        assert columns == [t.text for t in found]
        assert record["text"] == columns[0]
        assert (record["alignment"] is None) == (columns == [""])
        if len(columns) == 1:
            assert "n_best" not in record
            continue
        assert len(set(columns)) > 1
        assert [each["text"] for each in record["n_best"]] == columns
        scores = [each["score"] for each in record["n_best"]]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([t.score for t in found])
        assert record["score"] == scores[0] < 0
        assert "".join(record["tokens"]).replace("▁", " ").strip() == record["text"]
    assert (plain[-1], records[-1]["tokens"], records[-1]["score"]) == ("", [], 0)


def test_alignments(nmt: Command, trained_run: Path, expected: list[str], tmp_path: Path) -> None:
    options = ["--alignments", tmp_path / "pairs", "--json"]
    outcome = nmt("translate", trained_run, *options, stdin=as_lines([*SENTENCES, ""]))
    assert outcome.status == 0
    lines = (tmp_path / "pairs").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert lines.pop() == ""  # of the blank line
    for line, text, source, record in zip(lines, expected, SENTENCES, outcome.out.splitlines()[:-1], strict=True):
        pairs = [tuple(map(int, pair.split("-"))) for pair in line.split(" ")]
        assert all(0 <= i < len(source.split()) for i, _ in pairs)
        assert {j for _, j in pairs} == set(range(len(text.split()))), "every target word has a source word"
        alignment = json.loads(record)["alignment"]
        assert alignment is not None
    assert json.loads(outcome.out.splitlines()[-1])["alignment"] is None


def test_alignments_of_a_model_without_attention(nmt: Command, lstm_run: Path, tmp_path: Path) -> None:
    outcome = nmt("translate", lstm_run, "--text", "a", "--alignments", tmp_path / "pairs")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "nmt: error: this model has no attention: there is no alignment to show\n"
    assert not (tmp_path / "pairs").exists()


@pytest.mark.case
def test_a_closed_stdout(trained_run: Path, expected: list[str], tmp_path: Path) -> None:
    """Nothing is lost in silence; and with --output, stdout is not needed."""

    def translate(*options: str | Path) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "nmt", "translate", trained_run, "--text", SENTENCES[0], *options]
        closed = ["sh", "-c", 'exec "$@" >&-', "sh", *map(str, command)]
        return subprocess.run(closed, capture_output=True, check=False, timeout=240)

    done = translate()
    assert (done.returncode, done.stderr) == (1, b"nmt: error: stdout is closed: there is nowhere to write to\n")
    done = translate("--output", "/dev/stdout")
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    done = translate("--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "out").read_text(encoding="utf-8") == f"{expected[0]}\n"


def test_a_reader_that_leaves(nmt_process: Command, trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(as_lines(SENTENCES * 2000))
    with nmt_process("translate", trained_run, "--beam-size", "1", "--input", tmp_path / "in") as process:
        assert process.stdout.readline()
        process.stdout.close()
        began = time.monotonic()
        assert process.wait(timeout=240) == 141
        assert process.stderr.read() == b""
        assert time.monotonic() - began < 240
