"""The candidates of a search with constraints: grid beam search (Hokamp and Liu 2017, section 3).

Hypotheses compete with those alone that have as many pieces of their phrases still to write: each such number is a bank
with a beam of its own. A hypothesis that has just begun an unlikely phrase is thus not held against one that has not
begun, and one that has hurried through all phrases not against one that waits for their place. From every hypothesis
there are the likeliest pieces, as in any beam search, and besides them those that bring a phrase further.

That all constraints are met is certain, not hoped for: the end comes after the last phrase alone, and a piece that
would leave too little of the greatest length for what is missing is no candidate.

Shapes: B sentences, N hypotheses of each (rows beyond a sentence's own are padding), R = B·N, V vocabulary, K pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.data.tokenizer import EOS
from nmt.decoding.constraints import Next, Progress, TokenConstraints


class Candidate(NamedTuple):
    """One more piece for one hypothesis."""

    total: float
    """Log-probability of the whole."""
    parent: int
    """Which of the sentence's hypotheses it continues."""
    piece: int
    progress: Progress | None = None
    """Of a search with constraints."""


Bank = list[Candidate]
"""Candidates that compete with each other, the likeliest first."""


@dataclass
class Demands:
    """The constraints of the sentences of a search that are not done, and how far their hypotheses have come."""

    constraints: list[TokenConstraints]  # B
    progress: list[list[Progress]]  # B × each one's own hypotheses
    limits: list[int]  # B: most pieces

    def select(self, sentences: Sequence[int], progress: list[list[Progress]]) -> Demands:
        """The same for some of the sentences, with their hypotheses' new progress."""
        return Demands([self.constraints[b] for b in sentences], progress, [self.limits[b] for b in sentences])


def grid_candidates(
    demands: Demands,
    prices_RV: Tensor,
    permitted_RV: Tensor,
    total_BN: Tensor,
    last_R: Tensor,
    beam: int,
    position: int,
) -> list[list[Bank]]:
    """The banks of each sentence.

    Args:
        prices_RV: what the model charges for every piece, which phrases pay whatever they consist of.
        permitted_RV: the same, -inf where no search may write the piece; is changed.
        position: of the coming piece, from 1.
    """
    width = total_BN.shape[1]
    wanted: list[tuple[int, int]] = []  # row, piece
    lasts = last_R.tolist()
    for b, (constraints, progress) in enumerate(zip(demands.constraints, demands.progress, strict=True)):
        for row, each in enumerate(progress, b * width):
            if position <= len(constraints.prefix):
                permitted_RV[row] = -torch.inf
                wanted.append((row, constraints.prefix[position - 1]))
                continue
            _forbid(permitted_RV[row], constraints, each, position)
            wanted += [(row, piece) for piece in constraints.wanted(each, lasts[row])]
    best_RK, pieces_RK = permitted_RV.topk(min(2 * beam, permitted_RV.shape[1]), dim=1)
    places = torch.tensor(wanted, dtype=torch.long, device=prices_RV.device).view(-1, 2)
    prices = prices_RV[places[:, 0], places[:, 1]].tolist()
    free: list[dict[int, float]] = [
        dict(zip(pieces, best, strict=True)) for best, pieces in zip(best_RK.tolist(), pieces_RK.tolist(), strict=True)
    ]
    for (row, piece), price in zip(wanted, prices, strict=True):
        free[row][piece] = price
    totals = total_BN.tolist()
    return [
        _banks(demands, b, free[b * width : (b + 1) * width], totals[b], lasts[b * width : (b + 1) * width], position)
        for b in range(len(demands.constraints))
    ]


def _forbid(permitted_V: Tensor, constraints: TokenConstraints, progress: Progress, position: int) -> None:
    """Sets to -inf what would end too early, or a word elsewhere than it must."""
    continues_V = constraints.edges.continues_V
    if constraints.missing(progress) or progress.coming is Next.SAME_WORD:
        permitted_V[EOS] = -torch.inf
    after_prefix = position == len(constraints.prefix) + 1 and constraints.prefix_ends_in_word
    if progress.coming is Next.NEW_WORD or (after_prefix and progress.coming is Next.ANY):
        permitted_V[continues_V] = -torch.inf
    elif progress.coming is Next.SAME_WORD:
        permitted_V[~continues_V] = -torch.inf


def _banks(
    demands: Demands, b: int, free: Sequence[dict[int, float]], totals: list[float], lasts: list[int], position: int
) -> list[Bank]:
    """The candidates of one sentence by the number of pieces that are still missing."""
    constraints, limit = demands.constraints[b], demands.limits[b]
    in_prefix = position <= len(constraints.prefix)
    banks: dict[int, Bank] = {}
    for parent, progress in enumerate(demands.progress[b]):
        for piece, price in free[parent].items():
            total = totals[parent] + price
            if piece == EOS:
                banks.setdefault(0, []).append(Candidate(total, parent, piece, progress))
                continue
            for after in constraints.after(progress, lasts[parent], piece):
                missing = constraints.missing(after)
                if in_prefix or position + missing + (after.coming is Next.SAME_WORD) <= limit:
                    banks.setdefault(missing, []).append(Candidate(total, parent, piece, after))
    return [sorted(banks[missing], key=lambda c: -c.total) for missing in sorted(banks)]
