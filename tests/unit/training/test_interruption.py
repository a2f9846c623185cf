"""Signals while training: noted, not fatal, and as before afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from nmt.training.interruption import Interruption, ProcessLost, Terminated, sigterm_raised


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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


def test_elsewhere_sigterm_is_an_exception_the_first_time() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_raised():
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGTERM)
            assert interruption.received == signal.SIGTERM
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_sigterm_ends_the_process() -> None:
    program = (
        "import os, signal\n"
        "from nmt.training.interruption import Terminated, sigterm_raised\n"
        "with sigterm_raised():\n"
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
        with sigterm_raised():
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
