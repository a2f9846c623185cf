"""`nmt train`, the Hydra application: a run is checked before Hydra begins it, and its mistakes are told in one line.

Several runs, `nmt train -m`, are in nmt.configuration.sweep.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.configuration.composition import compose, compose_node, to_config
from nmt.configuration.mistakes import normalised, not_composed
from nmt.configuration.store import CONFIG_NAME, VERSION_BASE, config_directory, register_schemas
from nmt.errors import RequestError, WorkError

Train = Callable[[TrainConfig], float | None]
"""Trains a run; the validation BLEU of its best checkpoint."""


def show(overrides: Sequence[str], flags: Sequence[str], config_dir: Path | None) -> None:
    """Let Hydra print instead of training: --cfg, --info, --hydra-help. Misspelt overrides are refused first."""
    from omegaconf import OmegaConf

    node = compose_node(overrides, config_dir)
    if "--package" in flags:
        package = flags[flags.index("--package") + 1]
        if OmegaConf.select(node, package) is None:
            raise RequestError(f"--package {package}: no such section; there are: {', '.join(map(str, node))}")
    hydra_main([*flags, *directory_flags(config_dir), *normalised(overrides)], lambda node: None)


def train_one(overrides: Sequence[str], config_dir: Path | None, train: Train) -> None:
    """Check, then train, one run. Whatever `train` raises passes through."""
    compose(overrides, config_dir)
    failed: list[BaseException] = []

    def task(node: Any) -> None:
        try:
            train(to_config(node))
        except Exception as error:  # Hydra would print it with its own heading
            failed.append(error)

    hydra_main([*directory_flags(config_dir), *normalised(overrides)], task)
    if failed:
        raise failed[0]


def directory_flags(config_dir: Path | None) -> list[str]:
    """Hydra's option for a further folder of presets."""
    return ["--config-dir", str(config_dir)] if config_dir else []


def hydra_main(arguments: list[str], task: Callable[[Any], object]) -> None:
    """Run `hydra.main` on our presets with these arguments instead of the process's."""
    import hydra
    from hydra.errors import HydraException

    register_schemas()
    application = hydra.main(config_path=str(config_directory()), config_name=CONFIG_NAME, version_base=VERSION_BASE)
    with _process_state(arguments):
        try:
            application(task)()
        except HydraException as error:
            raise not_composed(error) from error
        except OSError as error:
            raise WorkError(f"{error.filename or 'run directory'}: {error.strerror or error}") from error


@contextlib.contextmanager
def _process_state(arguments: list[str]) -> Iterator[None]:
    """What Hydra reads from the process: the arguments, and that it should raise errors and not print them."""
    name = "HYDRA_FULL_ERROR"
    before = sys.argv, os.environ.get(name)
    sys.argv = ["nmt train", *arguments]
    os.environ[name] = "1"
    try:
        yield
    finally:
        sys.argv = before[0]
        if before[1] is None:
            del os.environ[name]
        else:
            os.environ[name] = before[1]
