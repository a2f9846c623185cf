"""Medians, turns and memory: what the benchmarks' figures are made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarking import measuring
from benchmarking.measuring import MatrixProduct, Spread, alternate, memory_of, percentile, ratios

CPU = torch.device("cpu")


def test_a_spread_tells_the_median_and_its_neighbours() -> None:
    assert Spread((3.0, 1.0, 2_000.0)).median == 3.0
    assert Spread((1.0, 4.0)).median == 2.5
    assert Spread((3.0, 1.0, 2_000.0)).text() == "3 (1–2,000)"
    assert Spread((0.25, 0.5, 0.125)).text(1, scale=100) == "25.0 (12.5–50.0)"


def test_ratios_are_taken_round_by_round() -> None:
    """On a machine that is slow in the second round, both are, and the ratio stays."""
    assert ratios(Spread((8.0, 4.0, 8.0)), Spread((4.0, 2.0, 4.0))).rounds == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="zip"):
        ratios(Spread((8.0, 4.0)), Spread((4.0,)))


@pytest.mark.parametrize("values", [[5.0], [3.0, 1.0, 2.0], [4.0, 1.0, 7.0, 2.0], list(range(11))])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    assert percentile(values, share) == pytest.approx(np.percentile(values, 100 * share))


def test_subjects_take_turns_and_every_other_round_goes_backwards() -> None:
    calls: list[str] = []

    def subject(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = alternate([lambda: subject("a"), lambda: subject("b"), lambda: subject("c")], rounds=3)
    assert "".join(calls) == "abc" + "cba" + "abc"
    assert found == [[1, 6, 7], [2, 5, 8], [3, 4, 9]]


def test_the_speed_of_a_product_is_that_of_the_quickest(monkeypatch: pytest.MonkeyPatch) -> None:
    product = MatrixProduct(CPU, torch.float32, size=10)
    times = iter([4.0, 2.0, 8.0])
    monkeypatch.setattr(measuring, "seconds", lambda work, device: next(times))
    assert product() == 2 * 10**3 / 2.0


def test_the_product_is_one_of_two_matrices() -> None:
    product = MatrixProduct(CPU, torch.float64, size=7)
    product()
    torch.testing.assert_close(product.result, product.left @ product.right)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the mark")
def test_memory_is_what_the_work_took_whatever_was_before() -> None:
    def take(megabytes: int) -> None:
        numbers = np.empty(megabytes * 10**6 // 8)
        numbers.fill(1.0)  # memory that was never touched is not resident

    large = memory_of(lambda: take(400), CPU)
    small = memory_of(lambda: take(100), CPU)
    assert large is not None and small is not None
    assert large.above_idle == pytest.approx(400e6, abs=20e6)
    assert small.above_idle == pytest.approx(100e6, abs=20e6)
    assert small.peak < large.peak


ALONE = """
import numpy as np
import torch
from benchmarking.measuring import memory_of

def take():
    blocks = [np.ones(2_000) for _ in range(5_000)]  # 80 MB
    assert len(blocks) == 5_000

print(*(memory_of(take, torch.device("cpu")).above_idle for _ in range(3)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the mark")
def test_memory_that_was_freed_is_not_idle() -> None:
    """Blocks too small to be mapped by themselves stay with the process when they are freed.

    In a process of its own: in this one, blocks that other tests have freed may be taken first.
    """
    scripts = str(Path(measuring.__file__).parent.parent)
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": scripts})
    assert not done.stderr
    for above_idle in map(int, done.stdout.split()):
        assert above_idle == pytest.approx(80e6, abs=30e6)
    assert len(done.stdout.split()) == 3
