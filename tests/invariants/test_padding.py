"""A sentence does not know its neighbours: padding changes no value, no gradient and no attention weight, for every
model; and a sentence that is padding only harms nobody.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.data.batching import Batch, make_batch
from nmt.data.tokenizer import PAD
from nmt.models.base import TranslationModel
from nmt.models.cells import StackedRecurrence
from nmt.training.loss import label_smoothed_loss
from tiny import ATTENDING, MODELS, SOURCE_VOCABULARY, coefficients, sentences, tiny_model

pytestmark = pytest.mark.invariant

EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
SOURCES = sentences([5, 1, 9, 3], SOURCE_VOCABULARY)
TARGETS = sentences([4, 6, 1, 2])


def loss_and_gradients(model: TranslationModel, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    loss = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, 0.1).loss
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)  # a target of one piece
    used = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), gradients, strict=True)]
    return loss.detach(), dict(zip(parameters, used, strict=True))


@pytest.mark.case
@EVERY_MODEL
def test_a_sentence_alone_is_the_sentence_in_a_batch(name: str) -> None:
    model = tiny_model(name)
    hidden_BTD = model(make_batch(SOURCES, TARGETS))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone_TD = model(make_batch([source], [target]))[0]
        torch.testing.assert_close(hidden_BTD[row, : len(target)], alone_TD, rtol=0, atol=1e-10)


@EVERY_MODEL
def test_loss_and_gradients_of_a_batch_are_the_sums_over_its_sentences(name: str) -> None:
    model = tiny_model(name)
    loss, gradients = loss_and_gradients(model, make_batch(SOURCES, TARGETS))
    alone = [loss_and_gradients(model, make_batch([s], [t])) for s, t in zip(SOURCES, TARGETS, strict=True)]
    torch.testing.assert_close(loss, torch.stack([part for part, _ in alone]).sum(), rtol=0, atol=1e-9)
    for parameter, gradient in gradients.items():
        expected = torch.stack([part[parameter] for _, part in alone]).sum(dim=0)
        assert expected.abs().max() > 1e-6, parameter
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-9, msg=parameter)


@pytest.mark.case
@EVERY_MODEL
def test_a_pair_of_padding_only_changes_neither_loss_nor_gradients(name: str) -> None:
    """Padding on both sides, which also makes the others' rows longer."""
    model = tiny_model(name)
    batch = make_batch(SOURCES, TARGETS)
    loss, gradients = loss_and_gradients(model, batch)
    source_BS, input_BT, output_BT = (
        F.pad(ids, (0, 3, 0, 1), value=PAD) for ids in (batch.source_BS, batch.target_input_BT, batch.target_output_BT)
    )
    lengths_B = F.pad(batch.source_lengths_B, (0, 1))
    places = real_places(source_BS), real_places(output_BT)
    padded = Batch(source_BS, lengths_B, places[0], input_BT, output_BT, places[1], batch.target_tokens)
    assert torch.isfinite(model(padded)).all()
    loss_with, gradients_with = loss_and_gradients(model, padded)
    torch.testing.assert_close(loss_with, loss, rtol=0, atol=1e-9)
    for parameter, gradient in gradients.items():
        torch.testing.assert_close(gradients_with[parameter], gradient, rtol=0, atol=1e-9, msg=parameter)


def real_places(ids_BT: torch.Tensor) -> torch.Tensor:
    return (ids_BT.flatten() != PAD).nonzero().squeeze(1)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("layers", [1, 2])
def test_packed_is_padded_sentence_by_sentence(cell: str, layers: int) -> None:
    """The encoders' packed kernel against the same kernel on each sentence alone, which needs no packing: all states,
    the final ones of every layer, and the gradients."""
    torch.manual_seed(1)
    lengths = [4, 1, 6, 3]
    stack = StackedRecurrence(cell, 5, 7, layers, 0.0).double()
    x_BSE = torch.randn(4, 6, 5, dtype=torch.float64)
    packed_BSH, final = stack.encode(x_BSE, torch.tensor(lengths), torch.tensor(lengths))
    scalar = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(lengths):
        alone_1SH, states = stack.kernel(x_BSE[row : row + 1, :length])
        torch.testing.assert_close(packed_BSH[row, :length], alone_1SH[0], rtol=0, atol=1e-12)
        assert torch.all(packed_BSH[row, length:] == 0)
        for layer, parts in enumerate(final):
            for part, last in zip(parts, states if cell == "lstm" else (states,), strict=True):
                torch.testing.assert_close(part[row], last[layer, 0], rtol=0, atol=1e-12)
        scalar = scalar + (coefficients(alone_1SH, row) * alone_1SH).sum()
    expected = torch.autograd.grad(scalar, list(stack.parameters()))
    packed = sum(
        (coefficients(packed_BSH[row : row + 1, :length], row) * packed_BSH[row : row + 1, :length]).sum()
        for row, length in enumerate(lengths)
    )
    for gradient, other in zip(torch.autograd.grad(packed, list(stack.parameters())), expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-12)


@EVERY_MODEL
def test_what_padding_embeds_to_reaches_nothing(name: str) -> None:
    """Were padding only almost masked, an embedding of a million would show it."""
    model = tiny_model(name)
    batch = make_batch(SOURCES, TARGETS)
    real = batch.target_output_BT != PAD
    before = model(batch)[real]
    with torch.no_grad():
        for table in (model.embeddings.source, model.embeddings.target):
            table.weight[PAD] = 1e6
    assert torch.equal(model(batch)[real], before)


@pytest.mark.case
@EVERY_MODEL
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_source_of_padding_only_is_finite_and_harms_nobody(name: str, dtype: torch.dtype) -> None:
    """Forward and backward; bfloat16 as autocast has it, on float32 weights."""
    weights = torch.float64 if dtype == torch.float64 else torch.float32
    model = tiny_model(name, dtype=weights)
    batch = make_batch(SOURCES, TARGETS)
    batch.source_BS[1] = PAD
    batch.source_lengths_B[1] = 0
    batch.source_index_P = real_places(batch.source_BS)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden_BTD = model(batch)
    sums = label_smoothed_loss(hidden_BTD, model.output, batch.target_output_BT, 0.1)
    gradients = torch.autograd.grad(sums.loss, list(model.parameters()))
    assert torch.isfinite(hidden_BTD).all()
    assert torch.isfinite(sums.loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    if dtype == torch.float64:
        others = [0, 2, 3]
        expected_BTD = model(make_batch(SOURCES, TARGETS))
        real = (batch.target_output_BT != PAD)[others]
        torch.testing.assert_close(hidden_BTD[others][real], expected_BTD[others][real], rtol=0, atol=1e-12)


@EVERY_MODEL
def test_lower_precision_changes_little(name: str) -> None:
    """Forward and step under autocast, as on a GPU: no two parts disagree on a type."""
    model = tiny_model(name, dtype=torch.float32, scale=0.2)
    batch = make_batch(SOURCES, TARGETS)
    real = batch.target_output_BT != PAD
    exact = model(batch)[real]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(batch)[real].float()
        memory = model.encode(batch.source_BS)
        state, columns = model.start(memory), []
        for tokens_B in batch.target_input_BT.unbind(1):
            hidden_BD, state, _ = model.step(tokens_B, state, memory, need_weights=True)
            columns.append(hidden_BD.float())
    stepped = torch.stack(columns, dim=1)[real]
    assert 0 < (rounded - exact).norm() < 0.05 * exact.norm()
    assert (stepped - exact).norm() < 0.05 * exact.norm()


@EVERY_MODEL
def test_steps_after_a_source_of_padding_only_are_finite(name: str) -> None:
    model = tiny_model(name)
    source_BS = make_batch(SOURCES, TARGETS).source_BS
    source_BS[1] = PAD
    memory = model.encode(source_BS)
    state = model.start(memory)
    for tokens_B in make_batch(SOURCES, TARGETS).target_input_BT.unbind(1):
        hidden_BD, state, weights_BS = model.step(tokens_B, state, memory, need_weights=True)
        assert torch.isfinite(hidden_BD).all()
        if weights_BS is not None:
            assert torch.all(weights_BS[1] == 0)


@pytest.mark.case
@pytest.mark.parametrize("name", ATTENDING)
def test_gradients_do_not_reach_padding(name: str) -> None:
    """The hidden states of one sentence depend on its own real pieces and on nothing else."""
    model = tiny_model(name)
    batch = make_batch(SOURCES, TARGETS)
    seen: list[Tensor] = []

    def remember(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    handle = model.embeddings.source.register_forward_hook(remember)
    hidden_TD = model(batch)[0]
    handle.remove()
    (coefficients(hidden_TD[: len(TARGETS[0])]) * hidden_TD[: len(TARGETS[0])]).sum().backward()
    reached_BS = (seen[0].grad != 0).any(dim=-1)
    expected_BS = torch.zeros_like(reached_BS)
    expected_BS[0, : len(SOURCES[0])] = True
    assert torch.equal(reached_BS, expected_BS)


@EVERY_MODEL
def test_training_mode_without_dropout_is_evaluation_mode(name: str) -> None:
    model = tiny_model(name)
    batch = make_batch(SOURCES, TARGETS)
    assert torch.equal(model.eval()(batch), model.train()(batch))


@EVERY_MODEL
def test_dropout_is_off_outside_training(name: str) -> None:
    changes: dict[str, object] = {"dropout": 0.5}
    if name.startswith(("transformer", "decoder_only")):
        changes["attention_dropout"] = 0.5
    model, without = tiny_model(name, **changes), tiny_model(name)
    batch = make_batch(SOURCES, TARGETS)
    expected_BTD = without(batch)
    assert torch.equal(model(batch), expected_BTD)
    memory = model.encode(batch.source_BS)
    hidden_BD, _, _ = model.step(batch.target_input_BT[:, 0], model.start(memory), memory)
    torch.testing.assert_close(hidden_BD, expected_BTD[:, 0], rtol=0, atol=1e-9)
    model.train()
    torch.manual_seed(1)
    first, second = model(batch), model(batch)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(first, model(batch))
