"""Which device a process gets, alone or as one of several."""

from __future__ import annotations

import pytest
import torch

from nmt.errors import RequestError
from nmt.launch import Launch
from nmt.training.device import choose_device

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Four GPUs, as far as PyTorch knows; the numbers of those that were chosen."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def test_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert Launch.from_environment() == Launch(rank=5, size=8, local_rank=1, local_size=4)
    monkeypatch.delenv("WORLD_SIZE")
    assert Launch.from_environment() == Launch(), "RANK alone may be anything's"


def test_each_process_has_a_gpu_of_its_own(four_gpus: list[int]) -> None:
    assert choose_device("auto", Launch(5, 8, 1, 4)) == torch.device("cuda", 1)
    assert four_gpus == [1]
    assert choose_device("auto", Launch()) == torch.device("cuda")
    assert choose_device("cpu", Launch(5, 8, 1, 4)) == torch.device("cpu")
    assert four_gpus == [1]


def test_more_processes_than_gpus_are_refused_in_all_of_them(four_gpus: list[int]) -> None:
    for rank in range(5):
        with pytest.raises(RequestError, match="5 processes for 4 GPUs: lower torchrun's --nproc-per-node"):
            choose_device("auto", Launch(rank, 5, rank, 5))
