"""Servers in this process, and translators that a test holds in its hand."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from nmt.config import SearchConfig
from nmt.decoding.translator import TextTranslator, Translation
from nmt.errors import RequestError, WorkError
from nmt.serving import server
from nmt.serving.protocol import Limits
from nmt.serving.served import Served

WAIT = 60  # seconds, on a busy machine
BROKEN = "broken"
"""A line that the held translator cannot translate, nor any batch that it is in."""


class WordTokenizer:
    """A piece for each word."""

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Pieces and the end mark."""
        return [[4] * len(text.split()) + [3] for text in texts]


class HeldTranslator(TextTranslator):
    """Translates each line to capitals, notes its batches, and, while it is held, waits in the midst of a batch."""

    def __init__(self, search: SearchConfig | None = None) -> None:
        super().__init__(WordTokenizer(), search or SearchConfig())  # type: ignore[arg-type]
        self.batches: list[list[str]] = []
        self.first_numbers: list[int] = []
        self.free = threading.Event()
        self.entered = threading.Semaphore(0)

    @property
    def attends(self) -> bool:
        """It does not."""
        return False

    def n_best(
        self,
        texts: Sequence[str],
        search: SearchConfig | None = None,
        alignments: bool = False,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Translation]]:
        """As many as are asked for, numbered from the second on."""
        assert search is not None and numbers is not None
        self.batches.append(list(texts))
        self.first_numbers.append(numbers[0])
        self.entered.release()
        assert self.free.wait(WAIT)
        if BROKEN in texts:
            raise RequestError(f"{BROKEN} line")
        if "no memory" in texts:
            raise WorkError("out of memory")
        return [
            [
                Translation(text.upper() + (f" {rank}" if rank else ""), -float(rank), [])
                for rank in range(search.n_best)
            ]
            for text in texts
        ]


def held_model(
    name: str = "held", search: SearchConfig | None = None, source: str = "en", target: str = "fr"
) -> Served:
    """It, as a model of a server."""
    return Served(name, HeldTranslator(search), source, target, "held", None)


@contextlib.contextmanager
def serving(models: Sequence[Served], limits: Limits | None = None, origins: Sequence[str] = ()) -> Iterator[str]:
    """A server on a free port of this machine, and its address; on leaving it ends as after a signal."""
    listener = server.listen("127.0.0.1", 0)
    built = server.build_server(models, limits or Limits(), origins)
    thread = threading.Thread(target=built.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        built.should_exit = True
        thread.join(WAIT)
        assert not thread.is_alive()


def get(address: str, path: str) -> tuple[int, str]:
    """Status and text of what is there."""
    return _fetch(urllib.request.Request(address + path))


def post(address: str, path: str, body: bytes, kind: str | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of the answer."""
    request = urllib.request.Request(
        address + path, body, headers={"content-type": kind} if kind else {}, method="POST"
    )
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    status, text = _fetch(request)
    return status, json.loads(text)


def ask(address: str, **parameters: Any) -> tuple[int, Any]:
    """Status and JSON of what POST /translate answers to a JSON object; from English to French by default."""
    body = json.dumps({"source": "en", "target": "fr", **parameters}).encode()
    return post(address, "/translate", body, "application/json")


def connected(address: str) -> socket.socket:
    """A bare connection to a server."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            received += part
    return received


def _fetch(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
