"""What a fault is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar, Literal, TypeAlias

from tests.verification.soak.world import World

Server: TypeAlias = Literal["redis", "rabbitmq"]


class Skipped(Exception):
    """The fault could not be done without proving nothing; it does not count."""


class Fault(ABC):
    """One fault.

    Attributes:
        name: of its kind.
        weight: how often it is chosen, in relation to the others.
        holds: what no other fault may touch meanwhile.
        lasts: seconds from `apply` to `undo`.
    """

    name: ClassVar[str]
    weight: ClassVar[float] = 3.0
    holds: frozenset[str] = frozenset()
    lasts: float = 0.0

    def __init__(self, chance: Random, daemons: int) -> None:  # noqa: B027  some leave nothing to it
        """Choose what is left to chance."""

    @abstractmethod
    async def apply(self, world: World) -> None:
        """Break it.

        Raises:
            Skipped: not now.
        """

    async def undo(self, world: World) -> None:  # noqa: B027  many are over by themselves
        """Mend it."""


class Aimed(Fault):
    """A fault of one of the two servers, or of the wire to it.

    Attributes:
        what: happens, whichever of the two it happens to.
        server: which it is.
    """

    what: ClassVar[str]
    server: ClassVar[Server]

    def __init_subclass__(cls, *, at: Server | None = None, weight: float | None = None) -> None:
        """Aim a kind of fault, and say how often that one is chosen."""
        super().__init_subclass__()
        if at is not None:
            cls.server = at
            cls.name = f"{at} {cls.what}"
        if weight is not None:
            cls.weight = weight
