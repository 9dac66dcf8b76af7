"""What goes wrong, on purpose: one small class a fault, seeded, each undoing what it did.

A fault *holds* what no other may touch meanwhile: the daemon, server or wire that it breaks. All
else may break at the same time. (Redis killed while its disk is full would prove nothing: it loses
what it had answered, which is no fault of ours.)
"""

from __future__ import annotations

import asyncio
import signal
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar

from redis.exceptions import RedisError

from groupflow.broker import topology
from groupflow.broker.connection import connect
from groupflow.core.errors import GroupflowError
from groupflow.servers.process import ServerProcess
from groupflow.servers.server import PrivateServer
from tests.soak.config import DRAIN, QUEUE
from tests.soak.proxy import Proxy, Way
from tests.soak.world import World

LEAVES_WITHIN = DRAIN + 12.0  # seconds for a stop, drain and all, whatever else is broken
GOES_WITHIN = 30.0  # seconds in which a replaced daemon must notice, whatever else is broken


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


class DaemonFault(Fault):
    """A fault of one daemon."""

    def __init__(self, chance: Random, daemons: int) -> None:
        self.index = chance.randrange(daemons)
        self.holds = frozenset({f"daemon {self.index}"})
        self.lasts = chance.uniform(0.0, 1.0)


class KillSame(DaemonFault):
    """kill -9, and a new process under the same name."""

    name = "kill-9, same name"
    weight = 6.0

    async def apply(self, world: World) -> None:
        await world.slots[self.index].kill()

    async def undo(self, world: World) -> None:
        await world.slots[self.index].start()


class KillOther(DaemonFault):
    """kill -9, and a new process under another name: its lease has to run out."""

    name = "kill-9, another name"
    weight = 6.0

    async def apply(self, world: World) -> None:
        await world.slots[self.index].kill()

    async def undo(self, world: World) -> None:
        world.slots[self.index].rename()
        await world.slots[self.index].start()


class Zombie(DaemonFault):
    """SIGSTOP past the lease, then SIGCONT."""

    name = "stopped past the lease"
    weight = 6.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = 2.0 * chance.uniform(1.1, 1.7)

    async def apply(self, world: World) -> None:
        world.slots[self.index].pause()

    async def undo(self, world: World) -> None:
        world.slots[self.index].resume()


class Nap(Zombie):
    """SIGSTOP for less than the lease."""

    name = "stopped within the lease"
    weight = 3.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.uniform(0.3, 1.2)


class Terminate(DaemonFault):
    """SIGTERM, and a new process when it has left."""

    name = "SIGTERM"
    weight = 5.0

    async def apply(self, world: World) -> None:
        slot = world.slots[self.index]
        took = await slot.terminate()
        if took > LEAVES_WITHIN:
            world.broken.append(f"L5: {slot.name} took {took:.1f} s to leave after SIGTERM")

    async def undo(self, world: World) -> None:
        await world.slots[self.index].start()


class WrongClock(DaemonFault):
    """The wall clock of a daemon that runs jumps by up to a day, and stays wrong."""

    name = "clock shifted"
    weight = 3.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self._shift = chance.uniform(-86_400, 86_400)

    async def apply(self, world: World) -> None:
        clock = world.slots[self.index].clock
        if not clock.can_be_set:
            raise Skipped("libfaketime is not installed")
        clock.set(self._shift)


class Usurper(DaemonFault):
    """A second process under the name of one that is stopped; one of the two must end.

    Nearly always the first does, when it wakes. Where it was stopped before it had registered, it
    is the one that takes over.
    """

    name = "name taken over"
    weight = 2.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.lasts = chance.uniform(1.0, 2.0)
        self._first: ServerProcess | None = None

    async def apply(self, world: World) -> None:
        slot = world.slots[self.index]
        slot.should_run = False
        slot.pause()
        self._first = await slot.usurp()

    async def undo(self, world: World) -> None:
        assert self._first is not None
        slot = world.slots[self.index]
        self._first.signal_group(signal.SIGCONT)
        until = time.monotonic() + GOES_WITHIN
        while self._first.alive and slot.is_alive and time.monotonic() < until:
            await asyncio.sleep(0.1)
        if not slot.is_alive:
            await slot.keep(self._first)
        elif self._first.alive:
            world.broken.append(f"L6: two daemons {slot.name} ran on for {GOES_WITHIN} s")
            self._first.signal_group(signal.SIGUSR1)  # its log then says where it stands
            await asyncio.sleep(0.5)
            await self._first.kill()
        slot.should_run = True


class BlockLoop(Fault):
    """A handler that blocks its daemon's event loop for one and a half leases."""

    name = "event loop blocked"
    weight = 3.0
    lasts = 3.0

    def __init__(self, chance: Random, daemons: int) -> None:
        self._grouped = chance.random() < 0.5

    async def apply(self, world: World) -> None:
        world.workload.inject("block", grouped=self._grouped)


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


class DeleteQueue(Fault):
    """Somebody deletes the queue, after all that was confirmed has come through it."""

    name = "queue deleted"
    weight = 2.0
    holds = frozenset({"rabbitmq", "wire to rabbitmq", "redis", "wire to redis"})

    async def apply(self, world: World) -> None:
        try:
            if not await world.workload.pause(within=8.0):
                raise Skipped("not everything was confirmed in time")
            await self._all_taken(world)
            connection = await connect(
                world.rabbitmq.url, heartbeat=10, timeout=5.0, name="nemesis"
            )
            async with connection:
                await topology.delete(connection, QUEUE)
            # RabbitMQ confirms what reaches a queue that is just going, and drops it with it.
            await asyncio.sleep(0.5)
        except GroupflowError as error:
            raise Skipped(str(error)) from error
        finally:
            world.workload.resume()

    async def _all_taken(self, world: World) -> None:
        """Wait until the store has every id, so that the queue holds nothing but duplicates."""
        until = time.monotonic() + 8.0
        while time.monotonic() < until:
            counts = await world.counts()
            if counts and counts.get("taken", 0) >= len(world.workload.ids):
                return
            await asyncio.sleep(0.1)
        raise Skipped("not everything was taken in in time")


class Duplicates(Fault):
    """The latest messages are published once more."""

    name = "duplicates"
    weight = 2.0

    def __init__(self, chance: Random, daemons: int) -> None:
        self._count = chance.randrange(8, 80)

    async def apply(self, world: World) -> None:
        world.workload.inject_duplicates(self._count)


class Poison(Fault):
    """Messages that nobody can work on."""

    name = "poison"
    weight = 2.0

    def __init__(self, chance: Random, daemons: int) -> None:
        self._count = chance.randrange(4, 30)

    async def apply(self, world: World) -> None:
        world.workload.inject_poison(self._count)


FAULTS: tuple[type[Fault], ...] = (
    KillSame, KillOther, Zombie, Nap, Terminate, WrongClock, Usurper, BlockLoop,
    RestartRedis, KillRedis, FreezeRedis, FullMemory, FullDisk,
    RestartRabbitmq, KillRabbitmq, FreezeRabbitmq,
    CutRedis, HoldRedisReplies, HoldRedisRequests, LateRedis, HalfOpenRedis,
    CutRabbitmq, HoldRabbitmqReplies, HoldRabbitmqRequests, LateRabbitmq, HalfOpenRabbitmq,
    DeleteQueue, Duplicates, Poison,
)  # fmt: skip
SLOW: frozenset[type[Fault]] = frozenset({RestartRabbitmq, KillRabbitmq})
