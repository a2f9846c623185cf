"""`trainer.compile`: each layer of a Transformer is compiled on its own, and for training alone.

A layer and not the model: the layers of a kind share what is compiled, so a deep model takes no longer to compile than
a shallow one, and the model around them (embeddings, loss, search) stays ordinary Python. The names of the weights do
not change, so checkpoints know nothing of it. Sizes vary from batch to batch, and are compiled as variables; only a
size of one is a case of its own. What is compiled gives the same numbers but for rounding, and draws dropout from the
same seeds by another generator.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from nmt.config import TrainConfig
from nmt.errors import RequestError
from nmt.models.base import TranslationModel
from nmt.models.transformer import Layer


def compile_layers(model: TranslationModel, backend: str = "inductor") -> int:
    """Has every layer compiled when it is first called; returns how many there are."""
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    for layer in layers:
        layer.compile(dynamic=True, backend=backend)
    return len(layers)


def as_written(config: TrainConfig) -> contextlib.AbstractContextManager[Any]:
    """In the block, compiled layers run as they are written: searches and validations have shapes of their own."""
    return torch.compiler.set_stance("force_eager") if config.trainer.compile else contextlib.nullcontext()


def require_compiler(config: TrainConfig, device: torch.device) -> None:
    """Raises RequestError where layers are to be compiled and PyTorch finds nothing to compile them with."""
    if not config.trainer.compile:
        return
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise RequestError("trainer.compile=true: needs Triton and a GPU that it compiles for; use false here")
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise RequestError(
            "trainer.compile=true: there is no C++ compiler here; install one (g++), name it in the environment "
            "variable CXX, or use false here"
        ) from error


def compiler_said(error: BaseException) -> str | None:
    """The line that tells why compiling a layer has failed, for want of a header, say; None for other errors."""
    from torch._dynamo.exc import TorchDynamoException

    if not isinstance(error, TorchDynamoException):
        return None
    cause = getattr(error, "inner_exception", error)
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), " ".join(lines[:1]) or type(cause).__name__)
