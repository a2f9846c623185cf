"""SIGINT and SIGTERM ask the training loop to stop at its next safe point, where the state is saved.

Everywhere else they are exceptions, SIGINT as Python has it and SIGTERM here, so that whatever is half-written is
removed on the way out.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

from nmt.errors import WorkError


class Interrupted(Exception):
    """Training was stopped by a signal after its state was saved; the exit status is 128 + `signal_number`."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Stopped(Exception):
    """Raised in the middle of a validation when the run has been asked to stop."""


class ProcessLost(WorkError):
    """One of several processes that train together has died; torchrun then sends SIGTERM to those that are left."""


class Interruption:
    """While entered, the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once.

    Left because another process has died, it goes on noting: this one ends by itself, and shall have said why.
    """

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
        if isinstance(error, ProcessLost):
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


class Terminated(BaseException):
    """SIGTERM, as KeyboardInterrupt is SIGINT: no Exception, so that nothing takes it for a failure and goes on."""


@contextlib.contextmanager
def sigterm_raised() -> Iterator[None]:
    """While entered, SIGTERM raises `Terminated`; a second one ends the process at once.

    Without effect outside the main thread, which Python's signals are for, and where somebody has decided otherwise.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
