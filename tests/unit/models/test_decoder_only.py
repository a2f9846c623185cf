"""The decoder-only model as one sequence under one mask, written plainly; its joint vocabulary; its memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from blocks import after, at, attend, before, embed, feed_forward, normalize, shown
from equations import SOURCES, TARGETS, assert_conforms
from nmt.config import DecoderOnlyConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS
from nmt.models.decoder_only import DecoderOnly
from nmt.models.registry import build_model
from tiny import BLOCKS, CONFIGS, tiny_model


@pytest.mark.conformance
@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_it_is_one_sequence_with_a_prefix_mask(block: str) -> None:
    config = CONFIGS[f"decoder_only-{block}"]
    assert isinstance(config, DecoderOnlyConfig)

    def prefix_model(model: DecoderOnly, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
        """Raffel et al. 2020, figure 4: the prefix sees all of itself, what follows sees all that is before it."""
        sequence = [*source, BOS, *target[:-1]]
        prefix = len(source)
        visible = {t: list(range(max(prefix, t + 1))) for t in range(len(sequence))}
        xs = embed(config, model.positions, model.embeddings.source, sequence)
        weights: list[list[Tensor]] = []
        for layer in model.layers:
            inner = at(before(config, layer.around_attention, xs))
            gathered, found = attend(config, layer.self_attention, inner, inner, visible, turned=True)
            weights.append(found[prefix:])
            xs = after(config, layer.around_attention, xs, gathered)
            inner = before(config, layer.around_feed_forward, xs)
            xs = after(
                config, layer.around_feed_forward, xs, [feed_forward(config, layer.feed_forward, x) for x in inner]
            )
        if config.norm == "pre":
            xs = [normalize(model.final_norm, x) for x in xs]
        on_source = [shown(config, w)[:prefix] for w in weights[config.alignment_layer]]
        return torch.stack(xs[prefix:]), torch.stack([w / w.sum() for w in on_source])

    assert_conforms(tiny_model(f"decoder_only-{block}"), prefix_model)


def test_the_source_never_looks_at_the_target_and_no_position_at_a_later_one() -> None:
    model = tiny_model("decoder_only-post")
    batch, other = (make_batch(SOURCES[:1], [[4, 5, last, EOS]]) for last in (6, 7))
    first, second = model(batch)[0], model(other)[0]
    assert torch.equal(first[:3], second[:3])
    assert (first[3] - second[3]).abs().max() > 1e-3


def test_the_hypotheses_of_a_sentence_share_its_keys() -> None:
    model = tiny_model("decoder_only-grouped")
    memory = model.encode(make_batch(SOURCES, TARGETS).source_BS)
    state = model.start(memory).select(torch.arange(4).repeat_interleave(5))
    _, state, _ = model.step(torch.full((20,), BOS), state, memory)
    kv_heads, head_width = 2, 4
    assert [keys.shape for keys, _ in memory.keys] == [(4, kv_heads, 7, head_width)] * 2
    assert [cache.keys[0].shape for cache in state.caches] == [(20, kv_heads, 1, head_width)] * 2


def test_the_target_goes_on_counting_where_its_own_source_ends() -> None:
    """Not where the longest source of the batch ends: a rotary or sinusoidal position would differ by the padding."""
    memory = tiny_model("decoder_only-post").encode(make_batch(SOURCES, TARGETS).source_BS)
    assert tiny_model("decoder_only-post").start(memory).position_R.tolist() == [len(s) for s in SOURCES]


def test_two_vocabularies_are_refused() -> None:
    with pytest.raises(ValueError, match="joint"):
        build_model(CONFIGS["decoder_only-post"], 13, 11)
