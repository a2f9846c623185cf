"""What a training run says on stderr: a progress bar on a terminal, plain lines elsewhere.

Nothing here may end a training run: when the terminal goes away, the console falls silent. Text from the corpus is
shown with its control characters escaped, since a source sentence may hold any.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from tqdm import tqdm  # type: ignore[import-untyped]

from nmt.evaluation.lengths import OF_LENGTH

SECONDS_BETWEEN_DRAWINGS = 0.2
USUAL_COLUMNS = 80
BAR_COLUMNS = len("100%|") + 5 + len("| ")  # that the bar takes at least, beside its text
INDENT = "    "
SCREEN_LINES = 2  # more than the bar takes: without the number tqdm asks the terminal, and draws nothing if it says 0
LINE_LIKE_CATEGORIES = {"Cc", "Zl", "Zp", "Cs"}  # control characters, line and paragraph separators, lone surrogates
SCORES = {"bleu": "BLEU", "chrf": "chrF", "literature_bleu": "literature BLEU"}
"""The scores of a test set that a training ends with, and how people write their names."""
TITLES = {**SCORES, "target_tokens_per_s": "tokens/s"}
FORMATS = {
    **dict.fromkeys(SCORES, ".2f"),
    "loss": ".4f",
    "lr": ".3g",
    "target_tokens_per_s": ",.0f",
    "seconds": ".1f",
    "gradient_norm": ".3f",
}


class Console:
    """One run's lines and bar.

    Args:
        stream: where they go; None: stderr. A bar is drawn if it is a terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        self._terminal = self._stream is not None and self._stream.isatty()
        self._bar: tqdm[None] | None = None
        self._drawn = 0.0
        self._numbers: list[str] = []  # what the last record said, shown until the next one
        self._start: tuple[float, float] | None = None  # seconds and share when this process began

    def training(
        self,
        step: int,
        epoch: float,
        seconds: float,
        values: Mapping[str, float | int | None],
        progress: float | None,
        budget: str,
        bleu: Sequence[str],
    ) -> None:
        """One record of training metrics; `bleu` holds the last one and the best one in words, if there are any."""
        if self._terminal:
            loss, speed = (
                [describe(name, values[name])] if name in values else [] for name in ("loss", "target_tokens_per_s")
            )
            self._numbers = [*loss, *bleu, *speed]  # the most wanted first: a narrow terminal has no room for the last
            self._draw(step, seconds, progress, budget)
            return
        parts = [f"step {step}", f"epoch {epoch:.2f}"]
        parts += [describe(name, value) for name, value in values.items()]
        if progress is not None:
            parts.append(f"{progress:.1%} of the budget")
            parts.append(f"{_duration(self._remaining(seconds, progress))} left")
        self._line("  ".join(parts))

    def advance(self, step: int, seconds: float, progress: float | None, budget: str) -> None:
        """Moves the bar, a few times a second at most."""
        if self._terminal and time.monotonic() - self._drawn >= SECONDS_BETWEEN_DRAWINGS:
            self._draw(step, seconds, progress, budget)

    def validation(self, step: int, values: Mapping[str, float | int | None], best: tuple[float, int] | None) -> None:
        """One line with the validation's scores; several on a narrow terminal."""
        told = {name: value for name, value in values.items() if not name.startswith(OF_LENGTH)}
        parts = [f"step {step}", "validation"] + [describe(name, value) for name, value in told.items()]
        if best is not None:
            parts.append("the best so far" if best[1] == step else f"best BLEU {best[0]:.2f} at step {best[1]}")
        for line in folded(parts, "  ", self._columns() if self._terminal else None, INDENT):
            self._line(line)

    def sample(self, source: str, hypothesis: str, reference: str) -> None:
        """A translation under its source, with its reference."""
        for title, text in (("source", source), ("hypothesis", hypothesis), ("reference", reference)):
            words = one_line(f"  {title:<10}  {text}").split(" ")
            for line in folded(words, " ", self._columns() if self._terminal else None, 14 * " "):
                self._line(line)

    def result(self, name: str, values: Mapping[str, float | int | None]) -> None:
        """The final scores of one test set."""
        shown = [describe(metric, values[metric]) for metric in SCORES if values.get(metric) is not None]
        self._line("  ".join([name, *shown]))

    def message(self, text: str) -> None:
        """One line of the program's own; a text of several lines keeps them."""
        for line in text.split("\n"):
            self._line(line)

    def close(self) -> None:
        """Leaves the bar's last state on the screen and the cursor below it."""
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.close()
            self._bar = None

    def _line(self, text: str) -> None:
        if self._stream is None:
            return
        line = one_line(text)
        # A stream that cannot carry an accent shows it escaped: a log line is no reason to fail.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        try:
            if self._bar is not None:
                self._bar.clear()
            self._stream.write(line + "\n")
            self._stream.flush()
            if self._bar is not None:
                self._bar.refresh()
        except (OSError, ValueError):
            self._fall_silent()

    def _draw(self, step: int, seconds: float, progress: float | None, budget: str) -> None:
        if self._stream is None:
            return
        self._drawn = time.monotonic()
        title = budget if progress is not None and budget else f"step {step}"
        try:
            if self._bar is None:
                tqdm.monitor_interval = 0  # no thread that redraws
                self._bar = tqdm(
                    total=1.0,
                    file=self._stream,
                    nrows=SCREEN_LINES,
                    leave=True,
                    bar_format="{desc}" if progress is None else "{percentage:3.0f}%|{bar}| {desc}",
                )
            room = self._bar.ncols = self._columns()
            parts = [title, *self._numbers]
            if progress is not None:
                self._bar.n = progress
                parts.insert(1, f"{_duration(self._remaining(seconds, progress))} left")
                room -= BAR_COLUMNS
            self._bar.set_description_str(next(folded(parts, ", ", room)))
        except (OSError, ValueError):
            self._fall_silent()

    def _columns(self) -> int:
        """The terminal's width now. One that does not know, as in many containers, is taken to be of the usual size."""
        try:
            return (os.get_terminal_size(self._stream.fileno()).columns if self._stream else 0) or USUAL_COLUMNS
        except OSError:
            return USUAL_COLUMNS

    def _remaining(self, seconds: float, progress: float) -> float | None:
        """Seconds to the end of the budget at the speed of this process; None before there is one."""
        if self._start is None or progress < self._start[1]:
            self._start = (seconds, progress)
        used_seconds, used = seconds - self._start[0], progress - self._start[1]
        if used <= 0:
            used_seconds, used = seconds, progress
        return used_seconds * (1 - progress) / used if used > 0 else None

    def _fall_silent(self) -> None:
        self._bar = None
        self._stream = None
        self._terminal = False


def one_line(text: str) -> str:
    """The text with every character that moves the cursor or ends a line written as an escape."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in LINE_LIKE_CATEGORIES
        else character
        for character in text
    )


def folded(parts: Sequence[str], separator: str, columns: int | None, indent: str = "") -> Iterator[str]:
    """The parts on lines of at most so many columns, broken between two parts; None: on one line.

    A part that is wider stays whole. Lines after the first begin with `indent`.
    """
    line, *rest = parts
    for part in rest:
        if columns is not None and len(line) + len(separator) + len(part) > columns:
            yield line
            line = indent + part
        else:
            line += separator + part
    yield line


def describe(name: str, value: float | int | None) -> str:
    """A metric as people read it: "mean of 50 steps", "loss 2.3100", "BLEU 31.20", "12,300 tokens/s"."""
    if name == "steps":
        return f"mean of {value} steps"
    title = TITLES.get(name, name.replace("_", " "))
    default = ".4g" if isinstance(value, float) else ""
    shown = "not a number" if value is None else format(value, FORMATS.get(name, default))
    return f"{shown} {title}" if title.endswith("/s") else f"{title} {shown}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown time"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {whole:02} s" if minutes else f"{whole} s"
