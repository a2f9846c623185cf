"""How things are measured: in turn, several times, with the machine's own limit measured in between.

The speed of a machine drifts while other work comes and goes, so two things that are compared take turns, the one
first in one round and the other in the next, and what is quoted is the median of the rounds with the least and the
greatest. Memory is what the kernel says was resident at most, its mark wiped before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import torch

MEGABYTE = 10**6

Value = TypeVar("Value")


@dataclass(frozen=True)
class Spread:
    """What the rounds gave."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.rounds)

    def text(self, digits: int = 0, scale: float = 1.0) -> str:
        """The median, with the least and the greatest, times `scale`."""
        middle, least, greatest = (scale * value for value in (self.median, min(self.rounds), max(self.rounds)))
        return f"{middle:,.{digits}f} ({least:,.{digits}f}–{greatest:,.{digits}f})"


def ratios(numerator: Spread, denominator: Spread) -> Spread:
    """Round by round: two things that took turns have met the same machine in each."""
    return Spread(tuple(n / d for n, d in zip(numerator.rounds, denominator.rounds, strict=True)))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies, between neighbours in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def alternate(subjects: Sequence[Callable[[], Value]], rounds: int) -> list[list[Value]]:
    """Calls each subject once a round, in every other round from the last to the first: its values, by subject.

    Turning the order round lets a machine that slows down steadily favour nobody.
    """
    found: list[list[Value]] = [[] for _ in subjects]
    for number in range(rounds):
        order = range(len(subjects)) if number % 2 == 0 else reversed(range(len(subjects)))
        for i in order:
            found[i].append(subjects[i]())
    return found


def synchronize(device: torch.device) -> None:
    """Waits for what a GPU has still to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Time of a piece of work, all of it."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


class MatrixProduct:
    """A large square product: the most operations a second that anything built of products can reach."""

    SIZE: ClassVar[dict[str, int]] = {"cpu": 2_048, "cuda": 8_192}
    REPEATS = 3

    def __init__(self, device: torch.device, dtype: torch.dtype, size: int | None = None) -> None:
        self.size = size or self.SIZE[device.type]
        self.device = device
        self.left, self.right, self.result = (
            torch.rand(self.size, self.size, device=device).to(dtype) for _ in range(3)
        )

    def __call__(self) -> float:
        """Operations a second, of the quickest of some products."""
        quickest = min(seconds(self._multiply, self.device) for _ in range(self.REPEATS))
        return 2 * self.size**3 / quickest

    def _multiply(self) -> None:
        torch.mm(self.left, self.right, out=self.result)


# Memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Bytes: the most while something ran, and that less what there was before it began."""

    peak: int
    above_idle: int


def memory_of(work: Callable[[], object], device: torch.device) -> Memory | None:
    """The memory of a piece of work: on a CPU the process's resident memory, on a GPU what tensors take there.

    Memory that was freed but is still held is given back to the system first, as it would pass for idle. None where
    the system does not keep the mark (only Linux does).
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        peak = torch.cuda.max_memory_allocated(device)
        return Memory(peak, peak - before)
    _return_freed_memory()
    if not forget_peak():
        return None
    before = _resident("VmRSS")
    work()
    peak = _resident("VmHWM")
    return Memory(peak, peak - before)


def forget_peak() -> bool:
    """Lets `peak_resident` begin anew; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_resident() -> int | None:
    """The most bytes of memory that this process has had at once since `forget_peak`; None where none are counted."""
    with contextlib.suppress(OSError):
        return _resident("VmHWM")
    return None


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def _return_freed_memory() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without it
            ctypes.CDLL(None).malloc_trim(0)
