"""How this process was started: alone, or by `torchrun` as one of several. Read without bringing PyTorch."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """What a launcher says to each process that it starts, as environment variables."""

    rank: int = 0
    """This process's number among all."""
    size: int = 1
    """Number of processes, those on other machines included."""
    local_rank: int = 0
    """This process's number among those on this machine: the number of its GPU."""
    local_size: int = 1
    """Number of processes on this machine."""

    @classmethod
    def from_environment(cls) -> Launch:
        """As torchrun, and every launcher that follows it, sets RANK, WORLD_SIZE and the like; else alone."""
        found = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
        return cls(*map(int, found)) if all(value.isdecimal() for value in found) else cls()
