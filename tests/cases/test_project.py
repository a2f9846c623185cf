"""Reported faults of installing: upper pins that keep a user from the next release, data sets that are programs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from nmt.config import HubData
from nmt.configuration import compose
from nmt.configuration.store import options_of

pytestmark = pytest.mark.case

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_no_dependency_is_pinned_from_above() -> None:
    wanted = [*PROJECT["dependencies"], *(one for group in PROJECT["optional-dependencies"].values() for one in group)]
    assert len(wanted) > 10
    assert [one for one in wanted if not re.fullmatch(r"[a-z0-9-]+>=\d+(\.\d+)*", one)] == []
    assert re.fullmatch(r">=3\.\d+", PROJECT["requires-python"])


def test_data_sets_are_read_by_a_library_that_executes_none() -> None:
    """datasets 4 and later have no way to run a script; and no preset but these two names a data set by itself."""
    (datasets,) = [one for one in PROJECT["dependencies"] if one.startswith("datasets")]
    assert int(re.findall(r"\d+", datasets)[0]) >= 4
    presets = [name for name in options_of("data") if name != "hub"]
    assert len(presets) > 3
    named = {name for name in presets if isinstance(compose([f"data={name}"]).data, HubData)}
    assert named == {"wmt14", "opus_books"}
