"""Answers that must contain given words: all of them do, and a wide beam finds the best that do.

What "contain" means is written down here once more, in the plainest way, as a search over all places.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import re

import pytest
import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import EOS, PAD
from nmt.decoding.constraints import Constraints, Phrase, TokenConstraints, WordEdges, whole_words
from nmt.decoding.search import beam_search
from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from nmt.models.base import TranslationModel
from tiny import PRESET_MODELS, sentences, source_size, tiny_model
from untrained import untrained_run

pytestmark = pytest.mark.invariant

A, S, DOT = 4, 5, 6
"""A word, letters that go on with a word, a character that is no letter."""
PIECES = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "▁a": A, "a": S, ".": DOT}
EDGES = WordEdges(PIECES, torch.tensor([piece == "a" for piece in PIECES]), [piece in ("▁a", "a") for piece in PIECES])
LONGEST = 4
EVERYTHING = 400  # more hypotheses than the 1 + 3 + 9 + 27 + 81 outputs of at most four words have


def padded(sources: list[list[int]]) -> Tensor:
    return make_batch(sources, [[EOS]] * len(sources)).source_BS


def phrase(*ids: int) -> Phrase:
    """One that begins with a new word; after a full stop, its "a" may be the piece without the space as well."""
    spellings = [ids, (S, *ids[1:])] if ids[0] == A else [ids]
    text = "".join(list(PIECES)[i] for i in ids).replace("▁", " ").strip()
    return Phrase(text, tuple(spellings), True)


def contains(tokens: list[int], phrases: list[Phrase], start: int = 0) -> bool:
    """Whether there are places for all phrases that do not overlap and where words begin and end."""
    if not phrases:
        return True
    for i in range(len(tokens)):
        for j, wanted in enumerate(phrases):
            for spelling, ids in enumerate(wanted.spellings):
                end = i + len(ids)
                if i < start or tuple(tokens[i:end]) != ids:
                    continue
                if spelling and i and tokens[i - 1] in (A, S):
                    continue
                if wanted.ends_in_word and end < len(tokens) and tokens[end] == S:
                    continue
                if contains(tokens, phrases[:j] + phrases[j + 1 :], end):
                    return True
    return False


def charged(model: TranslationModel, source: list[int], outputs: list[list[int]]) -> list[float]:
    batch = make_batch([source] * len(outputs), [[*tokens, EOS] for tokens in outputs])
    log_probabilities_BTC = model.output(model(batch))[..., PAD + 1 :].log_softmax(dim=-1)
    chosen_BT = log_probabilities_BTC.gather(2, (batch.target_output_BT - 1).clamp(min=0).unsqueeze(2)).squeeze(2)
    return chosen_BT.masked_fill(batch.target_output_BT == PAD, 0.0).sum(dim=1).tolist()


def every_output() -> list[list[int]]:
    return [list(each) for length in range(LONGEST + 1) for each in itertools.product((A, S, DOT), repeat=length)]


def drawn_constraints(seed: int) -> tuple[TokenConstraints, list[Phrase]]:
    """At most two phrases of at most two pieces each, and perhaps a prefix."""
    draw = random.Random(seed)
    phrases = [
        phrase(draw.choice((A, DOT)), *draw.choices((A, S, DOT), k=draw.randint(0, 1)))
        for _ in range(draw.randint(1, 2))
    ]
    prefix = phrase(*draw.choices((A, DOT), k=draw.randint(1, 2))) if draw.random() < 0.4 else None
    return TokenConstraints(prefix, phrases, EDGES), phrases


@pytest.mark.parametrize("name", ["bahdanau-preset", "transformer-preset"])
def test_a_wide_beam_finds_all_outputs_that_meet_the_constraints_in_their_order(name: str) -> None:
    size = source_size(name, len(PIECES))
    model = tiny_model(name, seed=3, source_vocabulary=size, target_vocabulary=len(PIECES))
    sources = sentences([4, 1, 6], size)
    config = SearchConfig(beam_size=EVERYTHING, n_best=EVERYTHING, min_length=0)
    possible = 0
    for seed in range(0, 12, 3):
        demands = [drawn_constraints(seed + i) for i in range(3)]
        limits = [each.limit(LONGEST) for each, _ in demands]
        if max(limits) > LONGEST:
            continue
        found = beam_search(model, padded(sources), config, limits, constraints=[each for each, _ in demands])
        for source, (constraints, phrases), hypotheses in zip(sources, demands, found, strict=True):
            first = list(constraints.prefix)
            outputs = [
                tokens
                for tokens in every_output()
                if tokens[: len(first)] == first
                and not (first and first[-1] == A and tokens[len(first) : len(first) + 1] == [S])
                and contains(tokens, phrases, len(first))
            ]
            totals = charged(model, source, outputs)
            scores = [total / (len(tokens) + 1) for total, tokens in zip(totals, outputs, strict=True)]
            expected = sorted(zip(scores, outputs, strict=True), key=lambda each: -each[0])
            assert [each.tokens for each in hypotheses] == [tokens for _, tokens in expected]
            assert [each.score for each in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-4)
            possible += len(outputs)
    assert possible > 100


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("name", PRESET_MODELS)
def test_a_search_that_nothing_is_demanded_of_is_the_search_without(name: str, beam: int) -> None:
    size = source_size(name, 11)
    model = tiny_model(name, source_vocabulary=size, target_vocabulary=11)
    source_BS = padded(sentences([4, 1, 9, 6], size))
    config = SearchConfig(beam_size=beam, n_best=beam, max_length_ratio=1.0, max_length_extra=4)
    edges = WordEdges({}, torch.zeros(11, dtype=torch.bool), [False] * 11)
    nothing = [TokenConstraints(None, [], edges)] * 4
    expected = beam_search(model, source_BS, config)
    for ours, theirs in zip(beam_search(model, source_BS, config, constraints=nothing), expected, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], abs=1e-5)


# With text -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["luong-general-fed-in_order", "transformer-rotary"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return Translator.load(untrained_run(folder, request.param, byte_fallback=False))


TEXTS = ["Le vieux jardin.", "", "un enfant lit une lettre", "x", "la maison " * 8, "Du pain.", "ça"]
WORDS = ["pain", "la maison", "3,000", "a@b.org", "🙂", "🙂🙂 ½", "élève", "le", "(le)", "vieux", "{0}", "…"]


def demanded(seed: int) -> list[Constraints]:
    draw = random.Random(seed)
    return [
        Constraints(draw.choice(("", "", "Le pain", "🙂 un", "3")), tuple(draw.sample(WORDS, k=draw.randint(0, 4))))
        for _ in TEXTS
    ]


@pytest.mark.parametrize("beam", [1, 3])
def test_every_constraint_is_in_every_answer(translator: Translator, beam: int) -> None:
    """Whatever the vocabulary lacks; as whole words, each at a place of its own; in each of the n best."""
    settings = dataclasses.replace(translator.search, beam_size=beam, n_best=beam)
    for seed in range(4):
        constraints = demanded(seed)
        for text, wanted, found in zip(
            TEXTS, constraints, translator.n_best(TEXTS, settings, constraints=constraints), strict=True
        ):
            if not text:
                assert [translation.text for translation in found] == [""]
                continue
            assert len({tuple(translation.tokens) for translation in found}) == len(found)
            for translation in found:
                rest = translation.text
                assert re.match(rf"{re.escape(wanted.prefix)}(?!\w)", rest) or not wanted.prefix
                for each in sorted(wanted.phrases, key=len, reverse=True):
                    place = re.search(
                        r"(?<!\w)" * each[0].isalnum() + re.escape(each) + r"(?!\w)" * each[-1].isalnum(), rest
                    )
                    assert place, (each, translation.text)
                    if not re.search(whole_words(each), wanted.prefix):
                        rest = f"{rest[: place.start()]} {rest[place.end() :]}"


def test_constraints_do_not_make_an_answer_depend_on_its_batch(translator: Translator) -> None:
    constraints = demanded(5)
    constraints[2] = constraints[4] = Constraints()
    together = translator.n_best(TEXTS, constraints=constraints)
    for text, wanted, expected in zip(TEXTS, constraints, together, strict=True):
        [found] = translator.n_best([text], constraints=[wanted])
        assert [(each.text, each.tokens) for each in found] == [(each.text, each.tokens) for each in expected]
    free = translator.n_best(TEXTS)
    assert (together[2], together[4]) == (free[2], free[4]), "a line that nothing is demanded of is searched as ever"
    again = translator.n_best(TEXTS[::-1], constraints=constraints[::-1])[::-1]
    assert [[each.text for each in found] for found in again] == [[each.text for each in found] for found in together]


def test_an_answer_that_would_be_too_short_for_its_constraints_may_be_longer(translator: Translator) -> None:
    wanted = Constraints(phrases=("un enfant lit une lettre",) * 6)
    settings = dataclasses.replace(translator.search, max_length_ratio=0.0, max_length_extra=1)
    [[found]] = translator.n_best(["x"], dataclasses.replace(settings, n_best=1), constraints=[wanted])
    assert found.text.count("un enfant lit une lettre") == 6
    assert found.cut


def test_samples_cannot_be_told_what_to_contain(translator: Translator) -> None:
    settings = dataclasses.replace(translator.search, sampling=True)
    assert translator.n_best(TEXTS, settings, constraints=[Constraints()] * len(TEXTS))
    with pytest.raises(RequestError, match="cannot be made to contain given words"):
        translator.n_best(TEXTS, settings, constraints=[Constraints("le")] * len(TEXTS))
