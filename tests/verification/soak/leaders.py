"""Who leads each partition of a soak's cluster: nodes replace each other unasked, too.

A machine that is short of time lets nodes be silent for longer than their timeout. What is lost
then must be known to the judge as if the nemesis had done it.
"""

from __future__ import annotations

import asyncio
import re
import time

from groupflow.servers import ServerFailed
from tests.history.events import lossy
from tests.servers.replicated import RedisCluster, command
from tests.verification.soak.world import World

LOOK = 0.25  # seconds
UNSEEN = 3.0  # seconds for which one that is replaced may go on, and be seen, beside the other
_ID = re.compile(r"master_replid:([0-9a-f]+)")


class Leaders:
    """Notes each change of who leads a partition.

    Attributes:
        changes: how many there were.
    """

    def __init__(self, world: World) -> None:
        self.changes = 0
        self._world = world
        self._seen: dict[int, tuple[str, float]] = {}

    async def watch(self) -> None:
        """Look for ever."""
        cluster = self._world.cluster
        while cluster is not None:
            for number in range(len(self._world.store.partitions)):
                await self._look(cluster, number)
            await asyncio.sleep(LOOK)

    async def _look(self, cluster: RedisCluster, number: int) -> None:
        key = self._world.store.partitions[number]("count")
        try:
            async with asyncio.timeout(LOOK):  # one that hangs isn't waited for
                leader = await cluster.leader_of(key)
                said = _ID.search(await command(leader, "INFO replication"))
        except (ServerFailed, OSError):
            return
        if said is None:
            return
        now = time.monotonic()
        last, at = self._seen.get(number, (said[1], now))
        if last != said[1]:
            self.changes += 1
            self._world.journal.write(lossy("began", number, at - UNSEEN))
            self._world.journal.write(lossy("ended", number, now))
        self._seen[number] = said[1], now
