"""The command as a process: any locale, a reader that leaves, a full disk, streams that are closed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def nmt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "nmt", *arguments]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment}, timeout=60)


@pytest.mark.case
def test_any_locale_takes_and_gives_utf8() -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = nmt("train", "--cfg", "job", "--package", "run", 'run.notes="été"', **locale)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "notes: été\n".encode() in done.stdout
    refused = nmt("train", "run.notes=été", **locale)
    assert refused.returncode == 2
    assert """'run.notes="été"'\n""".encode() in refused.stderr


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "nmt", "train", "--help"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "nmt", "train", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"nmt: error: No space left on device\n")


def test_version() -> None:
    assert re.fullmatch(rb"nmt (\d+\.\d+\.\d+|\(not installed\))\n", nmt("--version").stdout)


def without(stream: int, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """The command as a process in which a standard stream is closed."""
    command = ["sh", "-c", f'exec "$@" {stream}>&-', "sh", sys.executable, "-m", "nmt", *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)


@pytest.mark.case
@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "--cfg", "job"]])
def test_a_closed_stdout_is_told(arguments: list[str]) -> None:
    done = without(1, *arguments)
    assert (done.returncode, done.stderr) == (1, b"nmt: error: stdout is closed: there is nowhere to write to\n")


@pytest.mark.case
def test_a_closed_stderr_changes_neither_stdout_nor_the_status() -> None:
    for arguments in (["trian"], ["train", "--help"]):
        done = without(2, *arguments)
        whole = nmt(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (whole.returncode, whole.stdout, b"")


@pytest.mark.case
def test_streams_that_do_not_wait_are_made_to() -> None:
    """As another program that shares them may have left them: reading would fail at once, and writing lose lines."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    code = "import os; from nmt import cli; cli.main(['--version']); print(os.get_blocking(0))"
    done = subprocess.run([sys.executable, "-c", code], stdin=read, capture_output=True, check=False, timeout=60)
    assert done.stdout.endswith(b"True\n")
    os.close(read)
    os.close(write)


@pytest.mark.case
def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    program = "import os; from nmt import cli; cli.main(['--version']); print(os.open('/', os.O_RDONLY) > 2, file=f)"
    code = f"import os; f = os.fdopen(os.dup(0), 'w'); {program}"
    read, write = os.pipe()
    command = ["sh", "-c", 'exec "$@" 1>&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(command, stdin=write, check=False, timeout=60).returncode == 0
    os.close(write)
    assert os.fdopen(read, "rb").read() == b"True\n"
