"""What a server counts, as Prometheus reads it (text format 0.0.4).

Each number is written by one thread alone, the event loop or the worker, so that none needs a lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LINES = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """How many observations were at most each bound, how many there were, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def text(self, name: str, explanation: str) -> list[str]:
        """Its lines in the exposition."""
        lines = [f"# HELP {name} {explanation}", f"# TYPE {name} histogram"]
        below = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{"+Inf" if bound == math.inf else f"{bound:g}"}"}} {below}')
        return [*lines, f"{name}_sum {self.total:.6f}", f"{name}_count {below}"]


class Metrics:
    """Everything that a server counts."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By path and status."""
        self.request_seconds = Histogram(SECONDS)
        """Of what /translate has answered."""
        self.lines: Counter[str] = Counter()
        """Translated, by model."""
        self.batch_lines = Histogram(LINES)
        self.batch_seconds = Histogram(SECONDS)

    def text(self, waiting_lines: int) -> str:
        """The exposition. Names of models are labels, and may hold any character."""
        lines = ["# HELP nmt_requests_total Requests answered.", "# TYPE nmt_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'nmt_requests_total{{path="{_escaped(path)}",status="{status}"}} {count}')
        lines += ["# HELP nmt_lines_total Lines translated.", "# TYPE nmt_lines_total counter"]
        for model, count in sorted(self.lines.items()):
            lines.append(f'nmt_lines_total{{model="{_escaped(model)}"}} {count}')
        lines += self.request_seconds.text("nmt_request_seconds", "Seconds from a request to translate to its answer.")
        lines += self.batch_lines.text("nmt_batch_lines", "Lines that were translated together.")
        lines += self.batch_seconds.text("nmt_batch_seconds", "Seconds that a batch took.")
        lines += ["# HELP nmt_waiting_lines Lines that wait.", "# TYPE nmt_waiting_lines gauge"]
        lines.append(f"nmt_waiting_lines {waiting_lines}")
        resident = resident_bytes()
        if resident is not None:
            lines += [
                "# HELP process_resident_memory_bytes Resident memory size in bytes.",
                "# TYPE process_resident_memory_bytes gauge",
                f"process_resident_memory_bytes {resident}",
            ]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not say."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
