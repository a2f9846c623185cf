"""What a text asks for in its translation: entries of a glossary, and what is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.decoding.glossary import Glossary, copied
from nmt.errors import RequestError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 cats and 3 dogs, 12 birds", ["3", "12"]),
        ("It costs 1,299.50 or 3/4 of it.", ["1,299.50", "3/4"]),
        ("On 2024-05-17 at 9:30, the 3rd time.", ["2024-05-17", "9:30"]),
        ("Write to j.doe+x@mail.example.org.", ["j.doe+x@mail.example.org"]),
        ("See https://example.org/a?b=1, or www.example.org.", ["https://example.org/a?b=1", "www.example.org"]),
        ("Hello {name}, %s <b> __X__ @ann #news", ["{name}", "%s", "<b>", "__X__", "@ann", "#news"]),
        ("An A380, an MP3 and 10am", ["A380", "MP3"]),
        ("Fine 🙂🙂 👍🏽 ☎️", ["🙂", "👍🏽", "☎️"]),
        ("(7)", ["7"]),
        ("No number, 5% and more.", ["5"]),
        ("the cat", []),
    ],
)
def test_what_is_copied(text: str, expected: list[str]) -> None:
    assert copied(text) == expected


def glossary(folder: Path, content: str) -> Glossary:
    (folder / "glossary").write_text(content, encoding="utf-8")
    return Glossary.load(folder / "glossary")


def test_entries_are_found_as_whole_words(tmp_path: Path) -> None:
    found = glossary(tmp_path, "cat\tchat\nUS\tÉtats-Unis\nred cat\tchat roux\n\nC++\tC++\ncat food\tpâtée\n")
    for text, phrases, rest in [
        ("Cats in a category", [], "Cats in a category"),
        ("The CAT, the cat", ["chat"], "The , the "),
        ("Give us the US", ["États-Unis"], "Give us the "),
        ("A red  cat and a cat", ["chat roux", "chat"], "A  and a "),
        ("red cat food", ["chat roux"], " food"),
        ("cat food", ["pâtée"], ""),
        ("I like C++.", ["C++"], "I like ."),
    ]:
        assert found.find(text)[0] == phrases, text
        assert "".join(found.find(text)[1].split()) == "".join(rest.split()), text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("cat\tchat\ncat chat\n", "line 2: must be a source phrase, a tab and a target phrase"),
        ("cat\tchat\tchatte\n", "line 1: must be"),
        ("\n \t chat\n", "line 2: must be"),
        ("cat\tchat\ndog\tchien\ncat\tminet\n", "line 3: cat is to be chat already"),
        ("\n\n", "no entry"),
    ],
)
def test_a_glossary_that_is_none(content: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=complaint):
        glossary(tmp_path, content)
