"""From overrides to a `TrainConfig`: Hydra composes, and what it would refuse in several lines is said in one.

Hydra's own answer to a typo is the advice to add the key with a `+`, which makes a dead key. Here every override is
held against the schemas, and the nearest key, option or quoted form is named instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from nmt.config import DEFAULT_EPOCHS, RunConfig, TrainConfig
from nmt.configuration.checks import check
from nmt.configuration.mistakes import diagnose, in_quotes, normalised, not_composed, parse, unresolved
from nmt.configuration.store import CONFIG_NAME, VERSION_BASE, config_directory, register_schemas
from nmt.errors import RequestError

SEARCH_PATH = "hydra.searchpath="


@dataclass(frozen=True)
class Member:
    """One run of a sweep: the overrides that make it, and what they compose to."""

    overrides: list[str]
    config: TrainConfig


def compose(overrides: Sequence[str] = (), config_dir: Path | None = None) -> TrainConfig:
    """The checked configuration of one run.

    Overrides have Hydra's grammar, such as `model=luong` or `optimizer.lr=1e-3`. `config_dir` is a further folder of
    presets. Raises RequestError, in one line, for anything that is misspelt, of the wrong type or impossible.
    """
    with _hydra(config_dir) as always:
        node = _composed([*_plain(overrides), *always])
        return _to_config(node)


def compose_node(overrides: Sequence[str] = (), config_dir: Path | None = None) -> Any:
    """Like `compose`, but the DictConfig as Hydra has it: unresolved, and keys without value still missing."""
    with _hydra(config_dir) as always:
        return _composed([*_plain(overrides), *always])


def compose_sweep(overrides: Sequence[str], config_dir: Path | None = None) -> list[Member]:
    """Every run of a sweep, all of them checked, in the order in which Hydra's basic sweeper launches them.

    Raises RequestError where one of them is refused.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from omegaconf import OmegaConf

    with _hydra(config_dir) as always:
        parsed = parse(normalised(overrides), sweep=True)
        (combinations,) = BasicSweeper.split_arguments(parsed, max_batch_size=None)
        members = []
        first = None
        for number, combination in enumerate(combinations):
            node = _composed([*combination, *always], number)
            first = node if first is None else first
            OmegaConf.copy_cache(from_config=first, to_config=node)  # one time for all in ${now:…}, as when they run
            members.append(Member(combination, _to_config(node, to_member_config)))
    return members


def check_search_space(overrides: Sequence[str], config_dir: Path | None = None) -> None:
    """Check what a sweeper may choose from before it does: the first value of each key, and each choice of each.

    Raises RequestError where a run with them is refused.
    """
    with _hydra(config_dir) as always:
        values = [_values(override) for override in parse(normalised(overrides), sweep=True)]
        first = [texts[0] for texts in values]
        _to_config(_composed([*first, *always]))
        for place, texts in enumerate(values):
            for text in texts[1:]:
                _to_config(_composed([*first[:place], text, *first[place + 1 :], *always]))


def _values(override: Any) -> list[str]:
    """The choices of an override of a sweep as overrides of single runs; of a range or an interval its beginning."""
    if not override.is_sweep_override():
        return [override.input_line]
    if override.is_interval_sweep():
        return [f"{override.get_key_element()}={override.value().start}"]
    found = override.sweep_string_iterator() if override.is_choice_sweep() else [next(override.sweep_string_iterator())]
    return [f"{override.get_key_element()}={value}" for value in found]


def to_member_config(node: Any) -> TrainConfig:
    """`to_config` of one run of a sweep, whose default directory does not depend on the time.

    It is named after all that makes the run what it is, so that the same sweep, or one that has this run as well, finds
    what is there and does only what is missing.
    """
    from omegaconf import OmegaConf

    config = to_config(node)
    given = OmegaConf.to_container(node.run, resolve=False)
    assert isinstance(given, dict)
    if given["dir"] == RunConfig.dir:
        config.run.dir = f"runs/{config.model.name}-{config.data.name}-{_identity(config)}"
    return config


def _identity(config: TrainConfig) -> str:
    values = dataclasses.asdict(config)
    del values["run"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def to_config(node: Any) -> TrainConfig:
    """The checked dataclasses of a DictConfig that Hydra composed."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        missing = sorted(OmegaConf.missing_keys(node))
        if missing:
            raise RequestError(f"{missing[0]}: has no value; give it one, as in {missing[0]}=…")
        config = cast(TrainConfig, OmegaConf.to_object(node))
    except OmegaConfBaseException as error:
        raise unresolved(error) from error
    trainer = config.trainer
    if trainer.max_steps is None and trainer.max_epochs is None and trainer.max_minutes is None:
        trainer.max_epochs = DEFAULT_EPOCHS
    check(config)
    return config


def _plain(overrides: Sequence[str]) -> list[str]:
    texts = normalised(overrides)
    parse(texts)  # refuses values of a sweep
    return texts


def _composed(overrides: list[str], number: int = 0) -> Any:
    """Hydra's composition with its own settings in it, or one line on what is wrong with the overrides."""
    import hydra
    from omegaconf import open_dict

    def composed(chosen: Sequence[str]) -> Any:
        return hydra.compose(CONFIG_NAME, list(chosen), return_hydra_config=True)

    try:
        node = composed(overrides)
    except Exception as error:  # Hydra raises its own, OmegaConf's and ValueError
        raise diagnose(overrides, composed) or not_composed(error) from error
    refusal = diagnose(overrides, composed, node)
    if refusal:
        raise refusal
    if any(text.startswith(SEARCH_PATH) for text in overrides):
        _require_own_settings(node, composed([text for text in overrides if text.lstrip("+~").startswith("hydra")]))
    with open_dict(node):
        # What Hydra sets when it starts a job, so that run.dir may refer to it.
        node.hydra.job.num = number
        node.hydra.job.id = str(number)
        node.hydra.runtime.output_dir = os.getcwd()
    return node


def _require_own_settings(node: Any, own: Any) -> None:
    """Raise RequestError where presets of a further folder changed Hydra's own settings, some of which name code.

    A callback or a handler of the log is anything that can be imported, and is called before the run begins.

    Args:
        own: what Hydra's settings are without those presets.
    """
    from omegaconf import OmegaConf

    changed, expected = (OmegaConf.to_container(config.hydra, resolve=False) for config in (node, own))
    assert isinstance(changed, dict) and isinstance(expected, dict)
    for settings in (changed, expected):
        for name in ("overrides", "runtime"):  # the record of what was chosen
            del settings[name]
        del settings["job"]["override_dirname"]
    for key in changed.keys() | expected.keys():
        if changed.get(key) != expected.get(key):
            raise RequestError(
                f"hydra.{key!s}: is changed by a preset of --config-dir; presets hold data, and Hydra's own settings, "
                "which can name code to run, are given on the command line"
            )


def _to_config(node: Any, convert: Callable[[Any], TrainConfig] = to_config) -> TrainConfig:
    """`to_config`, or another conversion, of a node that still holds Hydra's settings, to which `${hydra:…}` refers."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict, read_write

    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(node)
    try:
        with read_write(node), open_dict(node):
            del node["hydra"]
        return convert(node)
    finally:
        HydraConfig.instance().cfg = before


@contextlib.contextmanager
def _hydra(config_dir: Path | None) -> Iterator[list[str]]:
    """Hydra on our presets; yields the overrides that make it look into a further folder as well."""
    from hydra import initialize_config_dir

    register_schemas()
    always = []
    if config_dir is not None:
        if not config_dir.is_dir():
            raise RequestError(f"--config-dir {config_dir}: no such folder")
        always = [f"{SEARCH_PATH}[{in_quotes(f'file://{config_dir.absolute()}')}]"]
    with initialize_config_dir(str(config_directory()), version_base=VERSION_BASE, job_name="nmt"):
        yield always
