"""Folders of the cache: made once, and made again where they are no longer what was written.

A bit that has changed in a generated or downloaded corpus would be trained on, or scored against, without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from nmt.errors import RequestError
from nmt.files import complete_directory, read_regular, sha256_of

CHECKSUMS = "checksums.json"


def cached_directory(directory: Path, make: Callable[[Path], None], report: Callable[[str], None]) -> None:
    """Has a directory filled by `make` unless it is there and whole. Raises what `make` and `complete_directory` do."""
    if directory.is_dir():
        if _is_whole(directory):
            return
        report(f"{directory} is damaged, and is made again")
    with complete_directory(directory, replace=True) as temporary:
        make(temporary)
        checksums = {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}
        (temporary / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n", encoding="utf-8")


def _is_whole(directory: Path) -> bool:
    """Whether the files are those that were written; one of before there were checksums counts as whole."""
    try:
        checksums = json.loads(read_regular(directory / CHECKSUMS))
        return all(sha256_of(directory / name) == checksum for name, checksum in checksums.items())
    except FileNotFoundError:
        return True
    except (OSError, ValueError, AttributeError, RequestError):
        return False
