"""Reported faults of text on its way in: separators that mean something elsewhere, characters nobody sees, padding."""

from __future__ import annotations

import mmap
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nmt as package
from nmt.configuration import compose, load_config
from nmt.data.batching import make_batch
from nmt.data.corpus import prepare_corpus
from nmt.data.encoded import encode_corpus
from nmt.data.filtered import filter_corpus
from nmt.data.tokenizer import PAD, Tokenizer
from nmt.decoding.translator import Translator
from nmt.evaluation.metrics import corpus_scores
from nmt.training.session import train
from tiny import MODELS, SOURCE_VOCABULARY, sentences, tiny_model
from untrained import untrained_run

pytestmark = pytest.mark.case
Command = Callable[..., Any]

SEPARATORS = ["|", " ||| ", "￨", "▁", "@@ ", "<s>", "</s>", "<unk>", "<pad>", "\t", "&#9601;", "#", "##", "<2fr>", "$&"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return package.load(untrained_run(tmp_path_factory.mktemp("runs") / "run"))


def test_separators_of_other_toolkits_are_text(
    corpus_folder: Path, tiny: Callable[[str], list[str]], nmt: Command, tmp_path: Path
) -> None:
    """In every split and on both sides: trained on, scored, translated, and the n best still told apart."""
    for path in corpus_folder.iterdir():
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        marked = [f"{line}{SEPARATORS[i % len(SEPARATORS)]}x" for i, line in enumerate(lines)]
        (tmp_path / path.name).write_text("".join(f"{line}\n" for line in marked), encoding="utf-8")
    run = tmp_path / "run"
    few = ["data.max_train_pairs=60", "validation.sentences=15", "trainer.max_steps=2", "tokenizer.vocab_size=110"]
    train(compose([*tiny("lstm"), *few, f"data.dir={tmp_path}", f"run.dir={run}"]))
    assert (run / "hypotheses" / "test.txt").read_bytes().count(b"\n") == 24
    outcome = nmt("translate", run, "--input", tmp_path / "test.en", "--n-best", "2")
    assert outcome.status == 0
    assert [len(line.split("\t")) for line in outcome.out.split("\n")[:-1]] == [2] * 24


@pytest.mark.parametrize("character", "\u00ad\u200b\u200e\u200f\u2060\ufeff")
def test_a_character_that_nobody_sees_changes_nothing(character: str, translator: Translator) -> None:
    texts = ["le vieux jardin", "la rivière", "un élève mange."]
    torn = [f"{character}{text[:5]}{character}{text[5:]}{character}" for text in texts]
    decomposed = [unicodedata.normalize("NFD", text).replace("\u0300", f"{character}\u0300") for text in texts]
    expected = translator.translate(texts)
    assert translator.translate(torn) == expected
    assert translator.translate(decomposed) == expected
    assert len({translation.text for translation in expected}) > 1


def test_what_bleu_sees_of_french_typography() -> None:
    """Nothing of the spaces before ? and !, all of apostrophes and composed accents: references must stay untouched."""
    reference = ["L'élève n'a pas vu la voiture ? Oh non !", "Elle est là : il l'a dit ; c'est vrai."]
    for space in ("", " ", "\u00a0", "\u202f"):
        written = [line.replace(" ?", f"{space}?").replace(" !", f"{space}!") for line in reference]
        assert corpus_scores(written, reference).bleu == pytest.approx(100)
    for changed in (
        [line.replace("'", "’") for line in reference],
        [unicodedata.normalize("NFD", line) for line in reference],
        [line.replace("'", "&apos;") for line in reference],
    ):
        assert corpus_scores(changed, reference).bleu < 90


@pytest.mark.parametrize("name", MODELS)
def test_columns_of_padding_change_nothing(name: str) -> None:
    """No sentence is as long as the batch is wide, as in a batch that was cut or padded to a fixed width."""
    model = tiny_model(name)
    batch = make_batch(sentences([5, 1, 9, 3], SOURCE_VOCABULARY), sentences([4, 6, 1, 2]))
    expected_BTD = model(batch)
    real_BT = batch.target_output_BT != PAD
    batch.source_BS = torch.nn.functional.pad(batch.source_BS, (0, 4), value=PAD)
    wider_BTD = model(batch)
    assert wider_BTD.shape == expected_BTD.shape
    torch.testing.assert_close(wider_BTD[real_BT], expected_BTD[real_BT], rtol=0, atol=1e-10)


def test_a_corpus_is_not_held_in_memory(one_step_run: Path) -> None:
    """Ids and offsets are maps of files, which processes share and the system may drop; pairs go by as a stream."""
    config = load_config(one_step_run / "config.yaml")
    corpus = prepare_corpus(config.data, print)
    filtered = filter_corpus(corpus, config.data, lambda line: None)
    encoded = encode_corpus(filtered, Tokenizer.load(one_step_run), config, lambda line: None)
    for side in (encoded.source, encoded.target):
        for array in (side.ids, side.offsets):
            owner: Any = array
            while isinstance(owner, np.ndarray):
                assert not owner.flags.owndata
                owner = owner.base
            assert isinstance(owner, mmap.mmap)
