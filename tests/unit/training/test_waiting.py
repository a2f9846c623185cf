"""The host never waits for the device in a training step, but for the outcome of the step before.

The device here is PyTorch's `meta`, whose tensors have shapes and no values: whatever would need a value on the host,
or a shape that depends on values, is an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from benchmarking import training as workshop
from benchmarking.training import Workshop
from nmt.configuration import compose
from nmt.training import optim, trainer
from nmt.training.optim import step_if
from nmt.training.trainer import Trainer
from nmt.training.window import Outcome, Window

PRESETS = ["lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "transformer_modern", "decoder_only"]


class UnreadOutcome(Outcome):
    """Late, as on a GPU; there is no value to be read in the end, so every step was fine."""

    def __init__(self, step: int, taken: Window) -> None:
        self.step, self.taken = step, taken
        self.finite = torch.isfinite(taken.sums).all()

    @property
    def late(self) -> bool:
        return True

    def was_finite(self) -> bool:
        return True


@pytest.fixture
def on_meta(tiny: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trainer]:
    """on_meta(preset, overrides …): a Trainer on the device that has no values. All else is as on a GPU."""
    monkeypatch.setattr(workshop, "choose_device", lambda _: torch.device("meta"))
    monkeypatch.setattr(trainer, "Outcome", UnreadOutcome)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # which does not know this device
    base = importlib.import_module("torch.optim.optimizer")
    devices = [*base._get_fused_kernels_supported_devices(), "meta"]
    monkeypatch.setattr(base, "_get_fused_kernels_supported_devices", lambda: devices)
    monkeypatch.setattr(optim, "_fast", lambda _: {"fused": True})

    def build(preset: str, *overrides: str) -> Trainer:
        options = [*tiny(preset), "data.max_train_pairs=40", "batch.tokens=100", "batch.accumulate=2", *overrides]
        return Workshop(1).subject(preset, compose(options)).trainer

    return build


def steps(run: Trainer) -> None:
    for _ in range(3):
        run._step()
    assert (run.progress.step, run.window.steps) == (3, 2), "the third is still under way"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_waits_for_nothing(preset: str, on_meta: Callable[..., Trainer]) -> None:
    steps(on_meta(preset))


@pytest.mark.parametrize(
    ("preset", "override"),
    [
        ("luong", "model.input_feeding=false"),
        ("luong", "model.window=local_p"),
        ("transformer", "model.attention_kernel=plain"),
        ("transformer", "optimizer=adamw"),
        ("decoder_only", "model.positions=learned"),
    ],
)
def test_nor_with_options(preset: str, override: str, on_meta: Callable[..., Trainer]) -> None:
    steps(on_meta(preset, override))


@pytest.mark.parametrize(
    "question",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
    ],
)
def test_waiting_would_be_noticed(
    question: Callable[[Any], object], on_meta: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = on_meta("lstm")
    run.model.register_forward_hook(lambda *given: void(question(given[2])))
    with pytest.raises((RuntimeError, NotImplementedError)):
        run._step()


def void(_: object) -> None:
    """A hook that gives back nothing leaves things as they are."""


# The update ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("fused", [True, False])
def test_an_update_that_is_not_wanted_changes_nothing(kind: type[torch.optim.Optimizer], fused: bool) -> None:
    """And one that is is the optimizer's own, to the bit: weights and state, whichever comes first."""
    gradients = [torch.tensor([1.0, -2.0]), torch.tensor([torch.nan, 1.0]), torch.tensor([3.0, 0.5])]
    found = []
    for skipping in (True, False):
        weight = nn.Parameter(torch.tensor([0.5, 1.5]))
        optimizer = kind([weight], lr=0.1, fused=fused)  # type: ignore[call-arg]
        for gradient in gradients if skipping else gradients[::2]:
            weight.grad = gradient.clone()
            if skipping:
                step_if(optimizer, gradient.isfinite().all())
            else:
                optimizer.step()
        state = optimizer.state_dict()["state"].get(0, {})
        found.append((weight.detach(), {name: value for name, value in state.items() if value is not None}))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1].keys() == found[1][1].keys()
    assert all(torch.equal(value, found[1][1][name]) for name, value in found[0][1].items())
