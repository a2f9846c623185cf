"""A process that dies of SIGKILL at a chosen commit, so that a test can go on from what it leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from nmt.data.journal import Journal


def killed_at_commit(number: int, work: Callable[[], Any]) -> None:
    """Runs the work in a forked process that is killed just after its commit of that number, counted from 1.

    Asserts that the process came as far as that.
    """
    child = os.fork()
    if child == 0:
        try:
            _die_at(number)
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"ended before commit {number}"
    assert os.WTERMSIG(status) == signal.SIGKILL


def _die_at(number: int) -> None:
    commit = Journal.commit
    count = 0

    def commit_and_die(journal: Journal, state: dict[str, Any]) -> None:
        nonlocal count
        commit(journal, state)
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.commit = commit_and_die  # type: ignore[method-assign]
