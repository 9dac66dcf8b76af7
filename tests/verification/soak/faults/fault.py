"""What a fault is: how often it is chosen, what it holds, and what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from groupflow.servers import ServerFailed
from tests.verification.soak.world import World

_Any = TypeVar("_Any")


class Skipped(Exception):
    """The fault could not be done without proving nothing; it does not count."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: as reports have it.
        happen: breaks something, which is mended where the block ends.
        weight: how often it is chosen, in relation to the others.
        lasting: between which seconds its block lasts; less than 0 is 0.
        holds: what no other fault may touch meanwhile; `{daemon}` is the number of one.
    """

    name: str
    happen: Callable[[World, Fault], AbstractAsyncContextManager[None]]
    weight: float = 3.0
    lasting: tuple[float, float] = 0.0, 0.0
    holds: tuple[str, ...] = ()

    def drawn(self, chance: Random, daemons: int) -> Fault:
        """One fault of this kind, at one of so many daemons where it is at a daemon."""
        lasts, share = max(0.0, chance.uniform(*self.lasting)), chance.random()
        held = (each.format(daemon=int(share * daemons)) for each in self.holds)
        return Fault(self, lasts, share, frozenset(held))


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as its seed has drawn it.

    Attributes:
        kind: of fault.
        lasts: seconds until it is mended.
        share: what else is left to chance, from 0 to 1.
        holds: what no other fault may touch meanwhile.
    """

    kind: Kind
    lasts: float
    share: float
    holds: frozenset[str]

    def one_of(self, several: Sequence[_Any]) -> _Any:
        """The daemon, or the partition, that it happens to."""
        return several[int(self.share * len(several))]

    @property
    def chance(self) -> Random:
        """What it needs besides, the same each time."""
        return Random(self.share)


def fault(
    name: str, *holds: str, weight: float = 3.0, lasting: tuple[float, float] = (0.0, 0.0)
) -> Callable[[Callable[[World, Fault], AsyncIterator[None]]], Kind]:
    """Make a kind of fault of a function that breaks something, yields, and mends it."""

    def made(happen: Callable[[World, Fault], AsyncIterator[None]]) -> Kind:
        return Kind(name, asynccontextmanager(happen), weight, lasting, holds)

    return made


async def mended(mend: Callable[[], Awaitable[object]]) -> None:
    """Mend it; once more where a server doesn't come back, which is no fault of groupflow."""
    try:
        await mend()
    except ServerFailed:
        await mend()
