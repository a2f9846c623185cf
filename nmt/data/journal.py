"""Files that grow together, and the last point at which all of them were whole.

Reading, filtering and encoding a large corpus take hours in which a process may be killed at any instruction. Each of
them appends to a few files and commits now and then: the files are flushed to the disk, and their sizes are written
down together with what the work needs in order to go on. Opened again, the files are cut back to those sizes, so that
the bytes after a kill are those of a process that was left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import RequestError
from nmt.files import as_work_error, fsync, fsync_tree, write_atomically

COMMIT_FILE = "commit.json"
"""In a directory that is being built: how far the work has got for certain."""


def build_directory(path: Path | str, build: Callable[[Path], None]) -> None:
    """Make the directory `path` by work that can be continued: `build` fills a directory next to it, then renamed.

    A process that is killed, or an exception, leaves what is there to the next call, which hands it to `build` again
    where it holds a Journal's last commit and else begins anew. Nothing is left after a
    RequestError, since the request will be another one. Of several processes, one works and the others wait for it.
    Raises WorkError naming `path` and the cause in place of an OSError.
    """
    path = Path(path).absolute()
    unfinished = path.with_name(f".{path.name}.unfinished")
    with as_work_error(path):
        while not path.is_dir():
            unfinished.mkdir(parents=True, exist_ok=True)
            with _lock_of(unfinished) as still_there:
                # Whoever held the lock may have completed and renamed, or given up and removed it. Or the folder is a
                # new one, made just after another process had completed its own: then nobody needs it.
                if still_there and path.is_dir():
                    shutil.rmtree(unfinished, ignore_errors=True)
                elif still_there:
                    _build(unfinished, path, build)


def _build(unfinished: Path, path: Path, build: Callable[[Path], None]) -> None:
    keep = False
    try:
        build(unfinished)
        fsync_tree(unfinished)
        os.rename(unfinished, path)
        fsync(path.parent)
    except RequestError:
        raise
    except BaseException:
        keep = (unfinished / COMMIT_FILE).is_file()
        raise
    finally:
        if not keep:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _lock_of(directory: Path) -> Iterator[bool]:
    """Hold a directory's lock, waiting for it; whether the directory still has its name by then."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        with contextlib.suppress(OSError):  # a network file system without locks: go on without
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory.is_dir() and os.path.samestat(os.stat(directory), os.fstat(descriptor))
    finally:
        os.close(descriptor)


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
