"""What goes wrong with a server: restarted, killed, frozen, full."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar

from redis.exceptions import RedisError

from groupflow.servers.server import PrivateServer
from tests.verification.soak.faults.base import Aimed, Skipped
from tests.verification.soak.world import World


class ServerFault(Aimed):
    """A fault of one server."""

    def __init__(self, chance: Random, daemons: int) -> None:
        self.holds = frozenset({self.server})
        self.lasts = chance.uniform(0.0, 1.0)

    async def find(self, world: World) -> PrivateServer:
        """The server to break: where RabbitMQ has several nodes, the one that leads the queue."""
        self.broken = world.redis if self.server == "redis" else await world.rabbitmq.leader()
        return self.broken


class Restart(ServerFault):
    """It ends in good order and is started again; RabbitMQ takes some eight seconds."""

    what = "restarted"

    async def apply(self, world: World) -> None:
        await (await self.find(world)).stop()

    async def undo(self, world: World) -> None:
        await self.broken.start()


class Kill(ServerFault):
    """It is killed and started again."""

    what = "kill-9"

    async def apply(self, world: World) -> None:
        await (await self.find(world)).kill()

    async def undo(self, world: World) -> None:
        await self.broken.start()


class Freeze(ServerFault):
    """It hangs."""

    what = "frozen"
    longest: ClassVar[float] = 3.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.uniform(0.5, self.longest)

    async def apply(self, world: World) -> None:
        await (await self.find(world)).pause()

    async def undo(self, world: World) -> None:
        await self.broken.resume()


class FullMemory(ServerFault):
    """Redis has no memory left for new tasks."""

    what = "out of memory"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.uniform(0.5, 2.0)

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

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.uniform(1.0, 2.5)

    async def apply(self, world: World) -> None:
        if world.disk is None:
            raise Skipped("no file system could be mounted")
        await asyncio.to_thread(_fill, world.disk / "ballast")

    async def undo(self, world: World) -> None:
        assert world.disk is not None
        await asyncio.to_thread((world.disk / "ballast").unlink, missing_ok=True)
        # Until what it had answered is on disk again, nobody may kill it.
        async with world.ask() as redis, asyncio.timeout(30):
            while True:
                with suppress(RedisError):
                    state = await redis.info("persistence")
                    if state["aof_last_write_status"] == "ok":
                        return
                await asyncio.sleep(0.1)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1024 * 1024))
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(256))
