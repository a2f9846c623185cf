"""Models that decode together: the mean of their probabilities is what is searched, and nothing else changes."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import nmt as library
from nmt.config import SearchConfig
from nmt.configuration import load_config, save_config
from nmt.data.batching import make_batch
from nmt.data.tokenizer import EOS, PAD
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.search import Hypothesis, beam_search, sample
from nmt.decoding.translator import forced_attention
from nmt.errors import RequestError
from nmt.models.base import TranslationModel
from tiny import FAMILIES, sentences, tiny_model
from untrained import untrained_run

Command = Callable[..., Any]

VOCABULARY = 7  # three words besides the four special pieces
SOURCES = sentences([4, 1, 6], VOCABULARY)
MIXED = ("bahdanau", "transformer-post", "lstm-reversed")


def padded(sources: list[list[int]]) -> Tensor:
    return make_batch(sources, [[EOS]] * len(sources)).source_BS


def model(name: str, seed: int = 1) -> TranslationModel:
    return tiny_model(name, seed=seed, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)


def mixed_ensemble() -> Ensemble:
    return Ensemble([model(name, seed) for seed, name in enumerate(MIXED)]).eval()


@pytest.mark.invariant
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_with_itself_is_the_model_alone_exactly(name: str, times: int) -> None:
    """To the bit: hypotheses, scores, samples and attention."""
    alone = model(name)
    together = Ensemble([alone] * times).eval()
    hidden_RD = torch.randn(99, together.widths[0], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(together.log_probabilities(hidden_RD.repeat(1, times)), alone.log_probabilities(hidden_RD))
    config = SearchConfig(beam_size=3, n_best=3, max_length_extra=3, max_length_ratio=1.0)
    found = beam_search(alone, padded(SOURCES), config)
    assert beam_search(together, padded(SOURCES), config) == found
    assert sample(together, padded(SOURCES), config, [1, 2, 3]) == sample(alone, padded(SOURCES), config, [1, 2, 3])
    assert together.attends == alone.attends
    if alone.attends:
        pairs = [(source, each[0].tokens) for source, each in zip(SOURCES, found, strict=True)]
        device = torch.device("cpu")
        for ours, theirs in zip(
            forced_attention(together, pairs, device), forced_attention(alone, pairs, device), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.invariant
def test_a_wide_beam_finds_what_is_best_by_the_mean_of_the_probabilities() -> None:
    """All outputs of at most three words, each charged step by step with (p₁ + p₂ + p₃) / 3, in their order."""
    ensemble = mixed_ensemble()
    words = range(EOS + 1, VOCABULARY)
    outputs = [list(each) for length in range(4) for each in itertools.product(words, repeat=length)]
    config = SearchConfig(beam_size=64, n_best=64, min_length=0, length_penalty="none")
    for source, found in zip(SOURCES, beam_search(ensemble, padded(SOURCES), config, [3, 3, 3]), strict=True):
        batch = make_batch([source] * len(outputs), [[*tokens, EOS] for tokens in outputs])
        probabilities_BTC = sum(
            each.output(each(batch))[..., PAD + 1 :].softmax(dim=-1) / len(MIXED) for each in ensemble._each()
        )
        chosen_BT = probabilities_BTC.gather(2, (batch.target_output_BT - 1).clamp(min=0).unsqueeze(2)).squeeze(2)
        totals = chosen_BT.log().masked_fill(batch.target_output_BT == PAD, 0.0).sum(dim=1).tolist()
        expected = sorted(zip(totals, outputs, strict=True), key=lambda each: -each[0])
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([total for total, _ in expected], abs=1e-4)


@pytest.mark.invariant
def test_a_translation_by_several_does_not_depend_on_its_batch() -> None:
    sources = sentences([4, 1, 6, 2, 9, 5, 3], VOCABULARY)
    config = SearchConfig(beam_size=3, n_best=3, max_length_extra=4, max_length_ratio=1.0)
    together = beam_search(mixed_ensemble(), padded(sources), config)
    for source, expected in zip(sources, together, strict=True):
        [found] = beam_search(mixed_ensemble(), padded([source]), config)
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        assert scores(found) == pytest.approx(scores(expected), abs=1e-5)


def scores(found: list[Hypothesis]) -> list[float]:
    return [each.score for each in found]


def test_attention_is_the_mean_over_those_that_attend() -> None:
    """The LSTM of Sutskever et al. has none to give."""
    ensemble = mixed_ensemble()
    pairs = [(SOURCES[0], [4, 5, 6])]
    device = torch.device("cpu")
    [weights_TS] = forced_attention(ensemble, pairs, device)
    one, other = (forced_attention(each, pairs, device)[0] for each in ensemble._each()[:2])
    torch.testing.assert_close(weights_TS, (one + other) / 2)


# From the command line and from Python ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two untrained runs with one tokenizer, of two families."""
    folder = tmp_path_factory.mktemp("runs")
    return [untrained_run(folder / name, name) for name in ("luong-general-fed-in_order", "bahdanau")]


TEXTS = ["Le vieux jardin.", "", "un enfant lit une lettre"]


def test_runs_translate_together(runs: list[Path], nmt: Command) -> None:
    found = library.load(runs).translate(TEXTS)
    lines = [translation.text for translation in found]
    assert nmt("translate", *runs, stdin="\n".join(TEXTS).encode()).out.split("\n")[:-1] == lines
    alone = [translation.text for translation in library.load(runs[0]).translate(TEXTS)]
    assert lines != alone
    assert library.load([runs[0], runs[0]]).translate(TEXTS) == library.load(runs[0]).translate(TEXTS)
    assert library.load([runs[0]]).translate(TEXTS) == library.load(runs[0]).translate(TEXTS)


def test_a_text_is_not_taken_for_a_run(runs: list[Path], nmt: Command) -> None:
    outcome = nmt("translate", runs[0], "The old man.")
    told = "nmt: error: translate: there is no run The old man.; a text is given with --text\n"
    assert (outcome.status, outcome.out, outcome.err) == (2, "", told)


def test_runs_that_do_not_belong_together(runs: list[Path], nmt: Command, tmp_path: Path) -> None:
    other = untrained_run(tmp_path / "other", byte_fallback=False)
    outcome = nmt("translate", runs[0], other, "--text", "a")
    assert outcome.status == 2
    assert outcome.err.startswith(f"nmt: error: {other} and {runs[0]} have different tokenizers")
    assert outcome.err.count("\n") == 1
    turned = Path(shutil.copytree(runs[1], tmp_path / "turned", symlinks=True))
    config = load_config(turned / "config.yaml")
    data = dataclasses.replace(config.data, source_language="fr", target_language="en")
    save_config(dataclasses.replace(config, data=data), turned / "config.yaml")
    outcome = nmt("translate", runs[0], turned, "--text", "a")
    assert outcome.status == 2
    assert f"{turned} translates fr to en, and {runs[0]} en to fr" in outcome.err
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "export.json").write_text("{}")
    with pytest.raises(RequestError, match="is an export, which translates alone"):
        library.load([runs[0], tmp_path / "export"])
