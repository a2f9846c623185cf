"""`nmt serve` as a process: it answers what `nmt translate` prints, and a signal ends it after the last answer."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nmt.serving as serving_package

Command = Callable[..., Any]
WAIT = 120  # seconds, on a busy machine
LINES = ["The cat sees a horse.", "", "x y z", "My sister draws the summer. " * 3, "the\tcat ||| </s>"] * 4
"""Of several lengths, and so of several batches."""


def address_of(process: subprocess.Popen[bytes]) -> str:
    """Where it serves, once it does."""
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = re.fullmatch(r"serving trained on (http://127\.0\.0\.1:\d+) \(Ctrl\+C ends it\)\n", line)
    assert found, line
    return found[1]


def post(address: str, **parameters: Any) -> Any:
    request = urllib.request.Request(address, json.dumps(parameters).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("number", "status", "last"), [(signal.SIGTERM, 143, "nmt: terminated"), (signal.SIGINT, 130, "nmt: interrupted")]
)
def test_a_signal_ends_it_after_the_last_answer(
    number: int, status: int, last: str, trained_run: Path, nmt: Command, nmt_process: Command, tmp_path: Path
) -> None:
    pytest.importorskip("fastapi", reason="the optional package FastAPI is not installed")
    process = nmt_process("serve", trained_run, "--port", "0")
    with ThreadPoolExecutor(1) as pool:
        address = address_of(process)
        asked = pool.submit(post, f"{address}/translate", q=LINES, source="en", target="fr")
        while "nmt_batch_lines_count 0\n" in (metrics := text_of(f"{address}/metrics")):
            assert process.poll() is None
        assert "nmt_waiting_lines 0\n" not in metrics, "not all is translated yet"
        process.send_signal(number)
        found = asked.result(WAIT)["translatedText"]
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err.decode()) == (status, f"{last}\n")
    source = tmp_path / "source"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert "".join(f"{line}\n" for line in found) == nmt("translate", trained_run, "--input", source).out


def text_of(address: str) -> str:
    with urllib.request.urlopen(address, timeout=WAIT) as answer:
        return answer.read().decode()


def test_without_the_optional_packages(nmt: Command, trained_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("server", "protocol"):
        monkeypatch.delitem(sys.modules, f"nmt.serving.{module}", raising=False)
        monkeypatch.delattr(serving_package, module, raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    outcome = nmt("serve", trained_run)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("nmt: error: serve needs FastAPI and uvicorn, which cannot be imported here (")
    assert outcome.err.endswith('); pip install "fastapi>=0.115" "uvicorn>=0.30"\n')
    assert outcome.err.count("\n") == 1


def test_mistakes_are_one_line(nmt: Command, trained_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the optional package FastAPI is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases: list[tuple[list[str | Path], int, str]] = [
            ([], 2, "serve: the following arguments are required: RUN (see nmt serve --help)"),
            (
                [trained_run, "--port", "65536"],
                2,
                "serve: argument --port: invalid port from 0 to 65535 value: '65536' ",
            ),
            (
                [trained_run, "--max-line", "0"],
                2,
                "serve: argument --max-line: invalid whole number above 0 value: '0' ",
            ),
            ([tmp_path], 2, str(tmp_path)),
            ([trained_run, trained_run], 2, f"serve: {trained_run} twice"),
            (
                [trained_run, "--port", str(port)],
                1,
                f"serve: cannot listen on 127.0.0.1:{port}: Address already in use",
            ),
        ]
        for arguments, status, message in cases:
            outcome = nmt("serve", *arguments)
            assert (outcome.status, outcome.out, outcome.err.count("\n")) == (status, "", 1)
            assert outcome.err.startswith(f"nmt: error: {message}")
