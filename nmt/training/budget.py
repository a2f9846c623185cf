"""`batch.tokens=auto`: the largest budget whose worst batch fits the memory, found before the first step.

What a batch of pairs of one length L takes is c/L + d + e·L for each of its tokens: for a state of each pair, for each
position, for each pair of positions. So the worst batches of a budget are those of its longest and of its shortest
sentences, source and target alike. Their memory is linear in their pairs, so few need be tried, small ones first, none
of which goes beyond the limit; the last ones are the largest that training can meet. On a GPU the peak is PyTorch's
own. On a CPU, where a process that goes too far is killed, what the operators allocate is counted,
which is the same in every attempt, and more than half of the memory is left to what is not: what the C library keeps
of what was freed, scratch memory inside the operators, the process itself, files that are read, other processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt.config import TrainConfig
from nmt.data.batching import make_batch
from nmt.data.corpus import Report
from nmt.data.encoded import EncodedCorpus
from nmt.data.tokenizer import EOS, UNKNOWN
from nmt.errors import WorkError
from nmt.launch import Launch
from nmt.models.base import TranslationModel
from nmt.training.device import autocast, is_out_of_memory
from nmt.training.loss import label_smoothed_loss

BATCHES_AN_EPOCH = 100
"""At least: with larger batches than memory asks for, there would be few steps to learn in."""

GROWTH = 8
"""The most that a batch that is tried may be larger than the one before."""

MEGABYTE = 1_000_000


def with_tokens(config: TrainConfig, tokens: int) -> TrainConfig:
    """The same configuration with a number for its batches' budget."""
    return dataclasses.replace(config, batch=dataclasses.replace(config.batch, tokens=tokens))


def find_tokens(
    config: TrainConfig, model: TranslationModel, corpus: EncodedCorpus, device: torch.device, report: Report
) -> int:
    """The most tokens of a batch that fit the memory and make BATCHES_AN_EPOCH batches an epoch; reported in a line.

    The model's weights stay as they are.

    Raises:
        WorkError: not even one pair of the longest sentences fits.
    """
    longer = np.maximum(corpus.source.lengths, corpus.target.lengths)
    # Sampled segmentations may be longer than the likeliest, up to what the filter allows.
    longest = config.data.filter.max_pieces + 1 if config.tokenizer.sampling else int(longer.max())
    shortest = int(longer.min())
    kept = sum(weight.numel() * weight.element_size() for weight in model.parameters()) * copies(config)
    limit = memory_limit(config.batch.memory_mb, device)

    def needed(rows: int) -> float:
        pairs = {longest: rows, shortest: min(len(longer), rows * longest // shortest)}
        return kept + max(step_memory(config, model, pairs[length], length, device) for length in pairs)

    most = max(1, int(longer.sum()) // BATCHES_AN_EPOCH // longest)
    rows, taken = most_rows(needed, limit, most)
    if not rows:
        raise WorkError(
            f"batch.tokens=auto: weights, optimizer and one pair of {longest} pieces take {taken / MEGABYTE:,.1f} MB "
            f"of {limit / MEGABYTE:,.1f}: raise batch.memory_mb, or lower data.filter.max_pieces or the model's sizes"
        )
    reason = f", as an epoch has {BATCHES_AN_EPOCH} batches then" if rows == most else ""
    report(
        f"batch.tokens=auto: {rows * longest}{reason}; the worst batch, {rows} pairs of {longest} pieces, takes "
        f"{taken / MEGABYTE:,.1f} of {limit / MEGABYTE:,.1f} MB"
    )
    return rows * longest


def copies(config: TrainConfig) -> int:
    """How many times as large as the weights are weights, gradients, optimizer state and averaged weights together."""
    state = {"adam": 2, "adamw": 2, "adadelta": 2, "sgd": int(config.optimizer.momentum > 0)}[config.optimizer.name]
    return 2 + state + int(config.trainer.ema_decay > 0)


def most_rows(needed: Callable[[int], float], limit: float, most: int) -> tuple[int, float]:
    """The most rows, up to `most`, of those tried that need no more than `limit`, and what they need; 0 if none do.

    What is tried after one and two rows follows the line through the two before: where need is linear in rows, or grows
    ever more slowly, none of it exceeds the limit. A twentieth more rows are not worth another attempt.
    """
    rows, taken = 1, needed(1)
    if taken > limit:
        return 0, taken
    slope = math.inf
    while rows < most:
        fitting = int((limit - taken) / slope) if slope > 0 else most
        more = 1 if rows == 1 else min(fitting, most - rows, (GROWTH - 1) * rows)
        if more < 1 or (20 * more < rows and rows + more < most):
            break
        found = needed(rows + more)
        if found > limit:  # it was not linear
            most = rows + more // 2
            continue
        slope, rows, taken = (found - taken) / more, rows + more, found
    return rows, taken


def step_memory(config: TrainConfig, model: TranslationModel, rows: int, length: int, device: torch.device) -> float:
    """Bytes that the forward and backward pass of a batch take at most, gradients included; inf if they are not there.

    The batch has `rows` pairs of `length` pieces on both sides.
    """
    sentences = [np.array([UNKNOWN] * (length - 1) + [EOS])] * rows
    batch = make_batch(sentences, sentences).to(device)
    training = model.training
    model.train()
    try:
        with _peak(model, device) as peak:
            with autocast(config.trainer.precision, device):
                hidden_BTD = model(batch)
            sums = label_smoothed_loss(hidden_BTD, model.output, batch.target_output_BT, config.loss.label_smoothing)
            (sums.loss / batch.target_tokens).backward()
            del hidden_BTD, sums
        return peak()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return math.inf
    finally:
        model.zero_grad(set_to_none=True)
        model.train(training)


@contextlib.contextmanager
def _peak(model: TranslationModel, device: torch.device) -> Iterator[Callable[[], float]]:
    """The most bytes that tensors take in the block, beyond those before it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield lambda: torch.cuda.max_memory_allocated(device) - before
        return
    with LiveMemory(model) as live:
        yield lambda: live.peak


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of the tensors that operators make, from the one to the other end of their lives.

    Attributes:
        now: bytes that are alive.
        peak: the most that were.
    """

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}
        for tensor in (*model.parameters(), *model.buffers()):
            self._remember(tensor, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for given in tree_leaves((args, kwargs)):  # what there was before is not counted when it comes back
            if isinstance(given, Tensor):
                self._remember(given, 0)
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                self._remember(made, made.untyped_storage().nbytes())
        return result

    def _remember(self, tensor: Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return

        def forget(_: object) -> None:
            self.now -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, forget)
        self.now += size
        self.peak = max(self.peak, self.now)


# The limit -------------------------------------------------------------------------------------------------------


def memory_limit(megabytes: int | None, device: torch.device) -> float:
    """Bytes that the tensors of this process may take.

    By default on a GPU nine tenths of what is free, and on a CPU two fifths of the memory of the machine, or of the
    container (cgroup), or half of what is available there now if that is less; the processes of a machine share it.
    """
    if megabytes is not None:
        return megabytes * MEGABYTE
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return 0.9 * (free + torch.cuda.memory_reserved(device))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits, rooms = [total], [_available() or total]
    for folder in _cgroups():
        limit, used = (_number(folder / name) for name in ("memory.max", "memory.current"))
        if limit is not None:
            limits.append(limit)
            rooms.append(limit - (used or 0))
    return max(0, min(0.4 * min(limits), 0.5 * min(rooms))) / Launch.from_environment().local_size


def _available() -> int | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """The process's own control group and those above it, which limit it as well (version 2)."""
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            if line.startswith("0::"):
                folder = root / line.removeprefix("0::").strip().lstrip("/")
                return [one for one in (folder, *folder.parents) if one.is_relative_to(root)]
    return []


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, as in `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
