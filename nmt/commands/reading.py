"""Where the lines of `nmt translate` come from: an option, a file, or stdin, whose lines are answered as they arrive.

Whatever is wrong with a line is raised after all lines before it were handed on.
"""

from __future__ import annotations

import functools
import os
import queue
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import islice

from nmt.data.corpus import GZIP_MAGIC, MAX_LINE_BYTES, decoded_line, read_lines
from nmt.errors import RequestError
from nmt.files import cause_of

LINES_AT_ONCE = 2_000
"""Lines that are sorted by length and translated together; waiting lines are never held back to fill this."""


def input_chunks(arguments: Namespace) -> Iterator[list[str]]:
    """The lines that the options --text, --input or neither of them name, some at once."""
    if arguments.text is not None:
        yield [arguments.text]
    elif arguments.input is not None:
        yield from _chunks(read_lines(arguments.input))
    else:
        yield from _arriving_chunks()


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """The lines, many at once. Raises what `lines` raises, after the lines before it were answered."""
    failure: RequestError | None = None
    while failure is None:
        chunk: list[str] = []
        try:
            for line in islice(lines, LINES_AT_ONCE):
                chunk.append(line)
        except RequestError as error:
            failure = error
        if not chunk:
            break
        yield chunk
    if failure is not None:
        raise failure


def _arriving_chunks() -> Iterator[list[str]]:
    """What stdin holds whenever the last lines are done: everything of a file, one line of a person who types.

    Raises RequestError for a closed stdin, and for a line that is not text, after the lines before it were answered.
    """
    if sys.stdin is None:
        raise RequestError("translate: stdin is closed; give --text or --input")
    arrived: queue.Queue[bytes | RequestError | None] = queue.Queue(maxsize=2 * LINES_AT_ONCE)
    threading.Thread(target=_read_lines_of_stdin, args=(arrived,), daemon=True).start()
    number = 0
    ended = False
    while not ended:
        items = [arrived.get()]
        while len(items) < LINES_AT_ONCE:
            try:
                items.append(arrived.get_nowait())
            except queue.Empty:
                break
        chunk: list[str] = []
        failure: RequestError | None = None
        for item in items:
            ended = not isinstance(item, bytes)
            if isinstance(item, RequestError):
                failure = item
            elif item is not None:
                number += 1
                try:
                    if number == 1 and item.startswith(GZIP_MAGIC):
                        raise RequestError("stdin is a gzip file: unpack it with zcat, or name it with --input")
                    chunk.append(decoded_line("stdin", number, item))
                except RequestError as error:
                    failure = error
            if ended or failure:
                break
        if chunk:
            yield chunk
        if failure is not None:
            raise failure


def _read_lines_of_stdin(arrived: queue.Queue[bytes | RequestError | None]) -> None:
    """Puts the lines of stdin, then None, or what is wrong with it.

    Reads the descriptor itself: a thread that waits inside a buffered reader would make Python abort at exit.
    """
    try:
        read: Callable[[int], bytes] = functools.partial(os.read, sys.stdin.fileno())
    except (OSError, ValueError):  # no descriptor behind it
        read = sys.stdin.buffer.read
    begun = bytearray()
    number = 0
    try:
        while block := read(1 << 16):
            *lines, rest = block.split(b"\n")
            for line in lines:
                arrived.put(bytes(begun + line))
                begun.clear()
                number += 1
            begun += rest
            if len(begun) > MAX_LINE_BYTES:
                arrived.put(
                    RequestError(f"stdin line {number + 1}: longer than {MAX_LINE_BYTES} bytes; not a text file?")
                )
                return
        if begun:
            arrived.put(bytes(begun))
        arrived.put(None)
    except OSError as error:
        arrived.put(RequestError(f"stdin cannot be read: {cause_of(error)}"))
