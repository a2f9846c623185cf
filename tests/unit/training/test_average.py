"""Averages of checkpoints: hand-computed means, exact for equal weights, refused where there is nothing to average."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

import nmt
from nmt.errors import RequestError, WorkError
from nmt.files import sha256_of
from nmt.training.average import average_checkpoints
from nmt.training.checkpoint import (
    CHECKSUM,
    CONFIG,
    META,
    TRAINING,
    WEIGHTS,
    Checkpoint,
    checksum_of,
    find_checkpoint,
    step_directories,
)


def add_checkpoint(run: Path, step: int, change: Callable[[Path], None] = lambda directory: None) -> Path:
    """A further checkpoint: a copy of the run's last one, changed, with right checksums."""
    directory = run / "checkpoints" / f"step_{step:08d}"
    shutil.copytree(step_directories(run / "checkpoints")[-1], directory)
    change(directory)
    meta = json.loads((directory / META).read_text())
    meta["step"] = step
    meta["sha256"] = {name: sha256_of(directory / name) for name in meta["sha256"]}
    (directory / META).write_text(json.dumps({**meta, CHECKSUM: checksum_of(meta)}))
    return directory


def scaled(factor: float) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        weights = safetensors.torch.load_file(directory / WEIGHTS)
        safetensors.torch.save_file({name: factor * w for name, w in weights.items()}, directory / WEIGHTS)

    return change


@pytest.mark.case
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_mean_of_equal_checkpoints_is_the_checkpoint_to_the_bit(count: int, run_copy: Path) -> None:
    last = step_directories(run_copy / "checkpoints")[-1]
    for number in range(count):
        add_checkpoint(run_copy, 1000 + number)
    directory, used = average_checkpoints(run_copy, count)
    assert [path.name for path in used] == [f"step_0000{1000 + number}" for number in range(count)]
    assert directory == run_copy / "checkpoints" / f"average_last_{count}"
    expected, mean = Checkpoint.open(last).weights(), Checkpoint.open(directory).weights()
    assert expected.keys() == mean.keys()
    for name, weight in mean.items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, expected[name]), name


def test_the_mean_of_different_ones(run_copy: Path) -> None:
    one = Checkpoint.open(step_directories(run_copy / "checkpoints")[-1]).weights()
    add_checkpoint(run_copy, 1000, scaled(3.0))
    add_checkpoint(run_copy, 1001, scaled(2.0))  # six times the first
    directory, _ = average_checkpoints(run_copy, 3)
    for name, weight in Checkpoint.open(directory).weights().items():
        torch.testing.assert_close(weight, one[name] * (1 + 3 + 6) / 3, rtol=1e-6, atol=0)


def test_an_average_translates_and_is_no_step_of_the_run(run_copy: Path, tmp_path: Path) -> None:
    before = find_checkpoint(run_copy), step_directories(run_copy / "checkpoints")
    directory, used = average_checkpoints(run_copy, 2)
    assert (find_checkpoint(run_copy), step_directories(run_copy / "checkpoints")) == before
    assert Checkpoint.open(directory).meta["average_of"] == [path.name for path in used]
    assert not (directory / TRAINING).exists()
    again, _ = average_checkpoints(run_copy, 2)  # replaced
    assert again == directory
    alone = shutil.copytree(directory, tmp_path / "alone")
    [translation] = nmt.load(alone).translate(["The cat sees the river."])
    assert translation.text == "Le chat voit la rivière."


def other_config(directory: Path) -> None:
    content = yaml.safe_load((directory / CONFIG).read_text(encoding="utf-8"))
    content["model"]["dropout"] = 0.5
    (directory / CONFIG).write_text(yaml.safe_dump(content, explicit_end=True), encoding="utf-8")


def other_tokenizer(directory: Path) -> None:
    from nmt.config import TokenizerConfig
    from nmt.data.tokenizer import Tokenizer

    Tokenizer.train(TokenizerConfig(vocab_size=30), [("abcd efg", "hij klm")], directory, lambda line: None)


@pytest.mark.case
def test_checkpoints_that_do_not_belong_together(run_copy: Path) -> None:
    with pytest.raises(RequestError, match=r"has 4 checkpoints, 5 were asked for; a run keeps trainer\.keep_last"):
        average_checkpoints(run_copy, 5)
    add_checkpoint(run_copy, 1000, other_config)
    with pytest.raises(RequestError, match=r"step_00001000 is another model than .*step_00000200"):
        average_checkpoints(run_copy, 2)
    add_checkpoint(run_copy, 1001, other_tokenizer)
    with pytest.raises(RequestError, match=r"step_00001001 has another tokenizer than .*step_00001000"):
        average_checkpoints(run_copy, 2)
    (add_checkpoint(run_copy, 1002) / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(WorkError, match=r"step_00001002/model\.safetensors is damaged"):
        average_checkpoints(run_copy, 2)
    assert not list((run_copy / "checkpoints").glob("average*"))
