"""What every test gets: a cache of its own, one thread, and the default choice of which tests run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests run side by side, a process each; PyTorch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Corpora that a test makes are kept for the session only, never in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out `slow` tests and, where there is no GPU, `gpu` tests, unless -m or a test's own name asks for them."""
    if config.option.markexpr or any("::" in argument for argument in config.args):
        return
    without = {"slow"} if _has_gpu(items) else {"slow", "gpu"}
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in without)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _has_gpu(items: list[pytest.Item]) -> bool:
    if not any(item.get_closest_marker("gpu") for item in items):
        return False
    import torch

    return torch.cuda.is_available()
