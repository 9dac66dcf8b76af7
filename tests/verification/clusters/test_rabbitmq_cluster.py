"""Several queues on several RabbitMQ nodes: spread over daemons that come, go and die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow import Publisher, QueueMissing
from groupflow.broker.publisher import publishing
from groupflow.servers import RabbitmqServer
from groupflow.servers.kinds import HASH_EXCHANGE
from tests.broker.test_partitions import declare, messages, placed, router, taken_by_queue
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig, rigs
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.endtoend.streams import streaming
from tests.running import run

PARTITIONS = 6


@pytest.fixture
def make_rig(tmp_path: Path, rabbitmq_cluster: Any, redis_server: Any) -> Iterator[MakeRig]:
    """Make a rig on a cluster, all of whose nodes run again afterwards."""
    usual = {"url": rabbitmq_cluster.urls, "partitions": PARTITIONS}
    workers, servers = {"lease": short_lease(2.0)}, (rabbitmq_cluster, redis_server)
    with rigs(tmp_path, *servers, rabbitmq=usual, workers=workers) as make:
        yield make
    run(rabbitmq_cluster.start())


def job(n: int) -> Job:
    """Tasks of many groups, and plain ones."""
    return Job(f"t{n}", f"g{n % 40}" if n % 8 else None, n=n)


def active_of(rig: Rig) -> dict[str, int]:
    """How many queues send their messages to each daemon, as the daemons tell."""
    active: dict[str, int] = {}
    for name in rig.raw.zrange(rig.keys("daemons"), 0, -1):
        info = orjson.loads(rig.raw.hget(rig.keys(f"daemon:{name.decode()}"), "info") or b"{}")
        active[name.decode()] = info.get("queues", {}).get("active", 0)
    return active


def wait_until_spread(rig: Rig, daemons: int) -> None:
    """Wait until each daemon has its share, and each queue has a daemon."""
    share = -(-len(rig.queues) // daemons)

    def is_spread() -> bool:
        active = active_of(rig)
        # What a daemon tells is up to a renewal old: so the sum tells that none is counted twice.
        return (
            len(active) == daemons
            and sum(active.values()) == len(rig.queues)
            and max(active.values()) <= share
        )

    rig.until(is_spread, f"{len(rig.queues)} queues on {daemons} daemons: {active_of(rig)}")


def leave(process: Process) -> None:
    """Have a daemon end as it is told."""
    assert process.stop() == 0, process.tail()


def end(rig: Rig) -> None:
    """All is done, in order, and the daemons leave well."""
    rig.end(with_faults=True)
    assert rig.dead() == []


def test_queues_spread_over_daemons_that_come_and_go(make_rig: MakeRig) -> None:
    """The first has all of them, until others come; one dies, one leaves, and both come again."""
    rig = make_rig()
    first = rig.start("d0")
    with streaming(rig, job):
        wait_until_spread(rig, 1)
        daemons: dict[str, Process] = {"d0": first, "d1": rig.start("d1"), "d2": rig.start("d2")}
        wait_until_spread(rig, 3)
        for name, end_of in (("d0", rig.kill), ("d2", leave)):
            end_of(daemons[name])
            wait_until_spread(rig, 2)
            rig.start(name)
            wait_until_spread(rig, 3)
    end(rig)


def test_the_leader_of_a_queue_dies_under_load(make_rig: MakeRig, rabbitmq_cluster: Any) -> None:
    """kill -9 of each node in turn, each time of one that leads; another one leads from then on."""
    rig = make_rig(rabbitmq={"partitions": 3})
    rig.start_all("d0", "d1")
    with streaming(rig, job):
        rig.until(lambda: rig.is_over(200), "200 tasks")
        for queue in rig.queues:
            leader = run(rabbitmq_cluster.leader_of(queue))
            run(leader.kill())
            confirmed = len(rig.jobs)
            rig.until(lambda: len(rig.jobs) > confirmed + 200, "confirms without the leader")  # noqa: B023
            run(leader.start())
    end(rig)


# A RabbitMQ that starts again, with partitions.


async def test_a_restart_moves_no_group(tmp_path: Path) -> None:
    """Until the ring is whole again, what is published is handed back; then it is the same."""
    queue = "moves"
    async with RabbitmqServer(tmp_path, plugins=[HASH_EXCHANGE]) as server:
        await declare(server.url, queue, 12)  # sorted by name, 10 comes before 2
        seen: list[dict[str, str]] = []
        for _ in range(2):
            if seen:
                await server.restart()
                async with Publisher(server.url, queue, partitions=12) as application:
                    with pytest.raises(QueueMissing, match=queue):
                        await application.publish({"app_name": "crm", "g": "g"}, type="t")
            async with publishing(server.url, queue, partitions=12, router=router()) as publisher:
                await publisher.publish_all(messages(1))
            seen.append(placed(await taken_by_queue(server.url, queue, 12)))
        assert seen[0] == seen[1]
