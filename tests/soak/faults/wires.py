"""What goes wrong with the network before a server."""

from __future__ import annotations

import asyncio
from random import Random
from typing import ClassVar

from tests.soak.faults.base import Fault
from tests.soak.proxy import Proxy, Way
from tests.soak.world import World


class WireFault(Fault):
    """A fault of the network before one server."""

    wire: ClassVar[str] = "redis"
    ways: ClassVar[tuple[Way, ...]] = ()

    def __init__(self, chance: Random, daemons: int) -> None:
        self.holds = frozenset({f"wire to {self.wire}"})
        self.lasts = chance.uniform(0.5, 2.0)

    def of(self, world: World) -> Proxy:
        """The proxy."""
        return world.redis_wire if self.wire == "redis" else world.rabbitmq_wire

    async def apply(self, world: World) -> None:
        self.of(world).hold(*self.ways)

    async def undo(self, world: World) -> None:
        wire = self.of(world)
        wire.cut()
        # Those that waited to be carried on find their connections gone.
        await asyncio.sleep(0.05)
        wire.heal()


class CutRedis(WireFault):
    """All connections are reset, again and again for a moment."""

    name = "redis connections cut"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.choice((0.0, 0.0, 0.5, 1.0))

    async def apply(self, world: World) -> None:
        self.of(world).refuse(refuse=self.lasts > 0)
        self.of(world).cut()

    async def undo(self, world: World) -> None:
        self.of(world).heal()


class HoldRedisReplies(WireFault):
    """Replies are held and then lost: what they answered has happened."""

    name = "redis replies lost"
    weight = 5.0
    ways = ("down",)


class HoldRedisRequests(WireFault):
    """Requests are held and then lost."""

    name = "redis requests lost"
    ways = ("up",)


class LateRedis(WireFault):
    """Both ways are held, and then everything arrives late."""

    name = "redis late"
    ways = ("up", "down")

    async def undo(self, world: World) -> None:
        self.of(world).heal()


class HalfOpenRedis(WireFault):
    """The daemons' side is reset, and Redis isn't told."""

    name = "redis half-open"
    weight = 2.0

    async def apply(self, world: World) -> None:
        self.of(world).half_open()

    async def undo(self, world: World) -> None:
        self.of(world).heal()


class CutRabbitmq(CutRedis):
    """All connections are reset, the publisher's too."""

    name = "rabbitmq connections cut"
    wire = "rabbitmq"


class HoldRabbitmqReplies(HoldRedisReplies):
    """Deliveries and confirms are held and then lost."""

    name = "rabbitmq replies lost"
    wire = "rabbitmq"
    weight = 3.0


class HoldRabbitmqRequests(HoldRedisRequests):
    """Acks and publishes are held and then lost."""

    name = "rabbitmq requests lost"
    wire = "rabbitmq"
    weight = 3.0


class LateRabbitmq(LateRedis):
    """Both ways are held, and then everything arrives late."""

    name = "rabbitmq late"
    wire = "rabbitmq"
    weight = 2.0


class HalfOpenRabbitmq(HalfOpenRedis):
    """RabbitMQ goes on believing in a consumer that is gone."""

    name = "rabbitmq half-open"
    wire = "rabbitmq"
