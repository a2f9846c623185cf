"""The keys and values of the positions already decoded: a value, not a module's hidden state.

`append` and `select` return a new cache and leave the old one as it was, so a search may keep, reorder or drop states
freely. Neither copies what it need not. Choosing rows is remembered, and done while the next position is written. A
position is written into room that is there beforehand, which a cache shares with those that it was made from: each
looks at its own length of it, and only one that reaches to the end of what is written may go on writing; any other
copies. The position is the first dimension in memory, so a copy is one straight run.

Shapes: R rows, H heads, T positions so far, C positions that there is room for, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nmt.models.base import Rows

ROOM = 32
"""Positions that a new store has room for, beyond what is copied into it."""


@dataclass
class _Store:
    """Keys and values, of which the first `written` positions hold something."""

    keys_CRHK: Tensor
    values_CRHK: Tensor
    written: int


@dataclass(frozen=True)
class KeyValueCache(Rows):
    """Keys and values of one layer; none before the first position."""

    length: int = 0
    """Positions held."""
    store: _Store | None = None
    chosen_R: Tensor | None = None
    """Which of the stored rows are meant; None: all, as they stand."""

    @property
    def keys(self) -> tuple[Tensor, Tensor]:
        """Keys and values, each (R, H, T, K); raises AssertionError on an empty cache."""
        keys_TRHK, values_TRHK = self._held()
        if self.chosen_R is not None:
            keys_TRHK, values_TRHK = (part.index_select(1, self.chosen_R) for part in (keys_TRHK, values_TRHK))
        return keys_TRHK.permute(1, 2, 0, 3), values_TRHK.permute(1, 2, 0, 3)

    def append(self, keys_RH1K: Tensor, values_RH1K: Tensor) -> KeyValueCache:
        """A cache that holds the new position as well."""
        new = keys_RH1K.permute(2, 0, 1, 3), values_RH1K.permute(2, 0, 1, 3)
        if torch.is_grad_enabled() and any(part.requires_grad for part in new):  # then nothing is changed in place
            store = self._joined(new)
        else:
            store = self._roomy(new)
            store.keys_CRHK[self.length], store.values_CRHK[self.length] = new[0][0], new[1][0]
            store.written = self.length + 1
        return KeyValueCache(self.length + 1, store)

    def select(self, index: Tensor) -> Self:
        """The same cache for the rows `index`."""
        chosen_R = index if self.chosen_R is None else self.chosen_R.index_select(0, index)
        return type(self)(self.length, self.store, chosen_R)

    def _held(self) -> tuple[Tensor, Tensor]:
        assert self.store is not None
        return self.store.keys_CRHK[: self.length], self.store.values_CRHK[: self.length]

    def _joined(self, new: tuple[Tensor, Tensor]) -> _Store:
        if self.store is None:
            return _Store(*new, written=1)
        keys, values = (torch.cat((part.permute(2, 0, 1, 3), one)) for part, one in zip(self.keys, new, strict=True))
        return _Store(keys, values, self.length + 1)

    def _roomy(self, new: tuple[Tensor, Tensor]) -> _Store:
        """What the next position can be written into."""
        store, chosen_R = self.store, self.chosen_R
        if store is not None and chosen_R is None and self.length == store.written < len(store.keys_CRHK):
            return store
        # Rows that are chosen are chosen anew after every position, as a search does, which leaves no use for room.
        capacity = self.length + (ROOM if chosen_R is None else 1)
        keys, values = (part.new_empty(capacity, *part.shape[1:]) for part in new)
        if store is not None:
            for stored, copied in zip(self._held(), (keys, values), strict=True):
                if chosen_R is None:
                    copied[: self.length] = stored
                else:
                    torch.index_select(stored.detach(), 1, chosen_R, out=copied[: self.length])
        return _Store(keys, values, self.length)
