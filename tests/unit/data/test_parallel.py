"""Work shared by processes: the results are those of one, few of them are in memory, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.data.parallel import AHEAD, map_in_order
from nmt.errors import WorkError


@pytest.mark.case
@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_order_and_hardly_anything_is_taken_ahead(processes: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(40):
            taken += 1
            yield -number

    for done, result in enumerate(map_in_order(abs, items(), processes)):
        assert result == done
        assert taken - done <= (AHEAD * processes + 1 if processes > 1 else 1)
    assert taken == 40


def test_what_goes_wrong_with_an_item_is_raised_where_its_result_would_be() -> None:
    results = map_in_order(int, ["1", "2", "drei"], 2)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match="drei"):
        next(results)


def test_a_process_that_dies_is_one_line() -> None:
    with pytest.raises(WorkError, match=r"has died, perhaps for want of memory: set data\.processes=1"):
        list(map_in_order(os._exit, [1, 1, 1], 2))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_processes_end_with_a_caller_that_is_killed() -> None:
    program = (
        "import time; from nmt.data.parallel import map_in_order\n"
        "for _ in map_in_order(time.sleep, iter(lambda: 0.01, None), 2): print(flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        caller.stdout.readline()  # a result: they are at work
        children = _children(caller.pid)
        assert len(children) >= 2
        caller.send_signal(signal.SIGKILL)
        for _ in range(600):
            if not any(map(_runs, children)):
                return
            time.sleep(0.1)
    pytest.fail("still running")


def _children(process: int) -> list[int]:
    return [
        int(child) for path in Path(f"/proc/{process}/task").glob("*/children") for child in path.read_text().split()
    ]


def _runs(process: int) -> bool:
    """Whether it has not ended; what has ended, but was not waited for, is marked Z."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
