"""batch.tokens=auto: what is tried never goes beyond the limit, nothing that training meets beyond what was tried."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nmt.config import TrainConfig
from nmt.configuration import compose, load_config
from nmt.data.batching import make_batch
from nmt.data.encoded import EncodedCorpus, EncodedSide
from nmt.errors import RequestError, WorkError
from nmt.training import budget
from nmt.training.budget import LiveMemory, copies, find_tokens, most_rows, step_memory
from nmt.training.loss import label_smoothed_loss
from nmt.training.session import train
from tiny import sentences, tiny_model

CPU = torch.device("cpu")
LENGTH = 9


# Which sizes are tried -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [0, 50, 900])
@pytest.mark.parametrize("need", [lambda rows: 3 * rows, lambda rows: 40 * math.sqrt(rows)], ids=["linear", "concave"])
def test_nothing_tried_exceeds_the_limit_and_the_last_is_near_it(need: Callable[[int], float], fixed: int) -> None:
    tried: list[float] = []

    def needed(rows: int) -> float:
        tried.append(fixed + need(rows))
        return tried[-1]

    rows, taken = most_rows(needed, limit=1_000, most=100_000)
    assert taken == fixed + need(rows) == max(tried)
    assert tried[:2] == [fixed + need(1), fixed + need(2)]
    assert max(tried) <= 1_000 < fixed + need(math.ceil(1.06 * rows) + 1)
    assert len(tried) < 20


def test_the_most_that_is_wanted_is_tried_and_not_more() -> None:
    assert most_rows(lambda rows: rows, limit=1_000, most=77) == (77, 77)
    assert most_rows(lambda rows: rows, limit=1_000, most=1) == (1, 1)


def test_a_need_that_jumps_is_gone_back_from() -> None:
    rows, taken = most_rows(lambda rows: rows if rows <= 40 else math.inf, limit=1_000, most=10_000)
    assert 30 <= rows <= 40
    assert taken == rows


def test_nothing_fits() -> None:
    assert most_rows(lambda rows: 2_000, limit=1_000, most=5) == (0, 2_000)


# What a step takes -----------------------------------------------------------------------------------------------


def test_bytes_are_counted_from_the_making_of_a_tensor_to_its_end() -> None:
    before = torch.zeros(1_000, dtype=torch.float64)
    model = torch.nn.Linear(3, 3)
    with LiveMemory(model) as live:
        one = before + 1  # type: ignore[operator]
        assert (live.now, live.peak) == (8_000, 8_000)
        view = one[:10].view(2, 5)
        before.add_(1)
        model.weight.detach().mul_(2)
        assert live.now == 8_000, "views, and what there was before, take nothing"
        two = one * 2
        del one, two
        assert (live.now, live.peak) == (8_000, 16_000), "a view keeps all of what it is a view of"
        del view
        assert (live.now, live.peak) == (0, 16_000)


def config_of(name: str, *overrides: str) -> TrainConfig:
    return compose([f"model={name.partition('-')[0]}", *overrides])


@pytest.mark.parametrize("name", ["bahdanau", "cho", "lstm-reversed", "transformer-post"])
def test_no_batch_of_a_budget_takes_more_than_the_worst(name: str) -> None:
    """Whatever the lengths, up to the longest; and the model is left as it was."""
    model, config = tiny_model(name).train(False), config_of(name)
    tokens = 4 * LENGTH
    extremes = [step_memory(config, model, tokens // length, length, CPU) for length in (LENGTH, 2)]
    worst = max(extremes)
    assert step_memory(config, model, tokens // 2, 2, CPU) == extremes[1], "the same in every attempt"
    assert all(weight.grad is None for weight in model.parameters())
    assert not model.training
    model.train()
    for source, target in ((LENGTH, 5), (4, 6), (3, 2)):
        rows = tokens // max(source, target)
        batch = make_batch(sentences([source] * rows), sentences([target] * rows))
        gc.collect()
        with LiveMemory(model) as live:
            sums = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, 0.1)
            sums.loss.backward()
            del sums
        model.zero_grad(set_to_none=True)
        assert 0 < live.peak <= worst


def corpus_of(lengths: list[int]) -> EncodedCorpus:
    rows = [np.array(row, dtype=np.uint16) for row in sentences(lengths)]
    side = EncodedSide(np.concatenate(rows), np.cumsum([0, *lengths]))
    return EncodedCorpus(side, side)


def test_more_memory_is_a_larger_budget_and_all_of_it_fits() -> None:
    model, config = tiny_model("transformer-post"), config_of("transformer")
    corpus = corpus_of([3, 17, LENGTH, 4] * 10_000)
    said: list[str] = []
    found = {}
    for megabytes in (1, 4):
        config.batch.memory_mb = megabytes
        found[megabytes] = find_tokens(config, model, corpus, CPU, said.append)
        assert found[megabytes] % 17 == 0
        kept = copies(config) * sum(weight.numel() * 8 for weight in model.parameters())
        rows = found[megabytes] // 17
        assert kept + step_memory(config, model, rows, 17, CPU) <= megabytes * 1e6
        assert kept + step_memory(config, model, rows + rows // 10 + 1, 17, CPU) > megabytes * 1e6
    assert 3 * found[1] < found[4]
    assert said[0].startswith(f"batch.tokens=auto: {found[1]}; the worst batch, {found[1] // 17} pairs of 17 pieces,")
    assert said[0].endswith("of 1.0 MB")
    assert len(said) == 2


def test_an_epoch_keeps_a_hundred_batches_and_too_little_memory_is_said_in_a_line() -> None:
    model, config = tiny_model("lstm-reversed"), config_of("lstm")
    said: list[str] = []
    assert find_tokens(config, model, corpus_of([5, 10] * 1_000), CPU, said.append) == 150
    assert said[0].startswith("batch.tokens=auto: 150, as an epoch has 100 batches then; the worst batch, 15 pairs")
    config.batch.memory_mb = 1
    with pytest.raises(WorkError, match=r"one pair of 500 pieces take .* MB of 1\.0: raise batch\.memory_mb"):
        find_tokens(config, model, corpus_of([500]), CPU, said.append)


def test_sampled_segmentations_may_be_as_long_as_the_filter_allows() -> None:
    model, config = (
        tiny_model("lstm-reversed"),
        config_of("lstm", "data.filter.max_pieces=30", "tokenizer.sampling=true"),
    )
    assert find_tokens(config, model, corpus_of([5] * 2_000), CPU, lambda line: None) == 3 * 31


# The limit -------------------------------------------------------------------------------------------------------


def test_the_limit_is_a_share_of_the_least_memory_above_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("90000000\n")
    (tmp_path / "a" / "memory.current").write_text("10000000\n")
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    monkeypatch.setattr(budget, "_cgroups", lambda find=budget._cgroups: find(tmp_path, tmp_path / "cgroup"))
    assert budget.memory_limit(None, CPU) == 36e6
    (tmp_path / "a" / "memory.current").write_text("60000000\n")
    assert budget.memory_limit(None, CPU) == 15e6, "half of what is left"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "3" if name == "WORLD_SIZE" else "0")
    assert budget.memory_limit(None, CPU) == 5e6
    assert budget.memory_limit(7, CPU) == 7e6


# A run -----------------------------------------------------------------------------------------------------------


def test_a_run_keeps_what_was_found_and_is_the_run_of_that_number(
    tiny: Callable[[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*tiny("lstm"), "~data.test.test", "validation.sentences=2", "trainer.save_every=2"]

    def weights(run: str, *overrides: str) -> dict[str, torch.Tensor]:
        train(compose([*options, *overrides, f"run.dir={tmp_path / run}"]))
        return load_file(tmp_path / run / "checkpoints" / "last" / "model.safetensors")

    weights("auto", "batch.tokens=auto", "trainer.max_steps=2")
    found = load_config(tmp_path / "auto" / "config.yaml").batch.tokens
    assert isinstance(found, int)
    assert f"batch.tokens=auto: {found}, as an epoch" in capsys.readouterr().err
    continued = weights("auto", "batch.tokens=auto", "batch.memory_mb=1", "trainer.max_steps=4")
    assert "batch.tokens=auto" not in capsys.readouterr().err, "found once"
    assert load_config(tmp_path / "auto" / "config.yaml").batch.tokens == found
    chosen = weights("number", f"batch.tokens={found}", "trainer.max_steps=4")
    assert all(torch.equal(weight, chosen[name]) for name, weight in continued.items())


def test_shares_of_the_weights_are_not_measured() -> None:
    with pytest.raises(RequestError, match=r"batch\.tokens=auto: is measured with whole weights"):
        compose(["batch.tokens=auto", "trainer.sharding=full"])
