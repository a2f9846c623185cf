"""A checkpoint is a directory that is complete or not there.

    checkpoints/step_00001200/  model.safetensors   the weights to translate with (the average, where one is kept)
                                training.pt         what an exact continuation needs besides; weights_only loads it
                                meta.json           format, step, checksums, scores, versions
                                config.yaml, tokenizer.model   copies: the directory alone is a translator
    checkpoints/last, checkpoints/best              relative links

Everything is written into a temporary directory, flushed to the disk, and renamed. Checksums tell a damaged file from
a good one before anything is loaded. Nothing here executes what a file says: weights are safetensors, the training
state is read with `weights_only=True`, the rest is JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from nmt.config import TrainConfig
from nmt.configuration import save_config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.files import cause_of, complete_directory, read_regular, remove_directory, sha256_of

FORMAT = 1
WEIGHTS, TRAINING, META, CONFIG = "model.safetensors", "training.pt", "meta.json", "config.yaml"
EXPORT = "export.json"
LAST, BEST = "last", "best"
CHECKSUM = "checksum"
_NAME = re.compile(r"step_(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    directory: Path
    meta: dict[str, Any]

    @property
    def step(self) -> int:
        """Optimizer steps taken."""
        return int(self.meta["step"])

    @classmethod
    def open(cls, directory: Path) -> Checkpoint:
        """Reads meta.json and compares its checksum and those of the files that it names.

        Raises:
            RequestError: no checkpoint there, or one of another format.
            WorkError: a damaged one, naming the file.
        """
        path = directory / META
        if not path.exists():
            if _NAME.fullmatch(directory.name):  # it was one
                raise WorkError(f"{path} is missing: the checkpoint is damaged")
            raise RequestError(f"{directory} is no checkpoint: it has no {META}")
        meta = read_meta(directory)
        require_facts(meta, directory, "format")
        if meta["format"] != FORMAT:
            raise RequestError(
                f"{path}: checkpoint format {meta.get('format')}, this version of nmt reads format {FORMAT}"
            )
        require_facts(meta, directory, "step", "sha256")
        require_files(directory, meta["sha256"], META)
        return cls(directory, meta)

    def weights(self) -> dict[str, Tensor]:
        """The weights by parameter name, on the CPU."""
        path = self.directory / WEIGHTS
        try:
            return safetensors.torch.load_file(path)
        except (OSError, SafetensorError) as error:
            raise WorkError(f"{path} cannot be read: {error}") from error

    def training_state(self) -> dict[str, Any]:
        """What `save_checkpoint` got as the training state, on the CPU."""
        path = self.directory / TRAINING
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # PyTorch's own words advise to execute it
            raise WorkError(f"{path} cannot be read: it is damaged, or holds something else than plain data") from error
        except Exception as error:  # nothing is executed, but a pickle can make its reader raise anything
            raise WorkError(f"{path} cannot be read: {_first_line(error)}") from error
        return state


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


_SHAPES: tuple[tuple[tuple[str, ...], Callable[[Any], bool]], ...] = (
    (("step", "epoch", "tokens", "validated_step", "best_step", "validations_without_gain"), _is_whole),
    (("seconds",), _is_number),
    (("sha256", "data", "versions"), _are_texts),
    (("init_from",), lambda value: isinstance(value, dict)),
)
"""What is looked at again, by name."""


def read_meta(directory: Path) -> dict[str, Any]:
    """The meta.json of a checkpoint; what it says is of the types that nmt writes, what it leaves out is left out.

    Raises:
        WorkError: it cannot be read, or is not what nmt writes, naming the key.
    """
    path = directory / META
    try:
        meta = json.loads(read_regular(path))
        checksum = checksum_of(meta) if isinstance(meta, dict) else ""
    except (OSError, ValueError, RecursionError) as error:
        cause = cause_of(error) if isinstance(error, OSError) else error
        raise WorkError(f"{path} is damaged: {cause}") from error
    if not isinstance(meta, dict):
        raise WorkError(f"{path} is damaged: it does not say what the checkpoint holds")
    if meta.get(CHECKSUM, checksum) != checksum:
        raise WorkError(f"{path} is damaged: it is not what was written")
    for names, fits in _SHAPES:
        for name in names:
            if name in meta and not fits(meta[name]):
                raise WorkError(f"{path} is damaged: its {name} is not what nmt writes")
    return meta


def require_facts(meta: dict[str, Any], directory: Path, *names: str) -> None:
    """Raises WorkError where a meta.json leaves out one of these."""
    for name in names:
        if name not in meta:
            raise WorkError(f"{directory / META} is damaged: it has no {name}")


def checksum_of(record: dict[str, Any]) -> str:
    """SHA-256 of what a meta.json says, besides this checksum itself."""
    said = {name: value for name, value in record.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def require_files(directory: Path, checksums: dict[str, str], record: str) -> None:
    """Raises WorkError, naming the first file of a directory that is not there or not the one that a record is of."""
    if not checksums:
        raise WorkError(f"{directory / record} is damaged: it names no files")
    for name, expected in checksums.items():
        if Path(name).name != name:  # it could be any file of this machine
            raise WorkError(f"{directory / record} is damaged: {name} is not the name of a file beside it")
        if not (directory / name).is_file():
            what = "is no regular file" if os.path.lexists(directory / name) else "is missing"
            raise WorkError(f"{directory / name} {what}, though {record} names it")
        if sha256_of(directory / name) != expected:
            raise WorkError(f"{directory / name} is damaged: its checksum is not the one in {record}")


def load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Copies weights into a model; a tied matrix is stored once.

    Raises:
        RequestError: in one line, the first weight that is missing, too many, of another shape, or no finite numbers.
    """
    parameters = dict(model.named_parameters())
    for name in sorted(parameters.keys() | weights.keys()):
        if name not in weights:
            raise RequestError(f"{path}: the model of this config has a weight {name}, the file has none")
        if name not in parameters:
            raise RequestError(f"{path}: the file has a weight {name}, the model of this config has none")
        if weights[name].shape != parameters[name].shape:
            raise RequestError(
                f"{path}: weight {name} is {tuple(weights[name].shape)} in the file and "
                f"{tuple(parameters[name].shape)} in the model of this config (another vocabulary or size?)"
            )
        if not (weights[name].is_floating_point() and weights[name].to(parameters[name].dtype).isfinite().all()):
            raise RequestError(f"{path}: weight {name} is not made of finite numbers")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def save_checkpoint(
    checkpoints: Path,
    weights: dict[str, Tensor],
    training_state: dict[str, Any],
    config: TrainConfig,
    tokenizer: Tokenizer,
    meta: dict[str, Any],
) -> Path:
    """Writes checkpoints/step_… for `meta["step"]` and points `last` to it; one of the same step is replaced.

    Raises:
        WorkError: naming the path and the cause, such as a full disk. Earlier checkpoints are untouched then.
    """
    directory = checkpoints / f"step_{meta['step']:08d}"
    write_checkpoint(directory, weights, training_state, config, tokenizer, meta)
    point(checkpoints, LAST, directory.name)
    return directory


def write_checkpoint(
    directory: Path,
    weights: dict[str, Tensor],
    training_state: dict[str, Any] | None,
    config: TrainConfig,
    tokenizer: Tokenizer,
    meta: dict[str, Any],
) -> None:
    """Writes one checkpoint directory, complete or not at all; without a training state it is for translating only."""
    with complete_directory(directory, replace=True) as temporary:
        try:
            contiguous = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
            safetensors.torch.save_file(contiguous, temporary / WEIGHTS)
            if training_state is not None:
                with open(temporary / TRAINING, "wb") as file:
                    torch.save(training_state, file)
        except (RuntimeError, SafetensorError) as error:
            raise _system_error(error) or WorkError(f"cannot write {directory}: {_first_line(error)}") from error
        save_config(config, temporary / CONFIG)
        shutil.copymode(temporary / CONFIG, temporary / WEIGHTS)  # safetensors makes a file for its owner alone
        tokenizer.save(temporary)
        checksums = {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}
        record = {**meta, "format": FORMAT, "sha256": checksums}
        record[CHECKSUM] = checksum_of(record)
        (temporary / META).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def point(checkpoints: Path, name: str, target: str) -> None:
    """Makes `checkpoints/name` a relative link to `target`, in one rename."""
    link, temporary = checkpoints / name, _temporary_link(checkpoints, name)
    try:
        if link.is_symlink() and os.readlink(link) == target:
            return
        temporary.unlink(missing_ok=True)
        os.symlink(target, temporary)
        if link.is_dir() and not link.is_symlink():  # a copy that followed the link
            shutil.rmtree(link)
        os.replace(temporary, link)
    except OSError as error:
        raise WorkError(f"cannot write {link}: {cause_of(error)}") from error


def step_directories(checkpoints: Path) -> list[Path]:
    """The complete checkpoints, the earliest first."""
    if not checkpoints.is_dir():
        return []
    found = [(int(match[1]), path) for path in checkpoints.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def prune(checkpoints: Path, keep_last: int) -> None:
    """Removes all but the latest `keep_last` checkpoints and the one that `best` points to.

    The latest ends with the one that `last` points to: where a damaged checkpoint of a later step was passed over, it
    takes no good one's place. It is left as it is until the run has come to its step again.
    """
    best, last = ((checkpoints / name).resolve() for name in (BEST, LAST))
    found = [path for path in step_directories(checkpoints) if _step_of(path) <= _step_of(last)]
    for path in found[:-keep_last]:
        if path.resolve() != best:
            remove_directory(path)


def remove_temporary_links(checkpoints: Path) -> None:
    """Removes what a process killed in `point` has left."""
    for name in (LAST, BEST):
        with contextlib.suppress(OSError):
            _temporary_link(checkpoints, name).unlink()


def _temporary_link(checkpoints: Path, name: str) -> Path:
    return checkpoints / f".{name}.link"


def _step_of(directory: Path) -> int:
    match = _NAME.fullmatch(directory.name)
    return int(match[1]) if match else -1


def find_checkpoint(run: Path) -> Path:
    """The checkpoint directory that a RUN argument means: itself, or the run directory's best, or else last one.

    Raises:
        RequestError: when there is none, saying what is there instead.
    """
    if (run / META).is_file():
        return run
    checkpoints = run / "checkpoints"
    for name in (BEST, LAST):
        if (checkpoints / name / META).is_file():
            return (checkpoints / name).resolve()
    if not run.exists():
        raise RequestError(f"{run}: no such run directory")
    if (run / EXPORT).is_file():
        raise RequestError(f"{run} is an export, which only nmt translate and nmt attend read; give the run itself")
    if found := step_directories(checkpoints):
        return found[-1]
    raise RequestError(f"{run} has no checkpoint: it is neither a run directory with checkpoints/ nor a checkpoint")


def open_checkpoint(run: Path) -> Checkpoint:
    """The checkpoint that a RUN argument means, opened.

    Raises:
        RequestError: there is none, or one of another format.
        WorkError: it is damaged; the message names the latest one of the run that is whole.
    """
    try:
        return Checkpoint.open(find_checkpoint(run))
    except WorkError as error:
        whole = next(filter(_opens, reversed(step_directories(run / "checkpoints"))), None)
        raise WorkError(f"{error}; {whole} is whole" if whole else str(error)) from error


def _opens(directory: Path) -> bool:
    try:
        Checkpoint.open(directory)
    except (RequestError, WorkError):
        return False
    return True


def _system_error(error: Exception) -> OSError | None:
    """What the system said, such as that the disk is full; both libraries wrap it, each in its way."""
    if isinstance(error.__context__, OSError):
        return error.__context__
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
