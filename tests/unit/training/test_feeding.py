"""Batches made one ahead are the batches that are made in their turn, and a run that is fed so is the same run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import runs
from nmt.data.batching import Batch, make_batch
from nmt.training import feeding
from nmt.training.feeding import Feed
from nmt.training.interruption import Interrupted
from runs import EVERYTHING, assert_same_state, records, signal_after
from tiny import sentences

CPU = torch.device("cpu")
TEXT = sentences([3, 1, 4, 1, 5, 9, 2, 6])
FIRST, SECOND, THIRD = np.array([0, 1, 2]), np.array([3, 4]), np.array([5, 6, 7])


@pytest.fixture
def made() -> list[list[int]]:
    """The pairs of each batch that was made, in order."""
    return []


@pytest.fixture
def feed(made: list[list[int]]) -> Feed:
    def make(indices: NDArray[np.int64]) -> Batch:
        made.append(indices.tolist())
        chosen = [TEXT[i] for i in indices]
        return make_batch(chosen, chosen)

    return Feed(make, CPU)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU is treated as a device that computes while the host goes on; memory is not pinned."""
    monkeypatch.setattr(feeding, "AHEAD", ("cpu",))


@pytest.mark.usefixtures("ahead")
def test_what_was_made_ahead_is_taken_once(feed: Feed, made: list[list[int]]) -> None:
    feed.prepare(FIRST)
    assert made == [[0, 1, 2]]
    first = feed.take(FIRST.copy())  # the same pairs, whichever array says so
    assert made == [[0, 1, 2]]
    assert first.source_lengths_B.tolist() == [3, 1, 4]
    assert feed.take(FIRST) is not first
    assert made == [[0, 1, 2]] * 2


@pytest.mark.usefixtures("ahead")
def test_what_is_not_asked_for_is_forgotten(feed: Feed) -> None:
    feed.prepare(FIRST)
    assert feed.take(SECOND).source_lengths_B.tolist() == [1, 5]
    feed.prepare(SECOND)
    feed.prepare(THIRD)
    assert feed.take(THIRD).source_lengths_B.tolist() == [9, 2, 6]


@pytest.mark.usefixtures("ahead")
def test_what_cannot_be_made_is_said_when_it_is_its_turn(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> Batch:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(feed, "make", fail)
    feed.prepare(FIRST)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        feed.take(FIRST)


def test_on_a_cpu_a_batch_is_made_when_it_is_its_turn(feed: Feed, made: list[list[int]]) -> None:
    feed.prepare(FIRST)
    assert made == []


@pytest.mark.invariant
def test_a_run_fed_ahead_is_the_same_run_and_goes_on_from_the_same_place(
    tiny: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two epochs and a half with two batches a step, interrupted in the middle of an epoch and at the end of one,
    when a batch has been made that is not trained on. Segmentations are drawn anew in each epoch, so a batch of an
    epoch before would be noticed."""
    options = [*tiny("lstm"), *EVERYTHING, "trainer.max_steps=13"]
    whole = runs.train(tmp_path / "whole", options)
    assert whole.meta["epoch"] >= 2
    monkeypatch.setattr(feeding, "AHEAD", ("cpu",))
    unused: list[object] = []
    for step in (2, 5):
        with monkeypatch.context() as patch:
            signal_after(step, signal.SIGTERM, patch)
            feeds: list[Feed] = []
            patch.setattr(Feed, "prepare", noting(feeds))
            with pytest.raises(Interrupted):
                runs.train(tmp_path / "parts", options)
            unused.append(feeds[-1]._next)
    parts = runs.train(tmp_path / "parts", options)
    assert any(batch is not None for batch in unused), "something had been made ahead"
    assert_same_state(parts, whole)
    assert records(tmp_path / "parts") == records(tmp_path / "whole")


def noting(feeds: list[Feed]) -> Callable[[Feed, NDArray[np.int64]], None]:
    prepare = Feed.prepare

    def noted(self: Feed, indices: NDArray[np.int64]) -> None:
        feeds.append(self)
        prepare(self, indices)

    return noted
