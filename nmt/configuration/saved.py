"""The config.yaml of a run directory: written resolved, read without executing anything.

Much of what is left of a YAML file that was cut off is YAML, too, and would be taken with defaults for the rest. So the
file ends with YAML's own mark of a document's end, and is read only if it does.

Reading does not go through OmegaConf, which would look up interpolations such as `${oc.env:HOME}` in a file that may
have come from elsewhere. The YAML is plain data, and each value is checked against the schema's type here.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from nmt.config import SearchConfig, TrainConfig
from nmt.configuration.checks import check, check_search, check_values, refuse, shown
from nmt.configuration.schema import DATA, MODELS, Key, fields_of
from nmt.errors import RequestError
from nmt.files import read_regular, write_atomically

END = "..."


def save_config(config: TrainConfig, path: Path) -> None:
    """Write a configuration as YAML, all values resolved; the file appears complete or not at all."""
    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True, width=120)
    write_atomically(path, f"{text}{END}\n")


def load_config(path: Path) -> TrainConfig:
    """Read what `save_config` wrote.

    Raises RequestError, naming the file and the key, for a file that is not there, cut off or not YAML, and for an
    unknown key or a value that the schema refuses.
    """
    try:
        text = read_regular(path).decode("utf-8")
        content = yaml.safe_load(text)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8") from error
    except Exception as error:  # YAML's own, and what Python makes of a date 2020-99-99 or of ten thousand brackets
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error or type(error).__name__).split())
        raise RequestError(f"{path}{line}: not YAML: {shown(problem)}") from error
    if text.rstrip().rpartition("\n")[2] != END:
        raise RequestError(f"{path}: cut off: a config ends with a line of three dots, {END}")
    try:
        config = cast(TrainConfig, _section(TrainConfig, content, ""))
        check(config)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return config


def read_search(content: Any, path: Path) -> SearchConfig:
    """The search settings of a file that keeps nothing else of a configuration, from its plain data.

    Raises RequestError, naming the file and the key, as `load_config` does.
    """
    try:
        search = cast(SearchConfig, _section(SearchConfig, content, "search"))
        check_search(search)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return search


def changed_search(search: SearchConfig, changes: Sequence[str]) -> SearchConfig:
    """Search settings with some of them changed, each as KEY=VALUE, in which `search.` may stand before the key.

    Raises RequestError, naming the key and what it allows; how the settings go together is not checked.
    """
    content = dataclasses.asdict(search)
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals:
            raise RequestError(f"{text}: a search setting is KEY=VALUE, as in temperature=0.5")
        try:
            content[name.removeprefix("search.")] = yaml.safe_load(value)
        except yaml.YAMLError:
            content[name.removeprefix("search.")] = value  # which no key takes, and the message repeats
    changed = cast(SearchConfig, _section(SearchConfig, content, "search"))
    check_values(changed, "search.")
    return changed


def _section(schema: type, content: Any, path: str) -> Any:
    """An instance of a dataclass from plain YAML data."""
    if not isinstance(content, dict):
        raise RequestError(f"{path or 'the file'}: must be a mapping of keys to values")
    fields = {key.path: key for key in fields_of(schema)}
    prefix = f"{path}." if path else ""
    for name in content:
        if name not in fields:
            near = difflib.get_close_matches(str(name), fields, n=1)
            hint = f" (nearest: {prefix}{near[0]})" if near else ""
            raise RequestError(f"{prefix}{shown(name)}: this version of nmt has no such key{hint}")
    for name, key in fields.items():
        if name not in content and key.default in ("???", dataclasses.MISSING):
            raise RequestError(f"{prefix}{name}: is missing")
    values = {name: _value(fields[name], value, prefix + name) for name, value in content.items()}
    return schema(**values)


def _value(key: Key, value: Any, path: str) -> Any:
    """The value of one key, converted where YAML leaves the type open, refused where it has another one."""
    if value is None and key.optional:
        return None
    if key.is_word(value):
        return value
    hint = _alternative(path, value) or key.type
    if dataclasses.is_dataclass(hint):
        return _section(cast(type, hint), value, path)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list and isinstance(value, list):
        members = dataclasses.replace(key, hint=arguments[0])
        return [_value(members, member, f"{path}.{index}") for index, member in enumerate(value)]
    if typing.get_origin(hint) is dict and isinstance(value, dict) and all(isinstance(name, str) for name in value):
        members = dataclasses.replace(key, hint=arguments[1])
        return {name: _value(members, member, f"{path}.{name}") for name, member in value.items()}
    if hint is float and not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            return float(value)  # YAML reads 1e-4, without a point, as text
        except (ValueError, OverflowError):  # 10**400 is a whole number, and no float
            pass
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    raise refuse(path, value, key.allowed())


def _alternative(path: str, content: Any) -> type | None:
    """The schema of the model or data section, which its `family` or `kind` tells."""
    schemas: dict[str, tuple[str, dict[str, Any]]] = {"model": ("family", MODELS), "data": ("kind", DATA)}
    if path not in schemas or not isinstance(content, dict):
        return None
    name, options = schemas[path]
    chosen = content.get(name)
    if not isinstance(chosen, str) or chosen not in options:
        raise refuse(f"{path}.{name}", chosen, f"one of {', '.join(options)}")
    return cast(type, options[chosen])
