"""A loss or gradient that is not a finite number never reaches a weight; a run of them ends with a clear message.

And lower precision is lower in the products alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import SearchConfig
from nmt.data.tokenizer import EOS
from nmt.decoding.search import beam_search, sample
from nmt.errors import WorkError
from nmt.training import trainer
from nmt.training.checkpoint import BEST, LAST, Checkpoint, step_directories
from nmt.training.device import autocast, slow_precision
from runs import FEW, assert_equal, assert_same_state, records, train
from tiny import PRESET_MODELS

pytestmark = [pytest.mark.invariant, pytest.mark.case]

Tiny = Callable[[str], list[str]]
PRESETS = [name.removesuffix("-preset") for name in PRESET_MODELS]


def spoil(steps: Iterable[int], patch: pytest.MonkeyPatch, factor: float = math.nan) -> None:
    """The loss of these steps, and so the gradient, is not a finite number."""
    count, loss = itertools.count(1), trainer.label_smoothed_loss

    def spoilt(*arguments: Any) -> Any:
        sums = loss(*arguments)
        return dataclasses.replace(sums, loss=sums.loss * factor) if next(count) in steps else sums

    patch.setattr(trainer, "label_smoothed_loss", spoilt)


def saved_by(run: Path) -> list[Checkpoint]:
    return [Checkpoint.open(path) for path in step_directories(run / "checkpoints")]


# Skipped steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "factor"), [*((preset, math.nan) for preset in PRESETS), ("lstm", math.inf), ("lstm", -math.inf)]
)
def test_a_step_without_a_finite_gradient_is_skipped(
    preset: str,
    factor: float,
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil({3, 4}, monkeypatch, factor)
    options = [*FEW, "trainer.save_every=1", "trainer.keep_last=99", "trainer.max_steps=5", "trainer.ema_decay=0"]
    last = train(tmp_path / "run", [*tiny(preset), *options, "trainer.log_every=5"])
    assert (last.meta["skipped"], last.meta["skipped_in_a_row"]) == (2, 0)
    told = [line for line in capsys.readouterr().err.splitlines() if "not finite" in line]
    assert [line.split(":")[0] for line in told] == ["step 3", "step 4"]
    saved = saved_by(tmp_path / "run")
    weights = [checkpoint.weights() for checkpoint in saved]
    assert_equal(weights[1], weights[2])
    assert_equal(weights[1], weights[3])
    moments = [checkpoint.training_state()["optimizer"]["state"] for checkpoint in saved]
    assert_equal(moments[1], moments[3])  # Adam neither moves nor counts
    assert not torch.equal(weights[3]["output.bias"], weights[4]["output.bias"])
    assert all(weight.isfinite().all() for weight in weights[-1].values())
    [record] = [record for record in records(tmp_path / "run") if "loss" in record]
    assert record["skipped"] == 2
    assert 0 < record["loss"] < math.inf, "of the steps that were taken"
    assert 0 < record["gradient_norm"] < math.inf


def test_a_loss_that_is_not_finite_is_enough(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the likeliest word's logit overflows: the gradient, p - 1, is finite and means nothing."""
    loss = trainer.label_smoothed_loss

    def infinite(*arguments: Any) -> Any:
        sums = loss(*arguments)
        return dataclasses.replace(sums, loss=sums.loss + (math.inf if next(count) == 2 else 0.0))

    count = itertools.count(1)
    monkeypatch.setattr(trainer, "label_smoothed_loss", infinite)
    options = [*FEW, "trainer.save_every=1", "trainer.keep_last=99", "trainer.max_steps=3", "trainer.ema_decay=0"]
    assert train(tmp_path / "run", [*tiny("lstm"), *options]).meta["skipped"] == 1
    weights = [checkpoint.weights() for checkpoint in saved_by(tmp_path / "run")]
    assert_equal(weights[0], weights[1])
    assert not torch.equal(weights[1]["output.bias"], weights[2]["output.bias"])


def test_lines_of_metrics_without_a_step_have_no_numbers(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil({2}, monkeypatch)
    train(tmp_path / "run", [*tiny("lstm"), *FEW, "trainer.log_every=1", "trainer.max_steps=3"])
    losses = [record["loss"] for record in records(tmp_path / "run") if "loss" in record]
    assert losses[1] is None
    assert all(losses[i] > 0 for i in (0, 2))


def test_too_many_such_steps_end_the_run_and_keep_what_was_good(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*tiny("bahdanau"), *FEW, "trainer.max_steps=10", "validation.every=3", "trainer.max_skipped_steps=3"]
    with monkeypatch.context() as patch:
        spoil(range(7, 99), patch)
        with pytest.raises(
            WorkError, match=r"3 steps in a row without a finite loss and gradient, the last one step 9"
        ):
            train(tmp_path / "run", options)
    best = Checkpoint.open(tmp_path / "run" / "checkpoints" / BEST)
    for kept in (best, Checkpoint.open(tmp_path / "run" / "checkpoints" / LAST)):
        assert all(weight.isfinite().all() for weight in kept.weights().values())
    whole = train(tmp_path / "whole", options)
    assert_same_state(train(tmp_path / "run", options), whole)  # the cause removed, it goes on as if nothing had been


@pytest.mark.parametrize(
    ("preset", "interval"),
    [*((preset, "validation.every=3") for preset in PRESETS), ("lstm", "trainer.save_every=3")],
)
def test_a_model_that_has_diverged_is_neither_saved_nor_the_best(
    preset: str, interval: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it translate for ever: among numbers that are none there is no likeliest piece, and never an end."""
    options = [*tiny(preset), *FEW, "trainer.ema_decay=0", "trainer.max_steps=4", interval]
    take_step = trainer.Trainer._step

    def diverging(self: trainer.Trainer) -> float:
        lr = take_step(self)
        if self.progress.step == 3:
            with torch.no_grad():
                self.model.output.bias.fill_(math.nan)
            with pytest.raises(WorkError, match="output is not a finite number: its training has diverged"):
                beam_search(self.model, torch.tensor([[5, 6, EOS]]), SearchConfig(beam_size=4))
            with pytest.raises(WorkError, match="output is not a finite number: its training has diverged"):
                sample(self.model, torch.tensor([[5, 6, EOS]]), SearchConfig(), [1])
        return lr

    train(tmp_path / "run", [*options, "trainer.max_steps=2"])
    before = {name: Checkpoint.open(tmp_path / "run" / "checkpoints" / name).weights() for name in (BEST, LAST)}
    monkeypatch.setattr(trainer.Trainer, "_step", diverging)
    with pytest.raises(WorkError, match="not finite"):
        train(tmp_path / "run", options)
    for name, weights in before.items():
        assert_equal(Checkpoint.open(tmp_path / "run" / "checkpoints" / name).weights(), weights)


# Precision -------------------------------------------------------------------------------------------------------


def test_auto_is_float32_where_bfloat16_is_not_in_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    with autocast("auto", torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert isinstance(autocast("auto", torch.device("cuda")), contextlib.nullcontext)


def test_bfloat16_that_is_asked_for_is_told_to_be_slow_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "trainer.precision=bfloat16: this cpu only emulates it; float32 is faster"
    for units, expected in (({}, said), ({"avx512_bf16": False}, said), ({"amx_bf16": True}, None)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda units=units: units)
        assert slow_precision("bfloat16", torch.device("cpu")) == expected
    assert slow_precision("float32", torch.device("cpu")) is slow_precision("auto", torch.device("cpu")) is None


@pytest.mark.parametrize("preset", PRESETS)
def test_lower_precision_trains_weights_that_stay_float32(preset: str, tiny: Tiny, tmp_path: Path) -> None:
    options = [*tiny(preset), *FEW, "trainer.device=cpu", "trainer.precision=bfloat16", "trainer.max_steps=2"]
    last = train(tmp_path / "run", options)
    assert last.meta["skipped"] == 0
    for weight in last.weights().values():
        assert weight.dtype == torch.float32
        assert weight.isfinite().all()
