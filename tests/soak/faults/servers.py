"""What goes wrong with a server: restarted, killed, frozen, full."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar

from redis.exceptions import RedisError

from groupflow.servers.server import PrivateServer
from tests.soak.faults.base import Fault, Skipped
from tests.soak.world import World


class ServerFault(Fault):
    """A fault of one server."""

    server: ClassVar[str]

    def __init__(self, chance: Random, daemons: int) -> None:
        self.holds = frozenset({self.server})
        self.lasts = chance.uniform(0.0, 1.0)

    def of(self, world: World) -> PrivateServer:
        """The server."""
        return world.redis if self.server == "redis" else world.rabbitmq


class RestartRedis(ServerFault):
    """Redis ends in good order and is started again."""

    name = "redis restarted"
    server = "redis"

    async def apply(self, world: World) -> None:
        await self.of(world).stop()

    async def undo(self, world: World) -> None:
        await self.of(world).start()


class KillRedis(RestartRedis):
    """Redis is killed and started again."""

    name = "redis kill-9"

    async def apply(self, world: World) -> None:
        await self.of(world).kill()


class FreezeRedis(ServerFault):
    """Redis hangs."""

    name = "redis frozen"
    server = "redis"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.uniform(0.5, 3.0)

    async def apply(self, world: World) -> None:
        await self.of(world).pause()

    async def undo(self, world: World) -> None:
        await self.of(world).resume()


class FullMemory(ServerFault):
    """Redis has no memory left for new tasks."""

    name = "redis out of memory"
    server = "redis"

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

    name = "redis disk full"
    server = "redis"
    weight = 2.0

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


class RestartRabbitmq(RestartRedis):
    """RabbitMQ ends in good order and is started again: some eight seconds."""

    name = "rabbitmq restarted"
    server = "rabbitmq"
    weight = 0.6


class KillRabbitmq(KillRedis):
    """RabbitMQ is killed and started again."""

    name = "rabbitmq kill-9"
    server = "rabbitmq"
    weight = 0.4


class FreezeRabbitmq(FreezeRedis):
    """RabbitMQ hangs."""

    name = "rabbitmq frozen"
    server = "rabbitmq"
    weight = 2.0
