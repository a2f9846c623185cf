"""The same model translates the same on a GPU as on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.configuration import compose
from nmt.data.corpus import read_lines
from nmt.decoding.translator import Translator
from nmt.training.session import train

pytestmark = pytest.mark.gpu

FAMILIES = ["lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "decoder_only"]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_translations_are_equal_in_float32(
    family: str,
    tiny: Callable[[str], list[str]],
    corpus_folder: Path,
    gpu: torch.device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a model trained enough to be sure of its words. TensorFloat-32, cuDNN's default, is no float32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    options = ["trainer.device=cpu", "trainer.max_steps=100", "~data.test.test", f"run.dir={tmp_path}"]
    train(compose([*tiny(family), *options]))
    texts = list(read_lines(corpus_folder / "test.en"))
    found = {}
    for device in ("cpu", gpu.type):
        translator = Translator.load(tmp_path, device)
        assert next(translator.model.parameters()).device.type == device
        found[device] = translator.translate(texts, beam_size=1)
    here, there = found["cpu"], found[gpu.type]
    assert [one.tokens for one in there] == [one.tokens for one in here]
    assert [one.score for one in there] == pytest.approx([one.score for one in here], abs=1e-3)
    assert len({one.text for one in here}) > 2, "a model that always says the same proves nothing"
