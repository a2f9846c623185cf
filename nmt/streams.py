"""The standard streams of a process: three, in UTF-8, whatever it was started with; and what to do when one is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO, cast

from nmt.errors import WorkError


def print_on_stderr(line: str) -> None:
    """A status tells as much where the terminal is gone or the disk full that stderr leads to."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def discard_output() -> None:
    """Where stdout takes no more, let what is still buffered go nowhere, or it would fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def ensure_utf8_mode() -> None:
    """Start over in Python's UTF-8 mode where the locale would make names of files and text ASCII, as LC_ALL=C does."""
    if sys.flags.utf8_mode or sys.getfilesystemencoding().lower() == "utf-8":
        return
    os.environ["PYTHONUTF8"] = "1"  # for the processes that this one starts
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


class _ClosedStdout(io.TextIOBase):
    """In place of a stdout that is closed: says so at the first text, which `print` would lose in silence."""

    def write(self, text: str) -> int:
        raise WorkError("stdout is closed: there is nowhere to write to")


def set_streams() -> None:
    """UTF-8 and LF on the standard streams, whatever the locale and PYTHONIOENCODING say; and there are three."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
            # A terminal or pipe that another program has left without waiting would lose what it cannot take at once.
            os.set_blocking(descriptor, True)
        except OSError:
            # Closed, its number would be given to the next file, which would then get what a library in C prints.
            # A folder can be neither read nor written, whoever tries.
            os.open(os.sep, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _ClosedStdout())
    if sys.stderr is None:  # print would turn to stdout
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")
