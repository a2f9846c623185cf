"""Reported faults of translating: long lines cut without a word, several sentences on a line, no memory left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import nmt as package
from nmt.commands import reading, translating
from nmt.config import SearchConfig
from nmt.data.tokenizer import EOS
from nmt.decoding import translator as translator_module
from nmt.decoding.translator import Translator
from tiny import FAMILIES, tiny_model
from untrained import untrained_run

pytestmark = pytest.mark.case
Command = Callable[..., Any]

LONG = " ".join(["le vieux jardin de la maison où un enfant lit une lettre"] * 130)  # above 1,500 pieces
SENTENCES = "Le jardin. Un enfant lit. La maison. Une lettre. Où ça? Du pain."
ENDS, NEVER_ENDS = 30.0, -30.0


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return package.load(untrained_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture
def made(loaded: Translator, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Translator]:
    """made(family, what the end mark is favoured by, search options …): every RUN is this translator then."""

    def make(name: str, favour: float, **options: Any) -> Translator:
        size = loaded.tokenizer.source_size
        model = tiny_model(name, dtype=torch.float32, source_vocabulary=size, target_vocabulary=size)
        with torch.no_grad():
            model.output.bias[EOS] = favour
        search = SearchConfig(beam_size=2, **options)
        translator = Translator(model, loaded.tokenizer, search, torch.device("cpu"))
        monkeypatch.setattr(translating, "load_translator", lambda runs: translator)
        return translator

    return make


@pytest.mark.parametrize("name", [*FAMILIES, "transformer-grouped", "transformer-rotary", "decoder_only-grouped"])
def test_a_line_of_1500_pieces_is_read_whole(
    name: str, made: Callable[..., Translator], nmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tells positions, and whatever stands beside it; and so is a line of several sentences."""
    translator = made(name, ENDS)
    seen: list[Tensor] = []
    encode = translator.model.encode
    monkeypatch.setattr(translator.model, "encode", lambda source_BS: (seen.append(source_BS), encode(source_BS))[1])
    outcome = nmt("translate", "RUN", stdin=f"{SENTENCES}\n\n{LONG}\nx\n".encode())
    assert outcome.status == 0
    assert "was ended" not in outcome.err
    answers = outcome.out.split("\n")
    assert len(answers) == 5
    assert answers[1] == answers[4] == ""
    read = [[piece for piece in row if piece] for source_BS in seen for row in source_BS.tolist()]
    expected = translator.tokenizer.encode_source([LONG, SENTENCES, "x"])
    assert len(expected[0]) > 1_500
    assert sorted(read) == sorted(expected)


def test_what_is_cut_is_said_with_its_number(
    made: Callable[..., Translator], nmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where lines come in several portions."""
    monkeypatch.setattr(reading, "LINES_AT_ONCE", 2)
    made("luong-general-fed-in_order", NEVER_ENDS, max_length_ratio=0.5, max_length_extra=2)
    limits = "the translation was ended at its greatest length (search.max_length_ratio=0.5, search.max_length_extra=2)"
    outcome = nmt("translate", "RUN", stdin=b"x\n\nle\n\n\nle la\nun\n")
    assert outcome.status == 0
    assert outcome.out.count("\n") == 7
    assert outcome.err.splitlines() == [f"warning: line {number}: {limits}" for number in (1, 3, 6, 7)]
    assert nmt("translate", "RUN", "--text", "x").err == f"warning: line 1: {limits}\n"
    monkeypatch.setattr(reading, "LINES_AT_ONCE", 2_000)
    told = nmt("translate", "RUN", "--beam-size", "1", stdin=b"x\n\n" * 13).err
    assert told == f"warning: lines 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 3 more: {limits}\n"


def test_the_limit_of_the_usual_search_is_above_any_translation(made: Callable[..., Translator]) -> None:
    """A line of 1,500 pieces may become 3,000 and more, and a model that ends is not said to have been cut."""
    search = SearchConfig()
    assert translator_module.max_length(search, 1_500) > 3_000
    assert not made("luong-general-fed-in_order", ENDS).translate([LONG])[0].cut


def test_several_sentences_on_a_line_are_documented(nmt: Command) -> None:
    told = " ".join(nmt("translate", "--help").out.split())
    assert "several sentences" in told
    assert "several sentences" in (Path(package.__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_no_memory_for_a_line_names_what_to_lower(
    made: Callable[..., Translator], nmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = made("luong-general-fed-in_order", ENDS)

    def fail(*_: object) -> None:
        torch.empty(2**60, dtype=torch.uint8)  # PyTorch's own complaint

    monkeypatch.setattr(translator.model, "encode", fail)
    outcome = nmt("translate", "RUN", stdin=b"x\nle la un\n")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("nmt: error: out of memory with a line of 3 pieces and ")
    assert "lower search.batch_tokens or the beam size, or split long lines" in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_error_that_is_none_of_memory_is_not_taken_for_it(made: Callable[..., Translator]) -> None:
    translator = made("luong-general-fed-in_order", ENDS)

    def fail() -> None:
        raise RuntimeError("of another kind")

    translator.between_steps = fail
    with pytest.raises(RuntimeError, match="of another kind"):
        translator.translate(["x"])


def test_the_tokenizer_is_that_of_the_checkpoint(one_step_run: Path, tmp_path: Path) -> None:
    """What lies beside it in the run directory, from another attempt, is not taken."""
    run = Path(shutil.copytree(one_step_run, tmp_path / "run", symlinks=True))
    (run / "tokenizer.model").write_bytes(b"of another attempt")
    texts = ["The cat sees a horse.", "a"]
    assert package.load(run).translate(texts) == package.load(one_step_run).translate(texts)
