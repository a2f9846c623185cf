"""Where a run computes, and in which precision."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from nmt.config import TrainConfig, TransformerConfig
from nmt.errors import RequestError
from nmt.launch import Launch


def choose_device(name: str, launch: Launch | None = None) -> torch.device:
    """`auto` is a GPU where PyTorch sees one; each of several processes on a machine has one of its own.

    Raises:
        RequestError: `cuda` where there is none, or fewer GPUs than processes.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise RequestError("device=cuda, but PyTorch sees no GPU here; allowed are auto and cpu")
    if name == "cpu" or not available:
        return torch.device("cpu")
    if launch is None or launch.size == 1:
        return torch.device("cuda")
    if launch.local_size > (count := torch.cuda.device_count()):
        raise RequestError(f"{launch.local_size} processes for {count} GPUs: lower torchrun's --nproc-per-node")
    torch.cuda.set_device(launch.local_rank)
    return torch.device("cuda", launch.local_rank)


def slow_precision(precision: str, device: torch.device) -> str | None:
    """One line where the precision asked for is slower than float32: on a processor that only emulates it."""
    if precision != "bfloat16":
        return None
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = any(torch.cpu.get_capabilities().get(unit) for unit in ("avx512_bf16", "amx_bf16", "bf16"))
    return None if native else f"trainer.precision=bfloat16: this {device.type} only emulates it; float32 is faster"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether PyTorch or Python says so; a RuntimeError may be anything."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context in which the forward pass runs.

    `auto` is bfloat16 on a GPU that computes with it and float32 elsewhere. Weights, optimizer and loss stay float32.
    """
    if not in_bfloat16(precision, device):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def in_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether `autocast` is to bfloat16."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return precision == "bfloat16"


def require_kernel(config: TrainConfig, device: torch.device) -> None:
    """Raises RequestError where model.attention_kernel has no forward and backward pass here."""
    kernel = config.model.attention_kernel if isinstance(config.model, TransformerConfig) else "fused"
    if kernel == "flex" and device.type != "cuda":
        raise RequestError("model.attention_kernel=flex: FlexAttention has no backward pass on a CPU; use fused here")
    if kernel == "varlen" and not (device.type == "cuda" and in_bfloat16(config.trainer.precision, device)):
        raise RequestError(
            "model.attention_kernel=varlen: is a kernel of GPUs in bfloat16 (trainer.precision); use fused here"
        )
