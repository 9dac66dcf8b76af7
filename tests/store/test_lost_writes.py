"""Real servers that lose their last writes, or don't: what goes on, and what waits (S10, S11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from groupflow.core.errors import SessionLost, StoreUnavailable, TooFewReplicas
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.keys import Keys
from groupflow.store.replica_wait import ReplicaWait
from groupflow.store.sessions import Sessions
from tests.deadlines import deadline
from tests.servers.replicated import WatchedRedis, command, until
from tests.store.bench import Bench, Daemon, arrival, ids

_Answer = TypeVar("_Answer")

LEASE = 3600.0  # seconds; no test waits for it here


async def begin(bench: Bench, *names: str) -> list[Daemon]:
    """Daemons with sessions, each of which the others would miss."""
    daemons = [Daemon(bench, name) for name in names]
    for daemon in daemons:
        daemon.sessions = Sessions(bench.client, daemon.session, LEASE)
        await daemon.register()
    for daemon in daemons * 3:
        await daemon.sessions.renew()
    return daemons


async def persist(call: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Call, as soon as there is a server that answers: Sentinel ends connections as it goes on."""
    async with asyncio.timeout(deadline()):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def renew(daemon: Daemon) -> None:
    await persist(daemon.sessions.renew)


async def claim(daemon: Daemon, *workers: str) -> list[str]:
    return ids(await persist(partial(daemon.claim, "grouped", *workers)))


def appended(folder: Path) -> dict[Path, bytes]:
    """What a server has in its append-only files."""
    return {file: file.read_bytes() for file in folder.rglob("*.aof")}


async def test_a_restart_that_loses_its_last_second_gives_no_task_to_two(tmp_path: Path) -> None:
    async with RedisServer(tmp_path) as server, Bench(server.url) as store:
        await store.enqueue(arrival("a0", "a"), arrival("b0", "b"))
        first, second = await begin(store, "d1", "d2")
        kept = appended(tmp_path)
        assert any(b"HSET" in text for text in kept.values())
        lost = await second.claim_one()
        await server.kill()
        for file, text in kept.items():
            file.write_bytes(text)
        await server.start()
        await renew(first)
        assert await claim(first, "w1", "w2") == []
        with pytest.raises(SessionLost):
            await renew(second)
        assert await claim(first, "w1", "w2") == []
        second.drop(lost)
        assert await second.sessions.register({}) == []
        assert await claim(first, "w1", "w2") == ["a0", "b0"]
        assert store.judge() == []


async def leads(server: RedisServer) -> bool:
    try:
        return "role:master" in await command(server, "INFO replication")
    except ConnectionError:  # Sentinel cuts the connections of one that it promotes
        return False


async def test_a_fail_over_that_loses_writes_starts_nothing_twice_and_loses_nothing_acked(
    tmp_path: Path,
) -> None:
    async with WatchedRedis(tmp_path, replicas=1) as servers:
        primary, replica = servers.nodes
        store = Bench(primary.url, keys=Keys("watched"))
        store.client = StoreClient(servers.url, store.keys, timeout=deadline(1.0))
        writer = Enqueuer(store.client, replica_wait=ReplicaWait(1, 0.3))
        await writer.enqueue([arrival("a0", "a"), arrival("b0", "b")])
        first, second = await begin(store, "d1", "d2")
        await writer.enqueue([arrival("c0", "c")])
        await replica.pause()
        await command(primary, "CLIENT KILL TYPE replica")
        batch = [arrival("d0", "d")]
        with pytest.raises(TooFewReplicas):
            await writer.enqueue(batch)
        (lost,) = await second.claim("grouped", "w1")
        await primary.kill()
        await replica.resume()
        await until(partial(leads, replica), "no replica was promoted")
        await renew(first)
        assert await claim(first, "w1") == []
        with pytest.raises(SessionLost):
            await renew(second)
        assert await claim(first, "w1") == []
        second.drop(lost)
        await persist(partial(second.sessions.register, {}))
        (again,) = await persist(partial(first.claim, "grouped", "w1"))
        assert (again.task.id, again.task.crashes) == (lost.task.id, 0)
        assert again.fence > lost.fence
        # What was not acked is taken in now; what was is there.
        assert (await persist(partial(Enqueuer(store.client).enqueue, batch))).taken == [True]
        assert sorted(await claim(first, "w2", "w3", "w4")) == ["b0", "c0", "d0"]
        stranger = StoreClient(servers.url.replace("mymaster", "other"), store.keys)
        with pytest.raises(StoreUnavailable, match="no primary named 'other'"):
            await stranger.ping()
        for client in (store.client, stranger):
            await client.close()
        store.raw.close()
