"""What a sentence is translated to does not depend on the batch it was in: batches of 1, 3 and 7, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from nmt.config import SearchConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import EOS
from nmt.decoding.search import Hypothesis, beam_search
from nmt.models.base import TranslationModel
from tiny import MODELS, SOURCE_VOCABULARY, sentences, tiny_model

pytestmark = [pytest.mark.invariant, pytest.mark.case]

SOURCES = sentences([4, 1, 9, 3, 6, 2, 12, 5, 5, 7, 1, 8], SOURCE_VOCABULARY)


def in_batches(
    find: Callable[[list[list[int]]], list[list[Hypothesis]]], size: int, order: list[int]
) -> list[list[Hypothesis]]:
    """The results in the order of SOURCES, found in batches of `size` taken in `order`."""
    results: list[list[Hypothesis]] = [[] for _ in SOURCES]
    for start in range(0, len(order), size):
        places = order[start : start + size]
        for place, found in zip(places, find([SOURCES[i] for i in places]), strict=True):
            results[place] = found
    return results


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_translation_does_not_depend_on_its_batch(name: str, beam: int) -> None:
    config = SearchConfig(beam_size=beam, n_best=min(beam, 2), max_length_ratio=1.0, max_length_extra=4)

    order = list(range(len(SOURCES)))
    for seed in range(1, 9):
        model = tiny_model(name, seed=seed)

        def find(sources: list[list[int]], model: TranslationModel = model) -> list[list[Hypothesis]]:
            return beam_search(model, make_batch(sources, [[EOS]] * len(sources)).source_BS, config)

        alone = in_batches(find, 1, order)
        if len({len(found[0].tokens) for found in alone}) > 1:
            break
    else:
        pytest.fail("sentences that all end at once show nothing")
    for size in (3, 7, len(SOURCES)):
        random.Random(size).shuffle(order)
        together = in_batches(find, size, order)
        for expected, found in zip(alone, together, strict=True):
            assert [h.tokens for h in found] == [h.tokens for h in expected]
            assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)
