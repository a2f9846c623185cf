"""The Transformer against the equations of Vaswani et al. 2017, written down once more for one sentence, one head and
one position at a time; no limit on length; keys of the source that exist once however wide the beam.
"""

from __future__ import annotations

import math

import pytest
import torch
from tiny import SOURCE_VOCABULARY, coefficients, sentences, tiny_model
from torch import Tensor, nn

from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS, PAD
from nmt.models.attention import MultiHeadAttention
from nmt.models.layers import FeedForward, Residual
from nmt.models.transformer import Transformer

BOTH = pytest.mark.parametrize("norm", ["post", "pre"])
SOURCES = sentences([5, 1, 7, 3], SOURCE_VOCABULARY)
TARGETS = sentences([4, 6, 1, 3])


# The equations ---------------------------------------------------------------------------------------------------


def position(t: int, width: int) -> Tensor:
    """Section 3.5."""
    return torch.tensor(
        [(math.cos if d % 2 else math.sin)(t / 10_000 ** (d // 2 * 2 / width)) for d in range(width)],
        dtype=torch.float64,
    )


def embed(table: nn.Embedding, pieces: list[int]) -> list[Tensor]:
    """Sections 3.4 and 3.5."""
    width = table.embedding_dim
    return [table.weight[piece] * math.sqrt(width) + position(t, width) for t, piece in enumerate(pieces)]


def layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Ba et al. 2016, equation 4."""
    mean = x.sum() / len(x)
    variance = ((x - mean) ** 2).sum() / len(x)
    return norm.weight * (x - mean) / torch.sqrt(variance + norm.eps) + norm.bias


def attend(
    attention: MultiHeadAttention, queries: list[Tensor], keys: list[Tensor], causal: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Equation 1 and section 3.2.2: what each position gathers, and its weights, head mean."""
    width = len(queries[0])
    size = width // attention.heads
    w_k, w_v = attention.key_value.weight[:width], attention.key_value.weight[width:]
    b_k, b_v = attention.key_value.bias[:width], attention.key_value.bias[width:]
    gathered, means = [], []
    for t, query in enumerate(queries):
        visible = keys[: t + 1] if causal else keys
        heads, weights = [], []
        for head in range(attention.heads):
            rows = slice(head * size, (head + 1) * size)
            q = attention.query.weight[rows] @ query + attention.query.bias[rows]
            scores = torch.stack([q @ (w_k[rows] @ x + b_k[rows]) / math.sqrt(size) for x in visible])
            weights.append(scores.exp() / scores.exp().sum())
            values = torch.stack([w_v[rows] @ x + b_v[rows] for x in visible])
            heads.append((weights[-1].unsqueeze(1) * values).sum(dim=0))
        gathered.append(attention.output.weight @ torch.cat(heads) + attention.output.bias)
        means.append(torch.stack(weights).mean(dim=0))
    return gathered, means


def feed_forward(layer: FeedForward, x: Tensor) -> Tensor:
    """Equation 2."""
    inner = torch.clamp(layer.expand.weight @ x + layer.expand.bias, min=0)
    return layer.contract.weight @ inner + layer.contract.bias


def before(around: Residual, xs: list[Tensor]) -> list[Tensor]:
    return [layer_norm(around.norm, x) for x in xs] if around.pre else xs


def after(around: Residual, xs: list[Tensor], additions: list[Tensor]) -> list[Tensor]:
    sums = [x + addition for x, addition in zip(xs, additions, strict=True)]
    return sums if around.pre else [layer_norm(around.norm, x) for x in sums]


def vaswani(model: Transformer, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """Section 3: hidden states (T, D), and the last layer's weights (T, S) on the source."""
    pre = model.encoder[0].around_attention.pre
    xs = embed(model.embeddings.source, source)
    for layer in model.encoder:
        inner = before(layer.around_attention, xs)
        xs = after(layer.around_attention, xs, attend(layer.self_attention, inner, inner, causal=False)[0])
        inner = before(layer.around_feed_forward, xs)
        xs = after(layer.around_feed_forward, xs, [feed_forward(layer.feed_forward, x) for x in inner])
    memory = [layer_norm(model.encoder_norm, x) for x in xs] if pre else xs
    ys = embed(model.embeddings.target, [BOS, *target[:-1]])
    weights: list[Tensor] = []
    for layer in model.decoder:
        inner = before(layer.around_self_attention, ys)
        ys = after(layer.around_self_attention, ys, attend(layer.self_attention, inner, inner, causal=True)[0])
        inner = before(layer.around_cross_attention, ys)
        gathered, weights = attend(layer.cross_attention, inner, memory, causal=False)
        ys = after(layer.around_cross_attention, ys, gathered)
        inner = before(layer.around_feed_forward, ys)
        ys = after(layer.around_feed_forward, ys, [feed_forward(layer.feed_forward, y) for y in inner])
    if pre:
        ys = [layer_norm(model.decoder_norm, y) for y in ys]
    return torch.stack(ys), torch.stack(weights)


@pytest.mark.conformance
@BOTH
def test_hidden_states_weights_and_gradients_are_those_of_the_papers_equations(norm: str) -> None:
    model = tiny_model(f"transformer-{norm}")
    batch = make_batch(SOURCES, TARGETS)
    hidden_BTD = model(batch)
    memory = model.encode(batch.source_BS)
    state, columns = model.start(memory), []
    for tokens_B in batch.target_input_BT.unbind(1):
        _, state, weights_BS = model.step(tokens_B, state, memory, need_weights=True)
        columns.append(weights_BS)
    actual = expected = torch.zeros((), dtype=torch.float64)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        hidden_TD, weights_TS = vaswani(model, source, target)
        torch.testing.assert_close(hidden_BTD[row, : len(target)], hidden_TD, rtol=0, atol=1e-9)
        weights = torch.stack([column[row, : len(source)] for column in columns[: len(target)]])
        torch.testing.assert_close(weights, weights_TS, rtol=0, atol=1e-9)
        factors = coefficients(hidden_TD, seed=row)
        actual = actual + (factors * hidden_BTD[row, : len(target)]).sum()
        expected = expected + (factors * hidden_TD).sum()
    parameters = {name: p for name, p in model.named_parameters() if not name.startswith("output.")}
    gradients = torch.autograd.grad(actual, list(parameters.values()))
    wanted = torch.autograd.grad(expected, list(parameters.values()))
    for name, gradient, want in zip(parameters, gradients, wanted, strict=True):
        assert want.abs().max() > 1e-6, f"{name} takes no part in the reference"
        torch.testing.assert_close(gradient, want, rtol=0, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


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
    with pytest.raises(AssertionError):
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


def test_without_positions_the_encoder_does_not_see_the_order() -> None:
    """Permuting the source then permutes its keys; with positions it does not."""
    model = tiny_model("transformer-post")
    source = torch.tensor([[4, 5, 6, 7, EOS]])
    turned = source[:, [3, 1, 4, 0, 2]]

    def differs() -> float:
        (keys, _), (other, _) = model.encode(source).keys[-1], model.encode(turned).keys[-1]
        return (keys[:, :, [3, 1, 4, 0, 2]] - other).abs().max().item()

    assert differs() > 1e-3
    model.positions.table_TD.zero_()
    assert differs() < 1e-12
    assert PAD not in source
