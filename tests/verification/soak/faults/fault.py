"""What a fault is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

from tests.verification.soak.world import World


class Skipped(Exception):
    """The fault could not be done without proving nothing; it does not count."""


class Fault(ABC):
    """One fault.

    Attributes:
        name: of its kind.
        weight: how often it is chosen, in relation to the others.
        lasting: between which seconds `lasts` is drawn.
        holds: what no other fault may touch meanwhile.
        lasts: seconds from `apply` to `undo`.
    """

    name: ClassVar[str]
    weight: ClassVar[float] = 3.0
    lasting: ClassVar[tuple[float, float]] = 0.0, 0.0
    holds: frozenset[str] = frozenset()

    def __init__(self, chance: Random, daemons: int) -> None:
        """Choose what is left to chance, one of so many daemons, say."""
        self.lasts = chance.uniform(*self.lasting)

    @abstractmethod
    async def apply(self, world: World) -> None:
        """Break it.

        Raises:
            Skipped: not now.
        """

    async def undo(self, world: World) -> None:  # noqa: B027  many are over by themselves
        """Mend it."""
