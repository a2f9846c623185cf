"""A line's translation does not depend on its neighbours: 300 lines, in batches of any size and in any order.

Through the Translator, in float32, as users have it: with blank lines, which the model is not asked for, and lines of
one character among them.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence

import pytest
import torch

from nmt.config import SearchConfig
from nmt.data.tokenizer import EOS, Tokenizer
from nmt.decoding.translator import Translation, Translator
from nmt.models.base import TranslationModel
from nmt.models.registry import build_model
from tiny import CONFIGS, PRESET_MODELS, WORDS

pytestmark = [pytest.mark.invariant, pytest.mark.case]

CAP = 8
SEARCH = SearchConfig(max_length_ratio=0.0, max_length_extra=CAP, batch_tokens=10**9)  # a call is a batch
LINES_AT_ONCE = 64


def _lines() -> list[str]:
    generator = random.Random(1)
    blank = ["", " ", "\t", "\u00a0", "\u3000"] * 4
    short = list("aéxç.où?!l") * 2
    long = [" ".join(generator.choices(WORDS.split(), k=generator.randint(1, 25))) for _ in range(260)]
    lines = [*blank, *short, *long]
    generator.shuffle(lines)
    return lines


LINES = _lines()
ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "sorted": lambda places: sorted(places, key=lambda place: LINES[place]),
    "by length": lambda places: sorted(places, key=lambda place: len(LINES[place])),
    "reversed": lambda places: places[::-1],
    "shuffled": lambda places: random.Random(2).sample(places, len(places)),
}


def translator(name: str, tokenizer: Tokenizer) -> Translator:
    """One with weights at which translations vary, in pieces and in length: some end, others reach the limit."""
    size = tokenizer.source_size
    for seed in range(1, 20):
        torch.manual_seed(seed)
        model = build_model(CONFIGS[name], size, size).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1 and parameter is not model.output.weight:
                    parameter *= 4
        found = Translator(model, tokenizer, SEARCH, torch.device("cpu"))
        if _end_half_of_them(model, functools.partial(found.translate, LINES[:60], beam_size=1)):
            return found
    raise AssertionError("translations that are all the same show nothing")


def _end_half_of_them(model: TranslationModel, translate: Callable[[], list[Translation]]) -> bool:
    """Sets the end mark's bias so that about half of the translations end before the limit; whether they then vary."""
    low, high = -10.0, 60.0
    for _ in range(10):
        middle = (low + high) / 2
        with torch.no_grad():
            model.output.bias[EOS] = middle
        translations = translate()
        at_limit = sum(len(translation.tokens) == CAP for translation in translations) / len(translations)
        if 0.25 < at_limit < 0.75:
            return len({translation.text for translation in translations}) >= len(translations) / 4
        low, high = (middle, high) if at_limit > 0.5 else (low, middle)
    return False


def in_batches(ours: Translator, lines: Sequence[str], size: int, beam: int) -> list[Translation]:
    return [
        translation
        for start in range(0, len(lines), size)
        for translation in ours.translate(lines[start : start + size], beam_size=beam)
    ]


def assert_same(found: Sequence[Translation], expected: Sequence[Translation]) -> None:
    assert [translation.text for translation in found] == [translation.text for translation in expected]
    assert [translation.tokens for translation in found] == [translation.tokens for translation in expected]
    assert [t.score for t in found] == pytest.approx([t.score for t in expected], abs=1e-4)


@pytest.mark.parametrize("alone", [LINES[::10], pytest.param(LINES, marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("name", PRESET_MODELS)
def test_300_lines_in_batches_of_any_size_and_any_order(
    name: str, beam: int, alone: list[str], tokenizer: Tokenizer
) -> None:
    """All lines in batches of 64, of 7 and of about 500 source pieces; `alone`, some or all of them one by one."""
    ours = translator(name, tokenizer)
    expected = in_batches(ours, LINES, LINES_AT_ONCE, beam)
    assert len(expected) == 300
    assert [t.text for t, line in zip(expected, LINES, strict=True) if not line.strip()] == [""] * 20
    assert_same(in_batches(ours, LINES, 7, beam), expected)
    assert_same(in_batches(ours, alone, 1, beam), expected[:: len(LINES) // len(alone)])
    ours.search = SearchConfig(max_length_ratio=0.0, max_length_extra=CAP, batch_tokens=500 * beam)
    for order in ORDERS.values():
        places = order(list(range(300)))
        found = ours.translate([LINES[place] for place in places], beam_size=beam)
        assert_same(found, [expected[place] for place in places])
