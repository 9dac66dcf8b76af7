"""What goes wrong with a Redis Cluster: its nodes die, freeze, change places, hand slots over.

One at a time: where a primary and its only replica are gone, so is what they held.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from groupflow.servers import ServerFailed
from groupflow.servers.replicated import ClusterNode, RedisCluster, command, until
from tests.clusters import move
from tests.soak.faults.base import Fault, Skipped
from tests.soak.stores import PARTITIONS
from tests.soak.world import World

LEADS_WITHIN = 8.0  # seconds for a fail-over by hand: Redis gives it up after five
REPLACED_WITHIN = 6.0  # seconds for which a node stays away, at most: its replica leads by then


class ClusterFault(Fault):
    """A fault of one partition's node."""

    holds = frozenset({"cluster"})
    lasting = 0.0, REPLACED_WITHIN

    def __init__(self, chance: Random, daemons: int) -> None:
        self.partition = chance.randrange(PARTITIONS)
        self.lasts = chance.uniform(*self.lasting)
        self._node: ClusterNode | None = None

    def key(self, world: World) -> str:
        """One of the partition's keys."""
        return world.store.partitions[self.partition]("count")

    async def leader(self, world: World) -> ClusterNode:
        """The node that has the partition."""
        try:
            return await cluster_of(world).leader_of(self.key(world))
        except ServerFailed as error:
            raise Skipped(str(error)) from None

    async def follower(self, world: World) -> ClusterNode:
        """A node that follows that one."""
        leader = await self.leader(world)
        try:
            return await cluster_of(world).replica_of(leader)
        except ServerFailed as error:
            raise Skipped(str(error)) from None

    async def undo(self, world: World) -> None:
        """Wait until all is as it was, but for who leads: the next fault must not lose anything."""
        cluster = cluster_of(world)
        if self._node is not None:
            await self.mend(self._node)
        await until(cluster.is_whole, "the cluster did not heal")

    async def mend(self, node: ClusterNode) -> None:
        """Bring the node back."""
        await node.start()


class KillPrimary(ClusterFault):
    """A primary is killed; back soon or late, it finds another one in its place, or not."""

    name = "primary kill-9"
    weight = 6.0

    async def apply(self, world: World) -> None:
        self._node = await self.leader(world)
        await self._node.kill()


class FreezePrimary(ClusterFault):
    """A primary hangs, and wakes when it is one no more, or still is."""

    name = "primary frozen"
    weight = 6.0

    async def apply(self, world: World) -> None:
        self._node = await self.leader(world)
        await self._node.pause()

    async def mend(self, node: ClusterNode) -> None:
        await node.resume()


class KillReplica(ClusterFault):
    """A replica is killed: until it is back, nothing of its primary's partitions is acked."""

    name = "replica kill-9"
    lasting = 0.0, 2.0

    async def apply(self, world: World) -> None:
        self._node = await self.follower(world)
        await self._node.kill()


class FailOver(ClusterFault):
    """A replica is told to lead."""

    name = "failed over by hand"
    weight = 6.0
    lasting = 0.0, 0.0

    async def apply(self, world: World) -> None:
        replica = await self.follower(world)
        if await command(replica, "CLUSTER FAILOVER") != "OK":
            raise Skipped("it would not lead")

        async def leads() -> bool:
            return "role:master" in await command(replica, "INFO replication")

        # Where the primary doesn't hear of it in time, the replica gives it up, and never says so.
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADS_WITHIN):
                await until(leads, "the replica did not lead")
                return
        raise Skipped("it gave up")


class MovePartition(ClusterFault):
    """A partition moves to another primary, key by key."""

    name = "partition moved"
    weight = 6.0
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
    return world.cluster
