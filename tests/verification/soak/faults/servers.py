"""What goes wrong with a server, or with the network before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, TypeAlias

from redis.exceptions import RedisError

from groupflow.servers.server import PrivateServer
from tests.servers.proxy import Proxy, Way
from tests.verification.pacing import comes, pause
from tests.verification.soak.faults.fault import Fault, Skipped
from tests.verification.soak.world import World

Server: TypeAlias = Literal["redis", "rabbitmq"]


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


class ServerFault(Aimed):
    """A fault of one server."""

    lasting = 0.0, 1.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.holds = frozenset({self.server})

    async def find(self, world: World) -> PrivateServer:
        """The server to break: where RabbitMQ has several nodes, the one that leads the queue."""
        self.broken = world.redis if self.server == "redis" else await world.queue_leader()
        return self.broken

    async def undo(self, world: World) -> None:
        await self.broken.start()


class Restart(ServerFault):
    """It ends in good order and is started again; RabbitMQ takes some eight seconds."""

    what = "restarted"

    async def apply(self, world: World) -> None:
        await (await self.find(world)).stop()


class Kill(ServerFault):
    """It is killed and started again."""

    what = "kill-9"

    async def apply(self, world: World) -> None:
        await (await self.find(world)).kill()


class Freeze(ServerFault):
    """It hangs."""

    what = "frozen"
    lasting = 0.5, 3.0

    async def apply(self, world: World) -> None:
        await (await self.find(world)).pause()

    async def undo(self, world: World) -> None:
        await self.broken.resume()


class FullMemory(ServerFault):
    """Redis has no memory left for new tasks."""

    what = "out of memory"
    lasting = 0.5, 2.0

    async def apply(self, world: World) -> None:
        async with world.ask() as redis:
            used = (await redis.info("memory"))["used_memory"]
            await redis.config_set("maxmemory", int(used) - 1)

    async def undo(self, world: World) -> None:
        async with world.ask() as redis:
            await redis.config_set("maxmemory", 0)


class FullDisk(ServerFault):
    """Redis's disk is full: it refuses what writes."""

    what = "disk full"
    lasting = 1.0, 2.5

    async def apply(self, world: World) -> None:
        if world.disk is None:
            raise Skipped("no file system could be mounted")
        await asyncio.to_thread(_fill, world.disk / "ballast")

    async def undo(self, world: World) -> None:
        assert world.disk is not None
        await asyncio.to_thread((world.disk / "ballast").unlink, missing_ok=True)
        # Until what it had answered is on disk again, nobody may kill it.
        async with world.ask() as redis:

            async def is_on_disk() -> bool:
                with suppress(RedisError):
                    return bool((await redis.info("persistence"))["aof_last_write_status"] == "ok")
                return False

            if not await comes(is_on_disk, within=30.0):
                raise TimeoutError("Redis writes nothing to its disk, though there is room")


def _fill(ballast: Path) -> None:
    for size in (1024 * 1024, 256):
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(size))


class WireFault(Aimed):
    """A fault of the network before one server, or before all nodes of RabbitMQ."""

    lasting = 0.5, 2.0
    ways: ClassVar[tuple[Way, ...]] = ()

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.holds = frozenset({f"wire to {self.server}"})

    def wires(self, world: World) -> Sequence[Proxy]:
        """All that it happens to."""
        if self.server == "rabbitmq":
            return world.rabbitmq_wires
        assert world.one is not None
        return [world.one[1]]

    async def apply(self, world: World) -> None:
        for wire in self.wires(world):
            wire.hold(*self.ways)

    async def undo(self, world: World) -> None:
        for wire in self.wires(world):
            wire.heal()


class Cut(WireFault):
    """All connections are reset, the publisher's too, again and again for a moment."""

    what = "connections cut"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.choice((0.0, 0.0, 0.5, 1.0))

    async def apply(self, world: World) -> None:
        for wire in self.wires(world):
            wire.refuse(refuse=self.lasts > 0)
            wire.cut()


class HoldReplies(WireFault):
    """Replies, deliveries, confirms are held and then lost: what they answered has happened."""

    what = "replies lost"
    ways: ClassVar[tuple[Way, ...]] = ("down",)

    async def undo(self, world: World) -> None:
        for wire in self.wires(world):
            wire.cut()
        # Those that waited to be carried on find their connections gone.
        await pause(0.05)
        await super().undo(world)


class HoldRequests(HoldReplies):
    """Requests, acks, publishes are held and then lost."""

    what = "requests lost"
    ways = ("up",)


class Late(WireFault):
    """Both ways are held, and then everything arrives late."""

    what = "late"
    ways = ("up", "down")


class HalfOpen(WireFault):
    """The daemons' side is reset, and the server isn't told: it believes in who is gone."""

    what = "half-open"

    async def apply(self, world: World) -> None:
        for wire in self.wires(world):
            wire.half_open()


# How often each is chosen, at Redis and at RabbitMQ.
SERVERS: dict[type[Aimed], tuple[float, float]] = {
    Restart: (3.0, 0.6), Kill: (3.0, 0.4), Freeze: (3.0, 2.0)
}  # fmt: skip
WIRES: dict[type[Aimed], tuple[float, float]] = {
    Cut: (3.0, 3.0), HoldReplies: (5.0, 3.0), HoldRequests: (3.0, 3.0), Late: (3.0, 2.0),
    HalfOpen: (2.0, 2.0),
}  # fmt: skip
OF_THE_WIRE = [aimed(kind, "rabbitmq", weight) for kind, (_, weight) in WIRES.items()]
OF_ONE_REDIS = [
    *(aimed(kind, "redis", weight) for kind, (weight, _) in {**SERVERS, **WIRES}.items()),
    aimed(FullMemory, "redis"),
    aimed(FullDisk, "redis", 2.0),
]
OF_ONE_RABBITMQ = [aimed(kind, "rabbitmq", weight) for kind, (_, weight) in SERVERS.items()]
# Others have the queue meanwhile; a leader that wakes leads no more, or still does.
OF_A_LEADER = [
    aimed(Restart, "rabbitmq", 2.0, what="leader restarted"),
    aimed(Kill, "rabbitmq", 6.0, what="leader kill-9"),
    aimed(Freeze, "rabbitmq", 6.0, what="leader frozen", lasting=(0.5, 12.0)),
]
