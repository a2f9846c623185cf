"""Optimizers, and the learning rate as a pure function of the step, so that resuming needs no schedule state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from nmt.config import OptimizerConfig, ScheduleConfig

Schedule = Callable[[int], float]
"""Step (the first is 1) to the learning rate's share of its peak."""


def build_schedule(config: ScheduleConfig, max_steps: int | None) -> Schedule:
    """The share of the peak rate at each step: a linear warm-up, times the shape that the config names.

    Raises:
        ValueError: `linear` or `cosine` without a last step.
    """
    shape = _shape(config, max_steps)
    warmup = config.warmup
    return lambda step: min(1.0, step / warmup if warmup else 1.0) * shape(step)


def _shape(config: ScheduleConfig, max_steps: int | None) -> Schedule:
    warmup, floor = config.warmup, config.floor
    match config.name:
        case "constant":
            return lambda step: 1.0
        case "inverse_sqrt":  # Vaswani et al. 2017, equation 3, scaled to a peak of one
            return lambda step: math.sqrt(max(warmup, 1) / max(step, warmup, 1))
        case "halving":  # Luong et al. 2015, section 4.1
            return lambda step: 0.5 ** max(0, math.ceil((step - config.start) / config.interval))
    total = config.total or max_steps
    if total is None:
        raise ValueError(f"schedule {config.name} needs schedule.total or trainer.max_steps")

    def remaining(step: int) -> float:
        return 1.0 - min(1.0, max(0, step - warmup) / max(1, total - warmup))

    if config.name == "linear":
        return lambda step: floor + (1 - floor) * remaining(step)
    if config.name == "cosine":
        return lambda step: floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * remaining(step)))
    raise ValueError(f"unknown schedule {config.name!r}")


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer over all of the model's parameters; its rate is set before each step.

    Decoupled weight decay leaves vectors (biases, norms) alone.
    """
    parameters = list(model.parameters())
    betas = (config.beta1, config.beta2)
    match config.name:
        case "adam":
            return torch.optim.Adam(
                parameters, config.lr, betas, config.epsilon, config.weight_decay, **_fast(parameters)
            )
        case "adamw":
            matrices, vectors = _by_decay(model)
            groups = [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ]
            return torch.optim.AdamW(groups, config.lr, betas, config.epsilon, **_fast(parameters))
        case "sgd":
            return torch.optim.SGD(parameters, config.lr, config.momentum, weight_decay=config.weight_decay)
        case "adadelta":
            return torch.optim.Adadelta(
                parameters, config.lr, config.rho, config.epsilon, weight_decay=config.weight_decay
            )
    raise ValueError(f"unknown optimizer {config.name!r}")


def _by_decay(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Matrices, and vectors: by name as well, since a bias of both directions of an encoder is one tensor."""
    matrices: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.dim() > 1 and not name.endswith("bias") else vectors).append(parameter)
    return matrices, vectors


def _fast(parameters: Iterable[Tensor]) -> dict[str, bool]:
    """One kernel for all parameters where PyTorch has one."""
    return {"fused": all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)}


def step_if(optimizer: torch.optim.Optimizer, wanted: Tensor) -> None:
    """Updates the weights if `wanted`, a boolean on the device. Fused kernels look at it there; for others we wait."""
    if not optimizer.defaults.get("fused"):
        if wanted:
            optimizer.step()
        return
    optimizer.found_inf = (~wanted).float()  # type: ignore[attr-defined]  # by which GradScaler tells them
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


class WeightAverage:
    """Exponential moving average of the weights (Polyak & Juditsky 1992), what is validated, saved and used.

    Early on the decay is (1 + step) / (10 + step), so that the average forgets the random start.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        self.parameters = list(parameters)
        self.decay = decay
        self.averages = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after `step` steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.averages, self.parameters, 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchanges weights and averages, in place; a second call undoes the first."""
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            held = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(held)


class Averaged:
    """A context in which a model has its averaged weights."""

    def __init__(self, average: WeightAverage | None) -> None:
        self.average = average

    def __enter__(self) -> None:
        if self.average is not None:
            self.average.swap()

    def __exit__(self, *_: object) -> None:
        if self.average is not None:
            self.average.swap()
