"""What may be written after an option: each function turns the text into a value, or says what it should be.

argparse makes one line of that; for a ValueError it takes the words from the function's name.
"""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path

from nmt.config import MOST_HYPOTHESES


def path(text: str) -> Path:
    """The type of an option that names a file or folder; what cannot be a name is refused before it is looked for."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    try:
        os.lstat(text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise argparse.ArgumentTypeError(f"{text[:40]}…: file name too long") from None
    return Path(text)


def file(text: str) -> Path:
    """The type of an option that names a file to write."""
    if text.endswith((os.sep, f"{os.sep}.")):
        raise argparse.ArgumentTypeError(f"{text} is the name of a folder; name a file")
    return path(text)


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


count.__name__ = "whole number above 0"  # argparse says: invalid … value


def hypotheses(text: str) -> int:
    number = count(text)
    if number > MOST_HYPOTHESES:
        raise ValueError
    return number


hypotheses.__name__ = f"whole number from 1 to {MOST_HYPOTHESES}"


def lengths(text: str) -> tuple[int, ...]:
    limits = tuple(count(part) for part in text.split(","))
    if list(limits) != sorted(set(limits)):
        raise ValueError
    return limits


lengths.__name__ = "list of rising whole numbers, such as 10,20,30"
