"""Every family learns a hundred pairs by heart: the one test that model, loss, optimizer, search and score all pass.

A loss that falls while translations stay wrong is what users of other toolkits saw of a fault in any of these.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from nmt.config import GrammarData
from nmt.configuration import compose
from nmt.configuration.schema import MODELS
from nmt.training.checkpoint import BEST, Checkpoint
from nmt.training.session import train

PAIRS = 100
MULTI30K = os.environ.get("NMT_MULTI30K")  # folder with the released files, where there is one

# The presets, smaller where that is quicker.
FAMILIES = {
    "lstm": ["model.layers=1", "optimizer.lr=3e-3", "trainer.max_steps=500"],
    "cho": ["optimizer.lr=3e-3", "trainer.max_steps=250"],
    "bahdanau": [
        "model.embedding_size=128",
        "model.hidden_size=128",
        "model.attention_size=128",
        "model.readout_size=128",
        "optimizer.lr=3e-3",
        "trainer.max_steps=250",
    ],
    "luong": ["model.layers=1", "optimizer.lr=3e-3", "trainer.max_steps=500"],
    "intra_attention": [
        "model.embedding_size=128",
        "model.hidden_size=128",
        "model.attention_size=128",
        "optimizer.lr=3e-3",
        "schedule.warmup=100",
        "trainer.max_steps=600",
    ],
    "transformer": [
        "model.encoder_layers=2",
        "model.decoder_layers=2",
        "optimizer.lr=2e-3",
        "schedule.warmup=100",
        "trainer.max_steps=400",
    ],
    "transformer_modern": [
        "model.encoder_layers=2",
        "model.decoder_layers=2",
        "optimizer.lr=2e-3",
        "schedule.warmup=100",
        "trainer.max_steps=300",
    ],
    "decoder_only": ["model.layers=4", "optimizer.lr=1e-3", "schedule.warmup=100", "trainer.max_steps=400"],
}
OVERFIT = [
    "data=files",
    "data.valid=[{source: train.en, target: train.fr}]",
    "~data.test.test",
    "tokenizer.vocab_size=400",
    "batch.tokens=512",
    "model.dropout=0",
    "loss.label_smoothing=0",
    "schedule=inverse_sqrt",
    "schedule.warmup=20",
    "trainer.ema_decay=0",
    "validation.every=1000",
    "validation.samples=0",
]


def test_every_family_is_here() -> None:
    assert {compose([f"model={preset}"]).model.family for preset in FAMILIES} == set(MODELS)


@pytest.fixture
def multi30k_pairs(tmp_path: Path) -> Path:
    """A folder with the first pairs of Multi30k."""
    if MULTI30K is None:
        pytest.skip("NMT_MULTI30K names no folder")
    folder = tmp_path / "pairs"
    folder.mkdir()
    for side in ("en", "fr"):
        with gzip.open(Path(MULTI30K) / f"train.{side}.gz") as file:
            (folder / f"train.{side}").write_bytes(b"".join(file.readline() for _ in range(PAIRS)))
    return folder


@pytest.fixture
def grammar_pairs(tmp_path: Path) -> Path:
    """A folder with pairs of the grammar, of 3 to 15 words."""
    try:
        from nmt.data.grammar import write_grammar_corpus
    except ImportError:
        pytest.skip("the grammar is not there yet")
    folder = tmp_path / "pairs"
    folder.mkdir()
    sizes = {"train_pairs": PAIRS, "valid_pairs": 1, "test_pairs": 1, "max_words": 15}
    write_grammar_corpus(GrammarData(kind="grammar", name="grammar", **sizes), folder)
    return folder


def bleu_after_training(family: str, folder: Path, run: Path) -> float:
    options = [option for option in OVERFIT if option.split("=")[0] not in {o.split("=")[0] for o in FAMILIES[family]}]
    train(compose([f"model={family}", *options, *FAMILIES[family], f"data.dir={folder}", f"run.dir={run}"]))
    return float(Checkpoint.open(run / "checkpoints" / BEST).meta["valid"]["bleu"])


@pytest.mark.case
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_pairs_of_multi30k(family: str, multi30k_pairs: Path, tmp_path: Path) -> None:
    assert bleu_after_training(family, multi30k_pairs, tmp_path / "run") >= 95


@pytest.mark.case
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_pairs_of_the_grammar(family: str, grammar_pairs: Path, tmp_path: Path) -> None:
    assert bleu_after_training(family, grammar_pairs, tmp_path / "run") >= 95
