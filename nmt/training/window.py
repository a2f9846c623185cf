"""What steps have measured, summed where it was computed and read by the host when a line of metrics is due."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor


class Window:
    """Sums over the steps since the last line of metrics; they stay on the device until the line is due.

    After a validation the first line covers fewer steps than the others, and says how many. Steps that were skipped are
    left out. A window is part of a run's state: the line that follows an interruption is the one that would have been
    written without it.
    """

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(5, device=device)  # loss, cross-entropy, correct, positions, gradient norm
        self.tokens = self.steps = 0
        self.began = time.perf_counter()

    def state(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self.began
        return {"sums": self.sums.tolist(), "tokens": self.tokens, "steps": self.steps, "seconds": seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        self.sums.copy_(torch.tensor(state["sums"]))
        self.tokens, self.steps = state["tokens"], state["steps"]
        self.began = time.perf_counter() - state["seconds"]

    def add(self, step: Window) -> None:
        """Takes in what has been summed over one step."""
        self.sums += step.sums
        self.tokens += step.tokens
        self.steps += 1

    def metrics(self, lr: float, skipped: int = 0) -> dict[str, float]:
        loss, cross_entropy, correct, positions, norm = self.sums.tolist() if self.steps else [math.nan] * 5
        tokens = max(1, self.tokens)
        return {
            "steps": self.steps,
            "loss": loss / tokens,
            "perplexity": math.exp(min(cross_entropy / tokens, 100.0)) if self.steps else math.nan,
            "accuracy": correct / tokens,
            "gradient_norm": norm / max(1, self.steps),
            "lr": lr,
            "target_tokens_per_s": self.tokens / (time.perf_counter() - self.began),
            "padding_share": 1 - self.tokens / max(1, positions),
            **({"skipped": skipped} if skipped else {}),
        }


class Outcome:
    """A step's sums, and whether they are finite: asked when it is taken, answered when the host needs to know.

    On a GPU the answer comes to pinned memory by itself, and who reads it waits for that step and for none after it.
    """

    def __init__(self, step: int, taken: Window) -> None:
        self.step = step
        self.taken = taken
        self.finite = torch.isfinite(taken.sums).all()
        """On the device."""
        self._answer: Tensor = self.finite.to("cpu", non_blocking=True)
        self._arrived: torch.cuda.Event | None = None
        if self.finite.device.type == "cuda":
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    @property
    def late(self) -> bool:
        """Whether it may take until the step after this one to know."""
        return self._arrived is not None

    def was_finite(self) -> bool:
        """Whether loss and gradient were, on the host."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return bool(self._answer)
