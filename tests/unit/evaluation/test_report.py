"""Terminal, JSON and page tell the same, and the page needs nothing but itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nmt.evaluation.compare import Comparison
from nmt.evaluation.report import (
    as_page,
    as_record,
    as_text,
    count_text,
    difference_text,
    p_text,
    score_text,
    spread_text,
    whole_text,
    write_report,
)

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """What a browser would load and show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.shown: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.open):
            self.shown.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.shown).split())


@pytest.fixture(scope="module")
def record(comparison: Comparison) -> dict[str, Any]:
    return as_record(comparison)


@pytest.fixture(scope="module")
def page(comparison: Comparison, record: dict[str, Any]) -> str:
    return as_page(comparison, record)


def test_numbers_as_people_read_them() -> None:
    score = {"value": 31.25, "half_width": 1.31, "difference": -0.5, "p": 1 / 1001, "deviation": 0.2}
    assert score_text(score) == "31.2 ± 1.3"
    assert score_text(None) == "–"
    assert difference_text(score) == "−0.50"
    assert difference_text({**score, "difference": 2.0}) == "+2.00"
    assert difference_text({**score, "difference": None}) == ""
    assert p_text(score) == "0.001"
    assert spread_text({**score, "per_training": [31.0, 31.5]}) == "s = 0.20, 31.0 to 31.5, n = 2"
    assert spread_text({**score, "deviation": None}) == ""
    assert [count_text(n) for n in (None, 950, 3_390_880, 71_000, 2e9)] == ["–", "950", "3.39 M", "71 k", "2 G"]
    assert [whole_text(n) for n in (None, 0, 2743.4, 1.5, 2.0)] == ["–", "0", "2,743", "1.5", "2"]


def test_the_record_is_json_and_carries_every_figure(record: dict[str, Any], comparison: Comparison) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    ours, greedy, damaged = record["rows"]
    assert record["baseline"] == "greedy"
    assert ours["seeds"] == [1, 2, 3]
    assert comparison.rows[0].bleu is not None
    assert ours["bleu"]["value"] == comparison.rows[0].bleu.value
    assert len(ours["by_length"]) == len(record["lengths"])
    assert [len(curve) for curve in ours["curves"]] == [4, 4, 4]
    assert ours["config_differences"] == {"search.beam_size": {"value": 5, "baseline": 1}}
    assert ours["runs"][1]["seed"] == 2
    assert greedy["runs"][0]["weights_sha256"] == ours["runs"][1]["weights_sha256"] != ours["runs"][0]["weights_sha256"]
    assert (damaged["status"], damaged["bleu"], damaged["parameters"]) == ("failed", None, None)
    assert damaged["tokens"] is not None
    assert "bs:1000|seed:12345" in record["scorer"]["bleu_signature"]


def test_the_terminal_shows_every_row_and_mark(record: dict[str, Any]) -> None:
    text = as_text(record)
    ours = record["rows"][0]
    assert re.search(rf"^ours +{re.escape(score_text(ours['bleu'], 2))} ", text, re.MULTILINE)
    assert re.search(r"^greedy \(baseline\) ", text, re.MULTILINE)
    assert "<b>damaged: " in text and "is damaged" in text
    assert "another search: search.beam_size=5 (baseline 1)" in text
    assert record["scorer"]["bleu_signature"] in text
    assert "lit. BLEU" not in text  # this corpus has no such score


def test_the_page_loads_nothing(page: str) -> None:
    found = Page(page)
    assert found.open == []
    assert {load for load in found.loads if not load.startswith(("#", "data:"))} == set()
    assert not re.search(r"@import|url\((?!#)", page)
    assert "script" not in found.tags
    assert page.startswith("<!DOCTYPE html>")


def test_the_page_shows_text_as_text(page: str) -> None:
    assert "<b>damaged" in Page(page).text
    assert "<b>damaged" not in page


def test_the_page_shows_what_the_record_says(page: str, record: dict[str, Any]) -> None:
    shown = Page(page).text
    ours, greedy, _ = record["rows"]
    for row in (ours, greedy):
        assert score_text(row["bleu"]) in shown and score_text(row["chrf"]) in shown
        assert score_text(row["by_length"][0]) in shown
    assert difference_text(ours["bleu"]) in shown and spread_text(ours["bleu"]) in shown
    assert "another search: search.beam_size=5 (baseline 1)" in shown
    assert ours["examples"][0]["hypothesis"] in shown
    assert record["scorer"]["chrf_signature"] in shown
    assert "search.beam_size=5" in shown


def test_the_page_has_a_picture_for_each_row_and_sentence(page: str, comparison: Comparison) -> None:
    found = Page(page)
    assert found.tags.count("svg") == 1 + 3 + 2 * len(comparison.test.pictured)
    for media in ("prefers-color-scheme: dark", "max-width: 720px", "@media print"):
        assert media in page


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_is_as_wide_as_the_window_and_only_tables_scroll(page: str, tmp_path: Path) -> None:
    """A phone's width, a narrow window's, and two of desktops; frames, since no window is as narrow as a phone."""
    widths = [390, 750, 1000, 1400]
    (tmp_path / "page.html").write_text(page.replace("greedy", "a_run_with_a_name_of_some_length"))
    frames = "".join(f'<iframe src="page.html" width="{width}" height="900"></iframe>' for width in widths)
    every = "[...document.querySelectorAll('iframe')].map(frame => frame.contentDocument.documentElement.scrollWidth)"
    script = f"onload = () => document.title = {every}.join(' ')"
    (tmp_path / "frames.html").write_text(f"<style>iframe {{ border: 0 }}</style>{frames}<script>{script}</script>")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    command = [
        BROWSER,
        *options,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        f"{tmp_path / 'frames.html'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert f"<title>{' '.join(map(str, widths))}</title>" in done.stdout


def test_files_are_written(comparison: Comparison, record: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write_report(comparison, record, folder)
    assert json.loads((folder / "comparison.json").read_text()) == record
    assert (folder / "comparison.html").read_text() == as_page(comparison, record)
