"""A disk that is full or read-only, a checkpoint that is damaged or of another version.

The message is one line that names the file, what was saved stays as it was, the checkpoint before is used or named, and
when the cause is gone, the same command comes to the same end as a run that nothing happened to.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import cli
from nmt.files import sha256_of
from nmt.training.checkpoint import (
    BEST,
    LAST,
    META,
    TRAINING,
    WEIGHTS,
    Checkpoint,
    checksum_of,
    find_checkpoint,
    point,
    step_directories,
)
from runs import assert_loads, assert_same_end, contents

pytestmark = [pytest.mark.invariant, pytest.mark.case]

Command = Callable[[Path], list[str]]
Nmt = Callable[[list[str]], tuple[int, list[str]]]
LAST_STEP = 5


# Disks -----------------------------------------------------------------------------------------------------------


class Disk:
    """A file system in memory, of a size that can be changed, and that can be made read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def change(self, *options: str) -> None:
        self._mount("-o", ",".join(("remount", *options)))

    def __enter__(self) -> Disk:
        self._mount("-t", "tmpfs", "-o", "size=64k", "tmpfs")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, self.folder], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    with contextlib.ExitStack() as stack:
        try:
            mounted = stack.enter_context(Disk(tmp_path / "disk"))
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no file system may be mounted here")
        yield mounted


def test_a_full_disk(
    disk: Disk,
    command: Command,
    whole: Path,
    nmt: Nmt,
) -> None:
    """It grows until the run comes to its end, and is full at a later moment each time."""
    run = disk.folder / "run"
    failed = []
    for kilobytes in (64, 500, 1_300, 2_200, 9_000):  # a checkpoint has about 830
        disk.change(f"size={kilobytes}k")
        before = {name: content for name, content in contents(run).items() if name.startswith("checkpoints")}
        status, told = nmt(command(run))
        if status == 0:
            break
        assert (status, len(told)) == (1, 1)
        assert re.fullmatch(r"nmt: error: cannot write \S+: No space left on device( \(.*\))?", told[0]), told
        assert_loads(run)
        assert before.items() <= contents(run).items(), "nothing that was saved is touched"
        assert not set(run.rglob(".*")), "nothing half-written"
        failed.append(re.sub(r".*/run/|:.*", "", told[0].removeprefix("nmt: error: ")))
    assert failed == ["tokenizer.model", *(f"checkpoints/step_0000000{step}" for step in (2, 4, 5))]
    assert_same_end(run, whole)


@pytest.mark.parametrize("limit", [2_000, 100_000], ids=["no tokenizer fits", "no checkpoint fits"])
def test_a_limit_to_the_size_of_files(
    limit: int,
    command: Command,
    whole: Path,
    nmt: Nmt,
    tmp_path: Path,
) -> None:
    """As `ulimit -f` sets it, or a quota: what a full disk does, where none may be mounted."""
    run = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        status, told = nmt(command(run))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (status, len(told)) == (1, 1)
    assert told[0].startswith(f"nmt: error: cannot write {run}/")
    assert not step_directories(run / "checkpoints")
    assert nmt(command(run)) == (0, [])
    assert_same_end(run, whole)


def test_a_read_only_disk(
    disk: Disk,
    command: Command,
    nmt: Nmt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first step, and between two commands; what is there can still be read."""
    run = disk.folder / "run"
    disk.change("size=32m", "ro")
    assert nmt(command(run)) == (1, [f"nmt: error: run.dir={run} cannot be made: Read-only file system"])
    disk.change("rw")
    assert nmt([*command(run), "trainer.max_steps=3"]) == (0, [])
    (run / "results.json").unlink()
    disk.change("ro")
    before = contents(run)
    status, told = nmt(command(run))
    assert (status, len(told)) == (1, 1)
    assert re.fullmatch(rf"nmt: error: cannot write {run}/\S+: Read-only file system", told[0]), told
    assert contents(run) == before
    assert nmt(["translate", str(run), "--text", "The cat sees a horse."]) == (0, [])
    monkeypatch.setenv("NMT_CACHE", str(disk.folder / "cache"))
    status, told = nmt(command(tmp_path / "run"))
    assert (status, len(told)) == (1, 1)
    assert re.fullmatch(
        rf"nmt: error: cannot write {disk.folder}/cache/\S+: Read-only file system( \(.*\))?", told[0]
    ), told
    disk.change("rw")
    assert nmt(command(run)) == (0, [])
    for name in (LAST, BEST):
        assert Checkpoint.open(run / "checkpoints" / name).step in (3, LAST_STEP)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission(command: Command, nmt: Nmt, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert nmt([*command(run), "trainer.max_steps=3"]) == (0, [])
    folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    before = contents(run)
    try:
        status, told = nmt(command(run))
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert (status, len(told)) == (1, 1)
    assert re.fullmatch(rf"nmt: error: cannot write {run}/\S+: Permission denied", told[0]), told
    assert contents(run) == before


# Damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of the whole run that may be changed, its checkpoint of the last step gone: it has those of 2 and 4."""
    run = Path(shutil.copytree(whole, tmp_path / "run", symlinks=True))
    shutil.rmtree(run / "checkpoints" / f"step_{LAST_STEP:08d}")
    point(run / "checkpoints", LAST, "step_00000004")
    point(run / "checkpoints", BEST, "step_00000004")
    return run


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def one_bit_flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [truncated, one_bit_flipped])
@pytest.mark.parametrize("name", [WEIGHTS, TRAINING, META, "config.yaml", "tokenizer.model"])
def test_a_damaged_checkpoint(
    name: str,
    damage: Callable[[bytes], bytes],
    copy: Path,
    command: Command,
    whole: Path,
    nmt: Nmt,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Training names it and goes on from the one before; translating names the one that is whole."""
    path = copy / "checkpoints" / "step_00000004" / name
    path.write_bytes(damage(path.read_bytes()))
    before = contents(copy)
    good = copy / "checkpoints" / "step_00000002"
    status, told = nmt(["translate", str(copy), "--text", "The cat sees a horse."])
    assert (status, len(told)) == (1, 1)
    assert told[0].startswith(f"nmt: error: {path} is damaged: ")
    assert told[0].endswith(f"; {good} is whole")
    assert contents(copy) == before
    assert cli.main(["translate", str(good), "--text", "The cat sees a horse."]) == 0
    capsys.readouterr()
    assert cli.main(command(copy)) == 0
    told = capsys.readouterr().err.splitlines()
    assert next(line for line in told if "damaged" in line).startswith(f"{path} is damaged: ")
    assert f"continuing {copy} at step 2" in told
    assert_same_end(copy, whole)


def test_a_damaged_checkpoint_does_not_cost_the_good_ones_their_place(copy: Path, command: Command, nmt: Nmt) -> None:
    """Though it counts as the later one, where only one is kept."""
    path = copy / "checkpoints" / "step_00000004" / WEIGHTS
    path.write_bytes(truncated(path.read_bytes()))
    damaged = path.read_bytes()
    assert nmt([*command(copy), "trainer.keep_last=1", "trainer.max_steps=3"]) == (0, [])
    assert Checkpoint.open(copy / "checkpoints" / LAST).step == 3
    assert path.read_bytes() == damaged


def with_state(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Changes what training.pt says, as other code would have written it: its checksum is right."""

    def make(directory: Path) -> None:
        state = torch.load(directory / TRAINING, weights_only=True)
        change(state)
        torch.save(state, directory / TRAINING)
        with_meta({"sha256": {**meta_of(directory)["sha256"], TRAINING: sha256_of(directory / TRAINING)}})(directory)

    return make


def meta_of(directory: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((directory / META).read_text(encoding="utf-8"))
    return meta


def with_meta(changes: dict[str, Any]) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        meta = {**meta_of(directory), **changes}
        meta["checksum"] = checksum_of(meta)
        (directory / META).write_text(json.dumps(meta), encoding="utf-8")

    return make


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_meta({"format": 2}), r"meta\.json: checkpoint format 2, this version of nmt reads format 1"),
        (with_state(lambda state: state["progress"].update(new=1)), r"training\.pt is of another version of nmt \("),
        (with_state(lambda state: state.pop("progress")), r"training\.pt is of another version of nmt \("),
    ],
    ids=["format", "more in the state", "less in the state"],
)
def test_a_checkpoint_of_another_version(
    change: Callable[[Path], None],
    says: str,
    copy: Path,
    command: Command,
    nmt: Nmt,
) -> None:
    """It is not taken for a damaged one, and nothing of the run is touched."""
    change(copy / "checkpoints" / "step_00000004")
    before = contents(copy)
    status, told = nmt(command(copy))
    assert (status, len(told)) == (2, 1)
    assert re.search(says, told[0]), told
    assert contents(copy) == before
    assert find_checkpoint(copy).name == "step_00000004"
