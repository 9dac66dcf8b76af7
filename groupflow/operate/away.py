"""A partition that does not answer; the others are asked all the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Away:
    """A partition that did not answer when it was last asked."""

    partition: int  # its number, from 0
    why: str  # the error of the client that asked

    def __str__(self) -> str:
        return f"partition {self.partition} is away: {self.why}"
