"""Every preset becomes the model that it names, of the size that the paper states or that the comparison needs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from nmt.config import ModelConfig
from nmt.configuration import compose
from nmt.models.attention import MultiHeadAttention
from nmt.models.base import TranslationModel
from nmt.models.decoder_only import DecoderOnly
from nmt.models.intra_attention import IntraAttention
from nmt.models.layers import Dropout
from nmt.models.luong import Luong
from nmt.models.recurrent import Bahdanau, Cho, LstmSequenceToSequence
from nmt.models.registry import build_model
from nmt.models.transformer import Transformer
from tiny import FAMILIES, tiny_model


def preset(name: str, vocabulary: int) -> TranslationModel:
    """The preset's model without memory for its weights."""
    config = compose([f"model={name}"]).model
    with torch.device("meta"):
        return build_model(config, vocabulary, vocabulary)


def transformer_parameters(vocabulary: int, width: int, inner: int, layers: int) -> int:
    """Vaswani et al. 2017, section 3, counted by hand; biases everywhere, one shared matrix (3.4), post-norm."""
    attention = 4 * (width * width + width)
    feed_forward = width * inner + inner + inner * width + width
    norm = 2 * width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return vocabulary * width + layers * (encoder + decoder) + vocabulary


@pytest.mark.case
@pytest.mark.conformance
@pytest.mark.parametrize(
    ("name", "width", "inner", "published"),
    [("transformer_base", 512, 2048, 65e6), ("transformer_big", 1024, 4096, 213e6)],
)
def test_published_transformers_have_the_published_sizes(name: str, width: int, inner: int, published: float) -> None:
    """Table 3, with the 37,000 pieces of section 5.1."""
    count = preset(name, 37_000).parameter_count()
    assert count == transformer_parameters(37_000, width, inner, layers=6)
    assert count == pytest.approx(published, rel=0.04)


def experiment(name: str, source_vocabulary: int | None = None) -> TranslationModel:
    """The published model, at its own vocabulary sizes unless the source's is given, without memory for its weights."""
    config = compose([f"+experiment={name}"])
    vocabulary = config.tokenizer.vocab_size
    with torch.device("meta"):
        return build_model(config.model, source_vocabulary or vocabulary, vocabulary)


def linear(inputs: int, outputs: int, bias: bool = False) -> int:
    return inputs * outputs + outputs * bias


@pytest.mark.conformance
def test_sutskevers_lstm_has_the_published_size() -> None:
    """Section 3.4: 384 M parameters, of which 64 M are recurrent; 160,000 source and 80,000 target words (3.1)."""
    model = experiment("sutskever2014", source_vocabulary=160_000)
    assert model.parameter_count() == pytest.approx(384e6, rel=0.001)
    recurrent = sum(p.numel() for part in (model.encoder, model.decoder) for p in part.parameters())
    assert recurrent == pytest.approx(64e6, rel=0.005)


@pytest.mark.conformance
def test_chos_model_has_the_size_of_its_equations() -> None:
    """Cho et al. 2014, section 4.1 and appendix A: 1,000 units, embeddings of 100, 15,000 words, 500 maxout units."""
    words, embedding, hidden, readout = 15_000, 100, 1_000, 500
    unit = linear(embedding + hidden, 3 * hidden, bias=True)
    summary_and_start = 2 * linear(hidden, hidden)
    context = linear(hidden, 3 * hidden)
    maxout = linear(hidden + embedding + hidden, 2 * readout, bias=True)
    output = linear(readout, words, bias=True)
    expected = 2 * words * embedding + 2 * unit + summary_and_start + context + maxout + output
    assert experiment("cho2014").parameter_count() == expected


@pytest.mark.conformance
def test_rnnsearch_has_the_size_of_its_equations() -> None:
    """Bahdanau et al. 2014, appendices A and B: n = 1,000, m = 620, n' = 1,000, l = 500, 30,000 words a language."""
    words, m, n, attention, maxout = 30_000, 620, 1_000, 1_000, 500
    unit = linear(m + n, 3 * n, bias=True)
    start = linear(n, n, bias=True)
    score = linear(n, attention) + linear(2 * n, attention, bias=True) + attention
    context = linear(2 * n, 3 * n)
    readout = linear(n + m + 2 * n, 2 * maxout, bias=True)
    output = linear(maxout, words, bias=True)
    expected = 2 * words * m + 3 * unit + start + score + context + readout + output
    assert experiment("bahdanau2014").parameter_count() == expected


@pytest.mark.conformance
def test_luongs_model_has_the_size_of_its_equations() -> None:
    """Luong et al. 2015, section 4.1: 4 layers of 1,000 cells, 50,000 words a language; local-p, general, feeding."""
    words, size, layers = 50_000, 1_000, 4
    stack = layers * (linear(2 * size, 4 * size) + 2 * 4 * size)  # PyTorch keeps two biases
    fed = linear(size, 4 * size)
    attention = linear(size, size) + linear(size, size) + size + linear(2 * size, size)  # W_a, W_p, v_p, W_c
    expected = 2 * words * size + 2 * stack + fed + attention + linear(size, words, bias=True)
    assert experiment("luong2015").parameter_count() == expected


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "published"), [("vaswani2017", 65e6), ("vaswani2017_big", 213e6)])
def test_the_transformer_experiments_have_the_published_sizes(name: str, published: float) -> None:
    assert experiment(name).parameter_count() == pytest.approx(published, rel=0.04)


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "rate"), [("sutskever2014", 0.7), ("luong2015", 1.0)])
def test_rates_and_norms_of_a_sentence_are_told_for_the_gradient_of_a_word(name: str, rate: float) -> None:
    """Sutskever et al. 2014, section 3.4, and Luong et al. 2015, section 4.1: the gradient of 128 sentences over 128,
    its norm at most 5. Over the number of words, it is smaller by the words of a sentence."""
    config = compose([f"+experiment={name}"])
    words = config.batch.tokens / 128
    assert config.trainer.clip_norm is not None
    assert config.optimizer.lr == pytest.approx(rate * words, rel=1e-3)
    assert config.trainer.clip_norm == pytest.approx(5 / words, rel=1e-3)


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "share"), [("vaswani2017", 0.1), ("vaswani2017_big", 0.1)])
def test_dropout_is_where_the_paper_has_it(name: str, share: float) -> None:
    """Vaswani et al. 2017, section 5.4: on what leaves a sub-layer and on embeddings; section 6.1: 0.1 for French."""
    model = experiment(name)
    shares = {part: module.p for part, module in model.named_modules() if isinstance(module, Dropout)}
    outside = {part for part in shares if "around" in part or part == "dropout"}
    assert len(outside) == 1 + 6 * 2 + 6 * 3
    assert {shares[part] for part in outside} == {share}
    assert {shares[part] for part in shares if part not in outside} == {0.0}
    assert {module.dropout for module in model.modules() if isinstance(module, MultiHeadAttention)} == {0.0}


@pytest.mark.case
@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("lstm", LstmSequenceToSequence),
        ("cho", Cho),
        ("bahdanau", Bahdanau),
        ("luong", Luong),
        ("intra_attention", IntraAttention),
        ("transformer", Transformer),
        ("transformer_modern", Transformer),
        ("decoder_only", DecoderOnly),
    ],
)
def test_a_preset_is_the_model_that_it_names(name: str, family: type[TranslationModel]) -> None:
    model = preset(name, 4_000)
    assert type(model) is family
    assert model.attends == (name not in ("lstm", "cho"))


def test_small_presets_are_about_equally_large() -> None:
    """At one vocabulary, so that comparing the families is fair."""
    names = ("lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "transformer_modern", "decoder_only")
    counts = {name: preset(name, 4_000).parameter_count() for name in names}
    assert max(counts.values()) < 1.5 * min(counts.values()), counts


def test_the_tiny_transformer_is_the_small_one_with_narrower_layers() -> None:
    tiny, small = (compose([f"model={name}"]).model for name in ("transformer_tiny", "transformer"))
    same = {"name": "", "width": 0, "feed_forward_size": 0, "dropout": 0.0}
    assert dataclasses.replace(tiny, **same) == dataclasses.replace(small, **same)
    assert (tiny.width, tiny.feed_forward_size) == (128, 256)  # as in the literature on Multi30k


@pytest.mark.parametrize("name", [name for name in FAMILIES if not name.startswith("decoder_only")])
def test_tying_saves_two_matrices(name: str) -> None:
    size = 8 if not name.startswith("transformer") else 12
    changes: dict[str, object] = {"source_vocabulary": 11}
    if not name.startswith("transformer"):
        changes["embedding_size"] = size
    if name in ("bahdanau", "cho"):
        changes["readout_size"] = size
    tied = tiny_model(name, tie_embeddings=True, **changes)
    untied = tiny_model(name, tie_embeddings=False, **changes)
    assert untied.parameter_count() - tied.parameter_count() == 2 * 11 * size
    assert "output.weight" not in dict(tied.named_parameters())


def test_the_same_seed_draws_the_same_weights() -> None:
    config = compose(["model=luong"]).model
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(torch.cat([p.flatten() for p in build_model(config, 50, 50).parameters()]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_family_that_is_unknown_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="ModelConfig"):
        build_model(ModelConfig("none", "none"), 9, 9)
