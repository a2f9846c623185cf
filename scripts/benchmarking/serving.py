"""Clients of `nmt serve`, many at once, most of them well-behaved.

Every tenth request is an unusual one: no JSON, no HTTP, a body that is far too large, one that comes in pieces, one
that never comes whole. Each kind has the one status that it must be answered with. A request without an answer is
dropped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

GOOD = "good"
EXPECTED = {GOOD: 200, "no JSON": 400, "no HTTP": 400, "huge": 413, "slow": 200, "never whole": 408}
UNUSUAL = ("no JSON", "huge", "slow", "no HTTP", "never whole")
EVERY = 10
HUGE_BYTES = 4_000_000
SLOW_PARTS = 4
SLOW_PAUSE = 0.25  # seconds
LONGEST = 120.0  # seconds until a request counts as dropped


@dataclass
class Tally:
    """What the clients have seen."""

    latencies: list[float] = field(default_factory=list)
    """Seconds, of the good requests."""
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Of all requests, by kind."""
    in_time: Counter[str] = field(default_factory=Counter)
    """Answers that came before the end of the time, by kind of request."""
    dropped: list[str] = field(default_factory=list)
    """What was asked, and how it ended without an answer."""
    translations: dict[str, str] = field(default_factory=dict)
    different: int = 0
    """Answers that differ from an earlier one to the same text."""

    @property
    def unexpected(self) -> int:
        """Answers with another status than their request's kind has."""
        return sum(count for (kind, status), count in self.statuses.items() if status != EXPECTED[kind])


@dataclass(frozen=True)
class Target:
    """What is asked, and of whom."""

    host: str
    port: int
    texts: Sequence[str]
    languages: tuple[str, str]

    def head(self, size: int) -> bytes:
        """Of a request to translate with a body of that size."""
        return (
            f"POST /translate HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
            f"content-length: {size}\r\n\r\n"
        ).encode()

    def body(self, text: str) -> bytes:
        """Of a good request."""
        source, target = self.languages
        return json.dumps({"q": text, "source": source, "target": target}).encode()


async def load(target: Target, clients: int, seconds: float) -> Tally:
    """Lets so many clients ask, one request after the other each, for so long; each waits for its last answer."""
    tally = Tally()
    end = time.monotonic() + seconds
    await asyncio.gather(*(_Client(target, tally, number).ask_until(end) for number in range(clients)))
    return tally


class _Client:
    def __init__(self, target: Target, tally: Tally, number: int) -> None:
        self.target = target
        self.tally = tally
        self.number = number
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask_until(self, end: float) -> None:
        count = self.number  # so that not all do the same at the same time
        while time.monotonic() < end:
            count += 1
            kind = UNUSUAL[count // EVERY % len(UNUSUAL)] if count % EVERY == 0 else GOOD
            text = self.target.texts[(self.number * 7919 + count) % len(self.target.texts)]
            began = time.monotonic()
            try:
                async with asyncio.timeout(LONGEST):
                    status, answer = await self._exchange(kind, text)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.tally.dropped.append(f"{kind}: {type(error).__name__}")
                await self._close()
                continue
            self.tally.statuses[kind, status] += 1
            self.tally.in_time[kind] += time.monotonic() <= end
            if kind == GOOD:
                self.tally.latencies.append(time.monotonic() - began)
            if status == 200:
                found = json.loads(answer)["translatedText"]
                self.tally.different += self.tally.translations.setdefault(text, found) != found
        await self._close()

    async def _exchange(self, kind: str, text: str) -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self.writer is None or self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(self.target.host, self.target.port)
        await self._send(self.writer, kind, self.target.body(text))
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        if "content-length" in lines:
            answer = await self.reader.readexactly(int(lines["content-length"]))
        else:
            answer = await self.reader.read()
        if lines.get("connection") == "close":
            await self._close()
        return status, answer

    async def _send(self, writer: asyncio.StreamWriter, kind: str, body: bytes) -> None:
        head = self.target.head
        match kind:
            case "no JSON":
                writer.write(head(len(body) - 1) + body[:-1])
            case "no HTTP":
                writer.write(b"TRANSLATE!\r\n\r\n")
            case "huge":
                writer.write(head(HUGE_BYTES))
                for _ in range(HUGE_BYTES // 100_000):
                    writer.write(b"x" * 100_000)
                    await writer.drain()
            case "slow":
                writer.write(head(len(body)))
                for part in range(SLOW_PARTS):
                    await asyncio.sleep(SLOW_PAUSE)
                    writer.write(body[part * len(body) // SLOW_PARTS : (part + 1) * len(body) // SLOW_PARTS])
            case "never whole":
                writer.write(head(len(body)) + body[:5])
            case _:
                writer.write(head(len(body)) + body)
        await writer.drain()

    async def _close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None
