"""Files that grow together, and the last point at which all of them were whole.

Reading, filtering and encoding a large corpus take hours in which a process may be killed at any instruction. Each of
them appends to a few files and commits now and then: the files are flushed to the disk, and their sizes are written
down together with what the work needs in order to go on. Opened again, the files are cut back to those sizes, so that
the bytes after a kill are those of a process that was left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nmt.files import COMMIT_FILE, write_atomically


class Journal:
    """A context in which files are open for appending, as they were at the last commit.

    state: what the last commit was given; empty where there is none, or where a file is shorter than it says.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._commit_file = directory / COMMIT_FILE
        self.state, sizes = self._last_commit()
        if any(not _reaches(directory / name, sizes.get(name, 0)) for name in names):
            self.state, sizes = {}, {}
        self._files: dict[str, BinaryIO] = {}
        for name in names:
            path, size = directory / name, sizes.get(name, 0)
            file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115  closed by __exit__
            file.truncate(size)
            file.seek(size)
            self._files[name] = file

    def __getitem__(self, name: str) -> BinaryIO:
        return self._files[name]

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def commit(self, state: dict[str, Any]) -> None:
        """Make all that was written so far, and `state`, which is JSON, survive whatever comes."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        sizes = {name: file.tell() for name, file in self._files.items()}
        write_atomically(self._commit_file, json.dumps({"state": state, "sizes": sizes}))

    def forget(self) -> None:
        """The work is complete: nobody goes on from here."""
        self._commit_file.unlink(missing_ok=True)

    def _last_commit(self) -> tuple[dict[str, Any], dict[str, int]]:
        try:
            commit = json.loads(self._commit_file.read_text("utf-8"))
            return dict(commit["state"]), dict(commit["sizes"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}, {}


def _reaches(path: Path, size: int) -> bool:
    return size == 0 or (path.is_file() and path.stat().st_size >= size)
