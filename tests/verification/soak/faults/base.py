"""What a fault is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import Any, ClassVar, Literal, TypeAlias

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
    """A fault of one of the two servers, or of the wire to it: `aimed` says of which.

    Attributes:
        what: happens, whichever of the two it happens to.
        server: which it is.
    """

    what: ClassVar[str]
    server: ClassVar[Server]


def aimed(kind: type[Aimed], server: Server, weight: float = 3.0, **facts: Any) -> type[Fault]:
    """That kind of fault at one of them, chosen so often; `facts` differ from the kind's."""
    what = facts.get("what", kind.what)
    named = {"name": f"{server} {what}", "server": server, "weight": weight, **facts}
    return type(f"{kind.__name__}{server.title()}", (kind,), named)
