"""Properties of configurations: any overrides and any config.yaml make a configuration that can be kept, or one line.

The strategies know the keys and the grammar well enough to come near to what is right, and then go wrong somewhere.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from nmt import cli, commands
from nmt.config import TrainConfig
from nmt.configuration import check, compose, load_config, save_config
from nmt.configuration.schema import all_keys
from nmt.configuration.store import groups, options_of
from nmt.errors import RequestError

pytestmark = pytest.mark.case

MOST_SHOWN = 3_000
"""Characters of a message: a value is cut, a list of presets or a path is not."""


def assert_one_line(error: RequestError, beginning: str = "") -> None:
    with contextlib.redirect_stderr(io.StringIO()) as told:
        assert cli.tell(error) == 2
    message = told.getvalue().removeprefix("nmt: error: ").removesuffix("\n")
    assert message.strip()
    assert message.startswith(beginning)
    assert len(message.splitlines()) == 1
    assert len(message) < MOST_SHOWN
    assert "Traceback" not in message


def assert_can_be_kept(config: TrainConfig, path: Path) -> None:
    """What is accepted is in bounds, and is the same after saving and reading."""
    check(config)
    save_config(config, path)
    assert load_config(path) == config


# Overrides -------------------------------------------------------------------------------------------------------

KEYS = sorted(all_keys())
NUMBERS = ["0", "1", "-1", "2.5", "1e3", "1e-9", "1e400", "-0.0", "nan", "inf", "9" * 25, "0x10", "1_000", "007"]
WORDS = ["", "null", "true", "no", "adam", "été", "a b", "x=y", "a,b", "${", "${model.name}", "${oc.env:HOME}", "$"]
WORDS += [
    "[1,2]", "{a: 1}", "[[", "}", '"a', "'", '"é"', "'a,b'", "\\", "\\\\'", "range(1,3)", "choice(1,2)", "glob(*)",
]  # fmt: skip
WORDS += [
    "int('x')", "???", "${now:%Y}", "${hydra:job.name}", "#", "%", "@", "~", "*", "(", ")", "\t", "\u2028", "🙂",
    "\x01",
]  # fmt: skip
VALUES = st.sampled_from(NUMBERS + WORDS) | st.text(max_size=8) | st.integers().map(str) | st.floats().map(str)
PRESETS = st.sampled_from(groups()).flatmap(
    lambda group: st.tuples(st.just(group), st.sampled_from([*options_of(group), "null", "nothing", "base_lstm"]))
)
OVERRIDES = st.one_of(
    st.tuples(st.sampled_from(["", "", "", "+", "++", "~"]), st.sampled_from(KEYS), VALUES).map(
        lambda parts: f"{parts[0]}{parts[1]}={parts[2]}"
    ),
    PRESETS.map("=".join),
    st.tuples(st.sampled_from(KEYS), VALUES).map(lambda parts: f"{parts[0][:-1]}={parts[1]}"),
    st.tuples(st.sampled_from(["hydra.job.name", "hydra", "hydra/launcher", "hydra.job.env_set"]), VALUES).map(
        "=".join
    ),
    VALUES,
)


@examples(40)
@given(st.lists(OVERRIDES, max_size=3))
def test_overrides_make_a_configuration_or_one_line(tmp_path: Path, overrides: list[str]) -> None:
    try:
        config = compose(overrides)
    except RequestError as error:
        assert_one_line(error)
        return
    assert_can_be_kept(config, tmp_path / "config.yaml")


ARGUMENTS = [
    "-",
    "-1",
    "0",
    "5",
    "runs/x",
    "",
    " ",
    "²",
    "１",
    "9" * 5_000,
    "5,9",
    "9,5",
    "\udce9",
    "%s",
    "{x}",
    "--",
    "-h",
]


def command_lines(verb: str) -> st.SearchStrategy[list[str]]:
    """A verb with some of its own options, given as they should be or not."""
    parser = cli.Parser(verb)
    cli.PARSERS.get(verb, lambda parser: None)(parser)
    options = [*parser._option_string_actions, "--nbest"]
    argument = st.sampled_from(ARGUMENTS) | st.text(max_size=3)
    part = (
        st.tuples(st.sampled_from(options), argument)
        | st.tuples(st.sampled_from(options), argument).map(lambda pair: ("=".join(pair),))
        | st.tuples(st.sampled_from(options) | argument)
    )
    return st.lists(part, max_size=4).map(lambda parts: [verb, "runs/x", *(word for part in parts for word in part)])


@examples(200)
@given(st.sampled_from([*cli.PARSERS, "trian", "", "-x"]).flatmap(command_lines))
def test_arguments_are_a_request_or_one_line(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """What the verbs do is left out."""
    for name in cli.PARSERS:
        monkeypatch.setattr(commands, name, lambda arguments: 0)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = cli.main(words)
    assert status in (0, 2)
    told = err.getvalue().splitlines()
    assert len(told) == (status == 2)
    assert all(line.startswith("nmt: error: ") and "NMT_TRACEBACK" not in line for line in told)
    assert status == 0 or out.getvalue() == ""


# Files -----------------------------------------------------------------------------------------------------------

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([10**400, -1, 0, "1e-4", "nan", "${oc.env:HOME}", "../../x", "/etc/passwd", "a\0b", "x" * 10_000]),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def plain() -> list[dict[str, Any]]:
    """Saved configurations as plain data: of every kind of data and some models."""
    chosen = [["model=luong"], ["data=files", "data.dir=x"], ["data=hub", "data.path=./x", "model=transformer"]]
    return [dataclasses.asdict(compose([*overrides, "run.dir=x"])) for overrides in [*chosen, ["data=multi30k"]]]


def places_in(tree: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside, sections and members of lists included."""
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place, *(found for name, value in members for found in places_in(value, (*place, name)))]


def changed(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return value
    tree = copy.deepcopy(tree)
    node = tree
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
    return tree


@examples(200)
@given(st.data())
def test_a_changed_file_is_a_configuration_or_one_line(
    tmp_path: Path, plain: list[dict[str, Any]], data: st.DataObject
) -> None:
    tree: Any = data.draw(st.sampled_from(plain))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places_in(tree)))
        if place and isinstance(place[-1], str) and data.draw(st.booleans()):
            place = (*place[:-1], data.draw(st.text(max_size=6)))
        tree = changed(tree, place, data.draw(TREES))
    path = tmp_path / "config.yaml"
    path.write_text(f"{yaml.safe_dump(tree)}...\n", encoding="utf-8")
    try:
        config = load_config(path)
    except RequestError as error:
        assert_one_line(error, str(path))
        return
    assert_can_be_kept(config, path)


YAML = [
    "a: ", "model:\n", "  family: lstm\n", "- ", "[", "{", "}", "]", "&a ", "*a", "<<: ",
    "!!python/object/apply:os.system ", "'",
]  # fmt: skip
YAML += [
    "!!timestamp x", "2020-99-99", "!!float x", "!!bool x", "!!int ''", "!!binary é", "? ", ": ", "|\n", ">\n", "\t",
    "---\n", "...\n",
]  # fmt: skip
YAML += [
    "%TAG", '"\\ud800"', "\ufeff", "\x85", "0b", "1:99", "0x" + "f" * 5_000, "9" * 5_000, "[" * 5_000, "é\n", "#",
    "\r", "\n",
]  # fmt: skip


@examples(300)
@given(
    st.lists(st.sampled_from(YAML) | st.text(max_size=3), max_size=12).map(
        lambda parts: "".join(parts).encode("utf-8", "replace")
    )
    | st.binary(max_size=30)
)
def test_any_bytes_are_a_configuration_or_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(RequestError) as refusal:  # no such file has all the sections
        load_config(path)
    assert_one_line(refusal.value, str(path))


@pytest.mark.parametrize(
    "where", ["run: {notes: *z}", "model: {family: *z}", "data: {kind: *z}", "trainer: *z", "x: *z"]
)
def test_a_file_of_a_billion_members_is_refused_at_once(tmp_path: Path, where: str) -> None:
    """Nine aliases of nine aliases of …: small as YAML and in memory, but not when written out."""
    names = "abcdefghijklz"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in itertools.pairwise(names)]
    path = tmp_path / "config.yaml"
    text = "\n".join(f"  {line}" for line in lines)
    path.write_text(f"model:\n{text}\n{where}\n...\n", encoding="utf-8")
    with pytest.raises(RequestError) as refusal:
        load_config(path)
    assert_one_line(refusal.value)
