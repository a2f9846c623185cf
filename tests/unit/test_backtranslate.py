"""scripts/backtranslate.py, from text in one language to a model that was trained on the pairs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtranslate
from nmt.configuration import compose, load_config
from nmt.data.tokenizer import UNKNOWN, Tokenizer
from nmt.decoding.translator import Translation, Translator
from nmt.errors import RequestError, WorkError
from nmt.training.session import train

Tiny = Callable[[str], list[str]]

QUICK = ["trainer.max_steps=1", "validation.sentences=4", "~data.test.test"]


@pytest.fixture(scope="module")
def reverse_run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model from French to English that makes sentences end. Not to be changed."""
    run = tmp_path_factory.mktemp("runs") / "reverse"
    turned = ["data.source_language=fr", "data.target_language=en", "trainer.max_steps=100"]
    train(compose([*tiny("bahdanau"), *turned, "~data.test.test", f"run.dir={run}"]))
    return run


@pytest.fixture
def text(corpus_folder: Path, tmp_path: Path) -> Path:
    """Twenty French lines, a blank one and one with the tag among them."""
    lines = (corpus_folder / "valid.fr").read_text(encoding="utf-8").splitlines()[:20]
    path = tmp_path / "mono.fr"
    path.write_text("".join(f"{line}\n" for line in [*lines[:7], " ", *lines[7:], "<BT> tout"]), encoding="utf-8")
    return path


def pairs(folder: Path) -> list[tuple[str, str]]:
    sides = [(folder / f"synthetic.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "fr")]
    return list(zip(*sides, strict=True))


def test_text_becomes_tagged_pairs_that_a_model_is_trained_on(
    text: Path, reverse_run: Path, tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tag is one piece of the vocabulary of its own, whatever stands next to it."""
    back, run = tmp_path / "back", tmp_path / "run"
    command = [str(text), "--reverse", str(reverse_run), "--output", str(back), "--weight", "2"]
    assert backtranslate.main([*command, "--train", *tiny("lstm"), *QUICK, f"run.dir={run}"]) == 0
    made = pairs(back)
    meta = json.loads((back / "backtranslation.json").read_text(encoding="utf-8"))
    assert meta["dropped"] == {"blank": 1, "with the tag in it": 1}
    assert meta["pairs"] == len(made) == 20
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip() and "<BT>" not in line]
    assert [target for _, target in made] == lines
    translations = Translator.load(reverse_run).translate(lines)
    assert [source for source, _ in made] == [f"<BT> {translation.text}" for translation in translations]
    assert "kept 260 of 260 pairs" in capsys.readouterr().err
    config = load_config(run / "config.yaml")
    assert (config.data.mix["back"].weight, config.tokenizer.user_defined_symbols) == (2, ["<BT>"])
    tokenizer = Tokenizer.load(run)
    for source in (made[0][0], "the<BT>cat"):
        (ids,) = tokenizer.encode_source([source])
        assert tokenizer.source_pieces(ids).count("<BT>") == 1
        assert UNKNOWN not in ids


def test_interrupted_it_goes_on_to_the_same_files(
    text: Path, reverse_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is translated twice, sampled ones are drawn as if nothing had happened, and a finished folder stays."""
    monkeypatch.setattr(backtranslate, "LINES_AT_ONCE", 5)
    asked: list[str] = []
    translate = Translator.n_best

    def counted(self: Translator, texts: list[str], *arguments: Any, **more: Any) -> list[list[Translation]]:
        if len(asked) == 10:
            asked.append("interrupted")
            raise KeyboardInterrupt
        asked.extend(texts)
        return translate(self, texts, *arguments, **more)

    monkeypatch.setattr(Translator, "n_best", counted)
    command = [str(text), "--reverse", str(reverse_run), "--sampling", "--output"]
    with pytest.raises(KeyboardInterrupt):
        backtranslate.main([*command, str(tmp_path / "back")])
    assert not (tmp_path / "back").exists()
    assert backtranslate.main([*command, str(tmp_path / "back")]) == 0
    assert [line for line in asked if line != "interrupted"] == text.read_text(encoding="utf-8").splitlines()
    assert backtranslate.main([*command, str(tmp_path / "back")]) == 0, "nothing is left to do"
    assert len(asked) == 23
    assert backtranslate.main([*command, str(tmp_path / "whole")]) == 0
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("back", "whole")]
    assert files[0] == files[1]
    assert len(files[0]) == 3


def test_what_another_model_or_tag_has_begun_is_not_gone_on_with(
    text: Path, reverse_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtranslate, "LINES_AT_ONCE", 9)
    command = [str(text), "--reverse", str(reverse_run), "--output", str(tmp_path / "back")]
    with monkeypatch.context() as patch:
        patch.setattr(backtranslate, "say", lambda line: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            backtranslate.main([*command, "--tag", "<AUTRE>"])
    assert backtranslate.main(command) == 0
    assert all(source.startswith("<BT> ") for source, _ in pairs(tmp_path / "back"))
    assert len(pairs(tmp_path / "back")) == 20
    with pytest.raises(RequestError, match="holds a back-translation by another model, or of other text"):
        backtranslate.main([*command, "--tag", ""])


def test_the_command_that_is_printed_trains_without_a_tag_as_well(
    text: Path, reverse_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back = tmp_path / "with, a comma"
    assert backtranslate.main([str(text), "--reverse", str(reverse_run), "--output", str(back), "--tag", ""]) == 0
    program, verb, *overrides = shlex.split(capsys.readouterr().out)
    assert (program, verb) == ("nmt", "train")
    config = compose(overrides)
    assert config.tokenizer.user_defined_symbols == []
    assert config.data.mix["back"].source == str(back / "synthetic.en")
    assert [source for source, _ in pairs(back)] == [source.strip() for source, _ in pairs(back)]


def test_what_is_refused_before_anything_is_translated(
    text: Path, reverse_run: Path, trained_run: Path, tmp_path: Path
) -> None:
    output = tmp_path / "back"
    command = [str(text), "--reverse", str(reverse_run), "--output", str(output)]
    with pytest.raises(RequestError, match="translates from en to fr, which is not the reverse of the training's en"):
        backtranslate.main([*command[:2], str(trained_run), *command[3:]])
    with pytest.raises(RequestError, match=r"optimizer\.lrr: no such key"):
        backtranslate.main([*command, "--train", "optimizer.lrr=1"])
    text.write_bytes(text.read_bytes() + b"\xff\n")
    with pytest.raises(RequestError, match=r"mono\.fr line 23: not UTF-8"):
        backtranslate.main(command)
    assert not output.exists()
    text.write_text("\n\n", encoding="utf-8")
    with pytest.raises(WorkError, match=r"not one of 2 lines is left: \{'blank': 2\}"):
        backtranslate.main(command)
    output.mkdir(exist_ok=True)
    with pytest.raises(RequestError, match="is there already, and holds no back-translation"):
        backtranslate.main(command)


def test_a_translation_that_is_empty_or_cut_off_is_left_out() -> None:
    for translation, reason in (
        (Translation("", 0.0, []), "empty translation"),
        (Translation("on and on", 0.0, [], cut=True), "translation cut off"),
        (Translation("a cat", 0.0, []), ""),
    ):
        assert backtranslate._reason_to_drop("un chat", translation, "<BT>") == reason
