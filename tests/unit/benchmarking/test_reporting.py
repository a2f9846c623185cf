"""Tables, JSON, and mistakes on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarking.reporting import Parser, count, counts, deliver, run, table
from nmt.errors import RequestError, WorkError


def test_columns_are_as_wide_as_they_must_be() -> None:
    assert table(["", "A", "long name"], [["speed", "1,000 (1–2)", "3"], ["é", "", ""]]) == (
        "                 A  long name\nspeed  1,000 (1–2)          3\né"
    )


def test_the_last_line_and_the_file_are_the_same_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"target_tokens_per_s": 12.5, "run": "été", "peak_rss_mb": None}
    deliver("a table\nof two lines", record, tmp_path / "new" / "record.json")
    printed = capsys.readouterr().out.split("\n")
    assert printed[:3] == ["a table", "of two lines", ""]
    assert json.loads(printed[-2]) == json.loads((tmp_path / "new" / "record.json").read_text("utf-8")) == record


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_numbers_are_whole_and_above_0(text: str) -> None:
    parser = Parser("script")
    parser.add_argument("--number", type=count)
    parser.add_argument("--numbers", type=counts)
    assert parser.parse_args(["--number", "3", "--numbers", "1,20"]).numbers == [1, 20]
    for option in ("--number", "--numbers"):
        with pytest.raises(RequestError, match=rf"{option}: invalid .*whole numbers? above 0.* \(see script --help\)"):
            parser.parse_args([option, text])


@pytest.mark.parametrize(("error", "status"), [(RequestError("wrong\nthing"), 2), (WorkError("wrong thing"), 1)])
def test_a_mistake_is_one_line(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", "--x"])

    def main(arguments: list[str]) -> None:
        assert arguments == ["--x"]
        raise error

    assert run(main) == status
    assert capsys.readouterr().err == "nmt: error: wrong thing\n"
