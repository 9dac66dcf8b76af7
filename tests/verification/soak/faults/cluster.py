"""What goes wrong with a Redis Cluster: nodes die, freeze, part, change places, hand slots over.

One at a time: where a primary and its only replica are gone, so is what they held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from random import Random
from typing import ClassVar

from groupflow.servers import ServerFailed
from tests.clusters import move
from tests.history.events import lossy
from tests.servers.replicated import ClusterNode, RedisCluster, command, until
from tests.verification.soak.faults.fault import Fault, Skipped
from tests.verification.soak.links import CLIENTS, LinkedNode, Links
from tests.verification.soak.world import PARTITIONS, World

LEADS_WITHIN = 8.0  # seconds for a fail-over by hand: Redis gives it up after five
REPLACED_WITHIN = 6.0  # seconds for which a node stays away, at most: its replica leads by then


class ClusterFault(Fault):
    """A fault of one partition's node."""

    holds = frozenset({"cluster"})
    lasting = 0.0, REPLACED_WITHIN

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.partition = chance.randrange(PARTITIONS)
        self._node: LinkedNode | None = None
        self._may_lose: list[int] = []

    def key(self, world: World) -> str:
        """One of the partition's keys."""
        return world.partitions[self.partition]("count")

    async def leader(self, world: World) -> LinkedNode:
        """The node that has the partition."""
        return await _found(cluster_of(world).leader_of(self.key(world)))

    async def follower(self, world: World) -> LinkedNode:
        """A node that follows that one."""
        return await _found(cluster_of(world).replica_of(await self.leader(world)))

    async def may_lose(self, world: World, node: ClusterNode) -> None:
        """Note which partitions' last writes may be lost from here on: all of a node."""
        for number, keys in enumerate(world.partitions):
            if await command(node, f"EXISTS {keys('count')}") in ("0", "1"):
                self._may_lose.append(number)
                world.journal.write(lossy("began", number))

    def is_over(self, world: World) -> None:
        """Nothing is lost from here on."""
        for number in self._may_lose:
            world.journal.write(lossy("ended", number))
        self._may_lose.clear()

    async def undo(self, world: World) -> None:
        """Wait until all is as it was, but for who leads: the next fault must not lose anything."""
        cluster = cluster_of(world)
        if self._node is not None:
            await self.mend(self._node)
        await until(cluster.is_whole, "the cluster did not heal")
        self.is_over(world)

    async def mend(self, node: ClusterNode) -> None:
        """Bring the node back."""
        await node.start()


class KillPrimary(ClusterFault):
    """A primary is killed; back soon or late, it finds another one in its place, or not."""

    name = "primary kill-9"
    weight = 10.0

    async def apply(self, world: World) -> None:
        self._node = await self.leader(world)
        await self.may_lose(world, self._node)
        await self._node.kill()


class FreezePrimary(ClusterFault):
    """A primary hangs, and wakes when it is one no more, or still is."""

    name = "primary frozen"
    weight = 10.0

    async def apply(self, world: World) -> None:
        self._node = await self.leader(world)
        await self.may_lose(world, self._node)
        await self._node.pause()

    async def mend(self, node: ClusterNode) -> None:
        await node.resume()


class KillReplica(ClusterFault):
    """A replica is killed: until it is back, nothing of its primary's partitions is acked."""

    name = "replica kill-9"
    weight = 4.0
    lasting = 0.0, 2.0

    async def apply(self, world: World) -> None:
        self._node = await self.follower(world)
        await self._node.kill()


class LinkFault(ClusterFault):
    """A fault of the network around one node."""

    async def mend(self, node: ClusterNode) -> None:
        """The network is whole again; `undo` sees to it."""

    async def undo(self, world: World) -> None:
        links_of(world).heal()
        await super().undo(world)


class PartitionPrimary(LinkFault):
    """A primary and the other nodes don't hear each other; daemons reach all of them.

    It goes on alone until it notices, and nobody has what it does; another one takes its place.
    """

    name = "primary partitioned from the others"
    weight = 10.0

    async def apply(self, world: World) -> None:
        leader = await self.leader(world)
        await self.may_lose(world, leader)
        links = links_of(world)
        links.cut(leader.number, *(each.number for each in links.nodes if each is not leader))


class PartitionReplica(LinkFault):
    """A primary and its replica don't hear each other; all others hear both."""

    name = "primary partitioned from its replica"
    weight = 5.0
    lasting = 0.0, 4.0

    async def apply(self, world: World) -> None:
        leader, replica = await self.leader(world), await self.follower(world)
        await self.may_lose(world, leader)
        links_of(world).cut(leader.number, replica.number)


class PartitionClients(LinkFault):
    """Nobody but the other nodes reaches a primary: it leads on, and nobody works for it."""

    name = "primary partitioned from the daemons"
    weight = 5.0
    lasting = 0.2, 4.0

    async def apply(self, world: World) -> None:
        links_of(world).cut(CLIENTS, (await self.leader(world)).number)


class FailOver(ClusterFault):
    """A replica is told to lead.

    The primary waits until it has everything, or isn't asked, or nobody is.
    """

    what: ClassVar[str] = ""
    weight = 5.0
    lasting = 0.0, 0.0

    async def apply(self, world: World) -> None:
        replica = await self.follower(world)
        await self.may_lose(world, await self.leader(world))
        if await command(replica, f"CLUSTER FAILOVER{self.what}") != "OK":
            self.is_over(world)
            raise Skipped("it would not lead")

        async def leads() -> bool:
            return "role:master" in await command(replica, "INFO replication")

        # Where the primary doesn't hear of it in time, the replica gives it up, and never says so.
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADS_WITHIN):
                await until(leads, "the replica did not lead")
                return
        self.is_over(world)
        raise Skipped("it gave up")


def fail_over(name: str, what: str = "") -> type[Fault]:
    """A fail-over by that argument of the command."""
    return type(FailOver.__name__, (FailOver,), {"name": f"failed over {name}", "what": what})


class MovePartition(ClusterFault):
    """A partition moves to another primary, key by key."""

    name = "partition moved"
    weight = 8.0
    lasting = 0.0, 0.0

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.others = chance.random()

    async def apply(self, world: World) -> None:
        cluster, leader = cluster_of(world), await self.leader(world)
        primaries = [node for node in await cluster.leaders() if node is not leader]
        target = primaries[int(self.others * len(primaries))]
        await move(cluster, self.key(world), target)


def cluster_of(world: World) -> RedisCluster:
    """The cluster."""
    assert world.cluster is not None
    return world.cluster[0]


def links_of(world: World) -> Links:
    """The network around its nodes."""
    assert world.cluster is not None
    return world.cluster[1]


async def _found(asked: Awaitable[ClusterNode]) -> LinkedNode:
    try:
        node = await asked
    except ServerFailed as error:
        raise Skipped(str(error)) from None
    assert isinstance(node, LinkedNode)
    return node
