"""The Transformer against the equations of Vaswani et al. 2017, written down once more for one sentence, one head and
one position at a time; no limit on length; keys of the source that exist once however wide the beam.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from blocks import after, at, attend, before, embed, feed_forward, normalize, shown
from equations import SOURCES, TARGETS, assert_conforms
from nmt.config import TransformerConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS, PAD
from nmt.models.transformer import Transformer
from tiny import BLOCKS, CONFIGS, SOURCE_VOCABULARY, sentences, tiny_model

BOTH = pytest.mark.parametrize("norm", ["post", "pre"])


# The equations ---------------------------------------------------------------------------------------------------


@pytest.mark.conformance
@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_hidden_states_weights_and_gradients_are_those_of_the_papers_equations(block: str) -> None:
    config = CONFIGS[f"transformer-{block}"]
    assert isinstance(config, TransformerConfig)

    def vaswani(model: Transformer, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
        """Section 3: hidden states (T, D), and the weights (T, S) on the source of the layer that is shown."""
        xs = embed(config, model.positions, model.embeddings.source, source)
        everything = {s: list(range(len(source))) for s in range(len(source))}
        for layer in model.encoder:
            inner = at(before(config, layer.around_attention, xs))
            gathered, _ = attend(config, layer.self_attention, inner, inner, everything, turned=True)
            xs = after(config, layer.around_attention, xs, gathered)
            inner = before(config, layer.around_feed_forward, xs)
            added = [feed_forward(config, layer.feed_forward, x) for x in inner]
            xs = after(config, layer.around_feed_forward, xs, added)
        memory = at([normalize(model.encoder_norm, x) for x in xs] if config.norm == "pre" else xs)
        ys = embed(config, model.positions, model.embeddings.target, [BOS, *target[:-1]])
        earlier = {t: list(range(t + 1)) for t in range(len(target))}
        source_of = {t: list(range(len(source))) for t in range(len(target))}
        weights: list[list[Tensor]] = []
        for layer in model.decoder:
            inner = at(before(config, layer.around_attention, ys))
            gathered, _ = attend(config, layer.self_attention, inner, inner, earlier, turned=True)
            ys = after(config, layer.around_attention, ys, gathered)
            inner = at(before(config, layer.around_cross_attention, ys))
            gathered, found = attend(config, layer.cross_attention, inner, memory, source_of, turned=False)
            weights.append(found)
            ys = after(config, layer.around_cross_attention, ys, gathered)
            inner = before(config, layer.around_feed_forward, ys)
            added = [feed_forward(config, layer.feed_forward, y) for y in inner]
            ys = after(config, layer.around_feed_forward, ys, added)
        if config.norm == "pre":
            ys = [normalize(model.decoder_norm, y) for y in ys]
        return torch.stack(ys), torch.stack([shown(config, w) for w in weights[config.alignment_layer]])

    assert_conforms(tiny_model(f"transformer-{block}"), vaswani)


# Other properties ------------------------------------------------------------------------------------------------


@BOTH
def test_no_target_position_sees_a_later_one(norm: str) -> None:
    model = tiny_model(f"transformer-{norm}")
    batch = make_batch(SOURCES[:1], sentences([6], seed=1))
    other = make_batch(SOURCES[:1], [[*batch.target_output_BT[0, :3].tolist(), 5, 5, EOS]])
    changed = (batch.target_input_BT != other.target_input_BT)[0].nonzero()[0].item()
    first, second = model(batch)[0], model(other)[0]
    assert 0 < changed < 6
    assert torch.equal(first[:changed], second[:changed])
    assert (first[changed:] - second[changed:]).abs().max() > 1e-3


@BOTH
def test_no_length_is_beyond_the_table_of_positions(norm: str) -> None:
    """Decoding beyond the table and going on with training afterwards works, and gives what one pass gives."""
    model = tiny_model(f"transformer-{norm}")
    model.positions.table_TD = model.positions.table_TD[:4]
    batch = make_batch(sentences([9], SOURCE_VOCABULARY), sentences([12]))
    with torch.inference_mode():
        memory = model.encode(batch.source_BS)
        state, columns = model.start(memory), []
        for tokens_B in batch.target_input_BT.unbind(1):
            hidden_BD, state, _ = model.step(tokens_B, state, memory)
            columns.append(hidden_BD)
        stepped_BTD = torch.stack(columns, dim=1).clone()
    model.train()
    hidden_BTD = model(batch)
    hidden_BTD.sum().backward()
    fresh_BTD = tiny_model(f"transformer-{norm}")(batch)
    torch.testing.assert_close(hidden_BTD, fresh_BTD, rtol=0, atol=1e-12)
    torch.testing.assert_close(stepped_BTD, fresh_BTD, rtol=0, atol=1e-9)


def test_the_hypotheses_of_a_sentence_share_its_keys() -> None:
    model = tiny_model("transformer-post")
    memory = model.encode(make_batch(SOURCES, TARGETS).source_BS)
    state = model.start(memory)
    _, state, _ = model.step(torch.full((len(SOURCES),), BOS), state, memory)
    wide = state.select(torch.arange(len(SOURCES)).repeat_interleave(5))
    hidden_RD, wide, _ = model.step(torch.full((5 * len(SOURCES),), 4), wide, memory)
    assert hidden_RD.shape == (5 * len(SOURCES), 12)
    assert [keys.shape[0] for layer in memory.keys for keys in layer] == [len(SOURCES)] * 4
    assert [cache.keys[0].shape[0] for cache in wide.caches] == [5 * len(SOURCES)] * 2


def test_rows_that_are_no_multiple_of_the_sentences_are_refused() -> None:
    model = tiny_model("transformer-post")
    memory = model.encode(make_batch(SOURCES, TARGETS).source_BS)
    with pytest.raises(RuntimeError):
        model.step(torch.full((len(SOURCES) + 1,), BOS), model.start(memory), memory)


@BOTH
def test_only_pre_norm_has_norms_at_the_ends(norm: str) -> None:
    model = tiny_model(f"transformer-{norm}")
    kind = nn.LayerNorm if norm == "pre" else nn.Identity
    assert isinstance(model.encoder_norm, kind)
    assert isinstance(model.decoder_norm, kind)
    # Published post-norm: what leaves the decoder is normalised, whatever the scale of the weights.
    with torch.no_grad():
        for parameter in model.decoder[-1].around_feed_forward.norm.parameters():
            parameter.fill_(1.0 if parameter is model.decoder[-1].around_feed_forward.norm.weight else 0.0)
    hidden_TD = model(make_batch(SOURCES[:1], TARGETS[:1]))[0]
    normalised = bool((hidden_TD.mean(dim=-1).abs() < 1e-9).all())
    assert normalised == (norm == "post")


@pytest.mark.invariant
@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_without_positions_the_encoder_is_permutation_equivariant(block: str) -> None:
    """Permuting the source then permutes its keys; with any kind of positions it does not."""
    model = tiny_model(f"transformer-{block}")
    source = torch.tensor([[4, 5, 6, 7, EOS]])
    order = [3, 1, 4, 0, 2]
    (keys, _), (turned, _) = (model.encode(ids).keys[-1] for ids in (source, source[:, order]))
    difference = (keys[:, :, order] - turned).abs().max().item()
    assert difference < 1e-12 if block == "orderless" else difference > 1e-3
    assert PAD not in source
