"""What goes wrong with a Redis Cluster: nodes die, freeze, part, change places, hand slots over.

One at a time: where a primary and its only replica are gone, so is what they held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from groupflow.servers import ServerFailed
from tests.clusters import move
from tests.history.events import lossy
from tests.servers.replicated import ClusterNode, RedisCluster, command, leads, until
from tests.verification.soak.faults.fault import Fault, Kind, Skipped, fault, mended
from tests.verification.soak.links import CLIENTS, LinkedNode, Links
from tests.verification.soak.world import World

LEADS_WITHIN = 8.0  # seconds for a fail-over by hand: Redis gives it up after five
REPLACED = (0.0, 6.0)  # seconds for which a node stays away: its replica leads by their end
CLUSTER = "cluster"


def at_primary(what: str, breaks: str, mends: str) -> Kind:
    """A primary is killed, or hangs; back soon or late, it is one no more, or still is."""

    @fault(f"primary {what}", CLUSTER, weight=10.0, lasting=REPLACED)
    async def happen(world: World, fault: Fault) -> AsyncIterator[None]:
        leader = await _leader(world, fault)
        async with _losing(world, leader):
            await getattr(leader, breaks)()
            yield
            await _healed(world, getattr(leader, mends))

    return happen


@fault("replica kill-9", CLUSTER, weight=4.0, lasting=(0.0, 2.0))
async def kill_replica(world: World, fault: Fault) -> AsyncIterator[None]:
    """A replica is killed: until it is back, nothing of its primary's partitions is acked."""
    replica = await _follower(world, fault)
    await replica.kill()
    yield
    await _healed(world, replica.start)


@fault("primary partitioned from the others", CLUSTER, weight=10.0, lasting=REPLACED)
async def partition_primary(world: World, fault: Fault) -> AsyncIterator[None]:
    """A primary and the other nodes don't hear each other; daemons reach all of them.

    It goes on alone until it notices, and no replica has what it does; another takes its place.
    """
    leader, links = await _leader(world, fault), links_of(world)
    async with _losing(world, leader):
        links.cut(leader.number, *(each.number for each in links.nodes if each is not leader))
        yield
        await _healed(world)


@fault("primary partitioned from its replica", CLUSTER, weight=5.0, lasting=(0.0, 4.0))
async def partition_replica(world: World, fault: Fault) -> AsyncIterator[None]:
    """A primary and its replica don't hear each other; all others hear both."""
    leader, replica = await _leader(world, fault), await _follower(world, fault)
    async with _losing(world, leader):
        links_of(world).cut(leader.number, replica.number)
        yield
        await _healed(world)


@fault("primary partitioned from the daemons", CLUSTER, weight=5.0, lasting=(0.2, 4.0))
async def partition_clients(world: World, fault: Fault) -> AsyncIterator[None]:
    """Only the other nodes reach a primary: it leads on, and no daemon works for it."""
    links_of(world).cut(CLIENTS, (await _leader(world, fault)).number)
    yield
    await _healed(world)


def fail_over(how: str, argument: str = "") -> Kind:
    """A replica is told to lead, by that argument of the command.

    The primary waits until it has everything, or isn't asked, or no node is.
    """

    @fault(f"failed over {how}", CLUSTER, weight=5.0)
    async def happen(world: World, fault: Fault) -> AsyncIterator[None]:
        replica = await _follower(world, fault)

        async with _losing(world, await _leader(world, fault)):
            if await command(replica, f"CLUSTER FAILOVER{argument}") != "OK":
                raise Skipped("it would not lead")
            try:
                async with asyncio.timeout(LEADS_WITHIN):
                    await until(partial(leads, replica), "the replica did not lead")
            except TimeoutError:
                # Where the primary doesn't hear of it in time, the replica gives it up in silence.
                raise Skipped("it gave up") from None
            yield
            await _healed(world)

    return happen


@fault("partition moved", CLUSTER, weight=8.0)
async def move_partition(world: World, fault: Fault) -> AsyncIterator[None]:
    """A partition moves to another primary, key by key."""
    nodes, leader = cluster_of(world), await _leader(world, fault)
    target = fault.chance.choice([node for node in await nodes.leaders() if node is not leader])
    await move(nodes, _key(world, fault), target)
    yield
    await _healed(world)


def cluster_of(world: World) -> RedisCluster:
    """The cluster."""
    assert world.cluster is not None
    return world.cluster[0]


def links_of(world: World) -> Links:
    """The network around its nodes."""
    assert world.cluster is not None
    return world.cluster[1]


def _key(world: World, fault: Fault) -> str:
    """One of the keys of the partition that the fault happens to."""
    return fault.one_of(world.partitions)("count")


async def _leader(world: World, fault: Fault) -> LinkedNode:
    """The node that has the partition."""
    return await _found(cluster_of(world).leader_of(_key(world, fault)))


async def _follower(world: World, fault: Fault) -> LinkedNode:
    """A node that follows that one."""
    return await _found(cluster_of(world).replica_of(await _leader(world, fault)))


async def _found(asked: Awaitable[ClusterNode]) -> LinkedNode:
    try:
        node = await asked
    except ServerFailed as error:
        raise Skipped(str(error)) from None
    assert isinstance(node, LinkedNode)
    return node


@asynccontextmanager
async def _losing(world: World, node: ClusterNode) -> AsyncIterator[None]:
    """The last writes of all partitions of a node may be lost while the block runs."""
    numbers = []
    for number, keys in enumerate(world.partitions):
        if await command(node, f"EXISTS {keys('count')}") in ("0", "1"):
            numbers.append(number)
            world.journal.write(lossy("began", number))
    try:
        yield
    finally:
        for number in numbers:
            world.journal.write(lossy("ended", number))


async def _healed(world: World, mend: Callable[[], Awaitable[object]] | None = None) -> None:
    """Wait until all is as it was, except who leads: the next fault must not lose anything."""

    async def heal() -> None:
        links_of(world).heal()
        if mend is not None:
            await mend()
        await until(cluster_of(world).is_whole, "the cluster did not heal")

    await mended(heal)
