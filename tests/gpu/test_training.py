"""Every preset trains in bfloat16 on a GPU, and its loss stays near that of float32."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from benchmarking.training import Workshop
from nmt.configuration import compose
from nmt.configuration.store import options_of
from nmt.training.window import Window

pytestmark = pytest.mark.gpu

PRESETS = sorted(options_of("model"))
STEPS = 4


def losses(preset: str, precision: str, tiny: Callable[[str], list[str]], gpu: torch.device) -> list[float]:
    """The Trainer's own steps on the tiny corpus, the losses a token before each, without dropout."""
    data = [override for override in tiny("lstm") if not override.startswith(("model=", "model."))]
    chosen = [f"model={preset}", "model.dropout=0", "optimizer.lr=1e-4", "trainer.clip_norm=1"]
    device = [f"trainer.device={gpu.type}", f"trainer.precision={precision}"]
    subject = Workshop(STEPS).subject(preset, compose([*data, *chosen, *device]))
    found = []
    for _ in range(STEPS):
        subject.trainer.window = Window(gpu)
        lr = subject.trainer._step()
        subject.trainer._settle()
        found.append(subject.trainer.window.metrics(lr)["loss"])
    assert subject.trainer.progress.skipped == 0, "every gradient was finite"
    assert all(weight.isfinite().all() for weight in subject.trainer.model.parameters())
    return found


@pytest.mark.parametrize("preset", PRESETS)
def test_bfloat16_stays_near_float32(preset: str, tiny: Callable[[str], list[str]], gpu: torch.device) -> None:
    low, full = (losses(preset, precision, tiny, gpu) for precision in ("bfloat16", "float32"))
    assert all(math.isfinite(loss) for loss in low)
    assert low == pytest.approx(full, rel=0.02)
    assert low != full, "bfloat16 was not used"
