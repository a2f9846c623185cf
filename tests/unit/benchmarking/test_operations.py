"""The formulas of floating-point operations against what PyTorch counts in the models themselves."""

from __future__ import annotations

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarking.operations import forward_operations, training_operations
from nmt.config import ModelConfig
from nmt.configuration import compose
from nmt.data.batching import Batch, make_batch
from nmt.training.loss import label_smoothed_loss
from tiny import CONFIGS, FAMILIES, MODELS, SOURCE_VOCABULARY, TARGET_VOCABULARY, sentences, tiny_model


def counted(name: str, batch: Batch, backward: bool) -> int:
    """What PyTorch counts, in the attention that it can count and in float64, where it sees into the recurrent ones."""
    model = tiny_model(name).requires_grad_(backward)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        sums = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, 0.1)
        if backward:
            sums.loss.backward()
    return counter.get_total_flops()


def vocabulary(name: str) -> int:
    joint = CONFIGS[name].tie_embeddings
    return max(SOURCE_VOCABULARY, TARGET_VOCABULARY) if joint else TARGET_VOCABULARY


@pytest.mark.parametrize("name", MODELS)
def test_forward_operations_are_those_that_pytorch_counts(name: str) -> None:
    """To the last one, where there is no padding."""
    source, target = [7, 7], [4, 4]
    batch = make_batch(sentences(source), sentences(target))
    formula = forward_operations(CONFIGS[name], vocabulary(name), source, target)
    assert counted(name, batch, backward=False) == formula.sum()


@pytest.mark.parametrize("name", FAMILIES)
def test_training_is_three_times_the_forward_pass(name: str) -> None:
    """All but what matters less the longer the sentences are and the larger the vocabulary is: gradients of what is
    constant, such as a first state of zeros, are not computed, and sums may be products with ones."""
    batch = make_batch(sentences([30, 30]), sentences([25, 25]))
    formula = training_operations(CONFIGS[name], vocabulary(name), [30, 30], [25, 25]).sum()
    found = counted(name, batch, backward=True)
    assert found == pytest.approx(formula, rel=0.03)


@pytest.mark.parametrize("name", FAMILIES)
def test_padding_is_no_work_of_the_model(name: str) -> None:
    source, target = [7, 3, 5], [4, 6, 1]
    together = make_batch(sentences(source), sentences(target))
    formula = forward_operations(CONFIGS[name], vocabulary(name), source, target)
    alone = [forward_operations(CONFIGS[name], vocabulary(name), s, t) for s, t in zip(source, target, strict=True)]
    assert formula.tolist() == alone
    assert counted(name, together, backward=False) > formula.sum()


def test_the_tiny_transformer_costs_what_the_plan_says() -> None:
    """About 13.6 MFLOP a target token at a vocabulary of 8,000 and the lengths of captions."""
    model = compose(["model=transformer_tiny"]).model
    assert training_operations(model, 8_000, 15, 17) / 17 == pytest.approx(13.6e6, rel=0.1)


def test_a_model_without_formula_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="no formula for ModelConfig"):
        forward_operations(ModelConfig("none", "none"), 9, 1, 1)
