"""What a hypothesis' log-probability is divided by before hypotheses of different lengths are compared.

Log-probabilities only fall as pieces are added, so without a penalty beam search prefers short output. A penalty is a
number for each length; that it grows with the length is what lets the search bound the hypotheses still open.
"""

from __future__ import annotations

from collections.abc import Callable

LengthPenalty = Callable[[int], float]
"""Length in pieces, end mark included (at least 1), to the divisor."""


def length_penalty(name: str, alpha: float) -> LengthPenalty:
    """The penalty of that name.

    none: 1. average: length^α, with α = 1 the mean log-probability a piece. gnmt: ((5 + length) / 6)^α (Wu et al.
    2016, equation 14).
    """
    match name:
        case "none":
            return lambda length: 1.0
        case "average":
            return lambda length: float(length) ** alpha
        case "gnmt":
            return lambda length: ((5.0 + length) / 6.0) ** alpha
    raise ValueError(f"unknown length penalty {name!r}")
