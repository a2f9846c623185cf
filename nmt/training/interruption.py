"""SIGINT, SIGTERM and SIGHUP ask the training loop to stop at its next safe point, where the state is saved.

Everywhere else they are exceptions, SIGINT as Python has it and the others here, so that whatever is half-written is
removed on the way out. SIGHUP comes when a terminal is closed; under nohup it is ignored, and stays so.
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
    """While entered, the first of the signals is only noted; a SIGINT after another one interrupts at once.

    Left because another process has died, it goes on noting: this one ends by itself, and shall have said why.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in self.SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
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
        self.received = self.received or number


class Terminated(BaseException):
    """SIGTERM or SIGHUP, as KeyboardInterrupt is SIGINT: no Exception, so that nothing takes it for a failure."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.signal_number = signal_number


@contextlib.contextmanager
def termination_raised() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP raise `Terminated`; the same one again ends the process at once.

    The other one is ignored then: a system that shuts down sends both. Without effect outside the main thread, which
    Python's signals are for, and for a signal that somebody has decided otherwise about.
    """
    numbers: list[int] = []
    if threading.current_thread() is threading.main_thread():
        numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]

    def terminate(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL if each == number else signal.SIG_IGN)
        raise Terminated(number)

    for number in numbers:
        signal.signal(number, terminate)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
