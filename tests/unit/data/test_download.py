"""Fetching against a server on this machine that serves, truncates, refuses, continues or does not."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nmt.data import download
from nmt.data.download import fetch
from nmt.errors import RequestError, WorkError

CONTENT = bytes(range(256)) * 4000  # 1 MB: several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What the server does with the next requests, and what it was asked."""

    address: str = ""
    content: bytes = CONTENT
    ranges: bool = True
    content_range: str | None = None
    status: int | None = None
    cut_after: list[int] = field(default_factory=list)  # bytes sent of each of the next answers
    announces_length: bool = True
    asked: list[str | None] = field(default_factory=list)  # Range header of each request

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers["Range"]
        self.asked.append(asked)
        if self.status is not None:
            handler.send_error(self.status)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        if start >= len(self.content) and start:
            handler.send_error(416)
            return
        body = self.content[start:]
        handler.send_response(206 if start else 200)
        if start:
            last = len(self.content) - 1
            handler.send_header("Content-Range", self.content_range or f"bytes {start}-{last}/{len(self.content)}")
        if self.announces_length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cut_after.pop(0)] if self.cut_after else body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class QuietServer(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """A client that hung up is what some tests are about."""

    with QuietServer(("127.0.0.1", 0), Handler) as http_server:
        state.address = f"http://127.0.0.1:{http_server.server_address[1]}/file.gz"
        thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        http_server.shutdown()
        thread.join()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "file.gz"


@pytest.fixture
def partial(file: Path) -> Path:
    file.parent.mkdir(parents=True)
    return file.with_name("file.gz.partial")


def run(server: Server, file: Path, sha256: str = SHA256) -> list[str]:
    """The lines that were reported."""
    reported: list[str] = []
    assert fetch(server.address, sha256, file, reported.append) == file
    assert file.read_bytes() == server.content
    assert [path.name for path in file.parent.iterdir() if not path.name.startswith(".")] == ["file.gz"]
    return reported


def failure(server: Server, file: Path, sha256: str = SHA256) -> str:
    with pytest.raises(WorkError) as caught:
        fetch(server.address, sha256, file, lambda line: None)
    message = str(caught.value)
    assert server.address in message
    assert "data.dir" in message
    assert "\n" not in message
    assert not file.exists()
    return message


def test_a_file_is_fetched_once_and_then_used_without_the_network(server: Server, file: Path) -> None:
    assert run(server, file, SHA256.upper()) == [f"downloading file.gz from {server.address} (1.0 MB)"]
    assert server.asked == [None]
    assert run(server, file) == []
    assert fetch("http://127.0.0.1:1/nobody", SHA256, file, pytest.fail) == file
    assert server.asked == [None]


def test_an_unknown_length_and_an_empty_file_are_fine(server: Server, file: Path) -> None:
    server.announces_length = False
    run(server, file)
    server.content = b""
    run(server, file.with_name("other") / "file.gz", hashlib.sha256(b"").hexdigest())


def test_a_partial_file_is_continued(server: Server, file: Path, partial: Path) -> None:
    partial.write_bytes(CONTENT[:300_001])
    run(server, file)
    assert server.asked == ["bytes=300001-"]


def test_a_server_that_ignores_ranges_sends_it_all_again(server: Server, file: Path, partial: Path) -> None:
    server.ranges = False
    partial.write_bytes(CONTENT[:300_001])
    run(server, file)
    assert server.asked == ["bytes=300001-"]


def test_a_partial_file_that_is_whole_needs_only_its_name(server: Server, file: Path, partial: Path) -> None:
    partial.write_bytes(CONTENT)
    run(server, file)


@pytest.mark.parametrize("stale", [b"another version" * 1000, CONTENT + b"longer"])
def test_a_partial_file_of_another_version_is_fetched_anew(
    server: Server, file: Path, partial: Path, stale: bytes
) -> None:
    partial.write_bytes(stale)
    run(server, file)
    assert server.asked == [f"bytes={len(stale)}-", None]


def test_a_server_that_continues_elsewhere_is_not_believed(server: Server, file: Path, partial: Path) -> None:
    partial.write_bytes(CONTENT[:100])
    server.content_range = "bytes 0-10/11"
    assert "continues elsewhere" in failure(server, file)


def test_a_broken_connection_is_continued_where_it_broke(server: Server, file: Path) -> None:
    server.cut_after = [400_000, 300_000]
    reported = run(server, file)
    assert server.asked == [None, "bytes=400000-", "bytes=700000-"]
    assert f"{server.address}: cut off after 400000 of {len(CONTENT)} bytes; continuing" in reported


def test_a_file_that_stays_cut_off_is_kept_for_the_next_time(server: Server, file: Path, partial: Path) -> None:
    server.cut_after = [100_000, 100_000, 100_000]
    assert f"cut off after 300000 of {len(CONTENT)} bytes" in failure(server, file)
    assert partial.read_bytes() == CONTENT[:300_000]
    run(server, file)
    assert server.asked[-1] == "bytes=300000-"


def test_where_nothing_arrives_it_is_not_tried_again(server: Server, file: Path) -> None:
    server.cut_after = [0] * 9
    assert "cut off after 0 of" in failure(server, file)
    assert server.asked == [None]


def test_a_wrong_checksum_removes_the_file(server: Server, file: Path, partial: Path) -> None:
    message = failure(server, file, "0" * 64)
    assert SHA256 in message
    assert "0" * 64 in message
    assert not partial.exists()


def test_a_file_with_another_checksum_is_replaced(server: Server, file: Path, partial: Path) -> None:
    file.write_bytes(b"old version")
    run(server, file)


@pytest.mark.parametrize(("status", "advice"), [(404, "correct data.downloads"), (503, "try again later")])
def test_a_refusal_gives_the_status(server: Server, file: Path, status: int, advice: str) -> None:
    server.status = status
    message = failure(server, file)
    assert f"the server says {status}" in message
    assert advice in message


def test_nobody_listening_and_no_such_host_say_so(server: Server, file: Path) -> None:
    server.address = "http://127.0.0.1:1/file.gz"
    assert "cannot be reached (Connection refused)" in failure(server, file)
    server.address = "http://nowhere.invalid/file.gz"
    assert "cannot be reached (" in failure(server, file)
    server.address = "http://127.0.0.1:port/file.gz"
    assert "cannot be reached (" in failure(server, file)


def test_a_server_that_falls_silent_ends_the_wait(server: Server, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silence = threading.Event()
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(server, "answer", lambda handler: silence.wait(5))
    try:
        assert "cannot be reached (timed out)" in failure(server, file)
    finally:
        silence.set()


def test_a_disk_fault_is_not_taken_for_a_fault_of_the_network(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("not a folder")
    with pytest.raises(WorkError, match=r"^cannot write .*folder.*: (File exists|Not a directory)"):
        fetch(server.address, SHA256, tmp_path / "folder" / "file.gz", lambda line: None)


@pytest.mark.parametrize("url", ["ftp://example.org/x", "/etc/hostname", "file:///etc/hostname", ""])
def test_other_addresses_are_refused(file: Path, url: str) -> None:
    with pytest.raises(RequestError, match=r"data\.downloads: .*not an http or https address"):
        fetch(url, SHA256, file, lambda line: None)


@pytest.mark.parametrize("sha256", ["", "abc", "g" * 64, "0" * 65])
def test_a_checksum_that_cannot_be_one_is_refused_before_anything_is_fetched(
    server: Server, file: Path, sha256: str
) -> None:
    with pytest.raises(RequestError, match="not 64 hexadecimal digits"):
        fetch(server.address, sha256, file, lambda line: None)
    assert server.asked == []


def test_runs_that_start_together_fetch_once(server: Server, file: Path) -> None:
    start = threading.Barrier(4)
    results: list[Path] = []

    def work() -> None:
        start.wait()
        results.append(fetch(server.address, SHA256, file, lambda line: None))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [file] * 4
    assert server.asked == [None]
    assert file.read_bytes() == CONTENT
