"""Time by part: every microsecond of a step is counted once, gradients where their forward pass was."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarking import parts
from benchmarking.parts import ATTENTION, BACKWARD, DATA, DROPOUT, LOSS, OPTIMIZER, OTHER, RECURRENCE, add_up
from benchmarking.training import StepByStepTrainer, Workshop
from nmt.configuration import compose
from nmt.training import trainer
from nmt.training.trainer import Trainer


def event(name: str, start: float, end: float, number: int = -1, above: Any = None, gpu: float = 0.0) -> Any:
    """An operator as the profiler records it, in microseconds."""
    made = SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start, end=end),
        sequence_nr=number,
        cpu_parent=above,
        cpu_children=[],
        device_type=DeviceType.CPU,
        self_device_time_total=gpu,
    )
    if above is not None:
        above.cpu_children.append(made)
    return made


def step() -> list[Any]:
    """Attention with dropout inside, the loss, and their gradients, in a step of 200 microseconds."""
    whole = event("part: optimizer", 0, 200)
    forward = event("part: autograd and other", 10, 150, above=whole)
    attention = event("part: attention", 20, 60, above=forward)
    product = event("aten::linear", 20, 40, number=7, above=attention)
    inner = event("aten::addmm", 22, 38, number=7, above=product, gpu=3)
    dropout = event("part: dropout", 45, 55, above=attention)
    mask = event("aten::mul", 46, 50, number=8, above=dropout, gpu=4)
    early = event("aten::ones_like", 61, 62, number=9, above=forward)  # saw a number that it was not given
    loss = event("part: projection and loss", 63, 70, above=forward)
    taken = event("_ChunkedLoss", 64, 69, number=9, above=loss)
    back_loss = event(f"{BACKWARD}: _ChunkedLossBackward", 80, 90, number=9, above=forward)
    back_mask = event(f"{BACKWARD}: MulBackward0", 90, 100, number=8, above=forward)
    back_mul = event("aten::mul", 92, 99, above=back_mask, gpu=5)
    back_product = event(f"{BACKWARD}: AddmmBackward0", 100, 130, number=7, above=forward, gpu=1)
    stray = event(f"{BACKWARD}: torch::autograd::AccumulateGrad", 130, 133, above=forward)
    events = [whole, forward, attention, product, inner, dropout, mask, early, loss, taken]
    return [*events, back_loss, back_mask, back_mul, back_product, stray]


def test_gradients_count_where_their_forward_pass_was() -> None:
    found = add_up(reversed(step()), on_gpu=False)
    microseconds = {part: round(1e6 * taken, 6) for part, taken in found.items()}
    assert microseconds == {
        OPTIMIZER: 200 - 140,
        ATTENTION: (60 - 20) - (55 - 45) + (130 - 100),
        DROPOUT: (55 - 45) + (100 - 90),
        LOSS: (70 - 63) + (90 - 80),
        OTHER: 140 - 40 - 7 - 10 - 10 - 30,
    }
    assert sum(microseconds.values()) == 200
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_on_a_gpu_its_own_time_counts() -> None:
    found = add_up(step(), on_gpu=True)
    assert {part: round(1e6 * taken, 6) for part, taken in found.items() if taken} == {ATTENTION: 4, DROPOUT: 9}


def recorded_step(family: str, tiny: Callable[[str], list[str]], kind: type[Trainer] = Trainer) -> Any:
    config = compose([*tiny(family), "data.max_train_pairs=20", "batch.tokens=40"])
    subject = Workshop(1).subject(family, config, kind)
    with parts._ranges(), profile(activities=[ProfilerActivity.CPU]) as recorded:
        subject.take_steps()
    return recorded.events()


PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mkldnn_rnn_layer")
TRAINED = {DROPOUT, LOSS, OPTIMIZER, DATA, OTHER, parts.EMBEDDING}
BLOCKS = {ATTENTION, parts.FEED_FORWARD, parts.RESIDUAL}


@pytest.mark.parametrize(
    ("family", "own"),
    [
        ("lstm", {RECURRENCE}),
        ("cho", {RECURRENCE, parts.READOUT}),
        ("bahdanau", {ATTENTION, RECURRENCE, parts.READOUT}),
        ("luong", {ATTENTION, RECURRENCE}),
        ("intra_attention", {ATTENTION, RECURRENCE}),
        ("transformer", BLOCKS),
        ("decoder_only", BLOCKS),
    ],
)
def test_every_product_of_a_step_is_some_parts(family: str, own: set[str], tiny: Callable[[str], list[str]]) -> None:
    """In the forward pass and for its gradients; a method that is renamed would leave its own to `other`."""
    before = vars(Trainer)["_step"], trainer.label_smoothed_loss
    events = recorded_step(family, tiny)
    assert (vars(Trainer)["_step"], trainer.label_smoothed_loss) == before
    found = add_up(events, on_gpu=False)
    assert found.keys() == own | TRAINED
    products = [part for event, part in parts.assigned(events) if event.name in PRODUCTS]
    assert set(products) == (own | {LOSS}) - {parts.RESIDUAL}
    whole = sum(e.time_range.elapsed_us() for e in events if e.cpu_parent is None and e.device_type == DeviceType.CPU)
    assert sum(found.values()) == pytest.approx(whole / 1e6, rel=1e-6)


def test_step_by_step_all_is_recurrence_and_autograd_is_not_the_optimizer(tiny: Callable[[str], list[str]]) -> None:
    events = recorded_step("luong", tiny, StepByStepTrainer)
    assert {part for event, part in parts.assigned(events) if event.name in PRODUCTS} == {RECURRENCE}
    sums = {part for event, part in parts.assigned(events) if "AccumulateGrad" in event.name}
    assert sums == {OTHER}
