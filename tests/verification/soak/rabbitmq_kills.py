"""`python -m tests.verification.soak.rabbitmq_kills`: how long nothing moves when a node dies.

Three nodes, three daemons, some partitions. Groups publish one message after another, each as soon
as the one before it is confirmed. Again and again the node that leads the most queues is killed
with SIGKILL, and started again; with `--freeze`, with SIGSTOP, and thawed once tasks have gone on
without it. For each time: the longest time that any group was without a
confirm, and without the start of a task. At the end the history is checked as in the end-to-end
tests.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median

from groupflow import Publisher
from groupflow.core.errors import GroupflowError
from groupflow.servers import RedisServer
from tests.endtoend.rig import Job, Rig, run
from tests.history.events import published
from tests.servers.rabbitmq_cluster import ClusterNode, RabbitmqCluster

GROUPS = 24
CALM = 3.0  # seconds before and behind a kill that belong to it
PARTITIONS = 6


class Groups:
    """All groups, publishing in a thread of their own."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.confirmed: dict[str, list[float]] = {}

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    async def _run(self) -> None:
        async with Publisher.from_config(self._rig.config) as publisher:
            await asyncio.gather(*(self._publish(publisher, f"g{n}") for n in range(GROUPS)))

    async def _publish(self, publisher: Publisher, group: str) -> None:
        times = self.confirmed.setdefault(group, [])
        n = 0
        while not self._ends.is_set():
            job = Job(f"{group}-{n}", group, n=n)
            try:
                await publisher.publish(job.body, type=job.type, id=job.id)
            except GroupflowError:
                continue  # again, under the same id
            times.append(time.monotonic())
            self._rig.jobs[job.id] = job
            self._rig.journal.write(published(job.id, job.group, str(job.tenant), n))
            n += 1
            await asyncio.sleep(0.02)


def longest(times: Iterable[float], since: float, until: float) -> float:
    """The longest time between two of them that were around this one."""
    near = [at for at in sorted(times) if since - CALM <= at <= until]
    return max((b - a for a, b in pairwise(near)), default=until - since)


def leader_of_most(cluster: RabbitmqCluster, queues: list[str]) -> ClusterNode:
    leaders = run(cluster.leaders())
    return Counter(leaders[queue] for queue in queues).most_common(1)[0][0]


def main() -> int:
    """Kill, start again, and tell."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--freeze", action="store_true", help="SIGSTOP in place of SIGKILL")
    chosen = arguments.parse_args()
    lose = freeze if chosen.freeze else kill
    with tempfile.TemporaryDirectory(prefix="groupflow-kills-") as name:
        folder = Path(name)
        cluster, redis = RabbitmqCluster(folder / "rabbitmq"), RedisServer(folder / "redis")
        run(cluster.start())
        run(redis.start())
        try:
            return measure(folder, cluster, redis, chosen.kills, lose)
        finally:
            run(redis.stop())
            run(cluster.stop())


def kill(rig: Rig, node: ClusterNode) -> None:
    run(node.kill())
    run(node.start())  # takes longer than the others need
    wait_for_more(rig)


def freeze(rig: Rig, node: ClusterNode) -> None:
    run(node.pause())
    try:
        wait_for_more(rig)
    finally:
        run(node.resume())
    wait_for_more(rig)


def wait_for_more(rig: Rig) -> None:
    over = len(rig.jobs)
    rig.until(lambda: rig.is_over(over + 200), "200 tasks more")


def measure(
    folder: Path,
    cluster: RabbitmqCluster,
    redis: RedisServer,
    kills: int,
    lose: Callable[[Rig, ClusterNode], None],
) -> int:
    rabbitmq = {"url": cluster.urls, "partitions": PARTITIONS}
    rig = Rig(folder, cluster, redis, rabbitmq=rabbitmq)
    groups = Groups(rig)
    at: list[tuple[float, float]] = []
    try:
        rig.start_all("d0", "d1", "d2")
        groups.start()
        rig.until(lambda: rig.is_over(1000), "1000 tasks")
        for _ in range(kills):
            node = leader_of_most(cluster, rig.queues)
            began = time.monotonic()
            lose(rig, node)
            at.append((began, time.monotonic()))
        groups.end()
        rig.wait_for_all()
        rig.stop_all()
        violations = rig.judge(with_faults=True)
    finally:
        groups.end()
        rig.close()
    starts: dict[str, list[float]] = {}
    for event in rig.events("start"):
        starts.setdefault(event.group or "", []).append(event.at)
    confirms = [max(longest(t, *each) for t in groups.confirmed.values()) for each in at]
    handled = [max(longest(t, *each) for t in starts.values()) for each in at]
    for what, found in (("a confirm", confirms), ("a start", handled)):
        print(f"without {what}: median {median(found):.1f} s, worst {max(found):.1f} s")
    print(f"{kills} times, {len(rig.jobs)} tasks, violations: {violations or 'none'}")
    return bool(violations)


if __name__ == "__main__":
    raise SystemExit(main())
