"""The keys and values of the positions already decoded: a value, not a module's hidden state.

`append` and `select` return a new cache and leave the old one as it was, so a search may keep, reorder or drop states
freely. Choosing rows costs nothing by itself: it is remembered, and done while the next position is written, since
both copy all that is held. The position is the first dimension in memory, so that copy is one straight run.

Shapes: R rows, H heads, T positions so far, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nmt.models.base import Rows


@dataclass(frozen=True)
class KeyValueCache(Rows):
    """Keys and values of one layer; None before the first position."""

    keys_TRHK: Tensor | None = None
    values_TRHK: Tensor | None = None
    chosen_R: Tensor | None = None
    """Which of the stored rows are meant; None: all, as they stand."""

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.keys_TRHK is None else len(self.keys_TRHK)

    @property
    def keys(self) -> tuple[Tensor, Tensor]:
        """Keys and values, each (R, H, T, K); raises AssertionError on an empty cache."""
        assert self.keys_TRHK is not None and self.values_TRHK is not None
        return self._chosen(self.keys_TRHK).permute(1, 2, 0, 3), self._chosen(self.values_TRHK).permute(1, 2, 0, 3)

    def append(self, keys_RH1K: Tensor, values_RH1K: Tensor) -> KeyValueCache:
        """A cache that holds the new position as well."""
        new_keys, new_values = keys_RH1K.permute(2, 0, 1, 3), values_RH1K.permute(2, 0, 1, 3)
        if self.keys_TRHK is None or self.values_TRHK is None:
            return KeyValueCache(new_keys, new_values)
        return KeyValueCache(
            torch.cat((self._chosen(self.keys_TRHK), new_keys)),
            torch.cat((self._chosen(self.values_TRHK), new_values)),
        )

    def select(self, index: Tensor) -> Self:
        """The same cache for the rows `index`."""
        chosen_R = index if self.chosen_R is None else self.chosen_R.index_select(0, index)
        return type(self)(self.keys_TRHK, self.values_TRHK, chosen_R)

    def _chosen(self, stored_TRHK: Tensor) -> Tensor:
        return stored_TRHK if self.chosen_R is None else stored_TRHK.index_select(1, self.chosen_R)
