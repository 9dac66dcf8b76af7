"""What goes wrong with a server, or with the network before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from redis.exceptions import RedisError

from tests.servers.proxy import Way
from tests.verification.pacing import comes, pause
from tests.verification.soak.faults.fault import Fault, Kind, Skipped, fault, mended
from tests.verification.soak.world import World

Server: TypeAlias = Literal["redis", "rabbitmq"]

# What breaks a server, what mends it, and after how many seconds. RabbitMQ restarts in some eight.
SERVERS = {
    "restarted": ("stop", "start", (0.0, 1.0)),
    "kill-9": ("kill", "start", (0.0, 1.0)),
    "frozen": ("pause", "resume", (0.5, 3.0)),
}
# Which ways are held: replies, deliveries and confirms; requests, acks and publishes; both.
HELD: dict[str, tuple[Way, ...]] = {
    "replies lost": ("down",),
    "requests lost": ("up",),
    "late": ("up", "down"),
}


def at_server(server: Server, what: str, weight: float, name: str = "", **how: Any) -> Kind:
    """One of `SERVERS`; of several nodes of RabbitMQ, at the one that leads the queue."""
    breaks, mends, usual = SERVERS[what]

    @fault(name or f"{server} {what}", server, weight=weight, **{"lasting": usual, **how})
    async def happen(world: World, _: Fault) -> AsyncIterator[None]:
        broken = world.redis if server == "redis" else await world.queue_leader()
        await getattr(broken, breaks)()
        yield
        await mended(getattr(broken, mends))

    return happen


def at_wire(server: Server, what: str, weight: float) -> Kind:
    """A fault of the network before one server, or before all nodes of RabbitMQ.

    Connections that are cut, the publisher's too, may be refused for a moment. What is held is lost
    with its connections, though what it answered has happened; or it arrives late. A half-open
    connection is reset at the daemons' side alone: the server believes in who is gone.
    """
    lasting = (-1.0, 1.0) if what == "connections cut" else (0.5, 2.0)

    @fault(f"{server} {what}", f"wire to {server}", weight=weight, lasting=lasting)
    async def happen(world: World, fault: Fault) -> AsyncIterator[None]:
        wires = world.rabbitmq_wires if server == "rabbitmq" else [world.wire]
        for wire in wires:
            if what == "connections cut":
                wire.refuse(refuse=fault.lasts > 0)
                wire.cut()
            elif what == "half-open":
                wire.half_open()
            else:
                wire.hold(*HELD[what])
        yield
        if what.endswith("lost"):
            for wire in wires:
                wire.cut()
            # Those that waited to be carried on find their connections gone.
            await pause(0.05)
        for wire in wires:
            wire.heal()

    return happen


@fault("redis out of memory", "redis", lasting=(0.5, 2.0))
async def full_memory(world: World, _: Fault) -> AsyncIterator[None]:
    """Redis has no memory left for new tasks."""
    async with world.ask() as redis:
        used = (await redis.info("memory"))["used_memory"]
        await redis.config_set("maxmemory", int(used) - 1)
    yield
    async with world.ask() as redis:
        await redis.config_set("maxmemory", 0)


@fault("redis disk full", "redis", weight=2.0, lasting=(1.0, 2.5))
async def full_disk(world: World, _: Fault) -> AsyncIterator[None]:
    """Redis's disk is full: it refuses what writes."""
    if world.disk is None:
        raise Skipped("no file system could be mounted")
    ballast = world.disk / "ballast"
    await asyncio.to_thread(_fill, ballast)
    yield
    await asyncio.to_thread(ballast.unlink, missing_ok=True)
    # Until what it had answered is on disk again, no fault may kill it.
    async with world.ask() as redis:

        async def is_on_disk() -> bool:
            with suppress(RedisError):
                return bool((await redis.info("persistence"))["aof_last_write_status"] == "ok")
            return False

        async def is_rewriting() -> bool:
            with suppress(RedisError):  # not while one is under way that began before
                return bool(await redis.bgrewriteaof())
            return False

        async def is_whole() -> bool:
            told = await redis.info("persistence")
            is_under_way = told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"]
            return not is_under_way and told["aof_last_bgrewrite_status"] == "ok"

        if not await comes(is_on_disk, within=30.0):
            raise TimeoutError("Redis writes nothing to its disk, though there is room")
        # As docs/operating.md says: else it may not load its file at the next start.
        if not (await comes(is_rewriting, within=30.0) and await comes(is_whole, within=30.0)):
            raise TimeoutError("Redis doesn't rewrite its append-only file, though there is room")


def _fill(ballast: Path) -> None:
    for size in (1024 * 1024, 256):
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(size))


# How often each is chosen, at Redis and at RabbitMQ.
_AT_SERVERS = {"restarted": (3.0, 0.6), "kill-9": (3.0, 0.4), "frozen": (3.0, 2.0)}
_AT_WIRES = {
    "connections cut": (3.0, 3.0), "replies lost": (5.0, 3.0), "requests lost": (3.0, 3.0),
    "late": (3.0, 2.0), "half-open": (2.0, 2.0),
}  # fmt: skip
OF_THE_WIRE = [at_wire("rabbitmq", what, weight) for what, (_, weight) in _AT_WIRES.items()]
OF_ONE_REDIS = [
    *(at_server("redis", what, weight) for what, (weight, _) in _AT_SERVERS.items()),
    *(at_wire("redis", what, weight) for what, (weight, _) in _AT_WIRES.items()),
    full_memory,
    full_disk,
]
OF_ONE_RABBITMQ = [at_server("rabbitmq", what, weight) for what, (_, weight) in _AT_SERVERS.items()]
# Others have the queue meanwhile; a leader that wakes leads no more, or still does.
OF_A_LEADER = [
    at_server("rabbitmq", "restarted", 2.0, name="rabbitmq leader restarted"),
    at_server("rabbitmq", "kill-9", 6.0, name="rabbitmq leader kill-9"),
    at_server("rabbitmq", "frozen", 6.0, name="rabbitmq leader frozen", lasting=(0.5, 12.0)),
]
