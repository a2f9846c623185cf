"""Packed batches on a GPU: by every kernel the loss and gradients of the padded ones, to the accuracy of the kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.configuration import compose
from nmt.data.batching import make_batch
from nmt.models.registry import build_model
from nmt.training.device import require_kernel
from nmt.training.loss import label_smoothed_loss
from tiny import sentences

pytestmark = pytest.mark.gpu

VOCABULARY = 400


def loss_and_gradients(kernel: str, precision: str, gpu: torch.device) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(1)
    config = compose(["model=transformer_tiny", f"model.attention_kernel={kernel}", f"trainer.precision={precision}"])
    require_kernel(config, gpu)
    model = build_model(config.model, VOCABULARY, VOCABULARY).to(gpu).eval()
    lengths = [140, 3, 77, 1, 200], [130, 9, 60, 2, 190]  # more than one of FlexAttention's blocks of 128
    batch = make_batch(*(sentences(side, VOCABULARY) for side in lengths)).to(gpu)
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
        hidden_BTD = model(batch)
    loss = label_smoothed_loss(hidden_BTD, model.output, batch.target_output_BT, 0.1).loss / batch.target_tokens
    return loss, list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize(
    ("kernel", "precision", "tolerance"),
    [("plain", "float32", 1e-3), ("flex", "float32", 1e-2), ("flex", "bfloat16", 0.1), ("varlen", "bfloat16", 0.1)],
)
def test_packed_is_padded(kernel: str, precision: str, tolerance: float, gpu: torch.device) -> None:
    """Gradients by their distance over their length; float32 may be TensorFloat-32 within a kernel."""
    found, gradients = loss_and_gradients(kernel, precision, gpu)
    expected, wanted = loss_and_gradients("fused", "float32", gpu)
    assert found.item() == pytest.approx(expected.item(), rel=tolerance / 10)
    distance = sum((gradient - want).square().sum() for gradient, want in zip(gradients, wanted, strict=True))
    length = sum(want.square().sum() for want in wanted)
    assert (distance / length).sqrt().item() < tolerance
