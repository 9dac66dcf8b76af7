"""What a mutant is, in any language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Mutant:
    """The product, wrong in one place.

    Attributes:
        path: the changed file, from the root of the project.
        line: the number of the changed line.
        change: what stands there, and what the mutant has instead.
        marks: only a test that comes to one of these can notice the mutant. The language's `watch`
            says which marks a test comes to.
        put_in: makes the process that calls it wrong.
    """

    path: str
    line: int
    change: str
    marks: frozenset[str]
    put_in: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.change}"

    @property
    def package(self) -> str:
        """The package of groupflow that it is in."""
        return self.path.split("/")[1]
