"""What the tests that need a GPU share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def gpu() -> torch.device:
    """The GPU. Without one, which only happens where these tests are asked for by name or marker, they are skipped."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU here")
    return torch.device("cuda")
