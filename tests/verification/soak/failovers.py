"""`python -m tests.verification.soak.failovers`: how long a partition has no work, primary gone.

Six nodes of a Redis Cluster, three daemons, six partitions. Groups publish one message after
another. Again and again the primary of a partition is killed with SIGKILL, and started again once
another one leads. For each kill: the time from the kill until a task of that partition ended that
ended behind the longest pause. At the end the history is checked as in the end-to-end tests.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median

from groupflow.servers import RabbitmqServer
from groupflow.servers.process import ServerFailed
from tests.endtoend.rig import Rig, run
from tests.servers.replicated import ClusterNode, RedisCluster, command, until
from tests.verification.soak.rabbitmq_kills import Groups

GOAL = 2.0  # seconds beyond the node timeout
PARTITIONS = 6
CALM = 2.0  # seconds of work that must lie before and behind a kill


def main() -> int:
    """Kill, wait, start again, and tell."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--trials", type=int, default=20)
    arguments.add_argument("--timeout", type=float, default=1.0, help="node timeout, seconds")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="groupflow-failovers-") as name:
        folder = Path(name)
        make = partial(ClusterNode, timeout=int(options.timeout * 1000))
        cluster = RedisCluster(folder / "cluster", make=make)
        rabbitmq = RabbitmqServer(folder / "rabbitmq")
        run(cluster.start())
        run(rabbitmq.start())
        try:
            found = measure(folder, cluster, rabbitmq, options.trials, Random(options.seed))
        finally:
            run(rabbitmq.stop())
            run(cluster.stop())
    found.sort()
    goal = options.timeout + GOAL
    within = sum(each <= goal for each in found)
    print(" ".join(f"{each:.2f}" for each in found))
    print(
        f"node timeout {options.timeout:g} s, {len(found)} fail-overs, without work: "
        f"median {median(found):.2f} s, worst {found[-1]:.2f} s; "
        f"goal {goal:g} s: {within} within it"
    )
    return 0


def measure(
    folder: Path, cluster: RedisCluster, rabbitmq: RabbitmqServer, trials: int, chance: Random
) -> list[float]:
    """Seconds without work, by fail-over.

    Raises:
        AssertionError: something broke.
    """
    # No copies are waited for: with one replica a primary, there is none right behind a fail-over.
    redis, workers = {"partitions": PARTITIONS}, {"lease": 8.0}
    rig = Rig(folder, rabbitmq, cluster, redis=redis, workers=workers)
    groups = Groups(rig)
    found: list[float] = []
    try:
        rig.start_all("d0", "d1", "d2")
        groups.start()
        for trial in range(1, trials + 1):
            number = chance.randrange(PARTITIONS)
            began = time.monotonic()
            while not has_worked(rig, number, began, CALM):
                time.sleep(0.1 + chance.random())
            leader = run(cluster.leader_of(rig.partitions[number]("count")))
            killed = time.monotonic()
            run(leader.kill())
            while run(follower_count(cluster)) > 2:
                time.sleep(0.05)
            while not has_worked(rig, number, killed + 0.5, CALM):
                time.sleep(0.1)
            found.append(without_work(rig, killed, number))
            print(
                f"{trial}: {leader.folder.name} of partition {number}: {found[-1]:.2f} s",
                flush=True,
            )
            run(leader.start())
            run(heal(cluster))
        groups.end()
        rig.wait_for_all()
        rig.stop_all()
    finally:
        groups.end()
        rig.close()
    return found


async def heal(cluster: RedisCluster) -> None:
    """Wait until each primary has its replica again.

    Raises:
        ServerFailed: with what each node believes.
    """
    try:
        await until(cluster.is_whole, "the cluster did not heal")
    except ServerFailed as error:
        for node in cluster.nodes:
            print(node.folder.name, await command(node, "CLUSTER NODES"), sep="\n")
            print(await command(node, "INFO replication"))
        raise error from None


async def follower_count(cluster: RedisCluster) -> int:
    """How many nodes that run don't lead."""
    return sum(node.running for node in cluster.nodes) - len(await cluster.leaders())


def ends_of(rig: Rig, number: int) -> list[float]:
    """When tasks of a partition ended."""
    ended = (event for event in rig.events("end") if event.how == "done")
    return sorted(event.at for event in ended if rig.partition_of(event) == number)


def has_worked(rig: Rig, number: int, since: float, seconds: float) -> bool:
    """Whether a partition has ended tasks since then, and for so long."""
    at = [each for each in ends_of(rig, number) if each > since]
    return bool(at) and at[-1] - at[0] >= seconds


def without_work(rig: Rig, killed: float, number: int) -> float:
    """From a kill until the first task of its partition that ended behind the longest pause."""
    at = [each for each in ends_of(rig, number) if each > killed - CALM]
    near = [(later - before, later) for before, later in pairwise(at) if later > killed]
    return max(each for each in near if each[1] - each[0] < killed + CALM)[1] - killed


if __name__ == "__main__":
    raise SystemExit(main())
