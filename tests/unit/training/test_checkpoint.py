"""Checkpoints: complete or absent whatever happens while one is written, self-contained, and never trusted blindly."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt import files
from nmt.configuration import load_config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.files import sha256_of
from nmt.training.checkpoint import (
    BEST,
    CHECKSUM,
    CONFIG,
    LAST,
    META,
    TRAINING,
    WEIGHTS,
    Checkpoint,
    checksum_of,
    find_checkpoint,
    load_weights,
    point,
    prune,
    save_checkpoint,
    step_directories,
)
from nmt.training.store import RunStore

FILES = {WEIGHTS, TRAINING, META, CONFIG, "tokenizer.model"}
Save = Callable[..., Path]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Where `save` saves."""
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def save(trained_run: Path, checkpoints: Path) -> Save:
    """Saves a checkpoint of a step, its weights and state made of that step."""
    config, tokenizer = load_config(trained_run / "config.yaml"), Tokenizer.load(trained_run)

    def save_step(step: int, valid: dict[str, float] | None = None) -> Path:
        weights = {"layer.weight": torch.full((50, 40), float(step)), "layer.bias": torch.arange(40.0)}
        meta = {"step": step, "best_step": step, "validated_step": step, "valid": valid, "data": {}}
        return save_checkpoint(checkpoints, weights, {"moments": torch.ones(9_000)}, config, tokenizer, meta)

    return save_step


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_whole(checkpoints: Path, step: int) -> None:
    checkpoint = Checkpoint.open(checkpoints / LAST)
    assert checkpoint.step == step
    assert checkpoint.weights()["layer.weight"].unique().item() == step
    assert torch.equal(checkpoint.training_state()["moments"], torch.ones(9_000))


# Writing ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_has_its_files_and_relative_links(save: Save, checkpoints: Path) -> None:
    assert names(save(7)) == FILES
    assert names(save(12)) == FILES
    assert len({path.stat().st_mode for path in save(12).iterdir()}) == 1  # whoever may read the folder can translate
    point(checkpoints, BEST, "step_00000007")
    assert names(checkpoints) == {"step_00000007", "step_00000012", LAST, BEST}
    assert os.readlink(checkpoints / LAST) == "step_00000012"
    assert os.readlink(checkpoints / BEST) == "step_00000007"
    assert [Checkpoint.open(path).step for path in step_directories(checkpoints)] == [7, 12]
    assert_whole(checkpoints, 12)


def test_one_of_the_same_step_is_replaced(save: Save, checkpoints: Path) -> None:
    save(7)
    (checkpoints / "step_00000007" / "left_over").touch()
    save(7)
    assert names(checkpoints / "step_00000007") == FILES
    assert names(checkpoints) == {"step_00000007", LAST}


def test_steps_are_ordered_as_numbers(checkpoints: Path) -> None:
    for name in (
        "step_00000900",
        "step_123456789",
        "step_00001000",
        "step_99",
        ".step_00000001.0.tmp",
        "average_last_2",
    ):
        (checkpoints / name).mkdir(parents=True)
    assert [path.name for path in step_directories(checkpoints)] == ["step_00000900", "step_00001000", "step_123456789"]


@pytest.mark.case
def test_killed_before_any_system_call_a_whole_checkpoint_remains(save: Save, checkpoints: Path) -> None:
    """SIGKILL before each of the calls that a save makes: the earlier checkpoint or the new one is there, whole."""
    save(1)
    results = set()
    for count in range(200):
        if _killed_in_save(save, count):
            found = RunStore(checkpoints.parent, {}, 9).latest(lambda line: None)
            assert found is not None
            assert found.weights()["layer.weight"].unique().item() == found.step
            assert Checkpoint.open(find_checkpoint(checkpoints.parent)).step in (1, 2)
            results.add(found.step)
            shutil.rmtree(checkpoints / "step_00000002", ignore_errors=True)
            point(checkpoints, LAST, "step_00000001")
        else:
            break
    assert count > 10  # files and directories flushed, the directory renamed, the link made and renamed
    assert results == {1, 2}
    save(3)
    left = names(checkpoints) - {LAST, BEST}
    assert left == {"step_00000001", "step_00000002", "step_00000003"}, "what was half-written is gone"


@pytest.mark.case
def test_killed_while_the_same_step_is_saved_anew_one_of_the_two_is_there(save: Save, checkpoints: Path) -> None:
    """As after a validation of a step that was saved before it: at no moment is there none of that name."""
    save(2)
    results = set()
    for count in range(200):
        killed = _killed_in_save(save, count, {"bleu": 5.0})
        assert_whole(checkpoints, 2)
        results.add(Checkpoint.open(checkpoints / LAST).meta["valid"] is None)
        if not killed:
            break
        save(2)
    assert count > 8
    assert results == {True, False}
    assert names(checkpoints) == {"step_00000002", LAST}


def _killed_in_save(save: Save, count: int, valid: dict[str, float] | None = None) -> bool:
    """Saves step 2 in a process that is killed before system call number `count`; False where it came to its end."""
    child = os.fork()
    if child == 0:
        left = count

        def counting(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return call(*arguments, **named)

            return counted

        for name in ("fsync", "rename", "replace", "symlink", "mkdir"):
            setattr(os, name, counting(getattr(os, name)))
        files._exchange = counting(files._exchange)
        try:
            save(2, valid)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.case
@pytest.mark.parametrize("limit", [2_000, 20_000], ids=["the weights do not fit", "the training state does not fit"])
def test_a_full_disk_leaves_the_earlier_checkpoint(limit: int, save: Save, checkpoints: Path) -> None:
    save(7)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(WorkError) as raised:
            save(12)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(raised.value) == f"cannot write {checkpoints / 'step_00000012'}: File too large"
    assert names(checkpoints) == {"step_00000007", LAST}
    assert_whole(checkpoints, 7)


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_no_space_is_said_in_words(call: str, save: Save, checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(7)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(WorkError, match="No space left on device"):
            save(12)
    assert names(checkpoints) == {"step_00000007", LAST}
    assert_whole(checkpoints, 7)


# Reading ---------------------------------------------------------------------------------------------------------


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def emptied(data: bytes) -> bytes:
    return b""


@pytest.mark.case
@pytest.mark.parametrize("damage", [truncated, flipped, emptied])
@pytest.mark.parametrize("name", sorted(FILES - {META}))
def test_a_damaged_file_is_named(name: str, damage: Callable[[bytes], bytes], save: Save) -> None:
    path = save(7) / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(WorkError) as raised:
        Checkpoint.open(path.parent)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", sorted(FILES - {META}))
def test_a_missing_file_is_named(name: str, save: Save) -> None:
    path = save(7) / name
    path.unlink()
    with pytest.raises(WorkError, match="is missing"):
        Checkpoint.open(path.parent)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"step": 7}',
        b'"text"',
        b'{"format": 1, "st',
        b"\xff\xfe",
        b'{"format": 1}',
        b'{"format": 1, "sha256": {}}',
        b'{"format": 1, "sha256": {}, "step": "7"}',
        b'{"format": 1, "sha256": ["model.safetensors"], "step": 7}',
        b'{"format": 1, "sha256": {"model.safetensors": 3}, "step": 7}',
        b'{"format": 1, "sha256": {}, "step": 7, "data": "train.en"}',
        b'{"format": 1, "sha256": {}, "step": 7, "best_step": null}',
        b'{"format": 1, "sha256": {}, "step": 7, "seconds": "long"}',
    ],
    ids=repr,
)
def test_damaged_meta_is_named(content: bytes, save: Save) -> None:
    path = save(7) / META
    path.write_bytes(content)
    with pytest.raises(WorkError) as raised:
        Checkpoint.open(path.parent)
    assert str(path) in str(raised.value)


@pytest.mark.case
def test_any_bit_of_meta_that_is_flipped_is_damage(save: Save) -> None:
    """Such as one that makes of step 7 a step 5: meta.json has a checksum of its own."""
    path = save(7) / META
    data = path.read_bytes()
    key = data.index(CHECKSUM.encode())  # without that key it is a file from before it, as which it is sound
    for place in {*range(0, len(data), 3)} - {*range(key, key + len(CHECKSUM))}:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with pytest.raises(WorkError, match="damaged"):
            Checkpoint.open(path.parent)


@pytest.mark.case
def test_what_is_no_file_is_not_called_missing(save: Save) -> None:
    directory = save(7)
    (directory / WEIGHTS).unlink()
    with pytest.raises(WorkError, match=rf"{WEIGHTS} is missing, though meta\.json names it"):
        Checkpoint.open(directory)
    os.mkfifo(directory / WEIGHTS)
    with pytest.raises(WorkError, match=rf"{WEIGHTS} is no regular file, though meta\.json names it"):
        Checkpoint.open(directory)
    (directory / META).unlink()
    os.mkfifo(directory / META)
    with pytest.raises(WorkError, match=r"meta\.json is damaged: Not a regular file$"):
        Checkpoint.open(directory)


def test_another_format_is_told_apart_from_damage(save: Save) -> None:
    path = save(7) / META
    path.write_text('{"format": 2}')
    with pytest.raises(RequestError, match="this version of nmt reads format 1"):
        Checkpoint.open(path.parent)


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"is no checkpoint: it has no meta\.json"):
        Checkpoint.open(tmp_path)


class Malicious:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch executed",)


@pytest.mark.case
def test_a_training_state_is_data_only(save: Save, empty_folder: Path) -> None:
    directory = save(7)
    state = torch.load(directory / TRAINING, weights_only=True)
    assert torch.equal(state["moments"], torch.ones(9_000))
    for content in (pickle.dumps(Malicious(), protocol=2), b"", b"PK\x03\x04 nothing"):
        (directory / TRAINING).write_bytes(content)
        meta = json.loads((directory / META).read_text())
        meta["sha256"][TRAINING] = sha256_of(directory / TRAINING)
        (directory / META).write_text(json.dumps({**meta, CHECKSUM: checksum_of(meta)}))
        with pytest.raises(WorkError) as raised:
            Checkpoint.open(directory).training_state()
        assert str(directory / TRAINING) in str(raised.value)
    assert not (empty_folder / "executed").exists()


@pytest.mark.case
def test_the_state_of_a_real_run_is_data_only(trained_run: Path) -> None:
    state = torch.load(trained_run / "checkpoints" / LAST / TRAINING, weights_only=True)
    assert state["progress"]["step"] == 200
    assert state["optimizer"]["state"]
    assert "weights" in state  # the raw ones: the checkpoint has their average


@pytest.mark.case
def test_a_copied_checkpoint_alone_translates(run_copy: Path, trained_run: Path, tmp_path: Path) -> None:
    texts = ["The cat sees a horse.", "", "My sister likes the sea."]
    alone = tmp_path / "elsewhere" / "model"
    shutil.copytree(run_copy / "checkpoints" / BEST, alone)
    shutil.rmtree(run_copy)
    assert not alone.is_symlink()
    assert nmt.load(alone).translate(texts) == nmt.load(trained_run).translate(texts)


# Weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda weights: weights.pop("bias"), "the model of this config has a weight bias, the file has none"),
        (
            lambda weights: weights.update(gate=torch.ones(1)),
            "the file has a weight gate, the model of this config has",
        ),
        (
            lambda weights: weights.update(weight=torch.ones(3, 3)),
            r"weight weight is \(3, 3\) in the file and \(3, 2\) in the model",
        ),
    ],
)
def test_weights_of_another_model_are_one_line(change: Callable[[dict[str, Any]], Any], says: str) -> None:
    model = torch.nn.Linear(2, 3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    weights = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    change(weights)
    with pytest.raises(RequestError, match=says):
        load_weights(model, weights, Path("model.safetensors"))
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True)), "nothing is half loaded"


# Finding and pruning ---------------------------------------------------------------------------------------------


def test_run_means_its_best_checkpoint_then_its_last(save: Save, checkpoints: Path) -> None:
    run = checkpoints.parent
    for step in (1, 2, 3):
        save(step)
    point(checkpoints, BEST, "step_00000002")
    assert find_checkpoint(run).name == "step_00000002"
    assert find_checkpoint(checkpoints / "step_00000001").name == "step_00000001"
    (checkpoints / BEST).unlink()
    point(checkpoints, LAST, "step_00000001")
    assert find_checkpoint(run).name == "step_00000001"
    point(checkpoints, LAST, "step_00000009")  # a broken link
    assert find_checkpoint(run).name == "step_00000003"


def test_run_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such run directory"):
        find_checkpoint(tmp_path / "nothing")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(RequestError, match="has no checkpoint"):
        find_checkpoint(tmp_path)


@pytest.mark.case
def test_the_best_checkpoint_is_never_pruned(save: Save, checkpoints: Path) -> None:
    save(1)
    point(checkpoints, BEST, "step_00000001")
    for step in range(2, 8):
        save(step)
        prune(checkpoints, keep_last=2)
        assert Checkpoint.open(checkpoints / BEST).step == 1
        assert_whole(checkpoints, step)
    assert [path.name[-1] for path in step_directories(checkpoints)] == ["1", "6", "7"]
