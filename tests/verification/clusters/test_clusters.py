"""Daemons on a Redis Cluster: a node dies or freezes, partitions move to other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig, rigs
from tests.endtoend.streams import mixed
from tests.history.events import lossy
from tests.running import run, running
from tests.servers.replicated import RedisCluster, command, leads, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three primaries with a replica each."""
    with running(RedisCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def make_rig(tmp_path: Path, rabbitmq_server: Any, cluster: RedisCluster) -> Iterator[MakeRig]:
    """Make a rig on the cluster, which is whole again afterwards."""
    usual = {"redis": {"partitions": 6}, "workers": {"lease": short_lease(4.0)}}
    with rigs(tmp_path, rabbitmq_server, cluster, **usual) as make:
        yield make
    run(_heal(cluster))


async def _heal(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        await node.start()
    await until(cluster.is_whole, "it did not heal")


def test_a_node_is_killed(make_rig: MakeRig, cluster: RedisCluster) -> None:
    """Its replica leads without its last writes: those are made again, and nothing is lost."""
    rig = make_rig(redis={"partitions": 6, "replicas": 1})
    rig.start_all("d1", "d2")
    jobs = mixed(600, seed=22)
    held = {"gate": str(rig.gate())}
    rig.publish([replace(job, facts={**job.facts, **held}) for job in jobs[:200]])
    rig.until(lambda: rig.count("taken") == 200, "the intake of what is held")
    leaders = [run(cluster.leader_of(keys("count"))) for keys in rig.partitions]
    lost, replica = leaders[0], run(cluster.replica_of(leaders[0]))
    theirs = [n for n, leader in enumerate(leaders) if leader is lost]
    for number in theirs:
        rig.journal.write(lossy("began", number))
    run(replica.pause())
    run(command(lost, "CLIENT KILL TYPE replica"))  # nor does it find it in its socket
    rig.gate().touch()
    rig.until(lambda: len(rig.events("end")) >= 100, "the end of some tasks")
    run(lost.kill())
    run(replica.resume())
    rig.publish(jobs[200:])
    run(until(partial(leads, replica), "no replica leads"))
    run(_heal(cluster))
    for number in theirs:
        rig.journal.write(lossy("ended", number))
    rig.end(with_faults=True)


def test_partitions_that_are_away_hold_no_others_up(make_rig: MakeRig, cluster: Any) -> None:
    """Not even a start; what is in them is done once they are back."""
    rig = make_rig(workers={"lease": short_lease(2.0)})
    leaders = [run(cluster.leader_of(keys("count"))) for keys in rig.partitions]
    # The first daemon to start asks the namespace's own tag how many partitions there are.
    own = run(cluster.leader_of(rig.keys("count")))
    lost = next(leader for leader in leaders if leader is not own)
    away = {n for n, leader in enumerate(leaders) if leader is lost}
    assert 0 < len(away) < len(leaders), "the partitions lie on one node"
    replica = run(cluster.replica_of(lost))
    run(lost.kill())
    run(replica.kill())
    jobs = mixed(300, seed=23)
    there = [each for each in jobs if rig.partition_of(each) not in away]
    rig.spawn("d1").wait_for("intake.started")
    rig.publish(there)
    rig.until(lambda: len(rig.events("end")) >= len(there), "the end of all that can be done")
    rig.publish([each for each in jobs if each not in there])
    run(_heal(cluster))
    rig.end(with_faults=True)
