"""What every test gets: a cache of its own, one thread, the default choice of tests, the command, a trained run."""

from __future__ import annotations

import io
import itertools
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from nmt.data.tokenizer import Tokenizer

# The tests run side by side, a process each; PyTorch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts something in the background may have it ignore Ctrl+C, and so would all that tests start and
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis tries the same examples each time, so that a test run means the same from one day to the next; and no
# example is too slow for a busy machine. For a hunt after new faults see tests/examples.py.
settings.register_profile(
    "quick", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Corpora that a test makes are kept for the session only, never in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out `slow` tests and, where there is no GPU, `gpu` tests, unless -m or a test's own name asks for them."""
    if config.option.markexpr or any("::" in argument for argument in config.args):
        return
    without = {"slow"} if _has_gpu(items) else {"slow", "gpu"}
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in without)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _has_gpu(items: list[pytest.Item]) -> bool:
    if not any(item.get_closest_marker("gpu") for item in items):
        return False
    import torch

    return torch.cuda.is_available()


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def nmt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """nmt("translate", run, stdin=b"…"), in this process: quick, and torch is imported once."""

    from nmt import cli

    def run(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    return run


# A tiny corpus, and tiny models trained on it --------------------------------------------------------------------

SUBJECTS = [
    ("the cat", "le chat"),
    ("the dog", "le chien"),
    ("a girl", "une fille"),
    ("the old man", "le vieil homme"),
    ("my sister", "ma sœur"),
    ("the child", "l'enfant"),
    ("a bird", "un oiseau"),
    ("the teacher", "le professeur"),
]
VERBS = [
    ("sees", "voit"),
    ("likes", "aime"),
    ("draws", "dessine"),
    ("follows", "suit"),
    ("waits for", "attend"),
    ("hears", "entend"),
]
OBJECTS = [
    ("a horse", "un cheval"),
    ("the river", "la rivière"),
    ("the red house", "la maison rouge"),
    ("a small tree", "un petit arbre"),
    ("the summer", "l'été"),
    ("a student", "un élève"),
    ("the sea", "la mer"),
    ("an apple", "une pomme"),
]
SPLITS = {"train": (0, 240), "valid": (240, 260), "test": (260, 284)}

TINY_MODELS = {
    "lstm": ["model.embedding_size=32", "model.hidden_size=32", "model.layers=2"],
    "cho": ["model.embedding_size=32", "model.hidden_size=32", "model.readout_size=32"],
    "bahdanau": [
        "model.embedding_size=32",
        "model.hidden_size=32",
        "model.attention_size=32",
        "model.readout_size=32",
    ],
    "luong": ["model.embedding_size=32", "model.hidden_size=32", "model.layers=2"],
    "intra_attention": ["model.embedding_size=32", "model.hidden_size=32", "model.attention_size=32"],
    "transformer": [
        "model.width=32",
        "model.feed_forward_size=64",
        "model.heads=2",
        "model.encoder_layers=2",
        "model.decoder_layers=2",
    ],
    "decoder_only": ["model.width=32", "model.feed_forward_size=64", "model.heads=2", "model.layers=2"],
}
TINY_MODELS["transformer_base"] = TINY_MODELS["transformer"]
TINY_MODELS["transformer_modern"] = [*TINY_MODELS["transformer"], "model.heads=4"]  # two of keys and values


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train, valid and test of one kind of sentence, 240, 20 and 24 pairs: 17 batches of 300 tokens an epoch."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = [
        tuple(" ".join(part[side] for part in parts).capitalize() + "." for side in (0, 1))
        for parts in itertools.product(SUBJECTS, VERBS, OBJECTS)
    ]
    random.Random(1).shuffle(pairs)
    for split, (begin, end) in SPLITS.items():
        for side, language in enumerate(("en", "fr")):
            text = "".join(f"{pair[side]}\n" for pair in pairs[begin:end])
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(corpus_folder: Path) -> Callable[[str], list[str]]:
    """The overrides of a run that takes a second or two: tiny("luong"). Budget and run.dir are still to be given."""

    def overrides(preset: str) -> list[str]:
        return [
            f"model={preset}",
            *TINY_MODELS[preset],
            "model.dropout=0.1",
            "data=files",
            f"data.dir={corpus_folder}",
            "tokenizer.vocab_size=90",
            "batch.tokens=300",
            "optimizer.lr=5e-3",
            "schedule=constant",
            "schedule.warmup=0",
            "trainer.ema_decay=0.9",
            "run.report=false",  # figures take longer than all the rest
            "trainer.log_every=10",
            "validation.every=1000",
            "validation.samples=0",  # no pictures of attention, which take longer than all the rest
        ]

    return overrides


@pytest.fixture(scope="session")
def trained_run(tiny: Callable[[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as `nmt train` leaves it: a Bahdanau model that gets its test sentences right. Not to be changed.

    It has its checkpoints of steps 50 (still poor), 100, 150 and 200.
    """
    from nmt.configuration import compose
    from nmt.training.session import train

    run = tmp_path_factory.mktemp("runs") / "trained"
    options = ["trainer.max_steps=200", "validation.every=50", "validation.samples=1", "trainer.keep_last=9"]
    train(compose([*tiny("bahdanau"), *options, f"run.dir={run}"]))
    return run


@pytest.fixture
def run_copy(trained_run: Path, tmp_path: Path) -> Path:
    """A copy of `trained_run` that a test may change."""
    return Path(shutil.copytree(trained_run, tmp_path / "run", symlinks=True))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A joint vocabulary of at most 60 pieces for sentences of the words that tests/tiny.py has."""
    from nmt.config import TokenizerConfig
    from nmt.data.tokenizer import Tokenizer
    from tiny import WORDS

    generator = random.Random(1)
    texts = [" ".join(generator.choices(WORDS.split(), k=6)) + "." for _ in range(100)]
    directory = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer.train(TokenizerConfig(vocab_size=60), zip(texts, texts, strict=True), directory, lambda line: None)
