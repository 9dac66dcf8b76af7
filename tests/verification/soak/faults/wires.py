"""What goes wrong with the network before a server."""

from __future__ import annotations

import asyncio
from random import Random
from typing import ClassVar

from tests.servers.proxy import Proxy, Way
from tests.verification.soak.brokers import Wires
from tests.verification.soak.faults.base import Aimed
from tests.verification.soak.world import World


class WireFault(Aimed):
    """A fault of the network before one server."""

    ways: ClassVar[tuple[Way, ...]] = ()

    def __init__(self, chance: Random, daemons: int) -> None:
        self.holds = frozenset({f"wire to {self.server}"})
        self.lasts = chance.uniform(0.5, 2.0)

    def of(self, world: World) -> Proxy | Wires:
        """The proxy, or all of them."""
        return world.redis_wire if self.server == "redis" else world.rabbitmq_wire

    async def apply(self, world: World) -> None:
        self.of(world).hold(*self.ways)

    async def undo(self, world: World) -> None:
        wire = self.of(world)
        wire.cut()
        # Those that waited to be carried on find their connections gone.
        await asyncio.sleep(0.05)
        wire.heal()


class Cut(WireFault):
    """All connections are reset, the publisher's too, again and again for a moment."""

    what = "connections cut"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.choice((0.0, 0.0, 0.5, 1.0))

    async def apply(self, world: World) -> None:
        self.of(world).refuse(refuse=self.lasts > 0)
        self.of(world).cut()

    async def undo(self, world: World) -> None:
        self.of(world).heal()


class HoldReplies(WireFault):
    """Replies, deliveries, confirms are held and then lost: what they answered has happened."""

    what = "replies lost"
    ways = ("down",)


class HoldRequests(WireFault):
    """Requests, acks, publishes are held and then lost."""

    what = "requests lost"
    ways = ("up",)


class Late(WireFault):
    """Both ways are held, and then everything arrives late."""

    what = "late"
    ways = ("up", "down")

    async def undo(self, world: World) -> None:
        self.of(world).heal()


class HalfOpen(WireFault):
    """The daemons' side is reset, and the server isn't told: it believes in who is gone."""

    what = "half-open"

    async def apply(self, world: World) -> None:
        self.of(world).half_open()

    async def undo(self, world: World) -> None:
        self.of(world).heal()
