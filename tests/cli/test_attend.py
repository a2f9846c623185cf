"""`nmt attend`: a picture or a table of what each target word looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt as library

Command = Callable[..., Any]
TEXT = "My sister likes the summer."


@pytest.mark.parametrize(("suffix", "magic"), [("PNG", b"\x89PNG\r\n"), ("pdf", b"%PDF-"), ("svg", b"<?xml")])
def test_a_picture(suffix: str, magic: bytes, nmt: Command, trained_run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "new folder" / f"é.{suffix}"
    outcome = nmt("attend", trained_run, "--text", TEXT, "--output", picture)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines() == ["Ma sœur aime l'été.", str(picture)]
    assert picture.read_bytes().startswith(magic)
    assert picture.stat().st_size > 2_000


def test_a_table(nmt: Command, trained_run: Path) -> None:
    outcome = nmt("attend", trained_run, "--text", TEXT)
    translation, *rows = outcome.out.splitlines()
    assert translation == "Ma sœur aime l'été."
    assert [row.split()[0] for row in rows[:4]] == translation.split()
    words = TEXT.split()
    for row in rows[:4]:
        pairs = row.split()[1:]
        weights = [float(weight) for weight in pairs[1::2]]
        assert set(pairs[::2]) <= {*words, "</s>"}
        assert weights == sorted(weights, reverse=True)
        assert 0 < sum(weights) <= 1.02
    [found] = library.load(trained_run).translate([TEXT], alignments=True)
    assert found.alignment is not None
    alignment = found.alignment.words(keep_end=True)
    strongest = [alignment.source_tokens[s] for s in alignment.weights_TS.argmax(axis=1)]
    assert [row.split()[1] for row in rows] == strongest


@pytest.mark.parametrize("text", ["", "  ", "\u00a0\t"])
def test_blank_text(text: str, nmt: Command, trained_run: Path, tmp_path: Path) -> None:
    outcome = nmt("attend", trained_run, "--text", text, "--output", tmp_path / "a.png")
    assert (outcome.status, outcome.out, outcome.err) == (2, "", "nmt: error: attend: the text is blank\n")
    assert not (tmp_path / "a.png").exists()


def test_a_model_without_attention(nmt: Command, lstm_run: Path) -> None:
    outcome = nmt("attend", lstm_run, "--text", TEXT)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "nmt: error: this model has no attention: there is no alignment to show\n"


@pytest.mark.case
@pytest.mark.parametrize("name", ["a.xyz", "a.jpg", "a"])
def test_a_kind_of_file_that_there_is_not_is_refused_before_the_work(name: str, nmt: Command, tmp_path: Path) -> None:
    outcome = nmt("attend", tmp_path / "no run", "--text", TEXT, "--output", tmp_path / name)
    says = f"nmt: error: cannot write {tmp_path / name}: the name must end in .png, .pdf, .svg\n"
    assert (outcome.status, outcome.out, outcome.err) == (2, "", says)


@pytest.mark.case
def test_a_folder_that_is_none_is_refused_before_the_work(nmt: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = nmt("attend", tmp_path / "no run", "--text", TEXT, "--output", tmp_path / "file" / "a.png")
    says = f"nmt: error: cannot write {tmp_path / 'file' / 'a.png'}: Not a directory\n"
    assert (outcome.status, outcome.out, outcome.err) == (1, "", says)
