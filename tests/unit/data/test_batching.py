"""The batch plan as a partition with a budget, its dependence on seed and epoch, and the tensors of a batch by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nmt.data.batching import Batch, make_batch, padding_share, plan_batches
from nmt.data.tokenizer import BOS, EOS, PAD

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=120)


def caption_lengths(pairs: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths as of short captions: about 15 pieces, the target about as long as its source, a few long ones."""
    generator = np.random.default_rng(0)
    source = np.clip(generator.lognormal(2.65, 0.33, pairs), 3, 60)
    target = np.clip(source * generator.normal(1.15, 0.2, pairs), 3, 70)
    return source.astype(np.int64), target.astype(np.int64)


@given(lengths, st.integers(1, 300), st.integers(0, 5), st.integers(0, 5))
@settings(deadline=None)
def test_every_pair_is_in_one_batch_and_no_batch_is_over_its_budget(
    pairs: list[tuple[int, int]], tokens: int, seed: int, epoch: int
) -> None:
    source = np.array([source for source, _ in pairs], dtype=np.int64)
    target = np.array([target for _, target in pairs], dtype=np.int64)
    plan = plan_batches(source, target, tokens, seed, epoch)
    assert sorted(index for batch in plan for index in batch) == list(range(len(pairs)))
    for batch in plan:
        assert batch.dtype == np.int64
        longest = max(source[batch].max(), target[batch].max())
        assert len(batch) == 1 or len(batch) * longest <= tokens


@pytest.mark.case
def test_a_pair_above_the_budget_is_a_batch_of_its_own() -> None:
    source, target = np.array([5, 300, 5, 5]), np.array([5, 4, 201, 5])
    plan = plan_batches(source, target, tokens=200, seed=1, epoch=0)
    alone = [list(batch) for batch in plan if 1 in batch or 2 in batch]
    assert sorted(alone) == [[1], [2]]
    assert sorted(np.concatenate(plan)) == [0, 1, 2, 3]


def test_the_plan_is_a_function_of_its_arguments() -> None:
    source, target = caption_lengths(2000)
    first = plan_batches(source, target, 1000, seed=3, epoch=4)
    np.random.default_rng(0)
    plan_batches(source, target, 1000, seed=9, epoch=9)
    second = plan_batches(source.astype(np.int32), target.copy(), 1000, seed=3, epoch=4)
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(("seed", "epoch"), [(1, 1), (2, 0)])
def test_another_epoch_or_seed_has_other_batches_in_another_order(seed: int, epoch: int) -> None:
    source, target = caption_lengths(5000)
    first = plan_batches(source, target, 1000, seed=1, epoch=0)
    other = plan_batches(source, target, 1000, seed=seed, epoch=epoch)
    known = {frozenset(batch.tolist()) for batch in first}
    assert sum(frozenset(batch.tolist()) in known for batch in other) < 0.1 * len(other)
    # The order tells nothing of the lengths: as many neighbours rise as fall.
    for plan in (first, other):
        means = [source[batch].mean() for batch in plan]
        rising = sum(one < two for one, two in pairwise(means)) / (len(means) - 1)
        assert 0.35 < rising < 0.65


@pytest.mark.parametrize("tokens", [1500, 4096])
@pytest.mark.parametrize("epoch", range(3))
def test_less_than_a_twentieth_is_padding(tokens: int, epoch: int) -> None:
    source, target = caption_lengths(29_000)
    plan = plan_batches(source, target, tokens, seed=1, epoch=epoch)
    assert padding_share(plan, source, target) < 0.05
    longest = [max(source[batch].max(), target[batch].max()) for batch in plan]
    filled = np.mean([len(batch) * longest / tokens for batch, longest in zip(plan, longest, strict=True)])
    assert filled > 0.9


def test_padding_share_by_hand() -> None:
    source, target = np.array([2, 3, 5]), np.array([4, 4, 1])
    # Pairs 0 and 1: 2 x 3 source positions with 5 pieces, 2 x 4 target positions with 8. Pair 2 has no padding.
    assert padding_share([np.array([0, 1]), np.array([2])], source, target) == pytest.approx(1 / 20)
    assert padding_share([], source, target) == 0


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_budget_of_nothing_is_refused(tokens: int) -> None:
    with pytest.raises(ValueError, match="tokens"):
        plan_batches(np.array([1]), np.array([1]), tokens, 1, 0)


def test_sides_of_unequal_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        plan_batches(np.array([1, 2]), np.array([1]), 10, 1, 0)
    with pytest.raises(ValueError, match="2 source and 1 target"):
        make_batch([[EOS], [EOS]], [[EOS]])


def test_a_batch_by_hand() -> None:
    batch = make_batch([[7, 8, EOS], np.array([EOS], dtype=np.uint16)], [[9, EOS], [10, 11, 12, EOS]])
    assert batch.source_BS.tolist() == [[7, 8, EOS], [EOS, PAD, PAD]]
    assert batch.source_lengths_B.tolist() == [3, 1]
    assert batch.target_input_BT.tolist() == [[BOS, 9, PAD, PAD], [BOS, 10, 11, 12]]
    assert batch.target_output_BT.tolist() == [[9, EOS, PAD, PAD], [10, 11, 12, EOS]]
    assert batch.source_index_P.tolist() == [0, 1, 2, 3]
    assert batch.target_index_P.tolist() == [0, 1, 4, 5, 6, 7]
    assert batch.target_tokens == 6
    tensors = (batch.source_BS, batch.source_lengths_B, batch.target_input_BT, batch.target_output_BT)
    assert {tensor.dtype for tensor in tensors} == {torch.int64}


def test_a_batch_moves_as_a_whole() -> None:
    batch = make_batch([[7, EOS]], [[9, EOS]])
    moved = batch.to("meta")
    assert isinstance(moved, Batch)
    assert moved.target_tokens == 2
    for name in ("source_BS", "source_index_P", "target_input_BT", "target_output_BT", "target_index_P"):
        assert getattr(moved, name).device.type == "meta"
        assert getattr(moved, name).shape == getattr(batch, name).shape
    assert moved.source_lengths_B is batch.source_lengths_B, "what the host decides by stays there"


@pytest.mark.parametrize("sentences", [[], [[]], [[5, EOS], []]])
def test_sentences_without_an_end_mark_are_refused(sentences: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="end mark"):
        make_batch(sentences, sentences)
