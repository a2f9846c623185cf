"""Lines of several sentences: taken apart, translated, joined; one line in, one line out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.decoding import sentences
from nmt.decoding.sentences import as_one, joined, parts_of, sentence_splitter
from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from untrained import untrained_run

Command = Callable[..., Any]

LINES = [
    "Le vieux jardin. Un enfant lit une lettre! Où mange le petit élève?",
    "",
    "la maison",
    "Du pain.  Un jardin.",
    " ",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Smith lives in the U.S. He has 3.5 cats. Really?!", 3),
        ("Visit www.example.org. Now!", 2),  # pySBD alone tears the address
        ("∯ odd ȸ chars. Yes.", 1),  # and loses the first word of this
        ("no end", 1),
        ("", 1),
        (" \t", 1),
    ],
)
def test_where_sentences_end(text: str, expected: int) -> None:
    found = sentence_splitter("en")(text)
    assert len(found) == expected
    assert " ".join(" ".join(found).split()) == " ".join(text.split())


def test_a_long_line_is_taken_apart_a_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is what it would be at once, also where the window ends within a sentence, or in one that is longer."""
    text = " ".join(f"The {number}th man reads a book{' again' * (number % 9)}." for number in range(60))
    whole = sentence_splitter("en")(text)
    assert len(whole) == 60
    for window in (40, 100, 333):
        monkeypatch.setattr(sentences, "WINDOW", window)
        assert " ".join(sentence_splitter("en")(text)) == text
        if window > 100:
            assert sentence_splitter("en")(text) == whole


def test_another_language_is_refused() -> None:
    with pytest.raises(RequestError, match="does not know the language xx"):
        sentence_splitter("xx")


def test_a_line_is_the_translations_of_its_sentences(run: Path, nmt: Command, tmp_path: Path) -> None:
    translator = Translator.load(run)
    split = sentence_splitter("en")
    outcome = nmt("translate", run, "--split", "--alignments", tmp_path / "pairs", stdin="\n".join(LINES).encode())
    assert outcome.status == 0
    found = outcome.out.split("\n")[:-1]
    pairs = (tmp_path / "pairs").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(found) == len(pairs) == len(LINES)
    for line, text, links in zip(LINES, found, pairs, strict=True):
        if not line.strip():
            assert (text, links) == ("", "")
            continue
        parts = translator.translate(split(line), alignments=True)
        assert text == " ".join(part.text for part in parts if part.text)
        expected: list[tuple[int, int]] = []
        source = target = 0
        for part in parts:
            assert part.alignment is not None
            words = part.alignment.words()
            expected += [(source + i, target + j) for i, j in words.links()]
            source, target = source + len(words.source_tokens), target + len(words.target_tokens)
        assert sorted(expected) == sorted(tuple(map(int, pair.split("-"))) for pair in links.split())
        assert source == len(line.split())
    assert nmt("translate", run, "--split", "--text", LINES[2]) == nmt("translate", run, "--text", LINES[2])


@pytest.mark.invariant
def test_samples_of_sentences_do_not_depend_on_other_lines(run: Path) -> None:
    translator = Translator.load(run)
    search = dataclasses.replace(translator.search, sampling=True, n_best=2)

    def translate(lines: list[str], before: int) -> list[list[str]]:
        parts = parts_of(lines, sentence_splitter("en"))
        found = translator.n_best([each.text for each in parts], search, False, [each.number(before) for each in parts])
        return [[each.text for each in translations] for translations in joined(len(lines), parts, found)]

    together = translate(LINES, 0)
    assert [translate([line], i)[0] for i, line in enumerate(LINES)] == together
    assert together[0] != translate(LINES, 1)[0]
    assert translator.n_best(LINES, search) == joined(
        len(LINES),
        parts_of(LINES, as_one),
        translator.n_best(LINES, search, False, [part.number(0) for part in parts_of(LINES, as_one)]),
    )


def test_without_pysbd(monkeypatch: pytest.MonkeyPatch, run: Path, nmt: Command) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pysbd", None)
    outcome = nmt("translate", run, "--split", "--text", "a")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("nmt: error: --split needs pySBD, which cannot be imported here")
    assert outcome.err.endswith("; pip install pysbd\n")
