"""The plain implementations that the project's speed is compared with: the same parameters, loss and gradients."""

from __future__ import annotations

import pytest
import torch

from benchmarking.step_by_step import step_by_step
from nmt.data.batching import make_batch
from nmt.errors import RequestError
from nmt.models import layers
from nmt.training.loss import label_smoothed_loss
from tiny import SOURCE_VOCABULARY, sentences, tiny_model

PLAIN = [
    "bahdanau",
    "lstm-in_order",
    "lstm-reversed",
    "luong-general-fed-in_order",
    "luong-general-fed-reversed",
    "luong-general-unfed-in_order",
]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_are_those_of_the_model(name: str, smoothing: float) -> None:
    """With padding on both sides."""
    model = tiny_model(name)
    batch = make_batch(sentences([5, 1, 7, 3], SOURCE_VOCABULARY), sentences([4, 6, 1, 3]))
    parameters = dict(model.named_parameters())
    plain = step_by_step(model)
    assert {id(p) for p in plain.parameters()} == {id(p) for p in parameters.values()}
    expected = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, smoothing).loss
    found = plain.loss(batch, smoothing)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    wanted = torch.autograd.grad(expected, list(parameters.values()))
    for name, gradient, want in zip(
        parameters, torch.autograd.grad(found, list(parameters.values())), wanted, strict=True
    ):
        torch.testing.assert_close(gradient, want, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", ["bahdanau", "luong-general-fed-in_order"])
def test_dropout_stands_where_the_models_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of dropout made to halve what they get, which is no chance; PyTorch's own LSTM has none then."""
    for kind in (layers.Dropout, torch.nn.Dropout):
        monkeypatch.setattr(kind, "forward", lambda self, x: 0.5 * x if self.training else x)
    model = tiny_model(name, dropout=0.4).train()
    for kernel in model.modules():
        if isinstance(kernel, torch.nn.LSTM):
            kernel.dropout = 0.0
    plain = step_by_step(model)
    assert plain.dropout.p == 0.4
    batch = make_batch(sentences([5, 3], SOURCE_VOCABULARY), sentences([4, 4]))
    expected = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, 0.1).loss
    torch.testing.assert_close(plain.loss(batch, 0.1), expected, rtol=0, atol=1e-9)
    assert abs(plain.eval().loss(batch, 0.1) - expected) > 1e-3


@pytest.mark.parametrize(
    "name", ["transformer-post", "cho", "lstm_gru", "luong-dot-fed-in_order", "luong-general-fed-local_m"]
)
def test_models_without_a_plain_implementation_are_refused(name: str) -> None:
    model = tiny_model("gru-reversed" if name == "lstm_gru" else name)
    with pytest.raises(RequestError, match="--step-by-step: there is one for bahdanau, luong"):
        step_by_step(model)
