"""From attention between pieces to links between words, and their error rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.data.corpus import PairFiles
from nmt.data.grammar import words
from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from nmt.evaluation import gold
from nmt.evaluation.gold import between_words, forced_alignments, overlaps, score_alignments

SENTENCES = [
    ("The cat sees a horse.", "Le chat voit un cheval."),
    ("The child hears the sea.", "L'enfant entend la mer."),
]


def test_pieces_are_laid_over_words_character_by_character() -> None:
    counts = overlaps(["▁l'a", "rbre", "▁ver", "t.", ""], "l'arbre vert.")
    assert words("l'arbre vert.") == ["l'", "arbre", "vert", "."]
    assert counts is not None
    assert counts.tolist() == [[3, 0, 0, 0, 0], [1, 4, 0, 0, 0], [0, 0, 4, 1, 0], [0, 0, 0, 1, 0]]


def test_a_space_alone_counts_for_the_word_after_it() -> None:
    counts = overlaps(["▁où", "▁", "?"], "où ?")
    assert counts is not None
    assert counts.tolist() == [[3, 0, 0], [0, 1, 1]]


def test_an_unknown_piece_is_what_its_neighbours_leave() -> None:
    counts = overlaps(["▁le", "▁", None, "▁dort"], "le żółw dort")
    assert counts is not None
    assert counts.tolist() == [[3, 0, 0, 0], [0, 1, 4, 0], [0, 0, 0, 5]]
    several = overlaps(["▁", None, None, "x"], "éx")
    assert several is not None
    assert several.tolist() == [[1, 1, 0, 1]]


def test_pieces_that_spell_another_text_are_told() -> None:
    assert overlaps(["▁le", "▁chat"], "le chien") is None
    assert overlaps(["▁le", None, "s"], "le chien") is None


def test_weights_are_split_over_source_words_and_averaged_over_target_pieces() -> None:
    over_source_WS = np.array([[3.0, 0, 0], [1, 4, 0]])  # the third piece is the end mark
    over_target_WT = np.array([[3.0, 1]])
    weights_TS = np.array([[0.8, 0.1, 0.1], [0.0, 1.0, 0.0]])
    found = between_words(weights_TS, over_source_WS, over_target_WT)
    # First row: 0.8 · 3/4 = 0.6 and 0.8 · 1/4 + 0.1 = 0.3; second: 0 and 1; weights 3/4 and 1/4.
    assert found == pytest.approx(np.array([[0.45, 0.475]]))


@pytest.fixture
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture
def files(tmp_path: Path) -> PairFiles:
    (tmp_path / "t.en").write_text("".join(f"{source}\n" for source, _ in SENTENCES))
    (tmp_path / "t.fr").write_text("".join(f"{target}\n" for _, target in SENTENCES))
    (tmp_path / "t.align").write_text("0-0 1-1 2-2 3-3 4-4 5-5\n0-0 1-1 2-2 3-3 4-4 5-5\n")
    return PairFiles(tmp_path / "t.en", tmp_path / "t.fr", tmp_path / "t.align")


def test_rows_are_what_the_model_attends_to(translator: Translator) -> None:
    """The words of either side are those that gold links count, and little weight is lost to the end mark or made."""
    for alignment, (source, target) in zip(forced_alignments(translator, SENTENCES), SENTENCES, strict=True):
        assert alignment is not None
        assert (alignment.source_tokens, alignment.target_tokens) == (words(source), words(target))
        assert (alignment.weights_TS.sum(axis=1) <= 1 + 1e-5).all()


def test_a_sentence_is_aligned_alike_alone_and_among_others(translator: Translator) -> None:
    together = forced_alignments(translator, [*SENTENCES, ("A bird.", "Un oiseau.")])
    alone = forced_alignments(translator, SENTENCES[:1])
    assert together[0] is not None and alone[0] is not None
    assert together[0].weights_TS == pytest.approx(alone[0].weights_TS, abs=1e-5)


@pytest.mark.parametrize(("shift", "expected"), [(0, 0.0), (1, 1.0)])
def test_looking_at_the_gold_words_has_no_error_and_at_their_neighbours_nothing_else(
    translator: Translator, files: PairFiles, monkeypatch: pytest.MonkeyPatch, shift: int, expected: float
) -> None:
    """Attention is replaced by all weight on the source pieces of the word of the same number."""
    tokenizer = translator.tokenizer

    def attention(_: Any, pairs: Sequence[tuple[list[int], list[int]]], __: Any) -> list[Tensor]:
        found = []
        for source, target in pairs:
            text = next(pair for pair in SENTENCES if tokenizer.encode_source([pair[0]])[0] == list(source))
            over_source = overlaps(gold._surfaces(tokenizer.source_pieces(source), source), text[0])
            over_target = overlaps(gold._surfaces(tokenizer.target_pieces(target), target), text[1])
            assert over_source is not None and over_target is not None
            weights_TS = np.roll(over_target, shift, axis=0).T @ over_source
            found.append(torch.tensor(np.vstack([weights_TS, np.zeros(len(source))])))
        return found

    monkeypatch.setattr(gold, "forced_attention", attention)
    found = score_alignments(translator, files)
    assert found is not None
    assert (found.error_rate, found.sentences, found.left_out) == (expected, 2, 0)


def test_without_gold_there_is_no_rate(translator: Translator, files: PairFiles) -> None:
    assert score_alignments(translator, PairFiles(files.source, files.target)) is None


def test_gold_that_does_not_fit_is_refused(translator: Translator, files: PairFiles) -> None:
    assert files.alignment is not None
    files.alignment.write_text("0-0\n1-x\n")
    with pytest.raises(RequestError, match=r"t.align line 2: not a word alignment link such as 0-1: '1-x'"):
        score_alignments(translator, files)
    files.alignment.write_text("0-0\n")
    with pytest.raises(RequestError, match=r"t.align has 1 lines for 2 pairs"):
        score_alignments(translator, files)
