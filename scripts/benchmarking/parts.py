"""Where a training step spends its time: attention, recurrence, projection and loss, dropout, optimizer, data.

`torch.profiler` records a step while the methods of the project's classes are wrapped in named ranges. An operator
belongs to the innermost range around it. A gradient has no range around it; it belongs to where the forward pass made
it, which the profiler knows by the number that autograd gives to both. All time is somebody's *own* time, so that the
parts add up to the step. Nothing in the package knows of this, and nothing is wrapped while speed is measured.

Recording costs some microseconds an operator, so many small operators look dearer than they are: the shares are where
to look first, not what would be saved.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarking.step_by_step import StepByStep
from nmt.models.attention import AttendedSource, Attention, MultiHeadAttention
from nmt.models.base import ScaledEmbedding
from nmt.models.cells import ContextGatedRecurrence, GatedRecurrence, StackedRecurrence
from nmt.models.intra_attention import LSTMN, IntraAttention, TapeScore
from nmt.models.layers import Dropout, FeedForward, GatedFeedForward, Residual, RotaryPositions
from nmt.models.luong import Luong
from nmt.models.recurrent import Bahdanau, Cho, LstmSequenceToSequence
from nmt.training import trainer
from nmt.training.trainer import Trainer

ATTENTION, FEED_FORWARD, RECURRENCE = "attention", "feed-forward", "recurrence"
READOUT, LOSS, DROPOUT = "readout", "projection and loss", "dropout"
EMBEDDING, RESIDUAL = "embedding", "residual and norm"
OPTIMIZER, DATA, OTHER = "optimizer", "data", "autograd and other"

CLASSES: dict[str, tuple[type, ...]] = {
    ATTENTION: (Attention, AttendedSource, MultiHeadAttention, RotaryPositions, TapeScore),
    FEED_FORWARD: (FeedForward, GatedFeedForward),
    # What a recurrent model does around its cells is taking its sequences apart and putting them together.
    RECURRENCE: (
        StackedRecurrence,
        GatedRecurrence,
        ContextGatedRecurrence,
        LSTMN,
        LstmSequenceToSequence,
        Cho,
        Bahdanau,
        Luong,
        IntraAttention,
        StepByStep,
    ),
    DROPOUT: (Dropout,),
    EMBEDDING: (ScaledEmbedding,),
    RESIDUAL: (Residual,),
}
"""Every method of these is that part, but for what is deeper inside and for METHODS."""

METHODS: dict[tuple[type, str], str] = {
    (Luong, "_attend"): ATTENTION,
    (Cho, "_readout"): READOUT,
    (Bahdanau, "_readout"): READOUT,
    (Trainer, "_next_batches"): DATA,
    (Trainer, "_batch"): DATA,
    (Trainer, "_plan_epoch"): DATA,
    (Trainer, "_accumulate"): OTHER,
    (Trainer, "_step"): OPTIMIZER,  # what is left of it: clipping, update, moving average
}

PREFIX = "part: "
BACKWARD = "autograd::engine::evaluate_function"


def time_by_part(work: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Seconds of each part in a piece of work, the longest first; on a GPU, those in which the GPU was busy with it."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with _ranges():
        work()  # not recorded: with these methods, layers that are compiled are compiled anew
        with profile(activities=activities) as recorded:
            work()
    return add_up(recorded.events(), device.type == "cuda")


def add_up(events: Iterable[Any], on_gpu: bool) -> dict[str, float]:
    """Seconds of each part among the profiler's events, the longest first."""
    totals: dict[str, float] = defaultdict(float)
    for event, part in assigned(events):
        totals[part] += (event.self_device_time_total if on_gpu else _own_time(event)) / 1e6
    return dict(sorted(totals.items(), key=lambda entry: -entry[1]))


def assigned(events: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Every operator that the profiler recorded on the host, and the part that it belongs to."""
    host = [event for event in events if event.device_type == DeviceType.CPU]
    host.sort(key=lambda event: (event.time_range.start, -event.time_range.end))  # an operator before what it calls
    owners: dict[int, str | int] = {}  # the part of each event, or autograd's number of the gradient that it makes
    forward: dict[int, str] = {}  # autograd's number to the part that it was given in
    for event in host:
        owner = _owner(event, owners)
        owners[id(event)] = owner
        if event.sequence_nr >= 0 and isinstance(owner, str):
            # Of the operators that saw a number, the last one is the one that autograd gave it to.
            forward[event.sequence_nr] = owner
    for event in host:
        owner = owners[id(event)]
        yield event, owner if isinstance(owner, str) else forward.get(owner, OTHER)


def _owner(event: Any, owners: dict[int, str | int]) -> str | int:
    if event.name.startswith(PREFIX):
        return str(event.name.removeprefix(PREFIX))
    if event.name.startswith(BACKWARD):
        return int(event.sequence_nr)
    return owners[id(event.cpu_parent)] if event.cpu_parent is not None else OTHER


def _own_time(event: Any) -> float:
    """Microseconds that are not those of an operator inside."""
    inside = sum(child.time_range.end - child.time_range.start for child in event.cpu_children)
    return float(event.time_range.end - event.time_range.start - inside)


# Ranges ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _ranges() -> Iterator[None]:
    """While it lasts, the methods of CLASSES and METHODS, and the loss, are ranges that the profiler records."""
    places: list[tuple[Any, str, str]] = [(trainer, "label_smoothed_loss", LOSS)]
    for part, classes in CLASSES.items():
        for kind in classes:
            places += [(kind, name, METHODS.get((kind, name), part)) for name in _methods(kind)]
    trainers: list[type] = [Trainer, *Trainer.__subclasses__()]
    for kind in trainers:
        places += [(kind, name, part) for (of, name), part in METHODS.items() if of is Trainer and name in vars(kind)]
    before = [(where, name, vars(where)[name]) for where, name, _ in places]
    try:
        for where, name, part in places:
            setattr(where, name, _ranged(vars(where)[name], part))
        yield
    finally:
        for where, name, original in before:
            setattr(where, name, original)


def _methods(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("__")]


def _ranged(function: Callable[..., Any], part: str) -> Callable[..., Any]:
    lazy = inspect.isgeneratorfunction(function)

    @functools.wraps(function)
    def ranged(*arguments: Any, **named: Any) -> Any:
        with record_function(PREFIX + part):
            value = function(*arguments, **named)
            return iter(list(value)) if lazy else value  # a generator works when it is asked, here and not later

    return ranged
