"""A run as training leaves it, of one step only: the smallest that can be continued, scored, averaged and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def one_step_run(tiny: Callable[[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    from nmt.configuration import compose
    from nmt.training.session import train

    run = tmp_path_factory.mktemp("runs") / "one step"
    few = ["data.max_train_pairs=60", "validation.sentences=5", "trainer.max_steps=1", "trainer.ema_decay=0"]
    train(compose([*tiny("luong"), *few, f'run.dir="{run}"']))
    return run


@pytest.fixture
def run(one_step_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(one_step_run, tmp_path / "run", symlinks=True))
