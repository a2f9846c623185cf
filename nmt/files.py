"""Files and directories that appear under their name only when they are complete.

Whatever this project writes for later is first written next to its destination, flushed to the disk, and then renamed:
a reader never sees half of it, and a process that is killed leaves nothing that looks finished. What a killed process
does leave is a temporary name that nobody holds a lock on; the next writer in the same folder removes it.

A name may also stand for what others hold open: a pipe, a device, or /dev/stdout, whatever that leads to. Such a stream
is written to as it is: a file put in its place would reach nobody, and take with it what others have written.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from nmt.errors import RequestError, WorkError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_LONGEST_KEPT = 50  # characters of a name that a temporary one keeps: with the rest of it, any file system takes those
_DESCRIPTORS = re.compile(r"/dev/fd|/proc/(\d+)(/task/\d+)?/fd")  # folders whose entries are open descriptors
_MOST_LINKS = 40


def cache_root(cache: str | None = None) -> Path:
    """The folder of generated, downloaded and encoded corpora: `cache`, else $NMT_CACHE, else ~/.cache/nmt.

    Raises RequestError where `~` is meant and there is no home directory.
    """
    chosen = cache or os.environ.get("NMT_CACHE") or "~/.cache/nmt"
    try:
        return Path(chosen).expanduser().absolute()
    except RuntimeError as error:
        raise RequestError(f"data.cache={chosen}: no home directory; give a folder, or set NMT_CACHE") from error


def cause_of(error: OSError) -> str:
    """What went wrong in words, without number or file name: "No space left on device"."""
    return error.strerror or str(error) or type(error).__name__


def is_text(value: str) -> bool:
    """Whether a string can be written to a file and be the name of one: UTF-8 without NUL."""
    try:
        return b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which YAML can write as "\ud800"
        return False


def read_regular(path: Path) -> bytes:
    """The bytes of a file. Raises OSError for what is none, such as a pipe, which may keep its reader waiting."""
    require_regular(path)
    return path.read_bytes()


def require_regular(path: Path | str) -> None:
    """Raises OSError unless the path is of a regular file or leads to one."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def sha256_of(path: Path | str) -> str:
    """SHA-256 of a file's bytes, 64 hexadecimal digits. Raises RequestError where the file cannot be read."""
    try:
        require_regular(path)
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"cannot read {path}: {cause_of(error)}") from error


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Write a whole file, or leave the one that is there as it was. Text becomes UTF-8, its line ends are kept.

    A symbolic link is followed; a stream, such as /dev/stdout, is written to as it is. Folders are made where missing.
    Raises WorkError naming the path and the cause, such as a full disk or a folder without write permission.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with as_work_error(Path(path)):
        if _is_stream(path):
            with open(_open_stream(path), "wb") as stream:
                stream.write(data)
            return
        destination = _destination(path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(destination.parent)
        temporary, lock = _make_temporary(destination, directory=False)
        try:
            with open(lock, "wb", closefd=False) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if destination.is_file():
                os.fchmod(lock, stat.S_IMODE(destination.stat().st_mode))
            os.replace(temporary, destination)
            fsync(destination.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(lock)


def require_writable(path: Path | str, *, directory: bool = False) -> None:
    """Raise WorkError, naming the cause, where `write_atomically` or `complete_directory` could not write.

    To be asked before the work whose result goes there. Nothing is left behind and nobody is waited for, not even the
    reader of a pipe. A file that is write-protected counts as one that is not to be replaced.
    """
    with as_work_error(Path(path)):
        if not directory and _is_stream(path):
            _require_open_for_writing(path)
            return
        destination = _destination(path)
        try:
            mode = destination.lstat().st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None and stat.S_ISDIR(mode) != directory:
            raise _error(errno.ENOTDIR if directory else errno.EISDIR)
        folder = next(parent for parent in destination.parents if parent.exists())
        temporary, lock = _make_temporary(folder / destination.name, directory=directory)
        os.close(lock)
        temporary.rmdir() if directory else temporary.unlink()
        if mode is not None and not os.access(destination, os.W_OK):
            raise _error(errno.EACCES)


@contextlib.contextmanager
def complete_directory(path: Path | str, *, replace: bool = False) -> Iterator[Path]:
    """A temporary directory next to `path`, which becomes `path`, flushed to the disk, when the block ends.

    An exception in the block removes it and leaves `path` alone. A symbolic link is followed. Where `path` exists by
    then, because another process made it meanwhile, that one is kept, unless `replace` is true. (Where the file system
    cannot let two names change places, replacing takes two renames; a process killed just between them leaves no
    directory named `path`.)
    Raises WorkError naming `path` and the cause in place of an OSError.
    """
    with as_work_error(Path(path).absolute()):
        destination = _destination(path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(destination.parent)
        temporary, lock = _make_temporary(destination, directory=True)
        try:
            yield temporary
            fsync_tree(temporary)
            _move_into_place(temporary, destination, replace)
            fsync(destination.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            os.close(lock)


def remove_directory(path: Path) -> None:
    """Remove a directory so that a process killed meanwhile leaves no part of it under its name.

    What cannot be removed stays, without an error: it only takes up space.
    """
    doomed = _temporary_name(path)
    with contextlib.suppress(OSError):
        os.rename(path, doomed)
        shutil.rmtree(doomed)


def remove_leftovers(folder: Path | str) -> None:
    """Remove what killed processes left half-written in a folder; what a living one is writing is locked and stays."""
    with os.scandir(folder) as entries:
        leftovers = [entry.path for entry in entries if _TEMPORARY.fullmatch(entry.name)]
    for leftover in leftovers:
        # Another process may be quicker, and some network file systems know no locks: then there is nothing to do.
        with contextlib.suppress(OSError):
            descriptor = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.isdir(leftover):
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    os.unlink(leftover)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path | str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; wait for whoever holds it. Ends with the process in any case."""
    path = Path(path)
    with as_work_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with contextlib.suppress(OSError):  # a network file system without locks: go on without
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def as_work_error(path: Path) -> Iterator[None]:
    """Turn an OSError into one line that names the path that was to be written."""
    try:
        yield
    except OSError as error:
        # In the block of a complete_directory, it may have been another file that could not be read or written.
        other = error.filename if isinstance(error.filename, str) and path.name not in error.filename else None
        raise WorkError(f"cannot write {path}: {cause_of(error)}" + (f" ({other})" if other else "")) from error


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _destination(path: Path | str) -> Path:
    """Where the file or directory of that name is, links followed. Raises OSError for links that lead in a circle."""
    destination = Path(os.path.realpath(path))
    if destination.is_symlink():
        raise _error(errno.ELOOP)
    return destination


def _descriptor(path: Path | str) -> Path | None:
    """The entry of a folder of open descriptors that a name leads to: /proc/123/fd/1 for /dev/stdout.

    That entry is a link, too; but where it leads is only what the descriptor is of, and not another name of it.
    """
    name = Path(path).absolute()
    for _ in range(_MOST_LINKS):
        name = Path(os.path.realpath(name.parent), name.name)
        if name.name.isdecimal() and _DESCRIPTORS.fullmatch(str(name.parent)):
            return name
        try:
            name = name.parent / os.readlink(name)
        except OSError:
            return None
    return None


def _own_number(descriptor: Path | None) -> int | None:
    """The number of a descriptor of this process."""
    match = _DESCRIPTORS.fullmatch(str(descriptor.parent)) if descriptor else None
    own = descriptor is not None and match is not None and match[1] in (None, str(os.getpid()))
    return int(descriptor.name) if own and descriptor else None


def _is_stream(path: Path | str) -> bool:
    """Whether a name stands for something that is written to and cannot be replaced."""
    if _descriptor(path):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:  # what is wrong with the name shows when a file is made
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _open_stream(path: Path | str) -> int:
    """A new descriptor. One of this process's own is doubled: opened by its name, a file would begin anew."""
    number = _own_number(_descriptor(path))
    return os.open(path, os.O_WRONLY | os.O_APPEND) if number is None else os.dup(number)


def _require_open_for_writing(path: Path | str) -> None:
    number = _own_number(_descriptor(path))
    if number is None:
        if not os.access(path, os.W_OK):
            raise _error(errno.EACCES)
    elif fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise _error(errno.EBADF)


def _make_temporary(path: Path, *, directory: bool) -> tuple[Path, int]:
    """A new, locked file or directory next to `path`, and the descriptor that holds the lock."""
    while True:
        temporary = _temporary_name(path)
        if directory:
            temporary.mkdir()
        else:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        # Between its making and its locking, another writer's remove_leftovers may take it for one: then once more.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(temporary, os.O_RDONLY if directory else os.O_RDWR)
            if _lock(descriptor) and temporary.exists():
                return temporary, descriptor
            os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:_LONGEST_KEPT]}.{secrets.token_hex(8)}.tmp")


def _lock(descriptor: int) -> bool:
    """Whether nobody else holds the lock; where a network file system knows no locks, nobody does."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _move_into_place(temporary: Path, path: Path, replace: bool) -> None:
    if replace and path.is_dir():
        if not _exchange(temporary, path):
            remove_directory(path)
            os.rename(temporary, path)
        return
    try:
        os.rename(temporary, path)
    except OSError:
        # rename refuses to replace a directory that is not empty: somebody else has completed it.
        if replace or not path.is_dir():
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Let two names change places in one operation of the file system; False where there is no such operation.

    This is Linux's renameat2 with RENAME_EXCHANGE, for which Python has no function.
    """
    current_folder, exchange = -100, 2
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(current_folder, os.fsencode(one), current_folder, os.fsencode(other), exchange) == 0)


def fsync_tree(directory: Path) -> None:
    """Flush a directory with all that is in it to the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            file = Path(folder, name)
            if not file.is_symlink():
                fsync(file)
        fsync(Path(folder))


def fsync(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
