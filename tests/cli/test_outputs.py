"""Where results are written to: streams as they are, files all at once, and what takes neither is said beforehand."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.decoding.translator import Translator

Command = Callable[..., Any]

TEXT = "The cat sees a horse."
TRANSLATED = "Le chat voit un cheval.\n"


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """To load a run is an error: what is refused shall be refused before it."""

    def load(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(Translator, "load", load)


def in_a_shell(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """A line of a shell in which "$@" is the command with these arguments."""
    program = [sys.executable, "-m", "nmt", *map(str, arguments)]
    return subprocess.run(["sh", "-c", command, "sh", *program], capture_output=True, check=False, timeout=120)


@pytest.mark.case
@pytest.mark.parametrize("name", ["/dev/stdout", "link"])
def test_stdout_by_its_name_is_stdout(name: str, trained_run: Path, tmp_path: Path) -> None:
    """Wherever the shell has led it to: what is there stays, and what others write there is not lost."""
    log = tmp_path / "log"
    log.write_text("before\n")
    inode = log.stat().st_ino
    if name == "link":
        name = str(tmp_path / "link")
        Path(name).symlink_to("/dev/stdout")
    options = ["--text", TEXT, "--output", name]
    done = in_a_shell(f'{{ "$@"; echo after; }} >> "{log}"', "translate", trained_run, *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert log.read_text() == f"before\n{TRANSLATED}after\n"
    assert log.stat().st_ino == inode
    assert sorted(path.name for path in tmp_path.iterdir()) in (["log"], ["link", "log"])


@pytest.mark.case
def test_alignments_follow_the_translations_on_stdout(trained_run: Path, tmp_path: Path) -> None:
    options = ["--text", TEXT, "--alignments", "/dev/stdout"]
    done = in_a_shell(f'"$@" > "{tmp_path / "out"}"', "translate", trained_run, *options)
    assert (done.returncode, done.stderr) == (0, b"")
    translated, aligned = (tmp_path / "out").read_text().splitlines(keepends=True)
    assert translated == TRANSLATED
    assert all(pair.count("-") == 1 for pair in aligned.split())


@pytest.mark.case
def test_a_pipe_is_written_to_and_stays(nmt: Command, trained_run: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert nmt("translate", trained_run, "--text", TEXT, "--output", pipe).status == 0
    reader.join(60)
    assert read == [TRANSLATED]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.case
def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(
    nmt: Command, trained_run: Path, empty_folder: Path
) -> None:
    Path("deep").mkdir()
    Path("deep/real").write_text("old")
    Path("link").symlink_to("deep/real")
    Path("dangling").symlink_to("deep/new")
    for link, file in (("link", "deep/real"), ("dangling", "deep/new")):
        assert nmt("translate", trained_run, "--text", TEXT, "--output", link).status == 0
        assert Path(link).is_symlink()
        assert Path(file).read_text() == TRANSLATED
    assert sorted(os.listdir("deep")) == ["new", "real"]


@pytest.mark.case
@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("", 2, "translate: argument {option}: must not be empty"),
        ("new/", 2, "translate: argument {option}: new/ is the name of a folder; name a file"),
        ("folder", 1, "cannot write folder: Is a directory"),
        ("folder/.", 2, "translate: argument {option}: folder/. is the name of a folder; name a file"),
        ("circle", 1, "cannot write circle: Too many levels of symbolic links"),
        ("file/a", 1, "cannot write file/a: Not a directory"),
        ("f" * 5000, 2, "translate: argument {option}: " + "f" * 40 + "…: file name too long"),
        ("/dev/fd/987", 1, "cannot write /dev/fd/987: Bad file descriptor"),
    ],
)
@pytest.mark.parametrize("option", ["--output", "--alignments"])
def test_what_cannot_be_written_is_said_before_the_work(
    option: str, name: str, status: int, says: str, nmt: Command, empty_folder: Path
) -> None:
    Path("folder").mkdir()
    Path("file").write_text("")
    Path("circle").symlink_to("circle")
    outcome = nmt("translate", "no run", option, name)
    assert (outcome.status, outcome.out) == (status, "")
    assert outcome.err.startswith(f"nmt: error: {says.format(option=option)}")
    assert outcome.err.count("\n") == 1
    assert sorted(os.listdir()) == ["circle", "file", "folder"]


@pytest.mark.case
@pytest.mark.parametrize("verb", ["translate", "attend", "compare"])
def test_every_verb_looks_first(verb: str, nmt: Command, trained_run: Path, empty_folder: Path, no_work: None) -> None:
    Path("file").write_text("")
    target = {"attend": "file/a.png", "compare": "file"}.get(verb, "file/a")
    arguments = {"attend": ["--text", TEXT], "translate": ["--text", TEXT], "compare": [trained_run / "checkpoints"]}
    outcome = nmt(verb, trained_run, *arguments.get(verb, []), "--output", target)
    assert outcome.status == 1
    assert outcome.err.startswith(f"nmt: error: cannot write {target}")
    assert outcome.err.endswith(": Not a directory\n")
    assert os.listdir() == ["file"]


@pytest.mark.case
def test_two_dashes_are_a_name(nmt: Command, trained_run: Path, empty_folder: Path) -> None:
    """And no number: argparse makes an empty list of them, which passed for no option at all."""
    assert nmt("translate", trained_run, "--text", TEXT, "--output=--").out == ""
    assert Path("--").read_text() == TRANSLATED
    outcome = nmt("translate", trained_run, "--text", TEXT, "--beam-size=--")
    assert (outcome.status, outcome.out) == (2, "")
    assert "--beam-size: invalid whole number from 1 to " in outcome.err


@pytest.mark.case
def test_names_of_files_to_read_are_looked_at_as_well(nmt: Command, trained_run: Path) -> None:
    for arguments in (["translate", ""], ["translate", trained_run, "--input", ""], ["compare", trained_run, ""]):
        outcome = nmt(*arguments)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.endswith(f"must not be empty (see nmt {arguments[0]} --help)\n")
    outcome = nmt("score", "r" * 5000)
    assert (outcome.status, outcome.err.count("\n")) == (2, 1)
    assert len(outcome.err) < 200
