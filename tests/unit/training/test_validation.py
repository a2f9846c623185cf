"""Validation: the same translations and scores as by hand, whatever the batches, and the model is left as it was."""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import FilesData, TrainConfig
from nmt.data.batching import make_batch
from nmt.data.corpus import prepare_corpus
from nmt.data.tokenizer import PAD
from nmt.decoding import search
from nmt.decoding.translator import Translator
from nmt.evaluation.metrics import corpus_scores
from nmt.training.interruption import Stopped
from nmt.training.validation import Validator

CPU = torch.device("cpu")
Validate = Callable[..., Validator]


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture
def validator(translator: Translator) -> Validate:
    """A validator of the run's data, or of another folder's; of its config with changes in validation and batches."""

    def make(folder: Path | None = None, tokens: int = 300, **changes: int) -> Validator:
        assert isinstance(translator.config, TrainConfig)
        assert isinstance(translator.config.data, FilesData)
        config = dataclasses.replace(
            translator.config,
            data=dataclasses.replace(translator.config.data, dir=str(folder or translator.config.data.dir), test={}),
            validation=dataclasses.replace(translator.config.validation, **changes),
            batch=dataclasses.replace(translator.config.batch, tokens=tokens),
            search=dataclasses.replace(translator.config.search, batch_tokens=tokens, sampling=True),
        )
        return Validator(prepare_corpus(config.data, pytest.fail), translator.tokenizer, config, lambda line: None)

    return make


@pytest.fixture
def untidy(corpus_folder: Path, tmp_path: Path) -> Path:
    """A validation set with a blank source, one of nothing the tokenizer knows, a blank reference, decomposed accents
    and a duplicate."""
    for side in ("en", "fr"):
        (tmp_path / f"train.{side}").symlink_to(corpus_folder / f"train.{side}")
    sources = [
        "The cat sees a horse.",
        "",
        "The dog likes the summer.",
        "A girl hears a bird.",
        "\x01",
        "The cat sees a horse.",
    ]
    targets = [
        "Le chat voit un cheval.",
        "Un chat.",
        unicodedata.normalize("NFD", "Le chien aime l'été."),
        "",
        "Une ligne.",
        "Le chien.",
    ]
    (tmp_path / "valid.en").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (tmp_path / "valid.fr").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("beam_size", [1, 3])
def test_scores_are_those_of_the_translations(beam_size: int, validator: Validate, translator: Translator) -> None:
    validate = validator(beam_size=beam_size, samples=2)
    found = validate(translator.model, CPU)
    settings = dataclasses.replace(translator.search, beam_size=beam_size)
    hypotheses = [translation.text for translation in translator.translate(validate.sources, search=settings)]
    expected = corpus_scores(hypotheses, validate.references)
    assert len(hypotheses) == 20
    assert (found.metrics["bleu"], found.metrics["chrf"]) == (expected.bleu, expected.chrf)
    assert found.metrics["bleu"] > 80
    assert [(s.source, s.hypothesis, s.reference) for s in found.samples] == list(
        zip(validate.sources, hypotheses, validate.references, strict=True)
    )[:2]
    assert [alignment.target_tokens for alignment in found.alignments] == [h.split() for h in hypotheses[:2]]


def test_the_loss_is_the_mean_over_all_target_pieces(validator: Validate, translator: Translator) -> None:
    validate = validator()
    total, count = 0.0, 0
    for source, target in zip(validate.sources, validate.references, strict=True):
        batch = make_batch(translator.tokenizer.encode_source([source]), translator.tokenizer.encode_target([target]))
        with torch.inference_mode():
            logits_TV = translator.model.output(translator.model(batch))[0].double()
            logits_TV[:, PAD] = -math.inf
            targets_T = batch.target_output_BT[0]
            total -= float(logits_TV.log_softmax(-1)[range(len(targets_T)), targets_T].sum())
        count += len(targets_T)
    found = validate(translator.model, CPU).metrics
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)


@pytest.mark.invariant
def test_batches_do_not_matter(validator: Validate, translator: Translator) -> None:
    one, other = (validator(tokens=tokens)(translator.model, CPU) for tokens in (20, 5_000))
    assert one.samples == other.samples
    for name in ("bleu", "chrf", "length_ratio"):
        assert one.metrics[name] == other.metrics[name]
    assert one.metrics["loss"] == pytest.approx(other.metrics["loss"], rel=1e-6)


@pytest.mark.case
def test_nothing_is_left_out_and_references_are_untouched(
    untidy: Path, validator: Validate, translator: Translator
) -> None:
    validate = validator(untidy, samples=6)
    assert len(validate.sources) == 6
    assert validate.references == (untidy / "valid.fr").read_text(encoding="utf-8").split("\n")[:-1]
    assert validate.references[2] != unicodedata.normalize("NFC", validate.references[2])
    found = validate(translator.model, CPU)
    hypotheses = [translation.text for translation in translator.translate(validate.sources, beam_size=1)]
    assert hypotheses[1] == hypotheses[4] == ""
    assert found.metrics["bleu"] == corpus_scores(hypotheses, validate.references).bleu
    assert len(found.samples) == 4, "a blank source is no sample"


def test_the_first_sentences_only(validator: Validate, translator: Translator) -> None:
    everything, first = validator(), validator(sentences=3)
    assert (first.sources, first.references) == (everything.sources[:3], everything.references[:3])
    assert len(first.encoded) == 3
    assert len(validator(sentences=9_999).sources) == 20
    assert first(translator.model, CPU).metrics["loss"] != everything(translator.model, CPU).metrics["loss"]


@pytest.mark.parametrize("stop_after", [0, 2, None])
def test_the_model_is_left_as_it_was(stop_after: int | None, validator: Validate, translator: Translator) -> None:
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return stop_after is not None and asked > stop_after

    model = translator.model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.train()
    try:
        if stop_after is None:
            validator(tokens=40)(model, CPU, should_stop)
            assert asked > 10, "asked between batches"
        else:
            with pytest.raises(Stopped):
                validator(tokens=40)(model, CPU, should_stop)
            assert asked == stop_after + 1
        assert model.training
        assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
        assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    finally:
        model.eval()
    validator()(model, CPU)
    assert not model.training


def test_a_long_batch_is_left_within_a_position(
    validator: Validate, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of long sentences may take minutes."""
    steps = 0
    advance = search._advance

    def counting(*arguments: Any) -> None:
        nonlocal steps
        steps += 1
        advance(*arguments)

    monkeypatch.setattr(search, "_advance", counting)
    with pytest.raises(Stopped):
        validator(tokens=100_000)(translator.model, CPU, lambda: steps >= 2)
    assert steps == 2
    assert validator(tokens=100_000)(translator.model, CPU).metrics["bleu"] > 80


def test_dropout_is_off(validator: Validate, translator: Translator) -> None:
    translator.model.train()
    try:
        in_training = validator()(translator.model, CPU).metrics["loss"]
    finally:
        translator.model.eval()
    assert in_training == validator()(translator.model, CPU).metrics["loss"]
