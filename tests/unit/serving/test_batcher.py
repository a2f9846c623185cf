"""What waits together is translated together, and nobody gets another's translations, errors or waiting time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config import SearchConfig
from nmt.decoding.translator import Translation
from nmt.errors import RequestError, WorkError
from nmt.serving.batcher import MOST_LINES, SHARE, Batcher, Busy, TooLong
from nmt.serving.metrics import Metrics
from nmt.serving.served import Served
from serving import BROKEN, WAIT, HeldTranslator, held_model

Found = list[list[Translation]]


@contextlib.asynccontextmanager
async def working(most_waiting: int = 2_000, most_pieces: int = 100) -> AsyncIterator[Batcher]:
    """A batcher, from its start to its end."""
    batcher = Batcher(most_waiting, most_pieces, Metrics())
    batcher.start()
    try:
        yield batcher
    finally:
        await asyncio.wait_for(asyncio.to_thread(batcher.stop), WAIT)


async def begun(model: Served) -> None:
    """Until the model is in the midst of a batch."""
    assert isinstance(model.translator, HeldTranslator)
    assert await asyncio.to_thread(model.translator.entered.acquire, timeout=WAIT)


async def queued(batcher: Batcher, count: int) -> None:
    """Until so many lines wait."""
    async with asyncio.timeout(WAIT):
        while batcher.waiting != count:
            await asyncio.sleep(0.001)


def held(test: Callable[[Batcher, Served, HeldTranslator], Coroutine[Any, Any, None]], **settings: int) -> None:
    """Runs a test whose model is in the midst of a batch with the line `first`, and is let go by the test."""

    async def run() -> None:
        model = held_model()
        assert isinstance(model.translator, HeldTranslator)
        async with working(**settings) as batcher:
            first = asyncio.ensure_future(batcher.translate(model, ["first"], 1, False))
            await begun(model)
            try:
                await test(batcher, model, model.translator)
            finally:
                model.translator.free.set()
            assert texts(await first) == ["FIRST"]

    asyncio.run(run())


def texts(found: Found) -> list[str]:
    return [each[0].text for each in found]


def test_what_arrives_while_a_batch_runs_is_the_next_batch() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        tasks = [asyncio.ensure_future(batcher.translate(model, [f"a{n}", f"b{n}"], 1, False)) for n in range(9)]
        await queued(batcher, 18)
        translator.free.set()
        found = [texts(await task) for task in tasks]
        assert found == [[f"A{n}", f"B{n}"] for n in range(9)]
        assert [len(batch) for batch in translator.batches] == [1, 18]

    held(test)


def test_lines_of_different_searches_and_lengths_are_not_mixed() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        long = "long " * 50
        tasks = [
            asyncio.ensure_future(batcher.translate(model, ["one", long], 1, False)),
            asyncio.ensure_future(batcher.translate(model, ["two"], 3, False)),
            asyncio.ensure_future(batcher.translate(model, ["three"], 1, False)),
        ]
        await queued(batcher, 4)
        translator.free.set()
        found = [await task for task in tasks]
        assert texts(found[0]) == ["ONE", long.upper()]
        assert [each.text for each in found[1][0]] == ["TWO", "TWO 1", "TWO 2"]
        assert sorted(translator.batches[1:]) == [[long], ["one", "three"], ["two"]]

    held(test)


def test_a_book_does_not_keep_a_sentence_waiting() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        book = [f"page {n}" for n in range(10 * MOST_LINES)]
        reading = asyncio.ensure_future(batcher.translate(model, book, 1, False))
        await queued(batcher, len(book))
        sentence = asyncio.ensure_future(batcher.translate(model, ["a sentence"], 1, False))
        await queued(batcher, len(book) + 1)
        translator.free.set()
        assert texts(await sentence) == ["A SENTENCE"]
        assert texts(await reading) == [page.upper() for page in book]
        assert "a sentence" in translator.batches[1]
        assert translator.batches[1].index("a sentence") == SHARE
        assert max(map(len, translator.batches)) == MOST_LINES

    held(test)


def test_sentences_do_not_keep_a_book_waiting_for_ever() -> None:
    """A book of eight turns is read after those turns, however many sentences come with each batch."""

    async def run() -> None:
        batcher = Batcher(2_000, 100, Metrics())
        model = held_model()
        tasks = [asyncio.ensure_future(batcher.translate(model, ["page"] * 8 * SHARE, 1, False))]
        await queued(batcher, 8 * SHARE)
        pages = 0
        batches = 0
        while pages < 8 * SHARE:
            before = batcher.waiting
            tasks += [asyncio.ensure_future(batcher.translate(model, ["a"], 1, False)) for _ in range(MOST_LINES)]
            await queued(batcher, before + MOST_LINES)
            pages += sum(line.text == "page" for line in batcher._next_batch())
            batches += 1
        assert batches <= 8 * (SHARE + MOST_LINES) / MOST_LINES
        for task in tasks:
            task.cancel()

    asyncio.run(asyncio.wait_for(run(), WAIT))


def test_an_error_is_told_to_the_request_that_made_it() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        lines = ["good", BROKEN, "also good", "no memory"]
        tasks = [asyncio.ensure_future(batcher.translate(model, [line, "x"], 1, False)) for line in lines]
        await queued(batcher, 8)
        translator.free.set()
        good, broken, also_good, memory = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(broken, RequestError)
        assert isinstance(memory, WorkError)
        assert not isinstance(good, BaseException) and texts(good) == ["GOOD", "X"]
        assert not isinstance(also_good, BaseException) and texts(also_good) == ["ALSO GOOD", "X"]
        assert texts(await batcher.translate(model, ["later"], 1, False)) == ["LATER"]

    held(test)


def test_what_nobody_waits_for_is_not_translated() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        gone = asyncio.ensure_future(batcher.translate(model, ["gone"], 1, False))
        await queued(batcher, 1)
        stays = asyncio.ensure_future(batcher.translate(model, ["stays"], 1, False))
        await queued(batcher, 2)
        gone.cancel()
        await asyncio.wait({gone})
        translator.free.set()
        assert texts(await stays) == ["STAYS"]
        assert translator.batches == [["first"], ["stays"]]

    held(test)


def test_too_much_is_refused() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        waiting = asyncio.ensure_future(batcher.translate(model, ["a", "b"], 1, False))
        await queued(batcher, 2)
        with pytest.raises(Busy):
            await batcher.translate(model, ["c", "d"], 1, False)
        with pytest.raises(TooLong) as caught:
            await batcher.translate(model, ["a " * 6], 1, False)
        assert (caught.value.line, caught.value.pieces) == (1, 6)
        translator.free.set()
        assert texts(await waiting) == ["A", "B"]
        assert texts(await batcher.translate(model, ["c", "a " * 5], 1, False)) == ["C", "A " * 5]

    held(test, most_waiting=3, most_pieces=5)


def test_it_ends_when_all_that_waits_is_translated() -> None:
    async def test(batcher: Batcher, model: Served, translator: HeldTranslator) -> None:
        tasks = [asyncio.ensure_future(batcher.translate(model, [f"{n}", "long " * 9], 1, False)) for n in range(5)]
        await queued(batcher, 10)
        stopping = asyncio.ensure_future(asyncio.to_thread(batcher.stop))
        while not batcher._stopping:
            await asyncio.sleep(0.001)
        translator.free.set()
        await asyncio.wait_for(stopping, WAIT)
        assert [texts(await task)[0] for task in tasks] == list("01234")
        assert not batcher.alive

    held(test)


def test_sampled_lines_are_numbered_within_their_request() -> None:
    async def run() -> None:
        model = held_model(search=SearchConfig(sampling=True))
        translator = model.translator
        assert isinstance(translator, HeldTranslator)
        async with working() as batcher:
            lines = [["a"] * (MOST_LINES + 1), ["b " * 9, "b"]]
            tasks = [asyncio.ensure_future(batcher.translate(model, each, 1, False)) for each in lines]
            await begun(model)
            translator.free.set()
            await asyncio.gather(*tasks)
        numbers = {}
        for first, batch in zip(translator.first_numbers, translator.batches, strict=True):
            numbers.setdefault(batch[-1][0], []).append((first, len(batch)))
        assert numbers == {"a": [(0, MOST_LINES), (MOST_LINES, 1)], "b": [(0, 2)]}

    asyncio.run(run())


@pytest.mark.invariant
def test_translations_do_not_depend_on_who_else_asks(trained_run: Path) -> None:
    """Text, score, alignment and n-best list of many requests at once are those of each line alone."""
    translator = nmt.load(trained_run)
    model = Served("trained", translator, "en", "fr", "bahdanau", None)
    generator = random.Random(1)
    vocabulary = ["the", "a", "cat", "dog", "sees", "likes", "horse", "river", "xyz", "é", "5", "my", "sister"]
    lines = [" ".join(generator.choices(vocabulary, k=generator.randint(0, 9))) for _ in range(60)]
    parts = [lines[start : start + 3] for start in range(0, 60, 3)]

    async def run() -> list[Found]:
        async with working() as batcher:
            work = [batcher.translate(model, part, 1 + n % 3, n % 2 == 1) for n, part in enumerate(parts)]
            found = await asyncio.gather(*work)
            assert batcher.metrics.batch_lines.total == 60
            assert sum(batcher.metrics.batch_lines.counts) < 60, "lines were put together"
            return found

    for n, (part, found) in enumerate(zip(parts, asyncio.run(run()), strict=True)):
        search = SearchConfig(beam_size=5, n_best=1 + n % 3)
        assert translator.search == SearchConfig(beam_size=5)
        for line, several in zip(part, found, strict=True):
            [alone] = translator.n_best([line], search, n % 2 == 1)
            assert [each.text for each in several] == [each.text for each in alone]
            assert [each.score for each in several] == pytest.approx([each.score for each in alone], abs=1e-4)
            for left, right in zip(several, alone, strict=True):
                assert (left.alignment is None) == (right.alignment is None)
                if left.alignment is not None and right.alignment is not None:
                    assert left.alignment.source_tokens == right.alignment.source_tokens
                    assert left.alignment.weights_TS == pytest.approx(right.alignment.weights_TS, abs=1e-4)
