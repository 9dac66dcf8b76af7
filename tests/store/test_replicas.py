"""A batch counts as written once a replica has it (S11); and servers that lose their last writes.

What goes on then, and what waits (S10).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from groupflow.core.errors import SessionLost, StoreUnavailable, TooFewReplicas
from groupflow.operate.moving import Mover, move_letter
from groupflow.operate.tasks import end_cancelled
from groupflow.servers import RedisServer
from groupflow.store.cancelling import Named
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of
from groupflow.store.scans import ScanRecords
from groupflow.store.wire import ReplicaWait
from tests.deadlines import deadline
from tests.servers.replicated import WatchedRedis, command, leads, persist, until
from tests.servers.valkey import ValkeyServer
from tests.store.bench import Bench, Daemon, arrival, ids

TIMEOUT = 0.2  # seconds
COPIES = ReplicaWait(1, TIMEOUT)
# On Valkey, a script that writes nothing waits for no replica.
ON_BOTH = pytest.mark.parametrize(
    "pair", [RedisServer, ValkeyServer], ids=["redis", "valkey"], indirect=True
)


class Pair:
    """A primary with a replica, and a bench on the former."""

    def __init__(self, primary: RedisServer, replica: RedisServer, bench: Bench) -> None:
        self.primary = primary
        self.replica = replica
        self.bench = bench

    def enqueuer(self, replica_wait: ReplicaWait = COPIES) -> Enqueuer:
        """What intake writes through."""
        return Enqueuer(self.bench.client, "d1", replica_wait=replica_wait)

    async def queued(self) -> str:
        """How many plain tasks the replica has."""
        return await command(self.replica, f"LLEN {self.bench.keys('plain')}")


@pytest.fixture
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    # A primary that ends waits ten seconds for a replica that is behind, unless told not to.
    extra = ("--repl-diskless-sync-delay", "0", "--shutdown-timeout", "0")
    kind: type[RedisServer] = getattr(request, "param", RedisServer)
    primary, replica = (kind(tmp_path / name, extra=extra) for name in ("one", "two"))
    async with primary, replica:
        await command(replica, f"REPLICAOF 127.0.0.1 {primary.port}")

        async def follows() -> bool:
            return "master_link_status:up" in await command(replica, "INFO replication")

        await until(follows, "the replica did not come")
        async with Bench(primary.url) as bench:
            yield Pair(primary, replica, bench)
            assert bench.judge() == []


async def test_a_batch_waits_for_its_replica_and_is_written_once(pair: Pair) -> None:
    enqueuer, batch = pair.enqueuer(), [arrival("p0"), arrival("p1")]
    await pair.replica.pause()
    for _ in range(3):
        with pytest.raises(TooFewReplicas, match=r"0 replicas .* redis\.replicas is 1"):
            await enqueuer.enqueue(list(batch))
    assert pair.bench.count("taken") == 2
    assert pair.bench.count("duplicates") == 0
    await pair.replica.resume()
    enqueued = await persist(partial(enqueuer.enqueue, batch))
    assert enqueued.taken == [True, True], "the answer is that of the first time"
    assert await pair.queued() == "2"


async def test_a_batch_whose_connection_is_gone_is_known_at_the_next(pair: Pair) -> None:
    """Another server may be at the other end: there it must be written, or be known."""
    enqueuer, batch = pair.enqueuer(), [arrival("p0")]
    await pair.replica.pause()
    with pytest.raises(TooFewReplicas):
        await enqueuer.enqueue(batch)
    await command(pair.primary, "CLIENT KILL TYPE normal SKIPME yes")
    with pytest.raises(StoreUnavailable):
        await enqueuer.enqueue(batch)
    with pytest.raises(TooFewReplicas):
        await enqueuer.enqueue([arrival("p1")])
    await pair.replica.resume()
    enqueued = await persist(partial(enqueuer.enqueue, batch))
    assert enqueued.taken == [False], "p1's answer is not that of p0"
    assert await pair.queued() == "2"


async def test_claims_go_on_meanwhile_and_find_what_waits(pair: Pair) -> None:
    """On a connection of their own; Redis wakes them, as no daemon claims right behind."""
    daemon = await pair.bench.daemon("d1")
    other = Bench(pair.primary.url, keys=pair.bench.keys)
    try:
        await pair.replica.pause()
        async with asyncio.timeout(deadline()), other.client.wakes() as wakes:
            assert await anext(wakes) == b"all"
            enqueuer = Enqueuer(other.client, "d1", replica_wait=ReplicaWait(1, 30.0))
            writing = asyncio.create_task(enqueuer.enqueue([arrival("p0")]))
            assert await anext(wakes) == b"plain"
            claims = await daemon.claim("plain", "w1")
            assert ids(claims) == ["p0"]
            assert await daemon.complete(*claims) == []
            assert not writing.done()
            await pair.replica.resume()
            assert (await writing).taken == [True]
    finally:
        await other.client.close()
        other.raw.close()


@ON_BOTH
async def test_a_message_that_cancels_waits_for_a_replica(pair: Pair) -> None:
    """Also where it is heard again, by another connection, and finds its task over."""
    await pair.bench.enqueue(arrival("p0"))
    await pair.replica.pause()
    for _ in range(2):
        other = Bench(pair.primary.url, keys=pair.bench.keys)
        with pytest.raises(TooFewReplicas, match=r"0 replicas .* redis\.replicas is 1"):
            await Enqueuer(other.client, replica_wait=COPIES).cancel([Named("p0", "")])
        await other.client.close()
        other.raw.close()
        await end_cancelled(pair.bench.client, "p0", "")
    await pair.replica.resume()
    enqueuer = Enqueuer(pair.bench.client, replica_wait=ReplicaWait(1, 30.0))
    [found] = await enqueuer.cancel([Named("p0", "")])
    assert found.verdict == "over"
    assert "cancelled" in await command(pair.replica, f"HGET {pair.bench.keys('history_new')} p0")


async def test_what_a_shard_tells_before_it_ends_waits_for_its_replica(pair: Pair) -> None:
    """Told again, it is waited for again: a scan whose last word is lost would never change."""
    records = ScanRecords(pair.bench.client, COPIES)
    await records.open("orders", 1)
    await records.open("orders", 2)
    record = await records.look("orders")
    assert record is not None
    await pair.replica.pause()
    for _ in range(2):
        with pytest.raises(TooFewReplicas, match=r"0 replicas .* redis\.replicas is 1"):
            await records.report(record, "ended", 0, {"done": 1})
    await pair.replica.resume()
    records_that_wait = ScanRecords(pair.bench.client, ReplicaWait(1, 30.0))
    told = await records_that_wait.report(record, "ended", 0, {"done": 2})
    assert told is not None
    assert told.ended == {0: {"done": 1}}
    key = pair.bench.keys("scan", "orders")
    assert "done" in await command(pair.replica, f"HGET {key} ended:0")


@ON_BOTH
async def test_what_moves_to_another_partition_stays_until_a_replica_has_it(pair: Pair) -> None:
    """Also where an earlier process has written it there."""
    await pair.bench.enqueue(arrival("p0"))
    await pair.replica.pause()
    for _ in range(2):
        there = [StoreClient(pair.primary.url, keys) for keys in keys_of("moved", 2)]
        with pytest.raises(TooFewReplicas, match=r"0 replicas .* redis\.replicas is 1"):
            await Mover(pair.bench.client, there, COPIES).move("plain")
        for each in there:
            await each.close()
    assert pair.bench.raw.llen(pair.bench.keys("plain")) == 1


async def test_a_letter_that_goes_to_its_group_stays_until_a_replica_has_it(pair: Pair) -> None:
    envelope = Envelope("t", None, None, None, {}, b"{}")
    await pair.bench.enqueue(Arrival("d0", envelope, dead="no"))
    await pair.replica.pause()
    there = StoreClient(pair.primary.url, keys_of("moved", 2)[0])
    for _ in range(2):
        with pytest.raises(TooFewReplicas, match=r"0 replicas .* redis\.replicas is 1"):
            await move_letter(pair.bench.client, there, "d0", COPIES)
        assert pair.bench.raw.zscore(pair.bench.keys("dead"), "d0") is not None
    await pair.replica.resume()
    assert await move_letter(pair.bench.client, there, "d0", ReplicaWait(1, 30.0)) == "d0"
    assert pair.bench.raw.zscore(pair.bench.keys("dead"), "d0") is None
    assert await move_letter(there, pair.bench.client, "d0") == "d0"  # where the judge looks for it
    await there.close()


async def begin(bench: Bench, *names: str) -> list[Daemon]:
    """Daemons with sessions, each of which the others would miss."""
    daemons = [await bench.daemon(name) for name in names]
    for daemon in daemons * 3:
        await daemon.sessions.renew()
    return daemons


async def renew(daemon: Daemon) -> None:
    await persist(daemon.sessions.renew)


async def claim(daemon: Daemon, *workers: str) -> list[str]:
    return ids(await persist(partial(daemon.claim, "grouped", *workers)))


async def appended(server: RedisServer) -> dict[Path, bytes]:
    """What is in a server's append-only files, once all that it did is.

    While a disk is slow to take what it wrote before, Redis holds the rest back.
    """

    async def holds_nothing_back() -> bool:
        return "aof_buffer_length:0\r" in await command(server, "INFO persistence")

    await until(holds_nothing_back, "it holds writes back")
    return {file: file.read_bytes() for file in server.folder.rglob("*.aof")}


async def test_a_restart_that_loses_its_last_second_gives_no_task_to_two(tmp_path: Path) -> None:
    async with RedisServer(tmp_path) as server, Bench(server.url) as store:
        await store.enqueue(arrival("a0", "a"), arrival("b0", "b"))
        first, second = await begin(store, "d1", "d2")
        kept = await appended(server)
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


async def test_a_fail_over_starts_nothing_twice_and_loses_nothing_acked(tmp_path: Path) -> None:
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
