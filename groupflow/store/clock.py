"""Redis's clock, the only one that scripts use: whole microseconds since 1970."""

from __future__ import annotations

MICROSECONDS = 1_000_000  # of a second


def seconds(microseconds: float | str | bytes) -> float:
    """A time or a span of a script, as the rest of groupflow has them."""
    return float(microseconds) / MICROSECONDS


def microseconds(seconds: float) -> int:
    """A time or a span as scripts take it."""
    return round(seconds * MICROSECONDS)
