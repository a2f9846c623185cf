"""Several processes are one: the same step, run, scores and end, whoever computes which part of it.

To the bit: a step of as many batches as processes, or of two batches on two processes, with dropout and all the rest,
since each batch's gradient is computed as by one process and the sum of two numbers has no order. Up to the order of
sums: more batches than that. Batches that are cut for want of batches: the same without dropout, which draws anew.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.configuration import compose
from nmt.data.batching import make_batch
from nmt.training import session
from nmt.training.checkpoint import BEST, LAST, Checkpoint, step_directories
from nmt.training.distributed import Processes, pieces_of_step
from nmt.training.loss import label_smoothed_loss
from nmt.training.monitor import read_metrics
from processes import at_loss, broken, ended, hasty_clock, out_of_memory, started
from tiny import FAMILIES, sentences, tiny_model

pytestmark = pytest.mark.invariant

Tiny = Callable[[str], list[str]]
FEW = ["data.max_train_pairs=60", "batch.tokens=150", "search.batch_tokens=60", "~data.test.test"]
EVERYTHING = [
    *FEW,  # 11 batches an epoch: in the last step of one, the second process has nothing to do
    "model.dropout=0.3",
    "batch.accumulate=2",
    "trainer.ema_decay=0.95",
    "tokenizer.sampling=true",
    "trainer.log_every=1",
    "validation.every=4",  # of several batches
]
PLAIN_DESCENT = [*FEW, "optimizer=sgd", "optimizer.lr=1.0", "trainer.ema_decay=0", "trainer.max_steps=7"]
PAST_VALIDATIONS = {"seconds", "validated_step", "best_bleu", "best_step", "validations_without_gain"}
SECONDS = 10 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
"""Within which all processes are gone after an error, a death or a signal: 10, where the machine is not overloaded."""


def train(run: Path, processes: int, *overrides: str, prepare: Callable[[int], Any] | None = None) -> Checkpoint:
    """A run by so many processes; one process is this one."""
    if processes == 1:
        session.train(compose([*overrides, f"run.dir={run}"]))
    else:
        ended(processes, run.parent / "said", ["train", *overrides, f"run.dir={run}"], prepare)
    return Checkpoint.open(run / "checkpoints" / LAST)


def assert_same(left: Checkpoint, right: Checkpoint, free: Iterable[str] = ("seconds",), **tolerance: float) -> None:
    """Weights, averages, optimizer and progress, to the bit where no tolerance is given."""
    tolerance = tolerance or {"rtol": 0, "atol": 0}
    states = [checkpoint.training_state() for checkpoint in (left, right)]
    for state in states:
        state["progress"] = {name: value for name, value in state["progress"].items() if name not in free}
    assert states[0]["progress"] == states[1]["progress"]
    assert left.weights().keys() == right.weights().keys()
    torch.testing.assert_close(left.weights(), right.weights(), **tolerance)
    torch.testing.assert_close(states[0].get("weights", {}), states[1].get("weights", {}), **tolerance)
    torch.testing.assert_close(states[0]["optimizer"]["state"], states[1]["optimizer"]["state"], **tolerance)


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """Of metrics.jsonl those of training or of validations, without what time makes of them."""
    timed = {"seconds", "target_tokens_per_s", "valid_seconds"}
    found = [record for record in read_metrics(run / "metrics.jsonl") if (kind == "valid") == ("valid_loss" in record)]
    return [{name: value for name, value in record.items() if name not in timed} for record in found]


# A step ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("accumulate", [1, 2, 3, 5])
def test_every_pair_of_a_step_is_in_one_piece(accumulate: int, processes: int) -> None:
    plan = np.array_split(np.random.default_rng(1).permutation(97), 11)
    for start in range(0, 11, accumulate):
        batches = plan[start : start + accumulate]
        shares = [Processes(rank, processes).share(batches, accumulate) for rank in range(processes)]
        pieces = [piece for share in shares for piece in share]
        found = sorted(np.concatenate([piece.indices for piece in pieces]).tolist())
        assert found == sorted(np.concatenate(batches).tolist())
        assert len({piece.key for piece in pieces}) == len(pieces), "each has its own chance"
        if len(batches) == accumulate:
            assert max(map(len, shares)) - min(map(len, shares)) <= (accumulate > processes)
        if accumulate >= processes:
            assert [piece.key for piece in pieces_of_step(batches, accumulate, processes)] == [
                (number,) for number in range(len(batches))
            ], "the chance of a batch does not depend on the number of processes"


def test_a_batch_with_fewer_pairs_than_parts() -> None:
    batches = [np.array([4]), np.array([7, 9, 8])]
    shares = [Processes(rank, 6).share(batches, 2) for rank in range(6)]
    assert [[piece.indices.tolist() for piece in share] for share in shares] == [[[4]], [[7]], [[9]], [[8]], [], []]


@pytest.mark.parametrize("name", FAMILIES)
def test_ragged_batches_accumulated_are_the_one_big_batch(name: str) -> None:
    """In float64: the gradients of a step's pieces, each divided by the tokens of the step, sum up to its gradient."""
    source = sentences([5, 2, 9, 3, 7, 2, 4, 6, 2, 3, 8], 11, seed=2)
    target = sentences([2, 7, 3, 9, 4, 3, 2, 5, 6, 2, 4], 11, seed=3)
    tokens = sum(map(len, target))

    def gradients(*pieces: Iterable[int]) -> dict[str, torch.Tensor]:
        model = tiny_model(name, source_vocabulary=11)
        for piece in pieces:
            batch = make_batch([source[i] for i in piece], [target[i] for i in piece])
            sums = label_smoothed_loss(model(batch), model.output, batch.target_output_BT, 0.1)
            (sums.loss / tokens).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}

    whole = gradients(range(11))
    assert any(gradient.abs().max() > 1e-3 for gradient in whole.values())
    batches = [np.arange(1), np.arange(1, 4), np.arange(4, 11)]
    for processes in (1, 4, 5):
        found = gradients(*(piece.indices.tolist() for piece in pieces_of_step(batches, 3, processes)))
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)


# A run -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family", ["lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "decoder_only"]
)
def test_two_processes_are_one_to_the_bit(family: str, tiny: Tiny, tmp_path: Path) -> None:
    """With dropout, moving average, sampled segmentation, uneven data and validations, whose scores are the same."""
    options = [*tiny(family), *EVERYTHING, "trainer.max_steps=7"]
    one, two = train(tmp_path / "one", 1, *options), train(tmp_path / "two", 2, *options)
    assert one.meta["epoch"] == 1, "the first epoch ends on the way"
    assert_same(one, two)
    valid, expected = (records(tmp_path / name, "valid") for name in ("two", "one"))
    assert len(expected) == 2
    assert valid == expected
    for record, reference in zip(records(tmp_path / "two", "train"), records(tmp_path / "one", "train"), strict=True):
        assert record == pytest.approx(reference, rel=1e-5)


@pytest.mark.parametrize(("accumulate", "processes", "dropout"), [(3, 2, 0.3), (1, 2, 0)])
def test_other_numbers_are_one_but_for_the_order_of_sums(
    accumulate: int, processes: int, dropout: float, tiny: Tiny, tmp_path: Path
) -> None:
    """More batches than processes; and fewer, where a batch is cut and dropout would draw other numbers."""
    options = [*tiny("luong"), *PLAIN_DESCENT, f"batch.accumulate={accumulate}", f"model.dropout={dropout}"]
    one, several = train(tmp_path / "one", 1, *options), train(tmp_path / "several", processes, *options)
    assert_same(one, several, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(weight, several.weights()[name]) for name, weight in one.weights().items())


@pytest.mark.parametrize("family", ["bahdanau", pytest.param("transformer", marks=pytest.mark.slow)])
def test_sharded_is_the_same_run(family: str, tiny: Tiny, tmp_path: Path) -> None:
    """Up to the order in which the squares of the gradient's norm are added. Resumed with shares, and without."""
    options = [*tiny(family), *EVERYTHING, "optimizer=sgd", "optimizer.momentum=0.9"]
    whole = train(tmp_path / "whole", 1, *options, "trainer.max_steps=8")
    for steps, processes in ((2, 1), (7, 2), (8, 1)):
        sharded = ["trainer.sharding=full", f"trainer.max_steps={steps}"]
        parts = train(tmp_path / "parts", processes, *options, *sharded)
        assert parts.step == steps
    assert_same(whole, parts, free=PAST_VALIDATIONS, rtol=1e-5, atol=1e-6)


def test_resumed_with_another_number_of_processes(tiny: Tiny, tmp_path: Path) -> None:
    options = [*tiny("bahdanau"), *EVERYTHING]
    whole = train(tmp_path / "whole", 1, *options, "trainer.max_steps=8")
    for processes, steps in ((2, 3), (1, 5), (2, 8)):
        parts = train(tmp_path / "parts", processes, *options, f"trainer.max_steps={steps}")
        assert parts.step == steps
    assert_same(whole, parts, free=PAST_VALIDATIONS)


@pytest.mark.case
def test_uneven_data_and_patience_end_all(tiny: Tiny, tmp_path: Path) -> None:
    """101 batches of one pair each, two a step; the second validation, at the end of epoch 2, is not better."""
    options = [*tiny("lstm"), *FEW, "data.max_train_pairs=101", "batch.tokens=1", "batch.accumulate=2"]
    options += ["optimizer.lr=1e-12", "validation.every=51", "trainer.patience=1", "trainer.max_epochs=9"]
    where = tmp_path / "several"
    ended(
        2, tmp_path / "said", ["train", *options, f"run.dir={where}/${{now:%f}}"]
    )  # microseconds: not the same in all
    (run,) = where.iterdir()
    two, one = Checkpoint.open(run / "checkpoints" / LAST), train(tmp_path / "one", 1, *options)
    assert (two.step, two.meta["epoch"], two.meta["batch"], two.meta["best_step"]) == (102, 1, 101, 51)
    assert_same(one, two)
    assert records(run, "valid") == records(tmp_path / "one", "valid")


def test_the_first_clock_decides_for_all(tiny: Tiny, tmp_path: Path) -> None:
    options = [*tiny("lstm"), *EVERYTHING, "validation.every=1000", "trainer.max_minutes=0.01"]
    last = train(tmp_path / "run", 2, *options, prepare=hasty_clock)
    assert 0.6 <= last.meta["seconds"] < 60


def test_a_sweep(tiny: Tiny, tmp_path: Path) -> None:
    """One member after the other, each by both processes; one that is refused is told once, and ends with status 1."""
    sweep = ["train", "-m", *tiny("lstm"), *FEW, "tokenizer.vocab_size=16,90", "trainer.max_steps=2"]
    where = f'run.dir="{tmp_path}/${{tokenizer.vocab_size}}"'
    with started(2, tmp_path / "said", [*sweep, where]) as group:
        assert group.end() == [1, 1]
        assert group.said(0).count("nmt: error: tokenizer.vocab_size=16 is too small") == 1
        assert group.said(1) == ""
    assert Checkpoint.open(tmp_path / "90" / "checkpoints" / LAST).step == 2


# The end ---------------------------------------------------------------------------------------------------------


def lasted(moment: Path) -> float:
    """Seconds since the moment that a process noted."""
    return time.time() - float(moment.read_text())


def endless(tiny: Tiny, run: Path) -> list[str]:
    return ["train", *tiny("bahdanau"), *EVERYTHING, "trainer.max_steps=100000", f"run.dir={run}"]


@pytest.mark.case
@pytest.mark.parametrize(
    ("place", "number", "status"), [("trainer", signal.SIGINT, 130), ("validation", signal.SIGTERM, 143)]
)
def test_a_signal_to_one_stops_all_after_the_same_step(
    place: str, number: int, status: int, tiny: Tiny, tmp_path: Path
) -> None:
    """In training, and in the middle of a validation. What is saved goes on, by one process, to the same run."""
    moment, run = tmp_path / "moment", tmp_path / "run"
    act = functools.partial(at_loss, who=1, call=3 if place == "trainer" else 1, moment=moment, place=place)
    act = functools.partial(act, action=functools.partial(signal.raise_signal, number))
    options = [*tiny("bahdanau"), *EVERYTHING]
    with started(2, tmp_path / "said", ["train", *options, f"run.dir={run}"], act) as group:
        assert group.end() == [status, status]
        assert lasted(moment) < SECONDS
        step = Checkpoint.open(run / "checkpoints" / LAST).step
        assert step == (3 if place == "trainer" else 4)
        assert group.said(0).splitlines()[-1] == f"nmt: stopped at step {step}, saved"
        assert group.said(1) == ""
    whole = train(tmp_path / "whole", 1, *options, "trainer.max_steps=6")
    assert_same(whole, train(run, 1, *options, "trainer.max_steps=6"))


@pytest.mark.case
@pytest.mark.parametrize(
    ("action", "said"),
    [
        (out_of_memory, r"nmt: error: process 1: out of memory with a batch of \d+ pairs"),
        (broken, r"nmt: error: process 1: ValueError: shapes do not match"),
        (
            functools.partial(signal.raise_signal, signal.SIGKILL),
            r"nmt: error: another process of this training has died",
        ),
    ],
    ids=["memory", "mistake", "killed"],
)
def test_an_error_in_one_ends_all(action: Callable[[], None], said: str, tiny: Tiny, tmp_path: Path) -> None:
    """In one line of the first process; the last checkpoint stays."""
    moment, run = tmp_path / "moment", tmp_path / "run"
    act = functools.partial(at_loss, who=1, call=6, moment=moment, action=action)
    with started(2, tmp_path / "said", endless(tiny, run), act) as group:
        assert group.end() == [1, -signal.SIGKILL if "died" in said else 1]
        assert lasted(moment) < SECONDS
        assert re.match(said, group.said(0).splitlines()[-1])
        assert group.said(0).count("nmt: error") == 1
        assert group.said(1) == ""
    assert Checkpoint.open(run / "checkpoints" / BEST).step == 4


@pytest.mark.case
def test_a_refused_request_is_told_once(tiny: Tiny, tmp_path: Path) -> None:
    """Without data; and a run that is being trained, which the first process alone can see."""
    run = tmp_path / "run"
    (run / "x").mkdir(parents=True)
    with session.only_one(run):
        for override, told in (
            (f"data.dir={tmp_path}/none", "none"),
            (f"run.dir={run}", "another process is training there"),
        ):
            arguments = [*endless(tiny, tmp_path / "other"), override]
            with started(2, tmp_path / "said", arguments) as group:
                assert group.end() == [2, 2]
                assert re.search(rf"^nmt: error: .*{told}.*\n\Z", group.said(0), re.MULTILINE)
                assert group.said(1) == ""


def children(process: int) -> set[int]:
    """The processes that a process has started and that still run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.mark.case
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_torchrun(number: int, tiny: Tiny, tmp_path: Path) -> None:
    """Ctrl-C, or SIGTERM, to torchrun itself, without a port that others could hold; resumed by one process."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "nmt", *endless(tiny, run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as torchrun:
        until = time.monotonic() + 120
        while not records(run, "train"):
            assert torchrun.poll() is None, torchrun.stderr
            assert time.monotonic() < until
            time.sleep(0.02)
        workers = children(torchrun.pid)
        assert len(workers) == 2
        torchrun.send_signal(number)
        out, err = torchrun.communicate(timeout=SECONDS)
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    (saved,) = step_directories(run / "checkpoints")[-1:]
    step = Checkpoint.open(saved).step
    assert out == ""
    assert err.count(f"nmt: stopped at step {step}, saved\n") == 1
    options = [*tiny("bahdanau"), *EVERYTHING, f"trainer.max_steps={step + 2}"]
    assert_same(train(tmp_path / "whole", 1, *options), train(run, 1, *options))
