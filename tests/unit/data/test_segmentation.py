"""Random segmentations: probabilities worked out by hand, and agreement with SentencePiece where nothing is random."""

from __future__ import annotations

import io
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import sentencepiece

from nmt.data.segmentation import BpeSegmenter, Segmenter, UnigramSegmenter, segmenter

# A vocabulary as of a model: two special pieces, the end mark, one user-defined symbol, normal ones.
PIECES = ["<unk>", "</s>", "<x>", "▁", "a", "b", "▁a", "ab", "▁ab"]
NORMAL = [False, False, False, True, True, True, True, True, True]
UNKNOWN, EOS, SYMBOL = 0, 1, 2


def spelled(ids: Sequence[int]) -> str:
    return "|".join(PIECES[id_] for id_ in ids)


def frequencies(one: Segmenter, sentence: Sequence[int], draws: int = 20_000) -> dict[str, float]:
    counts = Counter(spelled(ids) for ids in one.draw([sentence] * draws, seed=1))
    return {segmentation: count / draws for segmentation, count in counts.items()}


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_unigram_draws_by_likelihood_to_the_power_of_alpha(alpha: float) -> None:
    scores = [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -2.5, -4.0, -3.5]
    one = UnigramSegmenter(PIECES, NORMAL, scores, alpha)
    found = frequencies(one, [8, EOS])
    # All ways to write "▁ab", with the sums of their scores.
    ways = {"▁|a|b": -6.0, "▁a|b": -5.5, "▁|ab": -5.0, "▁ab": -3.5}
    total = sum(math.exp(alpha * score) for score in ways.values())
    expected = {f"{way}|</s>": math.exp(alpha * score) / total for way, score in ways.items()}
    assert found.keys() == expected.keys()
    for way, probability in expected.items():
        # Five standard deviations of 20,000 draws are at most 0.018.
        assert found[way] == pytest.approx(probability, abs=0.018)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_bpe_leaves_out_merges_with_probability_alpha(alpha: float) -> None:
    # Merges in order: ▁+a, then ▁a+b; a+b comes last.
    scores = [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, 0.0, -2.0, -1.0]
    found = frequencies(BpeSegmenter(PIECES, NORMAL, scores, alpha), [8, EOS])
    kept = 1 - alpha
    # First step: ▁+a is kept, or else a+b is, or else nothing is merged. Second step: one pair, kept or not.
    expected = {
        "▁ab|</s>": kept * kept + alpha * kept * kept,
        "▁a|b|</s>": kept * alpha,
        "▁|ab|</s>": alpha * kept * alpha,
        "▁|a|b|</s>": alpha * alpha,
    }
    assert sum(expected.values()) == pytest.approx(1)
    for way, probability in expected.items():
        assert found[way] == pytest.approx(probability, abs=0.018)


@pytest.mark.parametrize("kind", [UnigramSegmenter, BpeSegmenter])
def test_words_with_other_pieces_stay_as_they_are(kind: type[Segmenter]) -> None:
    one = kind(PIECES, NORMAL, [-1.0] * len(PIECES), 0.5)
    # "▁a<x>b", "▁a?", "▁ab": only the last word is drawn anew.
    sentence = [6, SYMBOL, 5, 6, UNKNOWN, 8, EOS]
    drawn = one.draw([sentence] * 200, seed=3)
    assert all(ids[:5] == sentence[:5] and ids[-1] == EOS for ids in drawn)
    assert len({tuple(ids[5:]) for ids in drawn}) == 4
    assert one.draw([[], [EOS]], seed=1) == [[], [EOS]]


def a_model(kind: str) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    generator = random.Random(4)
    parts = ["mai", "son", "ri", "vi", "è", "re", "jar", "din", "en", "fant", "l’", "ça", "-", "s"]
    words = ["".join(generator.choices(parts, k=generator.randint(1, 4))) for _ in range(150)]
    texts = [" ".join(generator.choices(words, k=8)) + " <a,b>." for _ in range(300)]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        model_type=kind,
        vocab_size=380,
        byte_fallback=True,
        user_defined_symbols=["<a,b>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue()), texts


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_without_chance_it_is_the_segmentation_of_sentencepiece(kind: str) -> None:
    model, texts = a_model(kind)
    texts = [*texts, "漢字 maison", "maison<a,b>jardin  a b"]
    encoded = model.encode(texts, add_eos=True)
    # BPE: no merge is left out. Unigram: to a great power, only the likeliest segmentation has any weight.
    assert segmenter(model, 0.0 if kind == "bpe" else 1e6).draw(encoded, seed=1) == encoded


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_any_draw_spells_the_same_text(kind: str) -> None:
    model, texts = a_model(kind)
    encoded = model.encode(texts, add_eos=True)
    drawn = segmenter(model, 0.3).draw(encoded, seed=1)
    assert sum(map(len, drawn)) > sum(map(len, encoded))
    assert model.decode(drawn) == model.decode(encoded)
    symbol = model.piece_to_id("<a,b>")
    assert all(ids.count(symbol) == 1 and ids[-1] == model.eos_id() for ids in drawn)


def test_what_is_remembered_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = a_model("unigram")
    encoded = model.encode(texts)
    expected = segmenter(model, 0.2).draw(encoded, seed=5)
    monkeypatch.setattr("nmt.data.segmentation.MOST_WORDS", 3)
    one = segmenter(model, 0.2)
    one.draw(encoded[:7], seed=1)
    assert one.draw(encoded, seed=5) == expected
