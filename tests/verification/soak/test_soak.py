"""The network of a soak's cluster: nodes that can be parted, each from each and from clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.servers.replicated import RedisCluster, leads, until
from tests.verification.builds import HEAD, PREVIOUS, build_of
from tests.verification.soak.__main__ import show, soak
from tests.verification.soak.links import CLIENTS, LinkedNode, Links
from tests.verification.soak.nemesis import plan

KEY = "{links}"
RESTARTS = ("kill-9, same name", "kill-9, another name", "SIGTERM")


@pytest.fixture
async def linked(tmp_path: Path) -> AsyncIterator[tuple[RedisCluster, Links]]:
    links = Links()
    cluster = RedisCluster(tmp_path, make=links.make)
    await links.start()
    try:
        async with cluster:
            yield cluster, links
    finally:
        await links.stop()


async def test_nodes_are_parted(linked: tuple[RedisCluster, Links]) -> None:
    """From clients, then from the others, on one cluster."""
    await _from_clients(*linked)
    await _from_the_others(*linked)


async def _from_the_others(cluster: RedisCluster, links: Links) -> None:
    """Its replica leads, while it takes itself for the primary; healed, it follows."""
    leader = await cluster.leader_of(KEY)
    replica = await cluster.replica_of(leader)
    assert isinstance(leader, LinkedNode)
    links.cut(leader.number, *(each.number for each in links.nodes if each is not leader))

    await until(partial(leads, replica), "the replica did not lead")
    async with Redis(port=leader.shown_port) as client:
        assert (await client.info("replication"))["role"] == "master"
    links.heal()
    await until(cluster.is_whole, "the cluster did not heal")
    assert await cluster.leader_of(KEY) is replica
    assert await cluster.replica_of(replica) is leader


async def _from_clients(cluster: RedisCluster, links: Links) -> None:
    """What they ask is answered late."""
    leader = await cluster.leader_of(KEY)
    assert isinstance(leader, LinkedNode)
    never = Retry(NoBackoff(), 0)
    async with Redis(port=leader.shown_port, socket_timeout=0.3, retry=never) as short:
        assert await short.ping()
        links.cut(CLIENTS, leader.number)
        with pytest.raises(RedisTimeoutError):
            await short.ping()
    async with Redis(port=leader.shown_port, socket_timeout=60.0, retry=never) as long:
        asking = asyncio.ensure_future(long.ping())
        assert await cluster.is_whole(), "it is there for all others"
        assert not asking.done()
        links.heal()
        assert await asking


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_dozen_faults_break_nothing(tmp_path: Path) -> None:
    result = await soak(tmp_path, seed=12, faults=12)
    said = show(result, "python -m tests.verification.soak --seed 12 --faults 12")
    assert result.verdict.violations == [], said
    assert result.faults.total() + result.skipped.total() == 12
    assert result.verdict.figures["tasks"] > 200, said


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(400)
async def test_two_builds_share_a_namespace_under_faults(tmp_path: Path) -> None:
    """An upgrade, one daemon at a time, and the way back: each new daemon is of the other build."""
    builds = [await asyncio.to_thread(build_of, each, tmp_path) for each in (PREVIOUS, HEAD)]
    result = await soak(tmp_path, seed=387, faults=24, builds=builds)
    again = f"python -m tests.verification.soak --seed 387 --faults 24 --between {PREVIOUS}"
    said = show(result, again)
    assert result.verdict.violations == [], said
    assert sum(result.faults[each] for each in RESTARTS) == 9, said


def test_a_seed_is_a_plan() -> None:
    assert plan(7, 200, 3) == plan(7, 200, 3) != plan(8, 200, 3)
