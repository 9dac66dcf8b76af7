"""Where the store is: a cluster's node, Sentinel's primary, and what most of them say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from groupflow.core.errors import StoreUnavailable
from groupflow.settings.transport import address_of
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.keys import Keys
from groupflow.store.topology import AskNode, HostAndPort, InCluster, Nodes, most_say
from tests.clusters import begin_move, end_move, move_keys
from tests.deadlines import deadline
from tests.servers.replicated import RedisCluster, command, persist, until
from tests.store.bench import arrival

HERE, THERE = ("here", 1), ("there", 1)
Said: TypeAlias = dict[str, HostAndPort | Exception | None]


async def enqueue(client: StoreClient, id_: str) -> None:
    """Enqueue one task, however often it takes."""
    await persist(partial(Enqueuer(client).enqueue, [arrival(id_)]))


def saying(**nodes: HostAndPort | Exception | None) -> AskNode:
    """Nodes that say where to go, that can't, or that say nothing."""

    async def ask(node: str, timeout: float) -> HostAndPort:
        said = nodes[node]
        if said is None:
            return await asyncio.Future()
        if isinstance(said, Exception):
            raise said
        return said

    return ask


class TestMostSay:
    @pytest.mark.parametrize(
        ("nodes", "where"),
        [
            ({"a": HERE}, HERE),
            ({"a": HERE, "b": THERE, "c": THERE}, THERE),
            ({"a": None, "b": THERE, "c": THERE}, THERE),  # one is frozen
            ({"a": None, "b": None, "c": THERE}, THERE),
            ({"a": OSError("gone"), "b": OSError("gone"), "c": HERE}, HERE),
        ],
    )
    async def test_most_are_believed(self, nodes: Said, where: HostAndPort) -> None:
        assert await most_say(list(nodes), saying(**nodes), deadline()) == where

    @pytest.mark.parametrize(
        ("nodes", "error"),
        [
            ({"a": None, "b": None}, TimeoutError),
            ({"a": OSError("gone"), "b": AuthenticationError("no")}, AuthenticationError),
            ({"a": OSError("gone"), "b": ResponseError("CLUSTERDOWN")}, ResponseError),
            ({"a": OSError("gone"), "b": RedisConnectionError("closed")}, RedisConnectionError),
        ],
    )
    async def test_the_weightiest_reason_is_told(self, nodes: Said, error: type[Exception]) -> None:
        with pytest.raises(error):
            await most_say(list(nodes), saying(**nodes), 0.1)


class TestNodes:
    def test_each_is_a_url_of_its_own(self) -> None:
        nodes = Nodes("rediss+cluster://u:p%2C@a:1,[::1]:2,c/?ca_file=x")
        assert nodes.all == [
            "rediss://u:p%2C@a:1/?ca_file=x",
            "rediss://u:p%2C@[::1]:2/?ca_file=x",
            "rediss://u:p%2C@c:6379/?ca_file=x",
        ]

    def test_those_heard_of_are_asked_as_well(self) -> None:
        nodes = Nodes("redis+cluster://a:1")
        assert nodes.at("b", 2) == "redis://b:2"
        nodes.at("c", 3)
        nodes.at("a", 1)
        assert nodes.all == ["redis://a:1", "redis://c:3", "redis://b:2"]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RedisCluster]:
    async with RedisCluster(tmp_path) as cluster:
        yield cluster


class TestCluster:
    async def test_wakes_come_from_the_node_that_has_the_slot(self, cluster: RedisCluster) -> None:
        """And where that is frozen, its replica is followed."""
        keys = Keys("woken")
        client, listening = (StoreClient(cluster.url, keys) for _ in range(2))
        try:
            async with asyncio.timeout(deadline()), listening.wakes() as wakes:
                assert await anext(wakes) == b"all"
                await enqueue(client, "a")
                assert await anext(wakes) == b"plain"
            leader = await cluster.leader_of(keys("count"))
            await leader.pause()
            await enqueue(client, "b")
            await leader.kill()
        finally:
            await client.close()
            await listening.close()

    async def test_a_slot_on_the_move_refuses_scripts(self, cluster: RedisCluster) -> None:
        """Key by key: some are gone, some are there, and the first that is gone ends a script.

        Then wakes come from elsewhere: who listens at the node of before is told so.
        """
        keys = Keys("moving")
        client, listening = (StoreClient(cluster.url, keys) for _ in range(2))
        try:
            await enqueue(client, "a")
            leader = await cluster.leader_of(keys("count"))
            target = next(node for node in cluster.primaries if node is not leader)
            source, slot = await begin_move(cluster, keys("count"), target)
            before = await command(source, f"LLEN {keys('plain')}")
            with pytest.raises(StoreUnavailable):
                await Enqueuer(client).enqueue([arrival("b")])
            assert await command(source, f"LLEN {keys('plain')}") == before
            moved = 0
            while await move_keys(source, slot, target, 1):
                moved += 1
                with pytest.raises(StoreUnavailable):
                    await Enqueuer(client).enqueue([arrival("b")])
            assert moved
            async with asyncio.timeout(deadline()), listening.wakes() as wakes:
                assert await anext(wakes) == b"all"
                await end_move(source, slot, target)
                with pytest.raises(StoreUnavailable):
                    await anext(wakes)
            asked, serves = InCluster(cluster.url, keys("count")), address_of(target.url)

            async def all_know() -> bool:  # who asks before may be sent to the node of before
                return set((await asked.told(deadline())).values()) == {serves}

            await until(all_know, "some nodes never heard of the move")
            async with asyncio.timeout(deadline()), listening.wakes() as wakes:
                assert await anext(wakes) == b"all"
                await enqueue(client, "b")
                assert await anext(wakes) == b"plain"
            assert await command(target, f"LLEN {keys('plain')}") == "2"
        finally:
            await client.close()
            await listening.close()
