"""A partition that does not answer, which is no reason for the others to be silent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Away:
    """A partition that did not answer when it was last asked."""

    partition: int  # its number, from 0
    why: str  # in the words of whoever tried

    def __str__(self) -> str:
        return f"partition {self.partition} is away: {self.why}"
