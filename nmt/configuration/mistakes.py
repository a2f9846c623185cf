"""What is wrong with an override, in one line that names the nearest thing that would have been right."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nmt.config import DataConfig, ModelConfig, TrainConfig
from nmt.configuration.schema import Key, all_keys, keys_of
from nmt.configuration.store import groups
from nmt.errors import RequestError

Compose = Callable[[Sequence[str]], Any]


def parse(overrides: Sequence[str], sweep: bool = False) -> list[Any]:
    """Hydra's Override of each text, or RequestError with the quoted form of one that its grammar does not take."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for text in overrides:
        if text.startswith("="):
            raise RequestError(f"{text}: an override is KEY=VALUE")
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    parsed = []
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise _unreadable(text) from error
        if override.is_sweep_override() and not sweep:
            quoted = None if _is_group(override) else _quoted(text)
            hint = f"; if it is one value that contains a comma, quote it: {quoted}" if quoted else ""
            raise RequestError(f"{text}: several values make several runs, which takes -m{hint}")
        parsed.append(override)
    return parsed


def normalised(overrides: Iterable[str]) -> list[str]:
    """The overrides with Hydra's + where it is needed, so that nobody has to know where.

    A group takes none here, since each has a default. An entry of a mapping whose names are the user's own, such as
    one more test set, takes it always.
    """
    mappings = [path for path, owners in all_keys().items() if any(key.mapping for key in owners.values())]
    texts = []
    for text in overrides:
        key = text.partition("=")[0].lstrip("+")
        if key in groups():
            text = text.lstrip("+")
        elif any(key == path or key.startswith(f"{path}.") for path in mappings):
            text = "++" + _entry_as_mapping(text.lstrip("+"))
        texts.append(text)
    return texts


def _entry_as_mapping(text: str) -> str:
    """`data.test.NAME.source=F` as `data.test={NAME: {source: F}}`, the form that makes a typed entry where none is."""
    key, _, value = text.partition("=")
    parts = key.split(".")
    if len(parts) != 4 or not value:
        return text
    section, mapping, name, last = parts
    return f"{section}.{mapping}={{{name}: {{{last}: {value}}}}}"


def diagnose(overrides: Sequence[str], compose: Compose, node: Any = None) -> RequestError | None:
    """The first mistake in a list of overrides, if this module knows it.

    `compose` composes a list of overrides; `node` is its answer to all of them where it gave one.
    """
    parsed = parse(overrides)
    chosen = [override for override in parsed if _is_group(override)]
    search_path = [text for text in overrides if text.startswith("hydra.searchpath=")]
    for override in chosen:
        refusal = _option_mistake(override, search_path)
        if refusal:
            return refusal
    texts = [*search_path, *(override.input_line for override in chosen)]
    if node is None:
        try:
            node = compose(texts)
        except Exception as error:
            return not_composed(error)
        composed = False
    else:
        composed = True
    for override in parsed:
        if not _is_group(override):
            refusal = _key_mistake(override, node)
            if refusal:
                return refusal
    if composed:
        return None
    for override in parsed:
        if not _is_group(override):
            try:
                compose([*texts, override.input_line])
            except Exception as error:
                key = _keys(node).get(str(override.key_or_group))
                return _value_mistake(override, key) if key else not_composed(error)
    return None


PLUGINS = {
    "joblib": "hydra-joblib-launcher",
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
    "ray": "hydra-ray-launcher",
    "optuna": "hydra-optuna-sweeper",
}
"""The packages that bring the launchers and sweepers which our presets of configs/hydra build on."""


def not_composed(error: BaseException) -> RequestError:
    """Hydra's or OmegaConf's own words, cut to one line and without its advice to add keys."""
    absent = re.search(r"In '(hydra/\w+)/(\w+)': Could not load 'hydra/\w+/(\w+)'", str(error))
    if absent and absent[3] in PLUGINS:
        package = PLUGINS[absent[3]]
        return RequestError(f"{absent[1]}={absent[2]}: needs {package}, which is not installed: pip install {package}")
    cause = error.__cause__ or error
    lines = [line.strip() for line in f"{error}\n{cause}".splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("full_key", "object_type", "To append", "Search path"))]
    return RequestError(" ".join(dict.fromkeys(kept[:2])) or type(error).__name__)


# OmegaConf's words about an interpolation, and ours.
_INTERPOLATIONS = (
    (r"Environment variable '(.*)' not found", "${{oc.env:{0}}}: there is no environment variable {0}"),
    (r"Interpolation key '(.*)' not found", "${{{0}}}: there is no key {0}"),
    (r"Unsupported interpolation type (\S+)", "${{{0}:…}}: there is no resolver {0}"),
)


def unresolved(error: BaseException) -> RequestError:
    """The error for a value that refers to something that is not there."""
    path = getattr(error, "full_key", None)
    said = next(iter(str(error).strip().splitlines()), type(error).__name__)
    for words, ours in _INTERPOLATIONS:
        if match := re.search(words, said):
            said = ours.format(match[1])
            break
    return RequestError(f"{path}: {said}" if path else said)


def _is_group(override: Any) -> bool:
    name = str(override.key_or_group)
    return name in groups() or "/" in name


def _unreadable(text: str) -> RequestError:
    key, equals, _ = text.partition("=")
    if not equals:
        near = _nearest(key, [*groups(), *all_keys()])
        return RequestError(f"{text}: an override is KEY=VALUE{f', as in {near}=…' if near else ''}")
    quoted = _quoted(text)
    if quoted:
        return RequestError(f"{text}: a value with special characters is quoted, twice because of the shell: {quoted}")
    return RequestError(f"{text}: cannot be read as KEY=VALUE; {_advice_on_quotes(key)}")


def _advice_on_quotes(key: str) -> str:
    return f"quote a value with special characters, as in '{key}=\"…\"'"


def _quoted(text: str) -> str | None:
    """The override as one would type it in a shell, its value in quotes; None where quotes do not make it readable."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = text.partition("=")
    mark = "'" if '"' in value and "'" not in value else '"'
    candidate = f"{key}={in_quotes(value, mark)}"
    try:
        read = OverridesParser.create().parse_override(candidate)
    except HydraException:
        return None
    return shlex.quote(candidate) if not read.is_sweep_override() and read.value() == value else None


def in_quotes(value: str, mark: str = '"') -> str:
    """A text as Hydra's grammar quotes it: backslashes are doubled before a quotation mark, and only there."""
    escaped = re.sub(rf"(\\*)({mark}|\Z)", lambda found: found[1] * 2 + (f"\\{mark}" if found[2] else ""), value)
    return f"{mark}{escaped}{mark}"


def _option_mistake(override: Any, search_path: list[str]) -> RequestError | None:
    """A preset that does not exist, in a group that does or does not."""
    from hydra.core.global_hydra import GlobalHydra

    group = str(override.key_or_group)
    if override.is_delete() or override.package is not None:
        return RequestError(f"{override.input_line}: choose a preset as in {group}=NAME")
    options = [
        name
        for name in GlobalHydra.instance().config_loader().get_group_options(group, overrides=search_path)
        if not name.startswith("base_")
    ]
    if not options:
        return _unknown(group)
    value = override.value()
    if isinstance(value, str) and value in options:
        return None
    near = _nearest(str(value), options)
    hint = f"; did you mean {group}={near}?" if near else "."
    return RequestError(f"{override.input_line}: no such preset{hint} There are: {', '.join(options)}")


def _key_mistake(override: Any, node: Any) -> RequestError | None:
    """A key that the schemas of this run do not have, or a use of + and ~ that would make or leave a dead one."""
    path = str(override.key_or_group)
    if override.package is not None:
        return RequestError(f"{override.input_line}: choose a preset as in {path}=NAME, one of {', '.join(groups())}")
    if path == "hydra" or path.startswith("hydra."):
        return _hydra_mistake(path, node)
    keys = _keys(node)
    own = next((key for key in keys.values() if key.open and f"{path}.".startswith(f"{key.path}.")), None)
    if own and own.mapping and own.path == path and (override.is_delete() or override.value() == {}):
        refusal = _emptied(path, node)
        if refusal:
            return refusal
    if override.is_delete():
        return (
            None
            if own and own.path != path
            else RequestError(f"{override.input_line}: a key cannot be removed; give it another value")
        )
    if own:
        return None
    below = next((known for known in keys if known.startswith(f"{path}.")), None)
    if below:
        return RequestError(f"{override.input_line}: give each key its value, as in {below}=…")
    if path not in keys:
        return _unknown(path, keys)
    if keys[path].type is bool and isinstance(override.value(), int) and not isinstance(override.value(), bool):
        return _value_mistake(override, keys[path])
    if override.is_add():
        return RequestError(f"{override.input_line}: write it without the +")
    return None


def _emptied(path: str, node: Any) -> RequestError | None:
    """For a mapping that is to have no entries: Hydra merges, so an empty one would leave what the preset has."""
    from omegaconf import OmegaConf

    entries = [f"~{path}.{name}" for name in OmegaConf.select(node, path) or ()]
    if not entries:
        return None
    return RequestError(f"{path}: is merged with the preset's, not put in its place; to have none: {' '.join(entries)}")


def _hydra_mistake(path: str, node: Any) -> RequestError | None:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if path in ("hydra.run.dir", "hydra.sweep.subdir"):
        return RequestError(f"{path}: a run is kept in run.dir; write run.dir=…")
    try:
        parent = OmegaConf.select(node, path.rpartition(".")[0])
        last = path.rpartition(".")[2]
        if not OmegaConf.is_dict(parent) or last in parent or OmegaConf.get_type(parent) is dict:
            return None
        near = _nearest(path, [f"{path.rpartition('.')[0]}.{name}" for name in parent])
    except OmegaConfBaseException:
        return None
    return RequestError(f"{path}: no such key{f'; did you mean {near}?' if near else ''}")


def _keys(node: Any) -> dict[str, Key]:
    """The keys of this run, whose model and data are known by now."""
    from omegaconf import OmegaConf

    chosen: dict[str, type] = {}
    for name, schema in (("model", ModelConfig), ("data", DataConfig)):
        kind = OmegaConf.get_type(node, name)
        chosen[name] = kind if isinstance(kind, type) and issubclass(kind, schema) else schema
    return {key.path: key for key in keys_of(TrainConfig, groups=chosen)}


def _unknown(path: str, keys: dict[str, Key] | None = None) -> RequestError:
    """The error for a key that this run does not have, with the one that may be meant."""
    elsewhere = all_keys()
    open_above = next((known for known in elsewhere if path.startswith(f"{known}.")), path)
    if open_above in elsewhere:
        owners = ", ".join(f"{path.partition('.')[0]}={name}" for name in elsewhere[open_above])
        return RequestError(f"{path}: this run has no such key; it belongs to {owners}")
    known = [*(keys if keys is not None else elsewhere), *groups()]
    namesakes = [name for name in known if name.rpartition(".")[2] == path]
    if len(namesakes) > 1:
        return RequestError(f"{path}: no such key; did you mean one of {', '.join(namesakes)}?")
    near = _nearest(path, known) or _nearest(path, list(elsewhere))
    if near is None:
        return RequestError(f"{path}: no such key; `nmt train --help` lists them all")
    key = (keys or {}).get(near)
    allowed = f" ({key.allowed()})" if key else ""
    return RequestError(f"{path}: no such key; did you mean {near}{allowed}?")


def _nearest(path: str, known: Sequence[str]) -> str | None:
    """The most similar name; a last part that is right, or nearly, outweighs a section that is wrong or left out."""
    last = path.rpartition(".")[2]
    lasts = {name.rpartition(".")[2]: name for name in reversed(known)}
    words = sorted((name for name in lasts if last in name.split("_")), key=len)
    attempts = (
        difflib.get_close_matches(path, known, n=1, cutoff=0.8),
        [lasts[last]] if last in lasts else [],
        [lasts[name] for name in difflib.get_close_matches(last, lasts, n=1, cutoff=0.8)],
        [lasts[name] for name in words],
        difflib.get_close_matches(path, known, n=1, cutoff=0.7),
    )
    return next((names[0] for names in attempts if names), None)


def _value_mistake(override: Any, key: Key) -> RequestError:
    """A value that the type of the key does not take."""
    value = override.value()
    _, _, text = str(override.input_line).partition("=")
    hint = ""
    if key.type is int and isinstance(value, float) and value.is_integer():
        hint = f"; write {int(value)}"
    elif key.type is str and isinstance(value, list | dict):
        quoted = _quoted(str(override.input_line))
        hint = f"; quote it: {quoted}" if quoted else ""
    return RequestError(f"{key.path}={text}: must be {key.allowed()}{hint}")
