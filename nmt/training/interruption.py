"""SIGINT and SIGTERM ask the loop to stop at its next safe point, where the state is saved."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupted(Exception):
    """Training was stopped by a signal after its state was saved; the exit status is 128 + `signal_number`."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Interruption:
    """While entered, the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in self.SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
