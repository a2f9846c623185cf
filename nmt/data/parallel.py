"""One function over many items in several processes, with the results in order and only a few of them in memory.

What is computed does not depend on the number of processes: they take turns, and whatever concerns more than one item
is left to the caller, who gets the results as if there were one process. Processes are spawned, not forked, since the
caller has threads; they end with the caller, even if that is killed.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from nmt.errors import WorkError

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 3  # items that wait for each process
MOST_PROCESSES = 8  # that are taken unasked: each has its own copy of the tokenizer or of the language model

_work: Callable[[Any], Any]


def usual_processes() -> int:
    """One for each core that this process may use, up to MOST_PROCESSES."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def map_in_order(work: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result]:
    """As `map`. With more than one process, `work` is copied into each of them once.

    Raises WorkError where a process dies, as one does that the system kills for want of memory.
    """
    if processes <= 1:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(work,))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(_do, item))
            if len(waiting) > AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise WorkError(
            "a process that prepares data has died, perhaps for want of memory: set data.processes=1"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who then ends the others
    threading.Thread(target=_end_with_caller, daemon=True).start()


def _end_with_caller() -> None:
    caller = multiprocessing.parent_process()
    assert caller is not None
    multiprocessing.connection.wait([caller.sentinel])
    os._exit(1)


def _do(item: Any) -> Any:
    return _work(item)
