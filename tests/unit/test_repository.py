"""The files around the package: scripts that can be run, and what cites and licenses the project, saying the same."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_is_to_be_run_is_executable_and_what_is_to_be_sourced_is_not(script: Path) -> None:
    first = script.read_text(encoding="utf-8").splitlines()[0]
    assert first == "#!/usr/bin/env bash" or first.startswith("# To be sourced")
    assert os.access(script, os.X_OK) == first.startswith("#!")


def test_the_citation_names_the_packages_version_and_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert citation["title"] == f"{project['name']}: {project['description']}"
    assert {"cff-version", "message", "authors"} <= citation.keys()


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "]
    assert headings[0] == "## Unreleased"
