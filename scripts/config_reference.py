#!/usr/bin/env python
"""Writes docs/config.md: every key and preset of `nmt train`, from the schemas, as `nmt train --help` lists them.

scripts/config_reference.py           # writes the page again
scripts/config_reference.py --check   # exit status 1 where it is out of date; a test asks the same
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.configuration.checks import shown
from nmt.configuration.schema import Key, sections
from nmt.configuration.store import groups, options_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "config.md"
HEAD = """\
# Every key

Made by `scripts/config_reference.py` from the schemas in `nmt/config.py` and `nmt/data/schema.py`; a test fails where
it is out of date. `nmt train --help` prints the same. A key is set by `KEY=VALUE` on the command line, or in a preset.
A mistyped key or a value that is not allowed is refused in one line, with the nearest right one.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([HEAD, *_presets(), *_sections()])


def _presets() -> Iterator[str]:
    yield "## Presets"
    for group in groups():
        yield from ("", f"`{group}=`", "", "| preset | |", "|---|---|")
        yield from (f"| `{name}` | {_cell(text)} |" for name, text in options_of(group).items())
    yield ""


def _sections() -> Iterator[str]:
    for section in sorted(sections(), key=lambda section: section.path != ""):  # keys that are in none come first
        title = f"{section.path}: {section.variant}" if section.variant else section.path or "the run as a whole"
        yield from _table(title, section.schema, section.keys)


def _table(title: str, schema: type, keys: Sequence[Key]) -> Iterator[str]:
    summary = (inspect.getdoc(schema) or "").split("\n\n")[0].replace("\n", " ")
    yield from (f"## {title}", "", summary, "", "| key | default | allowed | |", "|---|---|---|---|")
    yield from (f"| `{key.path}` | {_default(key)} | {_cell(key.allowed())} | {_cell(key.meaning)} |" for key in keys)
    yield ""


def _default(key: Key) -> str:
    return (
        "of the preset" if key.default == "???" else f"`{_cell(shown(key.default))}`" if key.default != "" else "empty"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Write the page, or with --check compare it."""
    if sys.argv[1:] == ["--check"]:
        current = PAGE.read_text(encoding="utf-8") == page()
        print(f"{PAGE.name} is {'up to date' if current else 'out of date: run scripts/config_reference.py'}")
        return int(not current)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
