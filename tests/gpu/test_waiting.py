"""A training step on a GPU asks it for nothing: PyTorch would raise where the host waited.

Not noticed is the wait for the step before, which is one for an event.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from benchmarking.training import Workshop
from nmt.configuration import compose
from nmt.configuration.store import options_of
from nmt.data.batching import Batch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("preset", sorted(options_of("model")))
def test_a_step_waits_for_nothing(preset: str, tiny: Callable[[str], list[str]], gpu: torch.device) -> None:
    data = [override for override in tiny("lstm") if not override.startswith(("model=", "model."))]
    run = Workshop(4).subject(preset, compose([*data, f"model={preset}", f"trainer.device={gpu.type}"])).trainer
    run._step()  # kernels are chosen and memory is reserved
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            run._step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    run._settle()
    assert (run.window.steps, run.progress.skipped) == (4, 0)


def test_batches_come_from_pinned_memory_one_ahead(
    tiny: Callable[[str], list[str]], gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Workshop(4).subject("transformer", compose([*tiny("transformer"), f"trainer.device={gpu.type}"])).trainer
    move, pinned = Batch.to, []

    def noted(self: Batch, device: torch.device) -> Batch:
        pinned.append(self.source_BS.is_pinned() or self.source_BS.is_cuda)
        return move(self, device)

    monkeypatch.setattr(Batch, "to", noted)
    run._step()
    assert pinned
    assert all(pinned)
    assert run.feed._next is not None
    indices, batch = run.feed._next
    assert indices.tolist() == run.plan[run.progress.batch].tolist()
    assert (batch.source_BS.device.type, batch.source_lengths_B.device.type) == ("cuda", "cpu")


@pytest.mark.parametrize("preset", ["transformer", "transformer_modern", "decoder_only"])
def test_compiled_layers_train_as_plain_ones(preset: str, tiny: Callable[[str], list[str]], gpu: torch.device) -> None:
    losses = {}
    for compiled in ("false", "true"):
        options = [*tiny(preset), "model.dropout=0", f"trainer.device={gpu.type}", f"trainer.compile={compiled}"]
        run = Workshop(4).subject(preset, compose(options)).trainer
        lr = [run._step() for _ in range(4)][-1]
        run._settle()
        losses[compiled] = run.window.metrics(lr)["loss"]
    assert losses["true"] == pytest.approx(losses["false"], rel=0.02)
