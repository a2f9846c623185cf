"""Several processes of one training, as torchrun starts them, but forked from a server that has PyTorch already."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(["nmt.cli", "nmt.training.session", "nmt.training.sharding"])

Prepare = Callable[[int], Any]
"""Called with its rank in each process before it begins; must be importable by name, or a partial of such."""


@dataclass(frozen=True)
class Group:
    """Processes that were started together; their output is kept in files."""

    processes: list[BaseProcess]
    folder: Path

    def end(self, seconds: float = 120) -> list[int | None]:
        """The exit statuses, None for a process that is still there after so many seconds."""
        until = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
        return [process.exitcode for process in self.processes]

    def said(self, rank: int) -> str:
        """What a process has written to stdout and stderr."""
        return (self.folder / f"said{rank}").read_text(encoding="utf-8")


@contextlib.contextmanager
def started(size: int, folder: Path, arguments: Sequence[str], prepare: Prepare | None = None) -> Iterator[Group]:
    """`nmt` with these arguments in each of `size` processes, which are killed when left."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {name: value for name, value in os.environ.items() if name.startswith("NMT_")}
    settings |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    settings |= {"LOCAL_WORLD_SIZE": str(size)}
    processes = [
        START.Process(target=_nmt, args=(rank, settings, folder / f"said{rank}", list(arguments), prepare))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        yield Group(processes, folder)
    finally:
        for process in processes:
            process.kill()
            process.join()


def ended(size: int, folder: Path, arguments: Sequence[str], prepare: Prepare | None = None) -> Group:
    """The same, when all have ended well, and the first alone has said anything."""
    with started(size, folder, arguments, prepare) as group:
        statuses = group.end()
        assert statuses == [0] * size, (statuses, [group.said(rank) for rank in range(size)])
    assert [group.said(rank) for rank in range(1, size)] == [""] * (size - 1)
    return group


def _nmt(rank: int, settings: dict[str, str], said: Path, arguments: list[str], prepare: Prepare | None) -> None:
    os.environ.update(settings, RANK=str(rank), LOCAL_RANK=str(rank))
    with open(said, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  open to the end
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    from nmt import cli

    if prepare is not None:
        prepare(rank)
    status = cli.main(arguments)
    sys.stderr.flush()
    sys.exit(status)


# What a test does in one of the processes ------------------------------------------------------------------------


def at_loss(rank: int, who: int, call: int, moment: Path, action: Callable[[], None], place: str = "trainer") -> None:
    """In process `who`, when it asks for its call-th loss, notes the moment in a file and acts."""
    if rank != who:
        return
    module: Any = importlib.import_module(f"nmt.training.{place}")
    loss, count = module.label_smoothed_loss, itertools.count(1)

    def acting(*arguments: Any) -> Any:
        if next(count) == call:
            moment.write_text(str(time.time()))
            action()
        return loss(*arguments)

    module.label_smoothed_loss = acting


def out_of_memory() -> None:
    """As PyTorch says it."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


def broken() -> None:
    """A mistake in the program."""
    raise ValueError("shapes do not match")


def hasty_clock(rank: int) -> None:
    """The time of all processes but the first runs a thousand times as fast."""
    if rank:
        from nmt.training import trainer

        class Clock:
            @staticmethod
            def perf_counter() -> float:
                return 1000 * time.perf_counter()

        trainer.time = Clock  # type: ignore[assignment]
