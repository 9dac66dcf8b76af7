"""How long nothing moves when a node of a cluster dies: groups that publish, and the gaps they see.

Groups publish one message after another, each as soon as the one before it is confirmed. A node
that leads is killed, and is back once another one leads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Self

from groupflow import Publisher
from groupflow.core.errors import GroupflowError
from tests.endtoend.rig import Job, Rig
from tests.history.events import published
from tests.running import run
from tests.servers.replicated import RedisCluster, until

GROUPS = 24
CALM = 3.0  # seconds of work before and behind a kill that belong to it


class Groups:
    """All groups, publishing in a thread of their own for as long as the block takes."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._rig.start_all("d0", "d1", "d2")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    async def _run(self) -> None:
        async with Publisher.from_config(self._rig.config) as publisher:
            await asyncio.gather(*(self._publish(publisher, f"g{n}") for n in range(GROUPS)))

    async def _publish(self, publisher: Publisher, group: str) -> None:
        n = 0
        while not self._ends.is_set():
            job = Job(f"{group}-{n}", group, n=n)
            try:
                await publisher.publish(job.body, type=job.type, id=job.id)
            except GroupflowError:
                continue  # again, under the same id
            self._rig.jobs[job.id] = job
            self._rig.journal.write(published(job.id, job.group, str(job.tenant), n))
            n += 1
            await asyncio.sleep(0.02)


def _works_on(rig: Rig, since: float, number: int | None = None) -> Callable[[], bool]:
    """Whether tasks, or those of a partition, have ended since then, and for long enough."""

    def is_so() -> bool:
        at = [each for each in _ends_of(rig, number) if each > since]
        return bool(at) and at[-1] - at[0] >= CALM

    return is_so


def _ends_of(rig: Rig, number: int | None) -> list[float]:
    ended = (event for event in rig.events("end") if event.how == "done")
    return sorted(e.at for e in ended if number is None or rig.partition_of(e) == number)


def killed_primary(rig: Rig, chance: Random) -> list[float]:
    """From the kill of a partition's primary until a task ended behind the longest pause."""
    cluster: RedisCluster = rig.store
    number = chance.randrange(len(rig.partitions))
    rig.until(_works_on(rig, time.monotonic(), number), "work before the kill")
    time.sleep(chance.random())
    leader = run(cluster.leader_of(rig.partitions[number]("count")))
    killed = time.monotonic()
    run(leader.kill())
    rig.until(lambda: len(run(cluster.leaders())) == 3, "another primary")
    rig.until(_works_on(rig, killed + 0.5, number), "work behind the fail-over")
    at = [each for each in _ends_of(rig, number) if each > killed - CALM]
    near = [(later - before, later) for before, later in pairwise(at) if later > killed]
    found = max(each for each in near if each[1] - each[0] < killed + CALM)[1] - killed
    run(leader.start())
    run(until(cluster.is_whole, "the cluster did not heal"))
    return [found]


def killed_leader(rig: Rig, _: Random) -> list[float]:
    """The longest that a group has no start when the node is killed that leads the most queues."""
    rig.until(_works_on(rig, time.monotonic()), "work before it")
    leaders = run(rig.rabbitmq.leaders())
    node = Counter(leaders[queue] for queue in rig.queues).most_common(1)[0][0]
    began = time.monotonic()
    run(node.kill())
    run(node.start())  # takes longer than the others need
    over = len(rig.jobs)
    rig.until(lambda: rig.is_over(over + 200), "200 tasks more")
    ended = time.monotonic()
    starts: dict[str, list[float]] = defaultdict(list)
    for event in rig.events("start"):
        if began - CALM <= event.at <= ended:
            starts[event.group or ""].append(event.at)
    return [max(b - a for at in starts.values() for a, b in pairwise(sorted(at)))]
