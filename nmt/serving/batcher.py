"""Dynamic batching: lines that arrive while a batch is being translated make up the next one, whoever sent them.

One thread owns the models. A translation does not depend on its batch, so that what is put together is a question of
speed and of fairness alone:

    - A batch holds lines of one kind: same model, same search, similar length. A short line never waits for a long one
      of its own batch to end.
    - Each request may put SHARE lines into a batch before its others stand in line behind those of requests that came
      later: a whole book does not keep a single sentence waiting for more than a batch or two.
    - What nobody waits for any more is not translated.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from nmt.config import SearchConfig
from nmt.data.corpus import clean_line
from nmt.decoding.translator import Translation
from nmt.serving.metrics import Metrics
from nmt.serving.served import Served

MOST_LINES = 64
"""Of a batch."""

SHARE = 16
"""Lines of one request in a batch while others wait."""


class Busy(Exception):
    """As many lines wait as may wait."""


class TooLong(Exception):
    """A line has more pieces than one may have."""

    def __init__(self, line: int, pieces: int) -> None:
        super().__init__(line, pieces)
        self.line = line
        self.pieces = pieces


@dataclass(eq=False)
class Request:
    """Lines that are answered together, and who waits for them."""

    model: Served
    search: SearchConfig
    alignments: bool
    results: list[list[Translation]]
    missing: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[list[Translation]]]
    given_up: bool = False

    def answer(self, index: int, found: list[Translation]) -> None:
        """Takes the translations of one line; the last one answers the request."""
        self.results[index] = found
        self.missing -= 1
        if not self.missing:
            self._settle(lambda: self.future.set_result(self.results))

    def fail(self, error: Exception) -> None:
        """Answers the request with an error; its other lines are given up."""
        self.given_up = True
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        def unless_done() -> None:
            if not self.future.done():
                settle()

        self.loop.call_soon_threadsafe(unless_done)


@dataclass(frozen=True)
class Line:
    """One line that waits."""

    request: Request
    index: int
    text: str
    kind: tuple[object, ...]
    """Lines of one kind may be translated together."""
    turn: int
    """The number of the batch that it would be in if all lines were of one kind and nobody else came."""
    arrival: int
    order: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", (self.turn, self.arrival))


class Batcher:
    """A queue of lines and the thread that translates them.

    Args:
        most_waiting: lines that may wait.
        most_pieces: that a line may have.
        metrics: what is counted on.
    """

    def __init__(self, most_waiting: int, most_pieces: int, metrics: Metrics) -> None:
        self.most_waiting = most_waiting
        self.most_pieces = most_pieces
        self.metrics = metrics
        self._waiting: list[Line] = []  # by `order`
        self._arrivals = itertools.count()
        self._batches = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="translate", daemon=True)

    def start(self) -> None:
        """Begins to translate."""
        self._thread.start()

    def stop(self) -> None:
        """Returns when all that waits is translated; from then on nothing is."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether somebody translates."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many lines wait."""
        return len(self._waiting)

    async def translate(
        self, model: Served, texts: Sequence[str], hypotheses: int, alignments: bool
    ) -> list[list[Translation]]:
        """The `hypotheses` best translations of each text, as `TextTranslator.n_best` gives them.

        Raises:
            Busy: too many lines wait.
            TooLong: of a line there are too many pieces.
            RequestError, WorkError: as `TextTranslator.n_best`.
        """
        if not texts:
            return []
        if self.waiting + len(texts) > self.most_waiting:  # before any work
            raise Busy
        sizes = await asyncio.to_thread(_pieces, model, texts)
        for number, size in enumerate(sizes, 1):
            if size > self.most_pieces:
                raise TooLong(number, size)
        search = model.translator.search.for_results(hypotheses)
        loop = asyncio.get_running_loop()
        request = Request(model, search, alignments, [[]] * len(texts), len(texts), loop, loop.create_future())
        with self._changed:
            if self.waiting + len(texts) > self.most_waiting:
                raise Busy
            self._add(request, texts, sizes)
            self._changed.notify()
        try:
            return await request.future
        finally:
            request.given_up = True

    def _add(self, request: Request, texts: Sequence[str], sizes: Sequence[int]) -> None:
        for index, (text, size) in enumerate(zip(texts, sizes, strict=True)):
            # A sampled translation is a function of its line's number in the request: nobody else's may be before it.
            similar: object = id(request) if request.search.chance else size.bit_length()
            kind = (request.model.name, request.search.n_best, request.alignments, similar)
            line = Line(request, index, text, kind, self._batches + index // SHARE, next(self._arrivals))
            bisect.insort(self._waiting, line, key=attrgetter("order"))

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                batch = self._next_batch()
            if batch:
                self._translate(batch)
            elif self._stopping:
                return

    def _next_batch(self) -> list[Line]:
        """The lines whose turn it is, taken out of those that wait; none where nobody waits any more."""
        waiting = [line for line in self._waiting if not line.request.given_up]
        batch = [line for line in waiting if line.kind == waiting[0].kind][:MOST_LINES]
        taken = set(map(id, batch))
        self._waiting = [line for line in waiting if id(line) not in taken]
        self._batches += 1
        return batch

    def _translate(self, batch: list[Line]) -> None:
        request = batch[0].request
        began = time.monotonic()
        try:
            found = request.model.translator.n_best(
                [line.text for line in batch], request.search, request.alignments, [line.index for line in batch]
            )
        except Exception as error:
            self._blame(batch, error)
            return
        self.metrics.batch_lines.observe(len(batch))
        self.metrics.batch_seconds.observe(time.monotonic() - began)
        self.metrics.lines[request.model.name] += len(batch)
        for line, translations in zip(batch, found, strict=True):
            line.request.answer(line.index, translations)

    def _blame(self, batch: list[Line], error: Exception) -> None:
        """Tells the request whose fault it was, which is found by translating each one's lines alone."""
        requests = dict.fromkeys(line.request for line in batch)
        if len(requests) == 1:
            batch[0].request.fail(error)
            return
        for request in requests:
            self._translate([line for line in batch if line.request is request])


def _pieces(model: Served, texts: Sequence[str]) -> list[int]:
    """How many pieces each text has, the end mark not counted."""
    return [len(ids) - 1 for ids in model.translator.tokenizer.encode_source([clean_line(text) for text in texts])]
