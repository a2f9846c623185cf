"""The two ways in which a command fails, and what each says: one line, no traceback."""

from __future__ import annotations


class RequestError(Exception):
    """The request was wrong (exit status 2): the message names the key, the option, or the file and line."""


class WorkError(Exception):
    """The request was right but the work failed (exit status 1): out of memory, a full disk, a broken checkpoint."""
