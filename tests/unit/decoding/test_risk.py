"""Minimum Bayes risk against N² calls of sacreBLEU, and its answers against all that chance may have drawn."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch
from sacrebleu import sentence_chrf

from nmt.config import SearchConfig
from nmt.data.tokenizer import Tokenizer
from nmt.decoding.constraints import Constraints
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.risk import Found, expected_chrf, least_risk, ranked
from nmt.decoding.search import Hypothesis
from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from tiny import tiny_model

LINES = ["Le vieux jardin.", "un élève", "la maison de la rivière où un enfant lit une lettre", "x", "ça mange du pain"]
SEARCH = SearchConfig(beam_size=3, max_length_ratio=1.0, max_length_extra=3, mbr_samples=12, temperature=0.5)
TEXTS = ["the cat sat", "the cat sat here.", "a dog", "", "é", "aaaaaaaaaa", "the  cat sat", "thecatsat", "œufs 😀 !"]


def translator(tokenizer: Tokenizer, *names: str) -> Translator:
    size = tokenizer.source_size
    models = [
        tiny_model(name, source_vocabulary=size, target_vocabulary=size)
        for name in names or ("luong-general-fed-in_order",)
    ]
    model = Ensemble(models).eval() if len(models) > 1 else models[0]
    return Translator(model, tokenizer, SEARCH, torch.device("cpu"))


def brute_force(texts: list[str], counts: list[int]) -> list[float]:
    """Every text against every other, as often as that was drawn."""
    drawn = [text for text, count in zip(texts, counts, strict=True) for _ in range(count)]
    return [sum(sentence_chrf(text, [other]).score for other in drawn) / len(drawn) for text in texts]


def hypothesis(text: str, score: float = -1.0) -> Hypothesis:
    return Hypothesis([ord(letter) for letter in text], score, score)


def decode(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


def answers(drawn: list[Hypothesis], searched: list[Hypothesis] | None = None) -> list[tuple[str, float]]:
    return [(decode(each.tokens), each.score) for each in ranked(drawn, searched or [], decode)]


@pytest.mark.parametrize("counts", [[1] * 9, [3, 1, 2, 1, 5, 1, 1, 1, 1], [0, 0, 1, 4, 0, 2, 1, 0, 0]])
def test_expected_utilities_are_those_of_all_pairs(counts: list[int]) -> None:
    assert expected_chrf(TEXTS, counts) == pytest.approx(brute_force(TEXTS, counts), abs=1e-9)


def test_expected_utilities_of_long_texts_are_those_of_all_pairs() -> None:
    generator = random.Random(3)
    words = ["ab", "cd", "the", "of", "élève", "sat"]
    texts = [" ".join(generator.choices(words, k=length)) for length in range(1, 26)]
    counts = [generator.randint(0, 3) for _ in texts]
    assert expected_chrf(texts, counts) == pytest.approx(brute_force(texts, counts), abs=1e-9)


def test_one_candidate_is_the_answer() -> None:
    assert answers([hypothesis("un chat")]) == [("un chat", 100.0)]
    assert answers([hypothesis("un chat")] * 5) == [("un chat", 100.0)]
    assert answers([hypothesis("")]) == [("", 0.0)]  # sacreBLEU's chrF of two empty texts


def test_what_was_drawn_often_weighs_as_often() -> None:
    """Three that say nearly the same outvote two that are the same; with three of those, they do not."""
    near = [hypothesis(text) for text in ("un chat noir dort", "un chat noir dort ici", "le chat noir dort")]
    [(first, _), *_] = answers([*near, *[hypothesis("xyzxyz")] * 2])
    assert "chat noir" in first
    [(first, score), *_] = answers([*near, *[hypothesis("xyzxyz")] * 4])
    assert (first, score) == ("xyzxyz", pytest.approx(100 * 4 / 7))


def test_of_equal_utilities_the_likelier_comes_first_then_the_one_drawn_first() -> None:
    """Texts without a common letter: each has the utility of itself alone."""
    drawn = [hypothesis("abc", -3), hypothesis("def", -1), hypothesis("ghi", -2), hypothesis("jkl", -2)]
    assert [text for text, _ in answers(drawn)] == ["def", "ghi", "jkl", "abc"]
    assert {score for _, score in answers(drawn)} == {25.0}


def test_one_text_in_several_segmentations_is_one_candidate_with_the_likeliest_pieces() -> None:
    pieces = {1: "un ", 2: "chat", 3: "un chat"}
    drawn = [Hypothesis([3], -2, -2), Hypothesis([1, 2], -1, -1), Hypothesis([2], -1, -1)]
    found = ranked(drawn, [], lambda tokens: "".join(pieces[token] for token in tokens))
    assert [each.tokens for each in found] == [[1, 2], [2]]
    assert found[0].score == pytest.approx((2 * 100 + sentence_chrf("un chat", ["chat"]).score) / 3)


def test_hypotheses_of_a_search_are_candidates_and_no_references() -> None:
    drawn = [hypothesis("un chat noir"), hypothesis("un chat gris")]
    found = dict(answers(drawn, [hypothesis("un chat"), hypothesis("xyz")]))
    assert found["un chat noir"] == pytest.approx((100 + sentence_chrf("un chat noir", ["un chat gris"]).score) / 2)
    assert found["un chat"] == pytest.approx(
        sum(sentence_chrf("un chat", [text]).score for text in ("un chat noir", "un chat gris")) / 2
    )
    assert found["xyz"] == 0


def test_all_hypotheses_of_the_beam_compete() -> None:
    """The third of a beam is what the samples have in common; they are matched by sentence, in any order of batches."""
    searched = {0: ["zzzz", "zzzy", "aabb"], 1: ["zzzz", "zzzy", "ccdd"]}
    drawn = {place: [f"{beam[2]}{letter}" for letter in "mnopqr"] for place, beam in searched.items()}

    def find(search: SearchConfig) -> Found:
        found, places = (drawn, [0, 1]) if search.sampling else (searched, [1, 0])
        for place in places:
            yield [place], [[hypothesis(text) for text in found[place]][: search.n_best]]

    search = SearchConfig(beam_size=3, mbr_samples=6, mbr_beam=True)
    found = [(places, decode(best.tokens)) for places, [[best]] in least_risk(find, search, decode)]
    assert found == [([0], "aabb"), ([1], "ccdd")]


@pytest.mark.invariant
@pytest.mark.parametrize("names", [(), ("transformer-post", "bahdanau")])
@pytest.mark.parametrize("beam", [False, True])
def test_the_answer_is_the_best_of_what_sampling_and_search_find(
    tokenizer: Tokenizer, names: tuple[str, ...], beam: bool
) -> None:
    """Also of an ensemble: the very samples that sampling gives, by sacreBLEU's own function."""
    ours = translator(tokenizer, *names)
    search = dataclasses.replace(SEARCH, mbr_beam=beam, n_best=12, temperature=0.5)
    draws = ours.n_best(LINES, dataclasses.replace(search, mbr_samples=0, mbr_beam=False, sampling=True))
    beams = ours.n_best(LINES, dataclasses.replace(SEARCH, mbr_samples=0, n_best=3))
    of_beams = set()
    for drawn, searched, found in zip(draws, beams, ours.n_best(LINES, search), strict=True):
        references = [each.text for each in drawn]
        candidates = {*references, *(each.text for each in searched if beam)}
        expected = sorted(
            (sum(sentence_chrf(text, [each]).score for each in references) / 12 for text in candidates), reverse=True
        )
        assert [each.score for each in found] == pytest.approx(expected[:12], abs=1e-9)
        assert {each.text for each in found} <= candidates
        for each in found:
            assert (each.text, each.tokens) in [(one.text, one.tokens) for one in (*drawn, *searched)]
        of_beams |= {each.text for each in found} - {*references}
    assert bool(of_beams) == beam


@pytest.mark.invariant
def test_answers_depend_on_seed_and_number_and_not_on_batches(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)

    def found(lines: list[str], numbers: list[int] | None = None, **changes: Any) -> list[tuple[str, float]]:
        results = ours.n_best(lines, dataclasses.replace(SEARCH, **changes), numbers=numbers)
        return [(each.text, pytest.approx(each.score, abs=1e-9)) for [each] in results]

    expected = found(LINES)
    assert found(LINES) == expected
    assert found(LINES, batch_tokens=1) == expected
    assert found([LINES[2], LINES[0]], numbers=[2, 0]) == [expected[2], expected[0]]
    assert found(LINES, seed=2) != expected


def test_blank_lines_stay_blank_and_alignments_are_the_answers(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)
    blank, found = ours.translate(["", LINES[0]], alignments=True)
    assert (blank.text, blank.score) == ("", 0.0)
    assert found.alignment is not None
    assert found.alignment.target_tokens[:-1] == found.tokens


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mbr_samples": -1}, "search.mbr_samples=-1: must be a whole number, at least 0 and at most 1000"),
        ({"mbr_samples": 1001}, "search.mbr_samples=1001: must be a whole number, at least 0 and at most 1000"),
        ({"mbr_samples": 2.5}, "search.mbr_samples=2.5: must be a whole number"),
        ({"n_best": 13}, "search.n_best=13: must be at most search.mbr_samples=12"),
        ({"sampling": True}, "search.mbr_samples=12: .* needs search.sampling=false"),
        ({"mbr_samples": 0, "mbr_beam": True}, "search.mbr_beam=true: .* search.mbr_samples"),
        ({"epsilon": 1.0}, "search.epsilon=1.0: must be a number, at least 0 and below 1"),
        ({"temperature": 0.0}, "search.temperature=0.0: must be a number, above 0"),
    ],
)
def test_what_does_not_go_is_refused(tokenizer: Tokenizer, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=f"^{says}"):
        translator(tokenizer).n_best(LINES, dataclasses.replace(SEARCH, **changes))


def test_more_results_than_samples_take_more_samples() -> None:
    """What a request of `nmt serve` for alternatives does; the beam is another matter."""
    assert SEARCH.for_results(15) == dataclasses.replace(SEARCH, n_best=15, mbr_samples=15)
    assert SEARCH.for_results(2) == dataclasses.replace(SEARCH, n_best=2)
    assert SearchConfig(beam_size=2).for_results(4) == SearchConfig(beam_size=4, n_best=4)


def test_constraints_are_refused_by_the_setting_that_does_not_go_with_them(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match=r"^search\.mbr_samples=12: what is drawn cannot"):
        translator(tokenizer).n_best(LINES[:1], constraints=[Constraints("le")])
