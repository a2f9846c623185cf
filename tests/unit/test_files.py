"""Files that are complete or absent, whatever ends the writer: an exception, a signal, a full disk, a competitor."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt import files
from nmt.errors import RequestError, WorkError
from nmt.files import (
    cache_root,
    complete_directory,
    locked,
    remove_directory,
    remove_leftovers,
    require_writable,
    sha256_of,
    write_atomically,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# cache_root


def test_the_cache_is_the_given_folder_else_the_environment_else_in_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NMT_CACHE", raising=False)
    assert cache_root() == tmp_path / ".cache" / "nmt"
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "elsewhere"))
    assert cache_root() == tmp_path / "elsewhere"
    assert cache_root(str(tmp_path / "given")) == tmp_path / "given"
    assert cache_root("~/mine") == tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    assert cache_root("relative") == tmp_path / "relative"


# write_atomically


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(content=st.binary() | st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_what_is_there(tmp_path: Path, content: bytes | str) -> None:
    file = tmp_path / "new" / "file"
    write_atomically(file, content)
    assert file.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert names(file.parent) == ["file"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.json"
    write_atomically(file, "old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nmt.files.os.fsync", no_space)
    with pytest.raises(WorkError, match=f"^cannot write {re.escape(str(file))}: No space left on device$"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert names(tmp_path) == ["results.json"]


def test_a_disk_that_is_really_full_is_named_as_such(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(WorkError, match=r"^cannot write /dev/full: No space left on device$"):
        write_atomically("/dev/full", "something")
    assert Path("/dev/full").is_char_device()


def test_a_folder_that_cannot_be_written_to_gives_one_line_with_path_and_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for write in (lambda path: write_atomically(path, "x"), lambda path: complete_directory(path).__enter__()):
        with pytest.raises(WorkError, match=r"cannot write .*file/inside: (Not a directory|File exists)") as caught:
            write(tmp_path / "file" / "inside")
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_gives_one_line_with_path_and_cause(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WorkError, match=r"cannot write .*: Permission denied"):
        write_atomically(tmp_path / "file", "x")


def test_a_link_is_followed_and_a_device_is_not_replaced(tmp_path: Path) -> None:
    write_atomically(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    write_atomically("/dev/null", "nothing")
    assert Path("/dev/null").is_char_device()


def test_permissions_follow_the_umask_and_then_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write_atomically(file, "x")
        with complete_directory(tmp_path / "directory"):
            pass
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "directory").stat().st_mode & 0o777 == 0o750
    file.chmod(0o604)
    write_atomically(file, "y")
    assert file.stat().st_mode & 0o777 == 0o604


# complete_directory


def test_a_directory_appears_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "corpus"
    with complete_directory(path) as temporary:
        assert temporary.parent == path.parent
        (temporary / "sub").mkdir()
        (temporary / "sub" / "file").write_text("text")
        assert not path.exists()
    assert (path / "sub" / "file").read_text() == "text"
    assert names(path.parent) == ["corpus"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_passes_through_and_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with complete_directory(tmp_path / "corpus") as temporary:
            (temporary / "half").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == []


def test_replacing_is_one_operation_where_the_system_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a moment at which there is no directory of that name."""
    if not sys.platform.startswith("linux"):
        pytest.skip("not Linux")

    def replace(text: str) -> None:
        with complete_directory(tmp_path / "corpus", replace=True) as temporary:
            (temporary / text).touch()

    replace("first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", lambda *_: pytest.fail("one after the other"))
        replace("second")
    assert names(tmp_path / "corpus") == ["second"]
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    replace("third")
    assert names(tmp_path / "corpus") == ["third"]
    assert names(tmp_path) == ["corpus"]


def test_a_directory_that_is_being_removed_is_not_there_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_: None)  # killed there
        remove_directory(tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == []
    remove_directory(tmp_path / "nothing")


def test_an_existing_directory_is_kept_or_replaced_as_asked(tmp_path: Path) -> None:
    for text, replace, expected in (("first", False, "first"), ("second", False, "first"), ("third", True, "third")):
        with complete_directory(tmp_path / "corpus", replace=replace) as temporary:
            (temporary / "file").write_text(text)
        assert (tmp_path / "corpus" / "file").read_text() == expected
        assert names(tmp_path) == ["corpus"]


def test_an_error_in_the_block_names_the_directory_the_cause_and_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkError, match=r"cannot write .*corpus: No such file or directory \(.*absent\)"),
        complete_directory(tmp_path / "corpus"),
    ):
        (tmp_path / "absent").read_text()


def test_a_limit_of_the_system_while_writing_leaves_nothing(tmp_path: Path) -> None:
    code = """
        import resource, signal, sys
        from nmt.errors import WorkError
        from nmt.files import complete_directory, write_atomically
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        def directory():
            with complete_directory(sys.argv[1] + "/directory") as temporary:
                (temporary / "weights").write_bytes(bytes(5000))
        for action in (directory, lambda: write_atomically(sys.argv[1] + "/file", bytes(5000))):
            try:
                action()
            except WorkError as error:
                print(error)
    """
    result = run_python(code, tmp_path)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        f"cannot write {tmp_path}/directory: File too large",
        f"cannot write {tmp_path}/file: File too large",
    ]
    assert names(tmp_path) == []


@pytest.mark.parametrize("next_writer", ["file", "directory"])
def test_what_a_killed_process_leaves_is_invisible_and_removed_by_the_next_writer(
    tmp_path: Path, next_writer: str
) -> None:
    code = """
        import os, signal, sys
        from nmt.files import complete_directory
        with complete_directory(sys.argv[1] + "/step_1") as temporary:
            (temporary / "half").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_python(code, tmp_path).returncode == -signal.SIGKILL
    assert not (tmp_path / "step_1").exists()
    assert len(names(tmp_path)) == 1
    (tmp_path / ".hidden.tmp").write_text("somebody else's")
    if next_writer == "file":
        write_atomically(tmp_path / "other", "x")
    else:
        with complete_directory(tmp_path / "other"):
            pass
    assert names(tmp_path) == [".hidden.tmp", "other"]


def test_what_a_living_writer_is_writing_is_left_alone(tmp_path: Path) -> None:
    with complete_directory(tmp_path / "corpus") as temporary:
        code = "import sys; from nmt.files import remove_leftovers; remove_leftovers(sys.argv[1])"
        assert run_python(code, tmp_path).returncode == 0
        remove_leftovers(tmp_path)
        assert temporary.is_dir()
    assert names(tmp_path) == ["corpus"]


def test_writers_that_compete_agree_on_one_complete_directory(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            start.wait()
            with complete_directory(tmp_path / "corpus") as temporary:
                for name in ("a", "b"):
                    (temporary / name).write_text(str(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert names(tmp_path) == ["corpus"]
    assert (tmp_path / "corpus" / "a").read_text() == (tmp_path / "corpus" / "b").read_text()


# The rest


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with locked(tmp_path / "folder" / "lock"):
                inside += 1
                most = max(most, inside)
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_sha256_is_that_of_the_bytes_and_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256_of(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(RequestError, match=r"cannot read .*absent: No such file or directory"):
        sha256_of(tmp_path / "absent")


# require_writable


def written_directory(path: Path) -> None:
    with complete_directory(path, replace=True):
        pass


def test_what_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    for name in ("file", "pipe", "new/folder/file", "/dev/null", "é" * 120):
        require_writable(tmp_path / name)
    for name in ("directory", "new/directory"):
        require_writable(tmp_path / name, directory=True)
    assert names(tmp_path) == before
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "directory", "cause"),
    [
        ("directory", False, "Is a directory"),
        ("file", True, "Not a directory"),
        ("pipe", True, "Not a directory"),
        ("file/below", False, "Not a directory"),
        ("circle", False, "Too many levels of symbolic links"),
        ("circle", True, "Too many levels of symbolic links"),
        ("x" * 300, False, "File name too long"),
        ("/proc/none", False, "No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_refused_as_it_would_be_in_the_end(
    name: str, directory: bool, cause: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "directory").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    with pytest.raises(WorkError, match=rf"^cannot write \S*{re.escape(name)}: {cause}") as caught:
        require_writable(tmp_path / name, directory=directory)
    assert "\n" not in str(caught.value)
    with pytest.raises(WorkError):
        written_directory(tmp_path / name) if directory else write_atomically(tmp_path / name, "x")
    assert names(tmp_path) == before


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("é" * 127), "x")
    with complete_directory(tmp_path / ("x" * 255)):
        pass
    assert names(tmp_path) == ["x" * 255, "é" * 127]


def test_a_link_to_a_directory_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old").write_text("")
    (tmp_path / "link").symlink_to("real")
    with complete_directory(tmp_path / "link", replace=True) as temporary:
        (temporary / "new").write_text("")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["new"]
    assert names(tmp_path) == ["link", "real"]


def test_a_descriptor_by_its_name_must_be_open_for_writing(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file, open(tmp_path / "file", "rb") as only_read:
        for number, cause in ((only_read.fileno(), "Bad file descriptor"), (987, "Bad file descriptor")):
            for write in (require_writable, lambda path: write_atomically(path, "x")):
                with pytest.raises(WorkError, match=f"^cannot write /dev/fd/{number}: {cause}$"):
                    write(f"/dev/fd/{number}")
        file.write(b"before ")
        file.flush()
        require_writable(f"/dev/fd/{file.fileno()}")
        write_atomically(f"/dev/fd/{file.fileno()}", "here")
        file.write(b" after")
    assert (tmp_path / "file").read_bytes() == b"before here after"
