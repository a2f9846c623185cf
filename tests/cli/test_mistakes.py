"""What newcomers get wrong: one clear line for each, the exit status that says whose fault it was, no traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Command = Callable[..., Any]


@dataclass
class Place:
    """What a mistake is made with: a good run and corpus, copied, in a folder of their own."""

    folder: Path
    run: Path
    corpus: Path
    tiny: Callable[[str], list[str]]

    def train(self, *overrides: str, family: str = "bahdanau") -> list[str]:
        """A command that would work without its last overrides."""
        own = [f"data.dir={self.corpus}", f"run.dir={self.folder / 'new'}", "trainer.max_steps=1"]
        return ["train", *self.tiny(family), *own, *overrides]

    def translate(self, *options: str | Path, run: Path | None = None) -> list[str]:
        return ["translate", str(run or self.run), *map(str, options)]

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    @property
    def best(self) -> Path:
        return (self.run / "checkpoints" / "best").resolve()


@pytest.fixture
def place(tmp_path: Path, run_copy: Path, corpus_folder: Path, tiny: Callable[[str], list[str]]) -> Place:
    corpus = Path(shutil.copytree(corpus_folder, tmp_path / "corpus"))
    return Place(tmp_path, run_copy, corpus, tiny)


def corpus_with(name: str, content: bytes) -> Callable[[Place], list[str]]:
    """Training where one file of the corpus has this content."""

    def make(place: Place) -> list[str]:
        (place.corpus / name).write_bytes(content)
        return place.train()

    return make


def training(*overrides: str) -> Callable[[Place], list[str]]:
    return lambda place: place.train(*overrides)


def pairs(number: int) -> bytes:
    return b"".join(b"the cat sees a dog number %d.\n" % i for i in range(number))


def unequal(place: Place) -> list[str]:
    path = place.corpus / "train.fr"
    path.write_bytes(path.read_bytes() + b"Une ligne de trop.\n")
    return place.train()


def missing_file(place: Place) -> list[str]:
    (place.corpus / "train.fr").unlink()
    return place.train()


def latin1(place: Place) -> list[str]:
    path = place.corpus / "train.fr"
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines, start=1) if not line.isascii())
    path.write_bytes("\n".join(lines).encode("cp1252"))
    place.folder.joinpath("line").write_text(str(first))
    return place.train()


def below_a_file(place: Place) -> list[str]:
    return place.train(f"run.dir={place.write('file', b'') / 'run'}")


def is_a_file(place: Place) -> list[str]:
    return place.train(f"run.dir={place.write('file', b'')}")


def damaged(name: str, change: Callable[[bytes], bytes]) -> Callable[[Place], list[str]]:
    def make(place: Place) -> list[str]:
        path = place.best / name
        path.write_bytes(change(path.read_bytes()))
        return place.translate("--text", "a")

    return make


def deleted(name: str) -> Callable[[Place], list[str]]:
    def make(place: Place) -> list[str]:
        (place.best / name).unlink()
        return place.translate("--text", "a")

    return make


def another_format(place: Place) -> list[str]:
    from nmt.training.checkpoint import CHECKSUM, checksum_of

    meta = {**json.loads((place.best / "meta.json").read_text()), "format": 99}
    (place.best / "meta.json").write_text(json.dumps({**meta, CHECKSUM: checksum_of(meta)}))
    return place.translate("--text", "a")


def edited_config(change: Callable[[bytes], bytes]) -> Callable[[Place], list[str]]:
    def make(place: Place) -> list[str]:
        place.write("run/config.yaml", change((place.run / "config.yaml").read_bytes()))
        return place.train(f"run.dir={place.run}")

    return make


def other_config(place: Place) -> list[str]:
    return place.train(f"run.dir={place.run}", "validation.every=50", "optimizer.lr=0.1")


def other_metrics(place: Place) -> list[str]:
    place.write("run/metrics.jsonl", b'[{"step": 1}]')
    return place.train(f"run.dir={place.run}", "validation.every=50", "trainer.max_steps=300")


def no_checkpoint(place: Place) -> list[str]:
    shutil.rmtree(place.run / "checkpoints")
    return place.translate("--text", "a")


def score_files(first: bytes, second: bytes) -> Callable[[Place], list[str]]:
    return lambda place: [
        *("score", "--hypotheses", str(place.write("hypotheses", first))),
        *("--references", str(place.write("references", second))),
    ]


def score_elsewhere(place: Place) -> list[str]:
    """The run's corpus is gone: the copy is of a run on data that is then moved away."""
    from nmt.configuration import compose
    from nmt.training.session import train

    train(compose(place.train()[1:]))
    shutil.rmtree(place.corpus)
    return ["score", str(place.folder / "new")]


GZIP_MAGIC = b"\x1f\x8b\x08\x00 and then no gzip at all"

# What is done, the exit status, and what the line must say.
MISTAKES: dict[str, tuple[Callable[[Place], Iterable[str | Path]], int, str]] = {
    # the command line
    "wrong verb": (lambda place: ["trasnlate", place.run], 2, "did you mean nmt translate?"),
    "key misspelt": (training("optimizer.lrr=1"), 2, "did you mean optimizer.lr"),
    "preset misspelt": (training("model=transfomer"), 2, "did you mean model=transformer"),
    "options of another verb": (lambda place: place.translate("--last", "3"), 2, "--last"),
    "overrides for translate": (lambda place: place.translate("beam_size=3"), 2, "beam_size=3"),
    "beam below n-best": (
        lambda place: place.translate("--text", "a", "--beam-size", "2", "--n-best", "3"),
        2,
        "--n-best 3 is more than --beam-size 2",
    ),
    "candidates below n-best": (
        lambda place: place.translate("--text", "a", "--mbr", "2", "--n-best", "3"),
        2,
        "--n-best 3 is more than --mbr 2",
    ),
    "no candidates": (
        lambda place: place.translate("--text", "a", "--mbr", "0"),
        2,
        "--mbr: invalid whole number from 1 to 1000 value: '0'",
    ),
    "search setting out of bounds": (
        lambda place: place.translate("--text", "a", "--search", "mbr_samples=-1"),
        2,
        "search.mbr_samples=-1: must be a whole number, at least 0 and at most 1000",
    ),
    "search setting of another type": (
        lambda place: place.translate("--text", "a", "--search", "epsilon=[a, {"),
        2,
        "search.epsilon=[a, {: must be a number, at least 0 and below 1",
    ),
    "search setting misspelt": (
        lambda place: place.translate("--text", "a", "--search", "search.mbr_sample=3"),
        2,
        "search.mbr_sample: this version of nmt has no such key (nearest: search.mbr_samples)",
    ),
    "search setting without a value": (
        lambda place: place.translate("--text", "a", "--search", "sampling"),
        2,
        "sampling: a search setting is KEY=VALUE",
    ),
    "candidates of a search without samples": (
        lambda place: place.translate("--text", "a", "--search", "mbr_beam=true"),
        2,
        "search.mbr_beam=true: adds to the candidates of search.mbr_samples, which is 0",
    ),
    "one file for two things": (
        lambda place: place.translate("--text", "a", "--output", "x", "--alignments", "x"),
        2,
        "--output and --alignments name the same file",
    ),
    "alignments over the input": (
        lambda place: place.translate("--input", "x", "--alignments", "./x"),
        2,
        "--input and --alignments name the same file",
    ),
    # the data
    "no data.dir": (training("data.dir=null"), 2, "data.dir is not set"),
    "data.dir that is not there": (training("data.dir=nowhere"), 2, "data.dir=nowhere: there is no such folder"),
    "file that is not there": (missing_file, 2, "no file train.fr or train.fr.gz"),
    "unequal files": (unequal, 2, "240"),
    "empty corpus": (corpus_with("train.en", b""), 2, "train.en"),
    "empty validation": (corpus_with("valid.en", b""), 2, "valid.en"),
    "both sides empty": (
        lambda place: [(place.corpus / name).write_bytes(b"") for name in ("train.en", "train.fr")] and place.train(),
        2,
        "data.train: no pairs",
    ),
    "blank lines only": (corpus_with("train.en", b"\n" * 240), 2, "blank source 240"),
    "binary file": (corpus_with("train.en", b"ab\n\0\1\2\n" * 120), 2, "train.en line 2: a NUL byte"),
    "Latin-1": (latin1, 2, "not UTF-8 (byte 0x"),
    "gzip that is none": (corpus_with("train.en", GZIP_MAGIC), 2, "the gzip file is cut off or damaged"),
    "all filtered away": (training("data.filter.max_words=1"), 2, "data.filter.max_words=1"),
    # the settings
    "tied embeddings, two vocabularies": (training("tokenizer.joint=false"), 2, "model.tie_embeddings=true: needs"),
    "vocabulary too small": (training("tokenizer.vocab_size=16"), 2, "tokenizer.vocab_size=16 is too small"),
    "symbol with a space": (training("'tokenizer.user_defined_symbols=[\"a b\"]'".strip("'")), 2, "'a b'"),
    "heads do not divide": (
        lambda place: place.train("model.heads=5", family="transformer"),
        2,
        "must be a divisor of model.width=32",
    ),
    # the run directory
    "run.dir below a file": (below_a_file, 1, "cannot be made: Not a directory"),
    "run.dir is a file": (is_a_file, 1, "cannot be made: File exists"),
    "run.dir of another config": (other_config, 2, "another optimizer.lr"),
    "config.yaml is no YAML": (edited_config(lambda data: b"model: [\n"), 2, "config.yaml line 2: not YAML"),
    "config.yaml has a wrong value": (
        edited_config(lambda data: data.replace(b"family: bahdanau", b"family: bert")),
        2,
        "model.family=bert",
    ),
    "config.yaml is binary": (edited_config(lambda data: b"\xff\xfe\0"), 2, "config.yaml: not UTF-8"),
    # what is translated with
    "no such run": (lambda place: place.translate("--text", "a", run=place.folder / "r"), 2, "no such run directory"),
    "RUN is a text file": (
        lambda place: place.translate("--text", "a", run=place.corpus / "test.en"),
        2,
        "test.en has no checkpoint: it is neither a run directory",
    ),
    "RUN is another folder": (lambda place: place.translate("--text", "a", run=place.corpus), 2, "has no checkpoint"),
    "run without checkpoint": (no_checkpoint, 2, "has no checkpoint"),
    "weights cut off": (damaged("model.safetensors", lambda data: data[:-9]), 1, "model.safetensors is damaged"),
    "weights changed": (
        damaged("model.safetensors", lambda data: data[:-9] + b"123456789"),
        1,
        "model.safetensors is damaged",
    ),
    "checkpoint's config edited": (damaged("config.yaml", lambda data: data + b"x: 1\n"), 1, "config.yaml is damaged"),
    "meta.json of another shape": (damaged("meta.json", lambda data: b"[1]"), 1, "meta.json is damaged"),
    "metrics.jsonl of another shape": (other_metrics, 1, "metrics.jsonl line 1: not a record that nmt writes"),
    "config.yaml cut off": (edited_config(lambda data: data[: data.index(b"trainer:")]), 2, "config.yaml: cut off"),
    "meta.json empty": (damaged("meta.json", lambda data: b""), 1, "meta.json is damaged"),
    "tokenizer deleted": (deleted("tokenizer.model"), 1, "tokenizer.model is missing"),
    "another format": (another_format, 2, "checkpoint format 99, this version of nmt reads format 1"),
    # files in and out
    "a set of two files": (
        lambda place: ["score", "--hypotheses", "a", "--references", "b", "--set", "test"],
        2,
        "--set is a RUN's",
    ),
    "references of nothing": (
        lambda place: ["score", "--hypotheses", place.write("a", b"un\n"), "--references", place.write("b", b" \n")],
        2,
        "b is blank",
    ),
    "no such variable": (training('run.notes="${oc.env:NO_SUCH}"'), 2, "there is no environment variable NO_SUCH"),
    "a name too long": (training(f"run.dir={'r' * 5000}"), 1, "cannot be made: File name too long"),
    "no such input": (lambda place: place.translate("--input", place.folder / "no.txt"), 2, "no.txt: No such file"),
    "input is a folder": (lambda place: place.translate("--input", place.corpus), 2, "Is a directory"),
    "input is binary": (lambda place: place.translate("--input", place.write("b", b"a\0\na")), 2, "line 1: a NUL byte"),
    "output is a folder": (
        lambda place: place.translate("--text", "a", "--output", place.corpus),
        1,
        "corpus: Is a directory",
    ),
    "output below a file": (
        lambda place: place.translate("--text", "a", "--output", place.write("file", b"") / "out"),
        1,
        "Not a directory",
    ),
    # the other verbs
    "more checkpoints than there are": (lambda place: ["average", place.run, "--last", "99"], 2, "99 were asked for"),
    "average of a checkpoint": (lambda place: ["average", place.best, "--last", "2"], 2, "0 checkpoints"),
    "no text to attend to": (lambda place: ["attend", place.run, "--text", " "], 2, "the text is blank"),
    "scored files unequal": (score_files(pairs(2), pairs(3)), 2, "3"),
    "scored file empty": (score_files(b"", pairs(3)), 2, "3"),
    "scored files both empty": (score_files(b"", b""), 2, "0 lines"),
    "no such set": (lambda place: ["score", place.run, "--set", "test2016"], 2, "there are: test"),
    "corpus moved away": (score_elsewhere, 2, "there is no such folder"),
}


@pytest.mark.case
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str, place: Place, nmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    make, status, says = MISTAKES[name]
    outcome = nmt(*make(place))
    errors = [line for line in outcome.err.splitlines() if line.startswith("nmt: error: ")]
    assert len(errors) == 1, outcome.err
    assert says in errors[0]
    assert outcome.err.endswith(f"{errors[0]}\n"), "the last line"
    assert (outcome.status, outcome.out) == (status, "")
    assert "Traceback" not in outcome.err
    assert "NMT_TRACEBACK" not in outcome.err, "not an error that nobody thought of"
    if name == "Latin-1":
        line = (place.folder / "line").read_text()
        assert f"train.fr line {line}: not UTF-8" in errors[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there(place: Place, nmt: Command) -> None:
    outcome = nmt(*place.train("trainer.device=cuda"))
    assert outcome.status == 2
    assert "nmt: error: device=cuda, but PyTorch sees no GPU here; allowed are auto and cpu\n" in outcome.err


@pytest.mark.case
def test_no_memory_for_the_batch(place: Place, nmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from nmt.training import trainer

    def fail(*_: object) -> None:
        torch.empty(2**60, dtype=torch.uint8)  # PyTorch's own complaint

    monkeypatch.setattr(trainer, "label_smoothed_loss", fail)
    monkeypatch.setattr(trainer, "plan_batches", lambda *_: [np.arange(11)])
    outcome = nmt(*place.train())
    assert outcome.status == 1
    (error,) = [line for line in outcome.err.splitlines() if "error" in line]
    assert error.startswith("nmt: error: out of memory with a batch of 11 pairs")
    assert "lower batch.tokens=300" in error
    assert error.endswith("in another run.dir"), "since a run keeps its batches"


@pytest.mark.case
@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_no_memory_elsewhere(error: Exception, place: Place, nmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("nmt.training.session.build_model", fail)
    outcome = nmt(*place.train())
    assert (outcome.status, outcome.err.splitlines()[-1]) == (
        1,
        "nmt: error: out of memory (set NMT_TRACEBACK=1 to see where)",
    )


@pytest.mark.case
def test_corrected_the_command_works_with_the_same_run_dir(place: Place, nmt: Command) -> None:
    for mistake in ("tokenizer.vocab_size=16", "data.dir=nowhere", "data.filter.max_words=1"):
        assert nmt(*place.train(mistake)).status == 2
    assert nmt(*place.train()).status == 0
