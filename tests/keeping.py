"""What the filter keeps of pairs in memory."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.config import FilterConfig
from nmt.data.duplicates import repeated
from nmt.data.filter import KEPT, VERDICTS, PairFilter, Tally
from nmt.data.filtered import comparisons

Pairs = Sequence[tuple[str, str]]


def keep(pairs: Pairs, config: FilterConfig) -> tuple[list[tuple[str, str]], Tally]:
    """The pairs that are kept, and the counts."""
    verdicts = PairFilter(config).verdicts(pairs)
    for reason, comparison in comparisons(config).items():
        verdicts[repeated(comparison.digests(pairs), verdicts == KEPT)] = VERDICTS[reason]
    return [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict == KEPT], Tally.of(verdicts)
