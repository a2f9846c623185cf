"""Layers that are compiled are the layers that are not: the same numbers, names and checkpoints.

What is compiled by PyTorch's compiler is marked slow; the others trace as it does and leave out the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import runs
from nmt.configuration import compose
from nmt.data.batching import Batch, make_batch
from nmt.errors import RequestError, WorkError
from nmt.models.base import TranslationModel
from nmt.training import trainer
from nmt.training.checkpoint import Checkpoint
from nmt.training.compiling import as_written, compile_layers, require_compiler
from nmt.training.loss import label_smoothed_loss
from runs import FEW, assert_same_state, records
from tiny import TARGET_VOCABULARY, sentences, tiny_model

CPU = torch.device("cpu")
COMPILED = compose(["model=transformer", "trainer.compile=true"])
SHAPES = [(5, 5, 5), (3, 7, 4), (2, 9, 9), (8, 2, 3), (4, 4, 6), (6, 3, 2), (1, 5, 8)]
SHAPES += [(2 + i % 4, 2 + 3 * i % 11, 2 + 5 * i % 13) for i in range(13)]
"""Of 20 batches, (B, S, T): first one whose sizes are equal by chance, and one of a single pair."""


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    """Nothing compiled before, and nothing left behind."""
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def batch_of(pairs: int, source: int, target: int) -> Batch:
    """With padding wherever there is more than one pair."""
    sides = [[longest, *(max(1, longest - row) for row in range(1, pairs))] for longest in (source, target)]
    return make_batch(*(sentences(side, TARGET_VOCABULARY, seed=pairs) for side in sides))


def model_of(name: str, **changes: object) -> TranslationModel:
    model = tiny_model(name, dtype=torch.float32, scale=0.2, source_vocabulary=TARGET_VOCABULARY, **changes)
    return model.train()


def loss_and_gradients(model: TranslationModel, batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
    hidden_BTD = model(batch)
    sums = label_smoothed_loss(hidden_BTD, model.output, batch.target_output_BT, 0.1, batch.target_index_P)
    loss = sums.loss / batch.target_tokens
    return loss, torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("name", ["transformer-pre", "decoder_only-post"])
def test_twenty_shapes_compile_once_for_each_kind_of_layer_and_case(name: str) -> None:
    """Encoder and decoder, or source and target: each for sizes that happen to be equal, for any, and for one pair.
    Validation and search compile nothing."""
    plain, compiled = model_of(name), model_of(name)
    assert compile_layers(compiled, backend="eager") == (4 if name.startswith("transformer") else 2)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    found = []
    for shape in SHAPES:
        batch = batch_of(*shape)
        torch.testing.assert_close(loss_and_gradients(compiled, batch), loss_and_gradients(plain, batch))
        found.append(counters["stats"]["unique_graphs"])
    assert 2 <= found[0] <= found[6] <= 6
    assert found[-1] == found[6], "what comes later is compiled already"
    assert not counters["graph_break"]
    compiled.eval()
    with as_written(COMPILED), torch.inference_mode():
        for shape in SHAPES[:4]:
            compiled(batch_of(*shape))
            compiled.encode(batch_of(*shape).source_BS)
    assert counters["stats"]["unique_graphs"] == found[-1]


# Through the trainer ---------------------------------------------------------------------------------------------


@pytest.fixture
def train(tiny: Callable[[str], list[str]], tmp_path: Path) -> Callable[..., Checkpoint]:
    return lambda name, *overrides: runs.train(tmp_path / name, [*tiny("transformer"), *FEW, *overrides])


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """trainer.compile=true leaves out the compiler, and with it rounding."""
    monkeypatch.setattr(trainer, "compile_layers", lambda model: compile_layers(model, backend="eager"))


@pytest.mark.usefixtures("traced")
def test_a_run_may_go_on_with_the_other_setting(
    train: Callable[..., Checkpoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["model.dropout=0", "validation.every=2", "trainer.log_every=1"]
    plain = train("plain", *options, "trainer.max_steps=4")
    for first, then in (("true", "false"), ("false", "true")):
        name = f"{first}-{then}"
        train(name, *options, "trainer.max_steps=2", f"trainer.compile={first}")
        assert_same_state(train(name, *options, "trainer.max_steps=4", f"trainer.compile={then}"), plain)
        assert records(tmp_path / name) == records(tmp_path / "plain")
        assert capsys.readouterr().err.count("compiling 4 layers: the first steps take longer\n") == 1


def test_what_the_compiler_cannot_do_is_one_line(
    train: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("C++ compile error\n\nfatal error: Python.h: No such file or directory\ncompilation terminated.")

    monkeypatch.setattr(trainer, "compile_layers", lambda model: compile_layers(model, backend=broken))
    with pytest.raises(WorkError) as failed:
        train("run", "trainer.max_steps=1", "trainer.compile=true")
    said = "fatal error: Python.h: No such file or directory"
    assert str(failed.value) == f"trainer.compile=true: a layer cannot be compiled here: {said}"


def test_without_a_compiler_that_is_said_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("there-is-no-such-compiler",))
    with pytest.raises(RequestError, match=r"trainer\.compile=true: there is no C\+\+ compiler here; install one"):
        require_compiler(COMPILED, CPU)
    require_compiler(compose(["model=transformer"]), CPU)


@pytest.mark.parametrize("preset", ["lstm", "cho", "bahdanau", "luong", "intra_attention"])
def test_a_family_without_layers_to_compile_says_which_have_some(preset: str) -> None:
    with pytest.raises(RequestError, match=f"; {preset} has none, transformer and decoder_only have"):
        compose([f"model={preset}", "trainer.compile=true"])


# By the compiler -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer-post", {}),
        ("transformer-rotary", {}),
        ("transformer-pre", {"attention_kernel": "plain"}),
        ("decoder_only-post", {}),
    ],
)
def test_compiled_layers_give_the_numbers_of_plain_ones(name: str, changes: dict[str, object]) -> None:
    plain, compiled = model_of(name, **changes), model_of(name, **changes)
    compile_layers(compiled)
    for shape in SHAPES[:8]:
        batch = batch_of(*shape)
        found, expected = loss_and_gradients(compiled, batch), loss_and_gradients(plain, batch)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_run_drops_out_and_can_be_repeated(train: Callable[..., Checkpoint], tmp_path: Path) -> None:
    """Dropout's draws are others than those of a plain run, and the same in every compiled one."""
    options = ["model.dropout=0.3", "trainer.max_steps=6", "trainer.log_every=1"]
    one, two = (train(name, *options, "trainer.compile=true") for name in ("one", "two"))
    assert_same_state(one, two)
    train("plain", *options)
    train("undropped", *options, "trainer.compile=true", "model.dropout=0")
    losses = {
        name: [record["loss"] for record in records(tmp_path / name) if "loss" in record]
        for name in ("one", "plain", "undropped")
    }
    assert losses["one"] != losses["plain"]
    assert losses["one"] != losses["undropped"]
    assert losses["one"] == pytest.approx(losses["plain"], rel=0.05)
