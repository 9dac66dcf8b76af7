"""The nemesis: plans faults from a seed, and lets them happen, several at a time; who watches."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from typing import TypeAlias

import orjson

from groupflow.servers import ServerFailed
from tests.history.events import lossy
from tests.servers.replicated import RedisCluster, command
from tests.verification.pacing import pause
from tests.verification.soak.faults import cluster, daemons, messages, servers
from tests.verification.soak.faults.fault import Fault, Kind, Skipped
from tests.verification.soak.world import World

_OF_DAEMONS: tuple[Kind, ...] = (
    daemons.kill_same, daemons.kill_other, daemons.zombie, daemons.nap, daemons.terminate,
    daemons.wrong_clock, daemons.usurper, daemons.block_loop, daemons.block_loop_past,
    messages.delete_queue, messages.duplicates, messages.header_flood, messages.poison,
    daemons.http_flood, *servers.OF_THE_WIRE,
)  # fmt: skip
FAULTS: tuple[Kind, ...] = (*_OF_DAEMONS, *servers.OF_ONE_REDIS, *servers.OF_ONE_RABBITMQ)
CLUSTER_FAULTS: tuple[Kind, ...] = (
    *_OF_DAEMONS, *servers.OF_A_LEADER,
    cluster.at_primary("kill-9", "kill", "start"), cluster.at_primary("frozen", "pause", "resume"),
    cluster.kill_replica, cluster.move_partition,
    cluster.partition_primary, cluster.partition_replica, cluster.partition_clients,
    cluster.fail_over("by hand"), cluster.fail_over("by force", " FORCE"),
    cluster.fail_over("without a vote", " TAKEOVER"),
)  # fmt: skip

PACE = (0.7, 1.5)  # seconds between two faults
AT_ONCE = 6  # faults under way, those that wait for their turn too
LOOK = 0.25  # seconds
UNSEEN = 3.0  # seconds for which one that is replaced may go on, and be seen, beside the other
_ID = re.compile(r"master_replid:([0-9a-f]+)")
Planned: TypeAlias = list[tuple[float, Fault]]


def plan(seed: int, count: int, among: int, kinds: Sequence[Kind] = FAULTS) -> Planned:
    """The faults of a seed, always the same, and the seconds from one to the next.

    Args:
        seed: decides everything.
        count: how many.
        among: how many daemons there are to choose from.
        kinds: of faults.
    """
    chance = Random(seed)
    weights = [kind.weight for kind in kinds]
    return [
        (chance.uniform(*PACE), chance.choices(kinds, weights)[0].drawn(chance, among))
        for _ in range(count)
    ]


class Nemesis:
    """Carries out a plan.

    Attributes:
        done: names of the faults that happened, in order.
        skipped: of those that did not.
    """

    def __init__(self, world: World, log: Path) -> None:
        self.done: list[str] = []
        self.skipped: list[str] = []
        self._world = world
        self._log = log
        self._held: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def run(self, planned: Planned) -> None:
        """Let faults happen until all have; at the end all is mended."""
        async with asyncio.TaskGroup() as group:
            for after, fault in planned:
                await pause(after)
                await self._at_once.acquire()
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        try:
            async with AsyncExitStack() as stack:
                for resource in sorted(fault.holds):
                    await stack.enter_async_context(self._held[resource])
                await self._happen(fault)
        finally:
            self._at_once.release()

    async def _happen(self, fault: Fault) -> None:
        began = time.monotonic()
        try:
            async with fault.kind.happen(self._world, fault):
                await pause(fault.lasts)
        except Skipped as why:
            self.skipped.append(fault.kind.name)
            self._note(fault, began, skipped=str(why))
            return
        self.done.append(fault.kind.name)
        self._note(fault, began)

    def _note(self, fault: Fault, began: float, **facts: str) -> None:
        line = {"fault": fault.kind.name, "on": sorted(fault.holds), "began": began}
        line |= {"ended": time.monotonic(), **facts}
        with self._log.open("ab") as log:
            log.write(orjson.dumps(line) + b"\n")


async def watch(world: World) -> None:
    """Notice daemons that end by themselves, which none may; start them again."""
    while True:
        for slot in world.slots:
            if slot.should_run and not slot.is_alive:
                said = f"the daemon {slot.name} ended by itself: {slot.last_words(4)}"
                world.broken.append(f"L6: {said}")
                await slot.start()
        await pause(0.3)


async def watch_leaders(world: World) -> None:
    """Note each change of who leads a partition, for ever.

    Nodes of a cluster replace each other unasked, too: where the machine is short of time, they are
    silent for longer than their timeout. The judge must know what is lost then.
    """
    seen: dict[int, tuple[str, float]] = {}
    while world.cluster is not None:
        for number, keys in enumerate(world.partitions):
            if (found := await _replication_of(world.cluster[0], keys("count"))) is None:
                continue
            now = time.monotonic()
            last, at = seen.get(number, (found, now))
            if last != found:
                world.changes_of_leaders += 1
                world.journal.write(lossy("began", number, at - UNSEEN))
                world.journal.write(lossy("ended", number, now))
            seen[number] = found, now
        await pause(LOOK)


async def _replication_of(nodes: RedisCluster, key: str) -> str | None:
    """The id of what the node that leads a key's slot replicates; ``None`` where none says."""
    with suppress(ServerFailed, OSError):
        async with asyncio.timeout(LOOK):  # a node that hangs isn't waited for
            said = _ID.search(await command(await nodes.leader_of(key), "INFO replication"))
            return said[1] if said else None
    return None


async def wait_until_drained(world: World, within: float) -> str:
    """Wait until nothing waits or runs any more. Says what is left where nothing ends meanwhile.

    Args:
        world: where.
        within: how many seconds may pass without a task that comes in or ends for good. A busy
            machine may take longer for all of them.
    """
    moved, ends = time.monotonic(), 0
    counts: dict[str, int] | None = None
    while time.monotonic() - moved < within:
        counts = await world.counts()
        if counts is not None and _is_drained(counts, len(world.workload.ids)):
            return ""
        now = sum(counts.get(name, 0) for name in ("taken", "done", "buried")) if counts else 0
        if now > ends:
            moved, ends = time.monotonic(), now
        await pause(0.1)
    ids = len(world.workload.ids)
    return f"not drained, and nothing ended for {within:g} s after the faults: {counts}, {ids} ids"


def _is_drained(counts: dict[str, int], ids: int) -> bool:
    waiting = ("queued_plain", "queued_grouped", "running_plain", "running_grouped")
    return counts.get("taken", 0) >= ids and not any(counts.get(name, 0) for name in waiting)
