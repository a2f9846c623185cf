"""Steps of a training run as a monitor hears of them."""

from __future__ import annotations

from nmt.training.monitor import Monitor


def train(monitor: Monitor, first: int, last: int, validate_at: int = 0) -> None:
    """Records steps first to last, 10 seconds and 1,000 tokens each."""
    for step in range(first, last + 1):
        monitor.advance(step, 10.0 * step, step / 20, f"step {step}/20")
        monitor.training(
            step, step / 4, 10.0 * step, 1000 * step, {"loss": 5 - step / 10}, step / 20, f"step {step}/20"
        )
        if step == validate_at:
            monitor.validation(step, step / 4, 10.0 * step, 1000 * step, {"bleu": 10.0 + step})
