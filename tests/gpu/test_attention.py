"""Attention on a GPU is a fused kernel in bfloat16: nothing else is allowed here, so anything else would raise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from nmt.configuration import compose
from nmt.data.batching import make_batch
from nmt.models.attention import scaled_dot_product
from nmt.models.base import TranslationModel
from nmt.models.registry import build_model
from nmt.training.loss import label_smoothed_loss
from tiny import sentences

pytestmark = pytest.mark.gpu

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
VOCABULARY = 400


@pytest.mark.parametrize("head_width", [32, 64])
@pytest.mark.parametrize("kind", ["whole", "causal", "padding"])
def test_fused_kernels_compute_the_plain_formula(head_width: int, kind: str, gpu: torch.device) -> None:
    """Result and gradients, to bfloat16's accuracy; what is padding gets none."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(5, 4, 24, head_width, device=gpu, requires_grad=True) for _ in range(3))
    mask = None
    if kind == "padding":
        lengths = torch.tensor([24, 3, 17, 1, 9], device=gpu)
        mask = (torch.arange(24, device=gpu) < lengths[:, None])[:, None, None, :]
    low = [part.detach().bfloat16().requires_grad_() for part in (query, key, value)]
    with sdpa_kernel(FUSED):
        found = scaled_dot_product(*low, mask, causal=kind == "causal")
        gradients = torch.autograd.grad(found.float().square().sum(), low)
    scores = query @ key.transpose(-2, -1) / math.sqrt(head_width)
    if kind == "causal":
        mask = torch.ones(24, 24, dtype=torch.bool, device=gpu).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    expected = scores.softmax(dim=-1) @ value
    wanted = torch.autograd.grad(expected.square().sum(), (query, key, value))
    assert close(found, expected)
    assert all(close(gradient, want) for gradient, want in zip(gradients, wanted, strict=True))
    if kind == "padding":
        assert gradients[1].masked_select(~mask.transpose(-2, -1)).abs().max() == 0


def close(found: Tensor, expected: Tensor) -> bool:
    """The distance is small beside the length; single numbers may be cancelled ones."""
    return ((found.float() - expected).norm() / expected.norm()).item() < 0.02


def model_of(preset: str, gpu: torch.device, *overrides: str) -> TranslationModel:
    torch.manual_seed(1)
    return build_model(compose([f"model={preset}", *overrides]).model, VOCABULARY, VOCABULARY).to(gpu)


# Head widths are multiples of 8, which the kernels that take a mask want in bfloat16.
@pytest.mark.parametrize("preset", ["transformer_tiny", "transformer_base", "transformer_big"])
def test_training_and_decoding_use_fused_kernels_alone(preset: str, gpu: torch.device) -> None:
    """Encoder, decoder and cross-attention, with padding and with dropout, forward and backward."""
    model = model_of(preset, gpu, "model.encoder_layers=2", "model.decoder_layers=2", "model.attention_dropout=0.1")
    batch = make_batch(sentences([20, 3, 11], VOCABULARY), sentences([18, 25, 2], VOCABULARY)).to(gpu)
    with sdpa_kernel(FUSED), torch.autocast("cuda", torch.bfloat16):
        hidden_BTD = model(batch)
        sums = label_smoothed_loss(hidden_BTD, model.output, batch.target_output_BT, 0.1)
        sums.loss.backward()
        model.eval()
        with torch.inference_mode():
            memory = model.encode(batch.source_BS)
            state = model.start(memory).select(torch.arange(3, device=gpu).repeat_interleave(4))
            for _ in range(3):
                hidden_RD, state, _ = model.step(torch.full((12,), 5, device=gpu), state, memory)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert hidden_RD.isfinite().all()
