"""A run directory of an untrained model, made in a moment: for tests of what is done with files, whatever they say."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from nmt.config import FilePair, FilesData, RunConfig, SearchConfig, TokenizerConfig, TrainConfig
from nmt.configuration import save_config
from nmt.data.tokenizer import Tokenizer
from nmt.training.checkpoint import BEST, LAST, point, write_checkpoint
from tiny import CONFIGS, tiny_model

MODEL = "luong-general-fed-in_order"
WORDS = "le la un vieux jeune petit jardin maison rivière élève enfant lit voit mange prend ouvre lettre pain où ça"
SEARCH = SearchConfig(beam_size=2, max_length_ratio=1.0, max_length_extra=3)


def untrained_run(directory: Path, model: str = MODEL, byte_fallback: bool = True) -> Path:
    """Writes config.yaml, tokenizer.model, and one checkpoint of step 7 that `best` and `last` point to.

    Its data are files in `directory`/data, all alike.
    """
    generator = random.Random(1)
    texts = [" ".join(generator.choices(WORDS.split(), k=6)) + "." for _ in range(100)]
    data = directory / "data"
    data.mkdir(parents=True)
    for name in ("train", "valid", "test"):
        for side in ("en", "fr"):
            (data / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts[:9]), encoding="utf-8")
    files = {name: FilePair(f"{name}.en", f"{name}.fr") for name in ("train", "valid", "test")}
    config = TrainConfig(
        CONFIGS[model],
        FilesData(
            "files", "data", dir=str(data), train=[files["train"]], valid=[files["valid"]], test={"test": files["test"]}
        ),
        TokenizerConfig(vocab_size=320 if byte_fallback else 60, byte_fallback=byte_fallback),
        search=SEARCH,
        run=RunConfig(str(directory)),
    )
    tokenizer = Tokenizer.train(config.tokenizer, zip(texts, texts, strict=True), directory, lambda line: None)
    size = tokenizer.source_size
    weights = dict(
        tiny_model(model, dtype=torch.float32, source_vocabulary=size, target_vocabulary=size).named_parameters()
    )
    checkpoint = directory / "checkpoints" / "step_00000007"
    checkpoint.parent.mkdir()
    write_checkpoint(checkpoint, weights, None, config, tokenizer, {"step": 7})
    for name in (BEST, LAST):
        point(checkpoint.parent, name, checkpoint.name)
    save_config(config, directory / "config.yaml")
    return directory
