"""How a key of the configuration is declared: with its default, its meaning and what it allows."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any


def key(
    default: Any = MISSING,
    meaning: str = "",
    *,
    choices: tuple[str, ...] | None = None,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    word: str | None = None,
) -> Any:
    """A configuration key: its default, its meaning and, in the field's metadata, the values that it allows.

    `word` may stand in a number's place.
    """
    allowed = {"choices": choices, "at_least": at_least, "above": above, "below": below, "at_most": at_most}
    metadata = {"meaning": meaning, **{name: bound for name, bound in allowed.items() if bound is not None}}
    if word is not None:
        metadata["word"] = word
    if isinstance(default, type) or callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)
