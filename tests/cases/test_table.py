"""The table of reported faults cannot rot: every case is in it once, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "cases" / "README.md"
NEVER_GIVEN = {3, 7, 12, 15, 19, 24, 27, 31, 37, 43, 46, 50, 53, 57, 61, 65, 70, 73, 78, 82, 87, 91, 94, 98}
CASES = [*(f"M{number}" for number in range(1, 14)), *(str(n) for n in range(1, 101) if n not in NEVER_GIVEN)]
ROW = re.compile(r"\| (\w+) \| (.+) \| (.+) \|")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[tuple[str, str, str]]:
    matches = [ROW.fullmatch(line) for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [(match[1], match[2], match[3]) for match in matches if match and match[1] != "case"]


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_case_is_in_the_table_once_and_in_order() -> None:
    assert [case for case, _, _ in rows()] == CASES


def test_every_case_has_a_test_or_a_reason() -> None:
    for case, what, proof in rows():
        assert what.strip(), case
        if not proof.startswith("Does not apply: "):
            assert TEST.sub("", proof).replace(" · ", "") == "", f"case {case}: {proof}"


def test_every_test_that_is_named_exists() -> None:
    named = [(case, path, name) for case, _, proof in rows() for path, name in TEST.findall(proof)]
    assert len(named) > 100
    for case, path, name in named:
        assert (ROOT / path).is_file(), f"case {case}: {path}"
        assert name in names_in(ROOT / path), f"case {case}: {path}::{name}"
