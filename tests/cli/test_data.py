"""`nmt data`: what the filters keep and drop, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

PAIRS = [
    ("The red house is old.", "La maison rouge est vieille."),
    ("The cat sleeps.", "Le chat dort."),
    ("Copied text", "Copied text"),
    ("The cat sleeps.", "Le chat dort."),
    ("", "vide"),
    ("one two three four five six", "un deux"),
    ("escape \x1b[31m", "échappement"),
    ("The cat sleeps.", "Le chat dort."),
]


def write(folder: Path) -> None:
    for split in ("train", "valid", "test"):
        for side, language in enumerate(("en", "fr")):
            lines = [pair[side] for pair in PAIRS[: len(PAIRS) if split == "train" else 2]]
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_counts_lengths_and_an_example_of_each_kind(nmt: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path)
    keys = ["data.filter.drop_copies=true", "data.filter.drop_duplicates=true", "data.filter.max_words=5"]
    done = nmt("data", "data=files", f"data.dir={tmp_path}", *keys, "--samples", "1")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "files: en to fr"
    assert [line.split() for line in lines[1:9]] == [
        ["training", "8", "pairs"],
        ["kept", "3", "37.50", "%"],
        ["dropped", "2", "25.00", "%", "duplicate", "(data.filter.drop_duplicates=true)"],
        ["dropped", "1", "12.50", "%", "blank", "source"],
        ["dropped", "1", "12.50", "%", "copy", "(data.filter.drop_copies=true)"],
        ["dropped", "1", "12.50", "%", "too", "long", "(data.filter.max_words=5)"],
        ["validation", "2", "pairs"],
        ["test", "2", "pairs", "test"],
    ]
    # Kept are pairs 1, 2 and 7: sources of 5, 3 and 2 words, targets of 5, 3 and 1.
    assert [line.split() for line in lines[11:13]] == [
        ["source", "3.3", "3", "5", "5"],
        ["target", "3.0", "3", "5", "5"],
    ]
    assert (
        "copy (data.filter.drop_copies=true), 1 of 1\n           3  Copied text\n              Copied text\n"
        in done.out
    )
    assert "duplicate (data.filter.drop_duplicates=true), 1 of 2\n           8  The cat sleeps.\n" in done.out
    many = nmt("data", "data=files", f"data.dir={tmp_path}", *keys, "--samples", "9")
    assert "           7  escape \\x1b[31m\n" in many.out


def test_a_mistake_in_an_override_is_one_line(nmt: Callable[..., Any]) -> None:
    done = nmt("data", "data=files", "data.filter.max_word=5")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "data.filter.max_words" in done.err
