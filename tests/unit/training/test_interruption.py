"""Signals while training: noted, not fatal, and as before afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nmt.training.interruption import Interruption, ProcessLost, Terminated, termination_raised


@pytest.fixture(autouse=True)
def _no_nohup() -> Iterator[None]:
    """Whatever the tests were started with, SIGHUP is as it is in a terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", Interruption.SIGNALS)
def test_the_first_signal_is_only_noted(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in Interruption.SIGNALS]
    with Interruption() as interruption:
        assert interruption.received is None
        os.kill(os.getpid(), number)
        assert interruption.received == number
    assert [signal.getsignal(each) for each in Interruption.SIGNALS] == before


def test_a_second_sigint_interrupts_at_once() -> None:
    with Interruption():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_more_sigterms_change_nothing() -> None:
    with Interruption() as interruption:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.received == signal.SIGTERM


def test_handlers_come_back_after_an_error() -> None:
    def own(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        with pytest.raises(ValueError, match="inside"), Interruption():
            raise ValueError("inside")
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_under_nohup_a_closed_terminal_is_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with termination_raised(), Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGHUP)
        assert interruption.received is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_elsewhere_it_is_an_exception_the_first_time(number: int) -> None:
    before = signal.getsignal(number)
    with termination_raised():
        with Interruption() as interruption:
            os.kill(os.getpid(), number)
            assert interruption.received == number
        with pytest.raises(Terminated) as raised:
            os.kill(os.getpid(), number)
        assert raised.value.signal_number == number
        for other in {signal.SIGTERM, signal.SIGHUP} - {number}:  # a shutdown sends both; cleaning up goes on
            os.kill(os.getpid(), other)
    assert signal.getsignal(number) == before


def test_a_second_sigterm_ends_the_process() -> None:
    program = (
        "import os, signal\n"
        "from nmt.training.interruption import Terminated, termination_raised\n"
        "with termination_raised():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    except Terminated:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, b"")


def test_a_handler_of_somebody_elses_stays() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with termination_raised():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_left_for_a_lost_process_it_keeps_torchruns_sigterm_from_cutting_the_last_line() -> None:
    before = [signal.getsignal(each) for each in Interruption.SIGNALS]
    interruption = Interruption()
    try:
        with pytest.raises(ProcessLost), interruption:
            raise ProcessLost("another has died")
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.received == signal.SIGTERM
    finally:
        for number, handler in zip(Interruption.SIGNALS, before, strict=True):
            signal.signal(number, handler)
