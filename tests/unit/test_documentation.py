"""The pages of docs/ say what is so: keys are listed, links lead somewhere, and what a page tells to do works.

A how-to page is followed in a copy of the checkout, block by block, as a reader would with that page alone: a `diff`
is applied, a block with `file=` written, `sh check` run. Applying them is quick, running them is marked slow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import config_reference
from nmt.training.monitor import read_metrics

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLLOWED = ["adding-a-model", "adding-a-data-set", "adding-a-metric"]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_key_is_in_the_reference() -> None:
    assert config_reference.PAGE.read_text(encoding="utf-8") == config_reference.page(), (
        "docs/config.md is out of date: run scripts/config_reference.py"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """In code spans, by their path from the top of the checkout; those that a page tells to make are not looked for."""
    text = page.read_text(encoding="utf-8")
    made = set(re.findall(r"file=(\S+)", text))
    named = re.findall(r"`((?:nmt|tests|scripts|configs|docs)/[\w./-]+\.\w+)(?:::\w+)*`", text)
    assert [name for name in named if name not in made and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_are_there(page: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)", page.read_text(encoding="utf-8")):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{page.name}: {file}::{name}"


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_field_of_a_run_is_told(trained_run: Path) -> None:
    """docs/formats.md names whatever a run's files have."""
    told = set(re.findall(r"\w+", (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")))
    meta = json.loads((trained_run / "checkpoints" / "last" / "meta.json").read_text())
    results = json.loads((trained_run / "results.json").read_text())
    fields = {*meta, *results, *results["provenance"], *results["sets"]["test"]}
    for record in read_metrics(trained_run / "metrics.jsonl"):
        fields |= record.keys()
    # How far a checkpoint has come is told in words.
    progress = {"batch", "validated_step", "best_bleu", "best_step", "validations_without_gain", "skipped_in_a_row"}
    assert fields - progress - told == set()


def test_the_guarantees_are_those_that_the_tests_list() -> None:
    listed = (ROOT / "tests" / "invariants" / "README.md").read_text(encoding="utf-8")
    numbers = set(re.findall(r"^\| (\d)\. ", listed, re.MULTILINE))
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (\d)\. ", page, re.MULTILINE)) == numbers
    for file, name in re.findall(r"`(test_\w+\.py)::(\w+)`", page):
        assert f"def {name}(" in (ROOT / "tests" / "invariants" / file).read_text(encoding="utf-8"), name


# Following a page ---------------------------------------------------------------------------------------------------


def apply(diff: str, checkout: Path) -> None:
    """Changes a file as a person does who looks for the lines without a plus and finds them once."""
    head, *hunks = re.split(r"^@@.*\n", diff, flags=re.MULTILINE)
    named = re.search(r"^\+\+\+ b/(\S+)$", head, re.MULTILINE)
    assert named is not None, head
    text = (checkout / named[1]).read_text(encoding="utf-8")
    for hunk in hunks:
        lines = hunk.splitlines()
        before, after = ("".join(f"{line[1:]}\n" for line in lines if line[:1] != skipped) for skipped in ("+", "-"))
        assert text.count(before) == 1, f"{named[1]} has {text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    (checkout / named[1]).write_text(text, encoding="utf-8")


def follow(page: str, checkout: Path) -> Iterator[str]:
    """Does what a page says, and gives each command when it is its turn."""
    for language, options, content in BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        made = re.search(r"file=(\S+)", options)
        if language == "diff":
            apply(content, checkout)
        elif made is not None:
            (checkout / made[1]).parent.mkdir(parents=True, exist_ok=True)
            (checkout / made[1]).write_text(content, encoding="utf-8")
        elif options.strip() == "check":
            yield content


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a checkout holds."""
    for name in ("nmt", "configs", "tests", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_fits_the_code_as_it_is(page: str, checkout: Path) -> None:
    commands = list(follow(page, checkout))
    assert commands
    for file in checkout.rglob("*.py"):
        compile(file.read_text(encoding="utf-8"), str(file), "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_can_be_followed(page: str, checkout: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(checkout)}
    for commands in follow(page, checkout):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "no tests ran" not in done.stdout
