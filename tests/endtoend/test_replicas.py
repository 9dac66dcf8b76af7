"""With `redis.replicas`: nothing is acked before a replica has it, and work goes on without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.conftest import rigs
from tests.endtoend.rig import Job
from tests.running import run
from tests.servers.replicated import command, until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary and its replica."""
    extra = ("--repl-diskless-sync-delay", "0")
    primary, replica = (RedisServer(tmp_path / name, extra=extra) for name in ("one", "two"))

    async def start() -> None:
        await primary.start()
        await replica.start()
        await command(replica, f"REPLICAOF 127.0.0.1 {primary.port}")

        async def follows() -> bool:
            return "master_link_status:up" in await command(replica, "INFO replication")

        await until(follows, "the replica did not come")

    try:
        run(start())
        yield primary, replica
    finally:
        for server in (replica, primary):
            run(server.stop())


def test_intake_stands_without_a_replica_and_workers_go_on(
    tmp_path: Path, rabbitmq_server: RabbitmqServer, pair: tuple[RedisServer, RedisServer]
) -> None:
    primary, replica = pair
    with rigs(tmp_path, rabbitmq_server, primary, redis={"replicas": 1}) as make_rig:
        rig = make_rig()
        daemon = rig.start()
        gate = {"gate": str(rig.gate())}
        rig.publish([Job("a0", "a", facts=gate), Job("a1", "a"), Job("p0")])
        rig.wait_for_start("a0")
        rig.wait_for_end("p0")
        run(replica.pause())
        rig.publish([Job("b0", "b")])
        paused = daemon.wait_for("intake.paused")
        assert paused["reason"] == "too few replicas"
        assert "redis.replicas is 1" in paused["error"]
        rig.gate().touch()
        for id_ in ("a0", "a1", "b0"):
            rig.wait_for_end(id_)
        rig.until(lambda: "redis.replicas" in rig.say("status"), "status")
        run(replica.resume())
        rig.publish([Job("c0", "c")])
        rig.end(with_faults=False)
        assert rig.count("duplicates") == 0, "what waits for its replica is not written again"
        assert rig.left_in_queue() == 0
