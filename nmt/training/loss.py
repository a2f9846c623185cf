"""Output projection and label-smoothed cross-entropy in one pass, a chunk of positions at a time.

The logits of a batch are its largest tensor by far (positions × vocabulary) and are needed only to make one number and
one gradient. Here a chunk of them is computed, turned into its gradient in place, multiplied back onto the hidden
states and the projection's weights, and forgotten. Padding never enters: padded positions are left out before the
first product, and the padding class, id 0, is cut off the projection, so that it takes no share of the smoothing.

Shapes: B batch, T target positions, P positions that count, D model width, V vocabulary, C = V - 1 classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.data.tokenizer import PAD
from nmt.models.base import OutputProjection

CHUNK_BYTES = 8 * 2**20
"""Size of a chunk of logits: small enough to stay in the caches of a CPU, large enough for quick products."""

FIRST_CLASS = PAD + 1


@dataclass(frozen=True)
class LossSums:
    """Sums over the positions that count, still on the device; divide by `tokens` for means."""

    loss: Tensor
    """Label-smoothed cross-entropy in nats; the only one with a gradient."""
    cross_entropy: Tensor
    """Plain cross-entropy in nats: exp of its mean is the perplexity."""
    correct: Tensor
    """Positions at which the likeliest class is the right one."""


def label_smoothed_loss(hidden_BTD: Tensor, output: OutputProjection, targets_BT: Tensor, smoothing: float) -> LossSums:
    """Σ over positions of (1 - ε)·(-log p(y)) + ε·mean over classes of (-log p) (Szegedy et al. 2016, section 7).

    Args:
        hidden_BTD: the model's hidden states; their gradient is zero at padded positions.
        targets_BT: the true ids, PAD where nothing counts.
        smoothing: ε, spread over the C classes that are not padding.

    Returns:
        sums, zero for a batch of padding only.
    """
    counts_BT = targets_BT != PAD
    loss, cross_entropy, correct = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden_BTD[counts_BT], output.weight, output.bias, targets_BT[counts_BT], smoothing
    )
    return LossSums(loss, cross_entropy, correct)


class _ChunkedLoss(torch.autograd.Function):
    """The gradients are made in the forward pass, while each chunk of logits is at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden_PD: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_P: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        needed = any(ctx.needs_input_grad)
        weight_CD = weight_VD[FIRST_CLASS:].to(hidden_PD.dtype)
        bias_C = bias_V[FIRST_CLASS:].to(hidden_PD.dtype)
        classes = len(weight_CD)
        hidden_gradient_PD = torch.empty_like(hidden_PD) if needed else None
        weight_gradient_VD = torch.zeros_like(weight_VD) if needed else None
        bias_gradient_V = torch.zeros_like(bias_V) if needed else None
        sums = torch.zeros(
            3, dtype=torch.float64 if hidden_PD.dtype == torch.float64 else torch.float32, device=hidden_PD.device
        )
        rows = max(1, CHUNK_BYTES // (4 * classes))
        for start in range(0, len(hidden_PD), rows):
            hidden_pD, targets_p = hidden_PD[start : start + rows], targets_P[start : start + rows]
            logits_pC = torch.addmm(bias_C, hidden_pD, weight_CD.t()).to(sums.dtype)
            labels_p1 = (targets_p - FIRST_CLASS).unsqueeze(1)
            normalizer_p1 = logits_pC.logsumexp(dim=1, keepdim=True)
            true_p1 = logits_pC.gather(1, labels_p1)
            sums[1] += (normalizer_p1 - true_p1).sum()
            smoothed = normalizer_p1 - (1 - smoothing) * true_p1
            if smoothing:
                smoothed = smoothed - smoothing * logits_pC.mean(dim=1, keepdim=True)
            sums[0] += smoothed.sum()
            sums[2] += (logits_pC.amax(dim=1, keepdim=True) == true_p1).sum()
            if hidden_gradient_PD is not None and weight_gradient_VD is not None and bias_gradient_V is not None:
                # d loss / d logit = p - (1 - ε)·[true] - ε / C
                gradient_pC = logits_pC.sub_(normalizer_p1).exp_()
                if smoothing:
                    gradient_pC.sub_(smoothing / classes)
                gradient_pC.scatter_add_(1, labels_p1, torch.full_like(true_p1, smoothing - 1))
                gradient_pC = gradient_pC.to(hidden_PD.dtype)
                torch.mm(gradient_pC, weight_CD, out=hidden_gradient_PD[start : start + rows])
                weight_gradient_VD[FIRST_CLASS:] += gradient_pC.t() @ hidden_pD
                bias_gradient_V[FIRST_CLASS:] += gradient_pC.sum(dim=0)
        ctx.save_for_backward(hidden_gradient_PD, weight_gradient_VD, bias_gradient_V)
        loss, cross_entropy, correct = sums.unbind(0)
        ctx.mark_non_differentiable(cross_entropy, correct)
        return loss, cross_entropy, correct

    @staticmethod
    def backward(ctx: Any, loss_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        scale = loss_gradient.to(hidden_gradient.dtype)
        return hidden_gradient * scale, weight_gradient * loss_gradient, bias_gradient * loss_gradient, None, None
