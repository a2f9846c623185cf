"""The keys and values of the positions already decoded: a value, not a module's hidden state.

`append` returns a new cache and leaves the old one as it was, so a search may keep, reorder or drop states freely.

Shapes: R rows, H heads, T positions so far, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.models.base import Rows


@dataclass(frozen=True)
class KeyValueCache(Rows):
    """Keys and values (R, H, T, K) of one layer; None before the first position."""

    keys_RHTK: Tensor | None = None
    values_RHTK: Tensor | None = None

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.keys_RHTK is None else self.keys_RHTK.shape[2]

    @property
    def keys(self) -> tuple[Tensor, Tensor]:
        """Keys and values; raises AssertionError on an empty cache."""
        assert self.keys_RHTK is not None and self.values_RHTK is not None
        return self.keys_RHTK, self.values_RHTK

    def append(self, keys_RH1K: Tensor, values_RH1K: Tensor) -> KeyValueCache:
        """A cache that holds the new position as well."""
        if self.length == 0:
            return KeyValueCache(keys_RH1K, values_RH1K)
        keys, values = self.keys
        return KeyValueCache(torch.cat((keys, keys_RH1K), dim=2), torch.cat((values, values_RH1K), dim=2))
