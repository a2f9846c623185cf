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


def label_smoothed_loss(
    hidden_BTD: Tensor,
    output: OutputProjection,
    targets_BT: Tensor,
    smoothing: float,
    index_P: Tensor | None = None,
) -> LossSums:
    """Σ over positions of (1 - ε)·(-log p(y)) + ε·mean over classes of (-log p) (Szegedy et al. 2016, section 7).

    Args:
        hidden_BTD: the model's hidden states; their gradient is zero at padded positions.
        targets_BT: the true ids, PAD where nothing counts.
        smoothing: ε, spread over the C classes that are not padding.
        index_P: of the positions that count in the flattened (B, T), as a batch has them. Without them they are looked
            for, and the host waits until the device has found them.

    Returns:
        sums, zero for a batch of padding only.
    """
    targets_X = targets_BT.flatten()
    if index_P is None:
        index_P = (targets_X != PAD).nonzero().squeeze(1)
    loss, cross_entropy, correct = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden_BTD.flatten(0, 1).index_select(0, index_P),
        output.weight,
        output.bias,
        targets_X.index_select(0, index_P),
        smoothing,
        torch.is_grad_enabled(),
    )
    return LossSums(loss, cross_entropy, correct)


class _ChunkedLoss(torch.autograd.Function):
    """The gradients are made in the forward pass, while each chunk of logits is at hand.

    Passes over the logits are what it costs besides the two products, so there are few: the softmax is never divided
    by its sum (the rows of the small factor of each product are, instead), and the smoothing, which is the same for
    all classes, acts on the mean of the projection's weights rather than on each logit.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_PD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        targets_P: Tensor,
        smoothing: float,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        needed = differentiable and any(ctx.needs_input_grad)  # the latter knows nothing of no_grad
        weight_CD = weight_VD[FIRST_CLASS:].to(hidden_PD.dtype)
        bias_C = bias_V[FIRST_CLASS:].to(hidden_PD.dtype)
        mean_weight_D, mean_bias = weight_CD.mean(dim=0), bias_C.mean()
        hidden_gradient_PD = torch.empty_like(hidden_PD) if needed else None
        weight_gradient_VD = torch.zeros_like(weight_VD) if needed else None
        bias_gradient_V = torch.zeros_like(bias_V) if needed else None
        sums = torch.zeros(
            3, dtype=torch.float64 if hidden_PD.dtype == torch.float64 else torch.float32, device=hidden_PD.device
        )
        rows = max(1, CHUNK_BYTES // (4 * len(weight_CD)))
        for start in range(0, len(hidden_PD), rows):
            hidden_pD, targets_p = hidden_PD[start : start + rows], targets_P[start : start + rows]
            logits_pC = torch.addmm(bias_C, hidden_pD, weight_CD.t()).to(sums.dtype)
            labels_p1 = (targets_p - FIRST_CLASS).unsqueeze(1)
            true_p1 = logits_pC.gather(1, labels_p1)
            greatest_p1 = logits_pC.amax(dim=1, keepdim=True)
            exponentials_pC = logits_pC.sub_(greatest_p1).exp_()
            total_p1 = exponentials_pC.sum(dim=1, keepdim=True)
            normalizer_p1 = greatest_p1 + total_p1.log()
            smoothed = normalizer_p1 - (1 - smoothing) * true_p1
            if smoothing:
                smoothed = smoothed - smoothing * (hidden_pD @ mean_weight_D + mean_bias).unsqueeze(1)
            sums += torch.stack((smoothed.sum(), (normalizer_p1 - true_p1).sum(), (greatest_p1 == true_p1).sum()))
            if hidden_gradient_PD is not None and weight_gradient_VD is not None and bias_gradient_V is not None:
                # d loss / d logit = p - (1 - ε)·[true] - ε / C, with p = exponential / total
                exponentials_pC.scatter_add_(1, labels_p1, (smoothing - 1) * total_p1)
                scaled_pC, share_p1 = exponentials_pC.to(hidden_PD.dtype), (1 / total_p1).to(hidden_PD.dtype)
                gradient_pD = torch.mm(scaled_pC, weight_CD, out=hidden_gradient_PD[start : start + rows])
                gradient_pD.mul_(share_p1).sub_(smoothing * mean_weight_D)
                weight_gradient_VD[FIRST_CLASS:] += scaled_pC.t() @ (hidden_pD * share_p1)
                bias_gradient_V[FIRST_CLASS:] += (scaled_pC.t() @ share_p1).squeeze(1)
        if smoothing and weight_gradient_VD is not None and bias_gradient_V is not None:
            weight_gradient_VD[FIRST_CLASS:] -= (smoothing / len(weight_CD)) * hidden_PD.sum(dim=0)
            bias_gradient_V[FIRST_CLASS:] -= smoothing * len(hidden_PD) / len(weight_CD)
        ctx.save_for_backward(hidden_gradient_PD, weight_gradient_VD, bias_gradient_V)
        loss, cross_entropy, correct = sums.unbind(0)
        ctx.mark_non_differentiable(cross_entropy, correct)
        return loss, cross_entropy, correct

    @staticmethod
    def backward(ctx: Any, loss_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        scale = loss_gradient.to(hidden_gradient.dtype)
        return hidden_gradient * scale, weight_gradient * loss_gradient, bias_gradient * loss_gradient, None, None, None
