"""Dropout's distribution, sinusoids by the paper's formula, and the small layers by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import BlockConfig
from nmt.models.layers import (
    Dropout,
    FeedForward,
    GatedFeedForward,
    LearnedPositions,
    Residual,
    RotaryPositions,
    SinusoidalPositions,
    build_norm,
    maxout,
    sinusoids,
)

# Dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_share_dropped_the_scale_and_the_expectation(p: float) -> None:
    torch.manual_seed(1)
    number = 400_000
    x = torch.full((number,), 3.0)
    dropped = Dropout(p)(x)
    kept = dropped[dropped != 0]
    assert torch.all(kept == kept[0])
    assert kept[0].item() == pytest.approx(3 / (1 - p), rel=2e-4)  # p is met to 1/65,536
    share = 1 - len(kept) / number
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / number)
    # Exact up to rounding: the probability that is met, times its scale, is one.
    met = round(p * 65_536) / 65_536
    assert kept[0].item() * (1 - met) == pytest.approx(3, rel=1e-6)


def test_neighbours_are_dropped_independently() -> None:
    """Four elements share a random number, 16 bits each: the joint distribution is the product."""
    torch.manual_seed(1)
    p, rows = 0.3, 100_000
    dropped_R4 = Dropout(p)(torch.ones(rows, 4)) == 0
    patterns = (dropped_R4 * torch.tensor([8, 4, 2, 1])).sum(dim=1).bincount(minlength=16).double() / rows
    for pattern, share in enumerate(patterns.tolist()):
        number = pattern.bit_count()
        expected = p**number * (1 - p) ** (4 - number)
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / rows)
    following = (dropped_R4[:-1].double() * dropped_R4[1:].double()).mean(dim=0)
    assert torch.all((following - p * p).abs() < 5 * math.sqrt(p * p / rows))


@given(st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=40, deadline=None)
def test_the_mask_depends_on_the_generator_and_not_on_the_shape(shape: list[int]) -> None:
    layer, x = Dropout(0.4), torch.ones(shape)
    torch.manual_seed(7)
    first = layer(x)
    torch.manual_seed(7)
    assert torch.equal(first, layer(x))
    torch.manual_seed(7)
    assert torch.equal(first.flatten(), layer(x.flatten()))
    assert first.shape == x.shape


def test_another_seed_and_another_call_draw_another_mask() -> None:
    layer, x = Dropout(0.5), torch.ones(100)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(2)
    third = layer(x)
    assert not torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_gradient_passes_where_the_value_did(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.ones(50, dtype=dtype, requires_grad=True)
    dropped = Dropout(0.5)(x)
    dropped.sum().backward()
    assert dropped.dtype == dtype
    assert torch.equal(x.grad, dropped.detach())


def test_nothing_is_dropped_outside_training_or_at_zero() -> None:
    x = torch.randn(9)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_a_transposed_input_keeps_its_values_in_place() -> None:
    torch.manual_seed(1)
    x = torch.arange(1.0, 13.0).view(3, 4).t()
    dropped = Dropout(0.5)(x)
    assert torch.all((dropped == 0) | (dropped == 2 * x))


# Positions -------------------------------------------------------------------------------------------------------


@pytest.mark.conformance
@pytest.mark.parametrize("width", [6, 7, 512])
def test_sinusoids_are_the_papers(width: int) -> None:
    table_TD = sinusoids(40, width)
    for t in (0, 1, 39):
        for d in {0, 1, 4, 5, width - 1}:
            angle = t / 10_000 ** ((d - d % 2) / width)
            assert table_TD[t, d].item() == pytest.approx(math.cos(angle) if d % 2 else math.sin(angle), abs=1e-12)


@pytest.mark.conformance
def test_a_shift_is_a_rotation_of_each_pair() -> None:
    """PE(t + k) is a linear function of PE(t) (section 3.5)."""
    table_TD, shift = sinusoids(30, 8), 7
    for i in range(4):
        angle = shift / 10_000 ** (2 * i / 8)
        turn = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        pairs = table_TD[:, 2 * i : 2 * i + 2]
        torch.testing.assert_close(pairs[shift:], pairs[:-shift] @ turn.t(), rtol=0, atol=1e-12)


def positions_of(places: list[int]) -> torch.Tensor:
    return torch.tensor([places])


def test_the_table_grows_without_changing_what_it_held() -> None:
    positions = SinusoidalPositions(6, length=4)
    held = positions.embed(torch.zeros(1, 4, 6), positions_of([0, 1, 2, 3]), 4)
    far = positions.embed(torch.zeros(1, 3, 6), positions_of([100, 101, 102]), 103)
    torch.testing.assert_close(far[0], sinusoids(103, 6)[100:].float())
    assert torch.equal(positions.embed(torch.zeros(1, 4, 6), positions_of([0, 1, 2, 3]), 4), held)
    assert positions.state_dict() == {}  # a checkpoint does not depend on the longest sentence so far


def test_beyond_a_learned_table_its_last_entry_serves() -> None:
    positions = LearnedPositions(6, length=3)
    added = positions.embed(torch.ones(1, 4, 6), positions_of([0, 2, 3, 99]), 100)[0] - 1
    torch.testing.assert_close(added, positions.table.weight[[0, 2, 2, 2]].detach())


def test_learned_positions_start_as_large_as_sinusoids() -> None:
    """Next to embeddings of unit variance, vectors of unit length would be too small to tell positions apart."""
    torch.manual_seed(1)
    learned = LearnedPositions(64, length=200).table.weight.detach()
    assert learned.var().item() == pytest.approx(sinusoids(200, 64).square().mean().item(), rel=0.03)


@pytest.mark.conformance
def test_rotation_by_hand_and_a_score_that_depends_on_the_distance_alone() -> None:
    """Su et al. 2021, equations 15 and 16: pair i is turned by t · 10000^(-2i/K)."""
    width = 6
    positions = RotaryPositions(width).double()
    positions.frequency_K = positions.frequency_K.new_tensor([10_000 ** (-2 * i / width) for i in range(3)])
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 1, 2, 1, width, generator=generator, dtype=torch.float64)
    place, half = 7, width // 2
    turned = positions.rotate(query, positions_of([place]))[0, 0, 0]
    for i in range(half):
        angle, (x, y) = place * 10_000 ** (-2 * i / width), query[0, 0, 0, [i, i + half]].tolist()
        assert turned[i].item() == pytest.approx(x * math.cos(angle) - y * math.sin(angle), abs=1e-12)
        assert turned[i + half].item() == pytest.approx(y * math.cos(angle) + x * math.sin(angle), abs=1e-12)

    def score(query_place: int, key_place: int) -> torch.Tensor:
        left = positions.rotate(query, positions_of([query_place]))
        return (left * positions.rotate(key, positions_of([key_place]))).sum(dim=-1)

    torch.testing.assert_close(score(3, 8), score(40, 45), rtol=0, atol=1e-12)
    torch.testing.assert_close(score(9, 9), (query * key).sum(dim=-1), rtol=0, atol=1e-12)
    assert (score(3, 8) - score(8, 3)).abs().max() > 1e-3  # which of them comes first does matter
    assert (score(3, 8) - score(3, 9)).abs().max() > 1e-3


# The rest --------------------------------------------------------------------------------------------------------


def test_maxout_takes_the_greater_of_neighbours() -> None:
    x = torch.tensor([[1.0, 2.0, -3.0, -4.0, 0.0, 0.0]])
    assert maxout(x).tolist() == [[2.0, -3.0, 0.0]]
    assert maxout(x.view(1, 1, 6)).shape == (1, 1, 3)


def test_feed_forward_by_hand() -> None:
    layer = FeedForward(1, 2, dropout=0.0, activation="relu")
    with torch.no_grad():
        layer.expand.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        layer.expand.bias.copy_(torch.tensor([1.0, 1.0]))
        layer.contract.weight.copy_(torch.tensor([[2.0, 3.0]]))
        layer.contract.bias.fill_(0.5)
    assert layer(torch.tensor([[[3.0], [-3.0]]])).flatten().tolist() == [8.5, 12.5]


def test_gated_feed_forward_by_hand() -> None:
    """Shazeer 2020, equation 6: (silu(x W) ∘ x V) W_2, and about as many weights as the plain layer has."""
    layer = GatedFeedForward(1, 2, dropout=0.0).double()
    inner = layer.contract.in_features
    with torch.no_grad():
        layer.expand.weight.copy_(torch.tensor([2.0] * inner + [3.0] * inner).unsqueeze(1))
        layer.contract.weight.fill_(0.5)
    x = torch.tensor([[[1.5]]], dtype=torch.float64)
    assert layer(x).item() == pytest.approx(inner * 0.5 * (3 / (1 + math.exp(-3))) * 4.5)
    plain = sum(p.numel() for p in FeedForward(64, 256, 0.0, "relu").parameters())
    assert sum(p.numel() for p in GatedFeedForward(64, 256, 0.0).parameters()) == pytest.approx(plain, rel=0.03)


def test_rms_norm_by_hand_does_not_centre() -> None:
    """Zhang & Sennrich 2019, equation 4."""
    norm = build_norm(BlockConfig("transformer", "tiny", width=2, normalization="rms"))
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0]))
    x = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(norm(x), torch.tensor([3.0, 8.0]) / math.sqrt(12.5))
    assert (norm(x + 5) - norm(x)).abs().max() > 0.1


def test_the_norm_stands_after_the_sum_or_before_the_sublayer() -> None:
    x_BTD = torch.tensor([[[1.0, 3.0]]])

    def sublayer(x: torch.Tensor) -> torch.Tensor:
        return 10 * x

    post, pre = (Residual(BlockConfig("transformer", "tiny", 0.0, width=2, norm=norm)) for norm in ("post", "pre"))
    assert post.inner_input(x_BTD) is x_BTD
    torch.testing.assert_close(post(x_BTD, sublayer), torch.tensor([[[-1.0, 1.0]]]), rtol=0, atol=1e-4)
    torch.testing.assert_close(pre(x_BTD, sublayer), torch.tensor([[[1.0 - 10, 3.0 + 10]]]), rtol=0, atol=1e-3)
