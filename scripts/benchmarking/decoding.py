"""A run or an export to be translated with: whole sets, from text to text, and single sentences.

What is timed has all in it that a user waits for: segmentation, sorting into batches, search, joining the pieces. A
setting is a beam size and a batch size, the latter as `search.batch_tokens` counts it: source tokens times hypotheses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarking.measuring import MEGABYTE, Spread, forget_peak, peak_resident, percentile, seconds
from nmt.decoding.translator import TextTranslator


@dataclass(frozen=True)
class Pass:
    """One translation of the whole set."""

    seconds: float
    tokens: int
    """Pieces of the translations, end marks included."""
    peak_resident: int | None
    peak_device: int | None


@dataclass(frozen=True)
class Setting:
    """How a run translates."""

    name: str
    translator: TextTranslator
    device: torch.device
    beam_size: int
    batch_tokens: int

    def translate(self, texts: Sequence[str]) -> int:
        """Translates the texts; the number of pieces that came out, end marks included."""
        search = dataclasses.replace(self.translator.search.without_chance(), batch_tokens=self.batch_tokens)
        found = self.translator.translate(texts, self.beam_size, search=search)
        return sum(len(translation.tokens) + 1 for translation in found)

    def whole(self, texts: Sequence[str]) -> Pass:
        """The whole set, with the most memory that the process had meanwhile."""
        on_gpu = self.device.type == "cuda"
        kept = forget_peak()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        tokens = 0

        def work() -> None:
            nonlocal tokens
            tokens = self.translate(texts)

        taken = seconds(work, self.device)
        resident = peak_resident() if kept else None
        return Pass(taken, tokens, resident, torch.cuda.max_memory_allocated(self.device) if on_gpu else None)

    def alone(self, text: str) -> float:
        """Seconds that one sentence takes on its own."""
        return seconds(lambda: self.translate([text]), self.device)


def some(texts: Sequence[str], number: int) -> list[str]:
    """At most that many of the texts, at equal distances."""
    number = min(number, len(texts))
    return [texts[i * len(texts) // number] for i in range(number)]


def record(setting: Setting, sentences: int, passes: Sequence[Pass]) -> dict[str, Any]:
    """What the passes of one setting measured, by the names of the JSON."""
    tokens = Spread(tuple(one.tokens / one.seconds for one in passes))
    speed = Spread(tuple(sentences / one.seconds for one in passes))
    return {
        "run": setting.name,
        "beam_size": setting.beam_size,
        "batch_tokens": setting.batch_tokens,
        "target_tokens": passes[0].tokens,
        "sentences_per_s": speed.median,
        "sentences_per_s_rounds": list(speed.rounds),
        "target_tokens_per_s": tokens.median,
        "target_tokens_per_s_rounds": list(tokens.rounds),
        "peak_rss_mb": _most([one.peak_resident for one in passes]),
        "peak_device_mb": _most([one.peak_device for one in passes]),
    }


def latency_record(setting: Setting, taken: Sequence[float]) -> dict[str, Any]:
    """What single sentences took, in milliseconds."""
    return {
        "run": setting.name,
        "beam_size": setting.beam_size,
        "sentences": len(taken),
        "latency_ms": 1000 * percentile(taken, 0.5),
        "latency_ms_p90": 1000 * percentile(taken, 0.9),
    }


def _most(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) / MEGABYTE if known else None
