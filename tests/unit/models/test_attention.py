"""Attention by hand-computed numbers, the fused kernel against the plain formula, and exactly zero on padding."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.models.attention import (
    AdditiveScore,
    Attention,
    DotScore,
    GeneralScore,
    LocationScore,
    MonotonicWindow,
    MultiHeadAttention,
    PredictiveWindow,
    Score,
    attention_weights,
    masked_softmax,
    scaled_dot_product,
)


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_one_in_sum_and_exactly_zero_on_padding(dtype: torch.dtype) -> None:
    mask_BS = torch.tensor([[True, True, True, True], [True, False, False, False], [True, True, True, False]])
    scores_BNS = (30 * normal(3, 2, 4)).to(dtype)
    scores_BNS[2, 0] = torch.tensor([-1e4, -1e4, -2e4, 1e4])  # real positions far below padding
    weights_BNS = masked_softmax(scores_BNS, mask_BS.unsqueeze(1))
    assert torch.all(weights_BNS[~mask_BS.unsqueeze(1).expand_as(weights_BNS)] == 0)
    torch.testing.assert_close(weights_BNS.sum(dim=-1), torch.ones(3, 2, dtype=dtype))
    torch.testing.assert_close(weights_BNS[2, 0], torch.tensor([0.5, 0.5, 0, 0], dtype=dtype))
    assert weights_BNS[1, :, 0].tolist() == [1, 1]


@pytest.mark.case
def test_a_sentence_of_padding_has_zero_weights_and_finite_gradients() -> None:
    scores_BNS = normal(2, 3, 4).requires_grad_()
    weights_BNS = masked_softmax(scores_BNS, torch.tensor([[False] * 4, [True] * 4]).unsqueeze(1))
    assert torch.all(weights_BNS[0] == 0)
    (weights_BNS * normal(2, 3, 4, seed=2)).sum().backward()
    assert torch.all(scores_BNS.grad[0] == 0)
    assert scores_BNS.grad[1].abs().min() > 0


@pytest.mark.conformance
def test_additive_score_by_hand() -> None:
    """Widths of one: e_j = v tanh(w s + u h_j + b)."""
    score = AdditiveScore(query_size=1, state_size=1, attention_size=1, bias=True)
    attention = Attention(score).double()
    with torch.no_grad():
        score.query.weight.fill_(2.0)
        score.key.weight.fill_(-1.0)
        score.key.bias.fill_(0.5)
        score.score.weight.fill_(3.0)
    states_BSD = torch.tensor([[[1.0], [4.0]]], dtype=torch.float64)
    query_BND = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)
    mask_BS = torch.ones(1, 2, dtype=torch.bool)
    context_BND, weights_BNS = attention.over(attention.project_keys(states_BSD), states_BSD, mask_BS)(query_BND)
    for n, s in enumerate((1.0, 0.0)):
        powers = [math.exp(3 * math.tanh(2 * s - h + 0.5)) for h in (1.0, 4.0)]
        expected = [power / sum(powers) for power in powers]
        assert weights_BNS[0, n].tolist() == pytest.approx(expected, abs=1e-12)
        assert context_BND[0, n].item() == pytest.approx(expected[0] + 4 * expected[1], abs=1e-12)


@pytest.mark.conformance
def test_multiplicative_scores_by_hand() -> None:
    states_BSD = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]]], dtype=torch.float64)
    query_BND = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    mask_BS = torch.tensor([[True, True, False]])
    dot = Attention(DotScore())
    _, weights_BNS = dot.over(dot.project_keys(states_BSD), states_BSD, mask_BS)(query_BND)
    powers = [math.exp(1.0), math.exp(4.0)]
    assert weights_BNS[0, 0].tolist() == pytest.approx([powers[0] / sum(powers), powers[1] / sum(powers), 0])
    score = GeneralScore(query_size=2, state_size=2)
    general = Attention(score).double()
    with torch.no_grad():
        score.key.weight.copy_(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))  # W (a, b) = (b, -a)
    context_BND, weights_BNS = general.over(general.project_keys(states_BSD), states_BSD, mask_BS)(query_BND)
    powers = [math.exp(-2.0), math.exp(2.0)]
    expected = [power / sum(powers) for power in powers]
    assert weights_BNS[0, 0].tolist() == pytest.approx([*expected, 0])
    assert context_BND[0, 0].tolist() == pytest.approx([expected[0], 2 * expected[1]])


def test_a_general_score_compares_vectors_of_different_widths() -> None:
    score = GeneralScore(query_size=2, state_size=3).double()
    states_BSD, query_BND = normal(1, 4, 3), normal(1, 5, 2, seed=2)
    assert score.over(score.project_keys(states_BSD))(query_BND).shape == (1, 5, 4)


@pytest.mark.conformance
def test_location_scores_know_positions_alone_and_end_with_their_table() -> None:
    """Luong et al. 2015, equation 8: the rows of W_a in order, and nothing beyond them."""
    score = LocationScore(query_size=1, positions=3).double()
    with torch.no_grad():
        score.position.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    query_BND = torch.tensor([[[2.0]]], dtype=torch.float64)
    assert score.over(normal(1, 2, 4))(query_BND)[0, 0].tolist() == [2, 4]
    assert score.over(normal(1, 5, 4))(query_BND)[0, 0].tolist() == [2, 4, 6, -math.inf, -math.inf]
    _, weights_BNS = Attention(score).over(normal(1, 5, 4), normal(1, 5, 4), torch.ones(1, 5, dtype=torch.bool))(
        query_BND
    )
    powers = [math.exp(value) for value in (2, 4, 6)]
    assert weights_BNS[0, 0].tolist() == pytest.approx([*(power / sum(powers) for power in powers), 0, 0])


@pytest.mark.conformance
def test_a_monotonic_window_moves_with_the_target_and_ends_with_the_sentence() -> None:
    window = MonotonicWindow(width=1)
    mask_BS = torch.tensor([[True, True, True, True, False]])
    seen_BNS, factor = window(normal(1, 4, 2), torch.tensor([[0, 2, 3, 9]]), mask_BS)
    assert factor is None
    assert seen_BNS[0].int().tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]


@pytest.mark.conformance
def test_a_predictive_window_by_hand() -> None:
    """Luong et al. 2015, equations 9 and 10: σ(0) = 1/2 puts the centre in the middle of the *real* positions."""
    window = PredictiveWindow(query_size=1, width=2).double()
    mask_BS = torch.tensor([[True, True, True, True, True, True, False, False]])
    seen_BNS, factor_BNS = window(torch.zeros(1, 1, 1, dtype=torch.float64), None, mask_BS)
    assert seen_BNS[0, 0].int().tolist() == [0, 1, 1, 1, 1, 1, 0, 0]
    for s in range(1, 6):
        assert factor_BNS[0, 0, s].item() == pytest.approx(math.exp(-((s - 3) ** 2) / 2))  # standard deviation 2 / 2


@pytest.mark.invariant
@pytest.mark.parametrize("kind", ["additive", "dot", "general", "location"])
def test_several_queries_of_a_sentence_are_as_good_as_each_alone(kind: str) -> None:
    torch.manual_seed(1)
    scores: dict[str, Score] = {
        "additive": AdditiveScore(4, 4, 3, bias=True),
        "dot": DotScore(),
        "general": GeneralScore(4, 4),
        "location": LocationScore(4, 4),
    }
    attention = Attention(scores[kind], PredictiveWindow(4, 2)).double()
    states_BSD, queries_BND = normal(2, 5, 4), normal(2, 3, 4, seed=2)
    mask_BS = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    keys = attention.project_keys(states_BSD)
    context_BND, weights_BNS = attention.over(keys, states_BSD, mask_BS)(queries_BND)
    for b in range(2):
        for n in range(3):
            one = slice(b, b + 1)
            context, weights = attention.over(keys[one], states_BSD[one], mask_BS[one])(queries_BND[one, n : n + 1])
            torch.testing.assert_close(context_BND[b, n], context[0, 0], rtol=0, atol=1e-12)
            torch.testing.assert_close(weights_BNS[b, n], weights[0, 0], rtol=0, atol=1e-12)


@pytest.mark.invariant
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_fused_kernel_gathers_by_the_plain_weights(dtype: torch.dtype) -> None:
    query, key, value = (normal(2, 3, length, 4, seed=seed, dtype=dtype) for seed, length in ((1, 5), (2, 6), (3, 6)))
    mask = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])[:, None, None, :]
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for chosen in (None, mask):
        weights = attention_weights(query, key, chosen)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, 5, dtype=dtype))
        fused = scaled_dot_product(query, key, value, mask=chosen)
        torch.testing.assert_close(fused, weights @ value, rtol=0, atol=tolerance)
    assert torch.all(weights[1, :, :, 2:] == 0)


@pytest.mark.invariant
def test_causal_is_the_lower_triangle() -> None:
    query, key, value = (normal(1, 2, 5, 4, seed=seed) for seed in (1, 2, 3))
    lower = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = attention_weights(query, key, lower) @ value
    torch.testing.assert_close(scaled_dot_product(query, key, value, causal=True), expected, rtol=0, atol=1e-12)


@pytest.mark.case
def test_nothing_to_look_at_gives_zeros_with_finite_gradients() -> None:
    tensors = [normal(2, 1, 3, 4, seed=seed).requires_grad_() for seed in (1, 2, 3)]
    mask = torch.tensor([[False] * 3, [True] * 3])[:, None, None, :]
    fused = scaled_dot_product(*tensors, mask=mask)
    assert torch.all(fused[0] == 0)
    assert torch.all(attention_weights(*tensors[:2], mask)[0] == 0)
    fused.sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


@pytest.mark.invariant
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_shared_heads_are_full_heads_with_repeated_keys(kv_heads: int) -> None:
    """Multi-query (Shazeer 2019) and grouped-query (Ainslie et al. 2023): a group's heads have the same W_K and W_V."""
    torch.manual_seed(1)
    heads, size = 4, 3
    shared = MultiHeadAttention(heads * size, heads, kv_heads).double()
    full = MultiHeadAttention(heads * size, heads).double()
    full.query, full.output = shared.query, shared.output
    with torch.no_grad():
        for name in ("weight", "bias"):
            wide, narrow = getattr(full.key_value, name), getattr(shared.key_value, name)
            rows = narrow.unflatten(0, (2, kv_heads, size)).repeat_interleave(heads // kv_heads, dim=1)
            wide.copy_(rows.flatten(0, 2))
    queries_BQD, states_BSD = normal(2, 3, heads * size), normal(2, 5, heads * size, seed=2)
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])[:, None, None, :]
    results = []
    for attention in (shared, full):
        query, keys = attention.project_query(queries_BQD), attention.project_keys(states_BSD)
        results.append((attention(query, keys, mask), attention.weights(query, keys, mask), keys[0].shape[1]))
    torch.testing.assert_close(results[0][:2], results[1][:2], rtol=0, atol=1e-12)
    assert [held for *_, held in results] == [kv_heads, heads]  # what a cache has to hold


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("queries", [1, 3])
def test_the_keys_of_a_group_are_not_copied(kv_heads: int, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all queries of a sentence see the same keys, as in a search: and the result is that of the copies."""
    torch.manual_seed(1)
    attention = MultiHeadAttention(12, 4, kv_heads).double()
    query, keys = attention.project_query(normal(2, queries, 12)), attention.project_keys(normal(2, 5, 12, seed=2))
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])[:, None, None, :]
    for chosen in (None, mask):
        key, value = (attention.share(part) for part in keys)
        expected = attention.merge(scaled_dot_product(query, key, value, chosen))
        with monkeypatch.context() as watched:
            watched.setattr(attention, "share", None)
            torch.testing.assert_close(attention(query, keys, chosen), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(attention.unfold(attention.fold(query)), query, rtol=0, atol=0)


def test_dropout_of_weights_acts_in_training_only() -> None:
    torch.manual_seed(1)
    attention = MultiHeadAttention(8, 2, dropout=0.5).double()
    x_BSD = normal(2, 6, 8)
    query, keys = attention.project_query(x_BSD), attention.project_keys(x_BSD)
    attention.eval()
    torch.testing.assert_close(attention(query, keys), attention(query, keys), rtol=0, atol=0)
    attention.train()
    assert not torch.equal(attention(query, keys), attention(query, keys))
