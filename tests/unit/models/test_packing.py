"""A batch without its padding: the same numbers as with it, by every way of computing that there is on a CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nmt.configuration import compose
from nmt.data.batching import make_batch
from nmt.data.tokenizer import PAD
from nmt.errors import RequestError
from nmt.models.packing import Blocks, FlexBlocks, Packing
from nmt.models.transformer import Transformer
from nmt.training.device import require_kernel
from tiny import BLOCKS, SOURCE_VOCABULARY, coefficients, sentences, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

BATCH = make_batch(sentences([5, 1, 7, 3], SOURCE_VOCABULARY), sentences([4, 6, 1, 3]))
REAL_BT = BATCH.target_input_BT != PAD


def packing_of(real_BT: Tensor) -> Packing:
    return Packing.of(real_BT.long(), real_BT.flatten().nonzero().squeeze(1))


def test_a_row_of_real_positions_and_back() -> None:
    tokens_BT = torch.tensor([[7, 8, 0], [9, 0, 0], [4, 5, 6]])
    packing = packing_of(tokens_BT != PAD)
    assert packing.pack(tokens_BT).tolist() == [[7, 8, 9, 4, 5, 6]]
    assert packing.sentence_P.tolist() == [0, 0, 1, 2, 2, 2]
    assert packing.position_1P.tolist() == [[0, 1, 0, 0, 1, 2]]
    assert packing.offsets.tolist() == [0, 2, 3, 6]
    x_1PD = torch.arange(1.0, 7.0).view(1, 6, 1)
    assert packing.unpack(x_1PD).squeeze(2).tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


def test_who_sees_whom() -> None:
    """Two sentences of 2 and 1 pieces look at two of 1 and 3, and back at themselves."""
    target, source = (packing_of(torch.arange(3) < torch.tensor(lengths)[:, None]) for lengths in ([2, 1], [1, 3]))
    assert Blocks(target, source).mask_QS.int().tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1]]
    assert Blocks(target, target, causal=True).mask_QS.int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def hidden_and_gradients(model: Transformer) -> tuple[Tensor, tuple[Tensor, ...]]:
    hidden_BTD = model(BATCH)
    weights = [weight for name, weight in model.named_parameters() if not name.startswith("output.")]
    return hidden_BTD, torch.autograd.grad((coefficients(hidden_BTD) * hidden_BTD)[REAL_BT].sum(), weights)


@pytest.mark.invariant
@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_packed_is_padded(block: str) -> None:
    padded, packed = (tiny_model(f"transformer-{block}", attention_kernel=kernel) for kernel in ("fused", "plain"))
    expected, wanted = hidden_and_gradients(padded)
    found, gradients = hidden_and_gradients(packed)
    torch.testing.assert_close(found[REAL_BT], expected[REAL_BT], rtol=0, atol=1e-12)
    assert torch.all(found[~REAL_BT] == 0)
    torch.testing.assert_close(gradients, wanted, rtol=0, atol=1e-11)


@pytest.mark.invariant
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@torch.no_grad()
def test_flex_attention_is_the_plain_mask(dtype: torch.dtype, tolerance: float) -> None:
    """Forward: on a CPU it has no other."""
    plain, flex = (
        tiny_model("transformer-rotary", dtype=dtype, attention_kernel=kernel) for kernel in ("plain", "flex")
    )
    assert flex.blocks is FlexBlocks
    torch.testing.assert_close(flex(BATCH), plain(BATCH), rtol=0, atol=tolerance)


def test_no_layer_sees_padding() -> None:
    model = tiny_model("transformer-pre", attention_kernel="plain")
    seen: list[int] = []
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[:-1].numel()))
    model(BATCH)
    assert set(seen) == {5 + 1 + 7 + 3, 4 + 6 + 1 + 3}


def test_what_is_not_chosen_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packing, "of", None)
    tiny_model("transformer-pre")(BATCH)
    model = tiny_model("transformer-pre", attention_kernel="plain")
    model.start(model.encode(BATCH.source_BS))  # nor in a search, whatever is chosen
    with pytest.raises(TypeError):
        model(BATCH)


def test_what_cannot_run_here_is_said_before_training() -> None:
    def refusal(*overrides: str) -> str:
        with pytest.raises(RequestError) as refused:
            require_kernel(compose(["model=transformer", *overrides]), torch.device("cpu"))
        return str(refused.value)

    assert "model.attention_kernel=flex: FlexAttention has no backward pass" in refusal("model.attention_kernel=flex")
    assert "=varlen: is a kernel of GPUs in bfloat16" in refusal("model.attention_kernel=varlen")
    assert "needs model.attention_dropout=0" in refusal("model.attention_kernel=plain", "model.attention_dropout=0.1")
    for kernel in ("fused", "plain"):
        require_kernel(compose(["model=transformer", f"model.attention_kernel={kernel}"]), torch.device("cpu"))
    require_kernel(compose(["model=luong"]), torch.device("cpu"))
