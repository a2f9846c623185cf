"""`nmt train`, the Hydra application: every run of it is checked before the first one begins.

Hydra launches; what goes wrong in a run is told by us, in one line, and in a sweep the other runs go on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.configuration.composition import Member, compose, compose_node, compose_sweep, shared_run_directory, to_config
from nmt.configuration.mistakes import normalised, not_composed
from nmt.configuration.store import CONFIG_NAME, VERSION_BASE, config_directory, groups, register_schemas
from nmt.errors import RequestError, WorkError

Train = Callable[[TrainConfig], None]


def show(overrides: Sequence[str], flags: Sequence[str], config_dir: Path | None) -> None:
    """Let Hydra print instead of training: --cfg, --info, --hydra-help. Misspelt overrides are refused first."""
    from omegaconf import OmegaConf

    node = compose_node(overrides, config_dir)
    if "--package" in flags:
        package = flags[flags.index("--package") + 1]
        if OmegaConf.select(node, package) is None:
            raise RequestError(f"--package {package}: no such section; there are: {', '.join(map(str, node))}")
    _hydra_main([*flags, *_directory_flags(config_dir), *normalised(overrides)], lambda node: None)


def train_one(overrides: Sequence[str], config_dir: Path | None, train: Train) -> None:
    """Check, then train, one run. Whatever `train` raises passes through."""
    compose(overrides, config_dir)
    failed: list[BaseException] = []

    def task(node: Any) -> None:
        try:
            train(to_config(node))
        except Exception as error:  # Hydra would print it with its own heading
            failed.append(error)

    _hydra_main([*_directory_flags(config_dir), *normalised(overrides)], task)
    if failed:
        raise failed[0]


def train_sweep(
    overrides: Sequence[str], config_dir: Path | None, train: Train, tell: Callable[[Exception], int]
) -> None:
    """Check every run of a sweep, then train them; one that fails is told, and the others go on.

    Raises WorkError at the end where some failed.
    """
    overrides = normalised(overrides)
    own_sweeper = any(text.startswith("hydra/sweeper=") for text in overrides)
    members = [] if own_sweeper else compose_sweep(overrides, config_dir)
    numbered = []
    if len(members) > 1 and shared_run_directory(members):
        numbered = [_numbered_directory(overrides, members, config_dir)]
    failed: list[str] = []
    parent = os.getpid()

    def task(node: Any) -> None:
        from hydra.core.hydra_config import HydraConfig

        job = HydraConfig.get().job
        label = _label(members, job.num) if members else " ".join(HydraConfig.get().overrides.task)
        print(f"nmt: run {job.num + 1} of {len(members) or 'several'}: {label}", file=sys.stderr, flush=True)
        try:
            train(to_config(node))
        except Exception as error:
            tell(error)
            if os.getpid() != parent:
                raise  # a launcher with processes of its own hears of a failure only this way
            failed.append(label)

    _hydra_main(["--multirun", *_directory_flags(config_dir), *_deferred(overrides, members), *numbered], task)
    if failed:
        raise WorkError(f"{len(failed)} of {len(members) or 'several'} runs failed: {'; '.join(failed)}")


def _deferred(overrides: Sequence[str], members: Sequence[Member]) -> list[str]:
    """The overrides, those of the keys of a group that is swept as sweeps of one value.

    Before a sweep Hydra composes what does not vary, and would hold model.layers=2 against the default model there.
    """
    varying = {key for member in members for key, _, _ in (text.partition("=") for text in _own(member, members))}
    swept = set(groups()) if "experiment" in varying else varying & set(groups())
    deferred = []
    for text in overrides:
        key, _, value = text.partition("=")
        fixed = value and key not in varying and key.startswith(tuple(f"{group}." for group in swept))
        deferred.append(f"{key}=choice({value})" if fixed else text)
    return deferred


def _own(member: Member, members: Sequence[Member]) -> list[str]:
    """The overrides in which one run of a sweep differs from another."""
    return [text for text in member.overrides if any(text not in other.overrides for other in members)]


def _label(members: Sequence[Member], number: int) -> str:
    """What tells one run of a sweep from the others."""
    return " ".join(_own(members[number], members) or members[number].overrides)


def _numbered_directory(overrides: Sequence[str], members: Sequence[Member], config_dir: Path | None) -> str:
    """An override that keeps the runs of a sweep apart by their number, where their default names are the same."""
    from omegaconf import OmegaConf

    if any(text.lstrip("+").startswith("run.dir=") for text in overrides):
        raise RequestError(
            f"run.dir: two runs of this sweep would be kept in {shared_run_directory(members)}; leave run.dir out, "
            "or refer to a key that they differ in, as in 'run.dir=\"runs/${model.name}-${trainer.seed}\"'"
        )
    node = compose_node(members[0].overrides, config_dir)
    pattern = OmegaConf.to_container(node.run, resolve=False)["dir"]  # type: ignore[call-overload, index]
    return f'run.dir="{pattern}-${{hydra:job.num}}"'


def _directory_flags(config_dir: Path | None) -> list[str]:
    return ["--config-dir", str(config_dir)] if config_dir else []


def _hydra_main(arguments: list[str], task: Callable[[Any], None]) -> None:
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
