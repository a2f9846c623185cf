"""Folders of the cache: made once, and made again where they are no longer what was written.

A bit that has changed in a generated or downloaded corpus would be trained on, or scored against, without a word.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

from nmt.data.journal import build_directory
from nmt.errors import RequestError
from nmt.files import complete_directory, read_regular, remove_directory, sha256_of

CHECKSUMS = "checksums.json"


def cached_directory(directory: Path, make: Callable[[Path], None], report: Callable[[str], None]) -> None:
    """Has a directory filled by `make` unless it is there and whole. Raises what `make` and `complete_directory` do."""
    if directory.is_dir():
        if _is_whole(directory):
            return
        report(f"{directory} is damaged, and is made again")
    with complete_directory(directory, replace=True) as temporary:
        _make(make, temporary)


def resumed_directory(directory: Path, make: Callable[[Path], None], report: Callable[[str], None]) -> None:
    """As `cached_directory`, for long work that writes a Journal: interrupted or killed, it goes on from there."""
    if directory.is_dir() and not _is_whole(directory):
        report(f"{directory} is damaged, and is made again")
        remove_directory(directory)
    build_directory(directory, functools.partial(_make, make))


def _make(make: Callable[[Path], None], directory: Path) -> None:
    make(directory)
    checksums = {path.name: sha256_of(path) for path in sorted(directory.iterdir())}
    (directory / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n", encoding="utf-8")


def _is_whole(directory: Path) -> bool:
    """Whether the files are those that were written; one of before there were checksums counts as whole."""
    try:
        checksums = json.loads(read_regular(directory / CHECKSUMS))
        return all(sha256_of(directory / name) == checksum for name, checksum in checksums.items())
    except FileNotFoundError:
        return True
    except (OSError, ValueError, AttributeError, RequestError):
        return False
