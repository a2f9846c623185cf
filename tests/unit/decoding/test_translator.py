"""From text to text: a line in, a line out, in order; what is blank stays blank; what is wrong is refused at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nmt
from nmt.config import GrammarData, SearchConfig, TrainConfig
from nmt.data.tokenizer import BOS, EOS, PAD, Tokenizer
from nmt.decoding.translator import Translator, forced_attention, length_batches, pad
from nmt.errors import RequestError
from nmt.models.base import Memory, TranslationModel
from nmt.training.checkpoint import write_checkpoint
from tiny import CONFIGS, tiny_model

LINES = ["Le vieux jardin.", "un élève", "la maison de la rivière où un enfant lit une lettre", "x", "ça mange du pain"]
BLANK_LINES = [
    "",
    " ",
    "\t",
    "\u00a0",
    "\u3000",
    " \u00a0\t ",
    "\u200b",
    "\ufeff",
    "\u00ad",
    "\x7f",
    "\u2581\u2581",
    "\x01\x02",
]
SEARCH = SearchConfig(beam_size=3, max_length_ratio=1.0, max_length_extra=3)


def translator(tokenizer: Tokenizer, name: str = "luong-general-fed-in_order", **changes: Any) -> Translator:
    size = tokenizer.source_size
    model = tiny_model(name, source_vocabulary=size, target_vocabulary=size, **changes)
    return Translator(model, tokenizer, SEARCH, torch.device("cpu"))


class Silent(TranslationModel):
    """A model that must not be asked."""

    def encode(self, source_BS: Tensor) -> Memory:
        raise AssertionError("the model was asked")


@pytest.mark.case
@pytest.mark.parametrize("sampling", [False, True])
def test_blank_lines_come_back_blank_and_the_model_is_not_asked(tokenizer: Tokenizer, sampling: bool) -> None:
    silent = Translator(Silent(), tokenizer, SEARCH, torch.device("cpu"))
    search = dataclasses.replace(SEARCH, n_best=2, sampling=sampling)
    for found in (*silent.n_best(BLANK_LINES, search), *([one] for one in silent.translate(BLANK_LINES))):
        assert [(t.text, t.tokens, t.score, t.alignment) for t in found] == [("", [], 0.0, None)]
    assert silent.translate([]) == []
    with pytest.raises(AssertionError, match="asked"):
        silent.translate([*BLANK_LINES, "x"])


@pytest.mark.case
def test_blank_lines_stay_in_place_among_others(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)
    alone = [ours.translate([line])[0].text for line in LINES]
    for blank in (BLANK_LINES[: len(LINES)], BLANK_LINES[-len(LINES) :]):
        mixed = [line for pair in zip(LINES, blank, strict=True) for line in pair]
        texts = [translation.text for translation in ours.translate(mixed)]
        assert texts[0::2] == alone
        assert texts[1::2] == [""] * len(LINES)


@pytest.mark.invariant
@pytest.mark.parametrize("batch_tokens", [1, 40, 4_096])
@pytest.mark.parametrize("name", ["bahdanau", "lstm-reversed", "luong-dot-unfed-reversed", "transformer-post"])
def test_order_and_neighbours_do_not_matter(tokenizer: Tokenizer, name: str, batch_tokens: int) -> None:
    ours = translator(tokenizer, name)
    search = dataclasses.replace(SEARCH, batch_tokens=batch_tokens)
    alone = {line: ours.translate([line])[0] for line in LINES}
    assert len({translation.text for translation in alone.values()}) > 1
    order = [3, 0, 4, 4, 1, 2, 0]
    for i, translation in zip(order, ours.translate([LINES[i] for i in order], search=search), strict=True):
        expected = alone[LINES[i]]
        assert (translation.text, translation.tokens) == (expected.text, expected.tokens)
        assert translation.score == pytest.approx(expected.score, abs=1e-5)


@pytest.mark.invariant
def test_a_sampled_line_depends_on_seed_and_number_and_not_on_batches(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)
    search = dataclasses.replace(SEARCH, sampling=True, n_best=2, seed=5)

    def texts(lines: list[str], **changes: Any) -> list[list[str]]:
        return [[t.text for t in found] for found in ours.n_best(lines, dataclasses.replace(search, **changes))]

    expected = texts(LINES)
    assert texts(LINES, batch_tokens=1) == expected
    assert texts(["", *LINES[1:]])[1:] == expected[1:]
    assert texts(LINES, seed=6) != expected
    same = texts(["un élève"] * 8)
    assert len({text for found in same for text in found}) > 1, "equal lines are drawn for separately"


def test_translations_carry_the_best_first(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)
    several = ours.n_best(LINES, dataclasses.replace(SEARCH, beam_size=4, n_best=4))
    for found in several:
        scores = [translation.score for translation in found]
        assert len(found) == 4
        assert scores == sorted(scores, reverse=True)
    best = ours.translate(LINES, beam_size=4)
    assert [translation.text for translation in best] == [found[0].text for found in several]
    assert [t.text for t in best] == [tokenizer.decode(tokenizer._target.piece_to_id(t.tokens)) for t in best]


def test_alignments_are_of_the_pieces_and_their_rows_sum_to_one(tokenizer: Tokenizer) -> None:
    for name in ("bahdanau", "luong-general-fed-in_order", "transformer-pre"):
        ours = translator(tokenizer, name)
        lines = [*LINES, ""]
        for line, translation in zip(lines, ours.translate(lines, alignments=True), strict=True):
            if not line:
                assert translation.alignment is None
                continue
            alignment = translation.alignment
            [source] = tokenizer.encode_source([line])
            assert alignment.source_tokens == tokenizer.source_pieces(source)
            assert alignment.target_tokens == [*translation.tokens, "</s>"]
            assert alignment.weights_TS.shape == (len(translation.tokens) + 1, len(source))
            np.testing.assert_allclose(alignment.weights_TS.sum(axis=1), 1, atol=1e-9)


def test_every_hypothesis_has_its_own_alignment(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)
    several = ours.n_best(LINES, dataclasses.replace(SEARCH, n_best=3), alignments=True)
    for source, found in zip(tokenizer.encode_source(LINES), several, strict=True):
        for translation in found:
            written = [tokenizer._target.piece_to_id(token) for token in translation.tokens]
            [weights_TS] = forced_attention(ours.model, [(source, written)], ours.device)
            np.testing.assert_allclose(translation.alignment.weights_TS, weights_TS, atol=1e-9)


@pytest.mark.invariant
def test_forced_attention_does_not_depend_on_the_batch(tokenizer: Tokenizer) -> None:
    model = translator(tokenizer, "bahdanau").model
    pairs = [([5, 6, 7, EOS], [8, 9]), ([5, EOS], [4, 4, 4, 4, 4]), ([9, 8, 7, 6, 5, EOS], [])]
    together = forced_attention(model, pairs, torch.device("cpu"))
    for pair, weights_TS in zip(pairs, together, strict=True):
        assert weights_TS.shape == (len(pair[1]) + 1, len(pair[0]))
        [alone_TS] = forced_attention(model, [pair], torch.device("cpu"))
        torch.testing.assert_close(weights_TS, alone_TS, rtol=0, atol=1e-12)


@pytest.mark.case
def test_more_results_than_hypotheses_are_refused_before_any_work(tokenizer: Tokenizer) -> None:
    silent = Translator(Silent(), tokenizer, SEARCH, torch.device("cpu"))
    with pytest.raises(RequestError, match=r"n_best=4.*beam_size=3"):
        silent.n_best(["x"], dataclasses.replace(SEARCH, n_best=4))
    drawn = translator(tokenizer).n_best(["x"], dataclasses.replace(SEARCH, n_best=4, sampling=True))
    assert len(drawn[0]) == 4


@pytest.mark.parametrize("beam_size", [-1, 0, 1001])
def test_a_beam_out_of_bounds_is_refused_before_any_work(beam_size: int, tokenizer: Tokenizer) -> None:
    silent = Translator(Silent(), tokenizer, SEARCH, torch.device("cpu"))
    with pytest.raises(
        RequestError, match=f"search.beam_size={beam_size}: must be a whole number, at least 1 and at most 1000"
    ):
        silent.translate(["x"], beam_size=beam_size)


def test_a_model_without_attention_is_asked_for_none(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="no attention"):
        translator(tokenizer, "lstm-reversed").translate(["x"], alignments=True)


def test_one_text_is_not_a_list_of_its_letters(tokenizer: Tokenizer) -> None:
    with pytest.raises(TypeError, match="list of texts"):
        translator(tokenizer).translate("abc")


@pytest.mark.case
def test_a_text_with_line_breaks_is_one_line(tokenizer: Tokenizer) -> None:
    ours = translator(tokenizer)
    [broken, whole] = ours.translate(["le vieux\njardin\u2028lit", "le vieux jardin lit"])
    assert broken.text == whole.text
    assert "\n" not in broken.text


# Batches ---------------------------------------------------------------------------------------------------------


def test_batches_hold_every_line_once_and_keep_the_budget() -> None:
    lengths = [3, 9, 1, 9, 4, 4, 30, 2]
    batches = list(length_batches(lengths, 12))
    assert sorted(i for batch in batches for i in batch) == list(range(8))
    assert [lengths[i] for batch in batches for i in batch] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 12
    assert list(length_batches([], 12)) == []
    assert [len(batch) for batch in length_batches(lengths, 0)] == [1] * 8


def test_padding_is_on_the_right() -> None:
    assert pad([[5, 6], [7]]).tolist() == [[5, 6], [7, PAD]]
    assert pad([[BOS]]).dtype == torch.int64


# From a checkpoint -----------------------------------------------------------------------------------------------


def test_python_users_load_a_run_and_translate(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`nmt.load(RUN).translate([…], beam_size=5)` gives what the model gave before it was saved."""
    size = tokenizer.source_size
    model = tiny_model(
        "luong-general-fed-in_order", dtype=torch.float32, source_vocabulary=size, target_vocabulary=size
    )
    config = TrainConfig(CONFIGS["luong-general-fed-in_order"], GrammarData("grammar", "grammar"), search=SEARCH)
    directory = tmp_path / "checkpoints" / "step_00000007"
    directory.parent.mkdir()
    write_checkpoint(directory, dict(model.named_parameters()), None, config, tokenizer, {"step": 7})
    expected = Translator(model, tokenizer, SEARCH, torch.device("cpu")).translate(LINES, beam_size=5)
    for run in (tmp_path, str(tmp_path), directory):
        loaded = nmt.load(run, device="cpu")
        assert not loaded.model.training
        assert loaded.checkpoint.step == 7
        translations = loaded.translate(LINES, beam_size=5)
        assert [t.text for t in translations] == [t.text for t in expected]
        assert [t.score for t in translations] == [t.score for t in expected]
    with pytest.raises(RequestError, match="no such run"):
        nmt.load(tmp_path / "elsewhere")
