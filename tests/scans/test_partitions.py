"""Scans over a namespace of several partitions: each shard lies where its group does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groupflow import Scan
from groupflow.core.measures import ScanMeasures
from groupflow.flow.settling import Ran, settlement_of
from groupflow.operate.scans import Scans
from groupflow.scans.shards import Shards, Stores
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.given import Claim
from groupflow.store.keys import Keys
from groupflow.store.scans import Record, group_of
from tests.operate.spread import Spread
from tests.scans.machine import POLICIES
from tests.scans.table import Table, scan_of
from tests.store.bench import Daemon
from tests.store.task_state import pass_time

SHARDS = 7


class Wide:
    """One daemon with a scan, on all partitions."""

    def __init__(
        self, spread: Spread, daemons: list[Daemon], scan: Scan, common: StoreClient
    ) -> None:
        self.spread = spread
        self.daemons = daemons
        clients = [bench.client for bench in spread.benches]
        self.shards = Shards([scan], Stores(common, clients), {"orders": ScanMeasures()})

    async def record(self) -> Record:
        """What is agreed about the scan."""
        found = await self.shards.records.look("orders")
        assert found is not None
        return found

    async def run(self, daemon: Daemon, claim: Claim) -> object:
        """Run a claim and settle it."""
        runner = self.shards.runner(claim.task.type)
        outcome = await runner.handle(claim.task)
        policy = POLICIES.of(claim.rule, runner.retry)
        settlement = settlement_of(claim, outcome, policy, Ran(0.0, 0.0, daemon.name))
        assert (await daemon.exchange("grouped", [settlement], []))[0] == []
        return outcome

    async def until_asleep(self) -> None:
        """Work until no partition gives anything."""
        for daemon in self.daemons:
            while claims := await daemon.claim("grouped", "w1"):
                await self.run(daemon, claims[0])

    async def rounds(self, number: int) -> None:
        """Let all wake up, and work until they sleep again."""
        for _ in range(number):
            for bench in self.spread.benches:
                await pass_time(bench)
            await self.until_asleep()
            await self.shards.keep()


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    """A namespace of three partitions, whose structure is sound when the test is over."""
    spread = Spread(redis_server.url, 3)
    try:
        yield spread
        assert [bench.audit() for bench in spread.benches] == [[], [], []]
    finally:
        await spread.close()


@pytest.fixture
async def common(spread: Spread) -> AsyncIterator[StoreClient]:
    """A client of what all partitions share."""
    client = spread.benches[0].client.beside(Keys(spread.name))
    try:
        yield client
    finally:
        await client.erase_namespace()
        await client.close()


async def start(spread: Spread, common: StoreClient, scan: Scan, name: str = "d1") -> Wide:
    """A daemon that has begun: all shards are there."""
    machine = Wide(spread, await spread.daemons(name), scan, common)
    await machine.shards.keep()
    return machine


async def test_each_shard_lies_where_its_group_does(spread: Spread, common: StoreClient) -> None:
    table = Table(set(range(100)))
    machine = await start(spread, common, scan_of(table, shards=SHARDS, idle=3600.0))
    record = await machine.record()
    places = [spread.place_of(group_of("orders", n)) for n in range(SHARDS)]
    assert len(set(places)) > 1
    for n, place in enumerate(places):
        bench = spread.benches[place]
        assert bench.raw.hexists(bench.keys("tasks"), record.id_of(n))
    await machine.until_asleep()
    assert sorted(table.done) == list(range(100))
    # All of them are woken, wherever they lie, and seen as of one.
    table.open = set(range(100, 120))
    assert await machine.shards.wake("orders")
    await machine.until_asleep()
    assert sorted(table.done) == list(range(120))
    scans = Scans(spread.namespace)
    (story,) = await scans.every()
    assert (story.shards, story.idle, story.rows_done) == (SHARDS, SHARDS, 120)
    assert [each.index for each in await scans.shards("orders")] == list(range(SHARDS))


async def test_another_number_of_shards(spread: Spread, common: StoreClient) -> None:
    table = Table(set(range(120)))
    machine = await start(
        spread, common, scan_of(table, cursor=True, on_retry="hold", shards=SHARDS)
    )
    for daemon in machine.daemons:
        await machine.run(daemon, await daemon.claim_one())
    scan = scan_of(table, cursor=True, on_retry="hold", shards=4)
    machine = await start(spread, common, scan, "d2")
    await machine.rounds(12)
    assert sorted(table.done) == list(range(120))
    record = await machine.record()
    assert (record.count, record.generation, record.closing) == (4, 2, False)
    counts = [bench.count("queued_grouped") for bench in spread.benches]
    assert sum(counts) == 4


async def test_the_last_shard_dies_before_the_next_word(
    spread: Spread, common: StoreClient
) -> None:
    """All have told that they ended, and nobody has begun the next: any daemon does."""
    table = Table(set(range(40)))
    machine = await start(spread, common, scan_of(table, shards=2))
    await machine.until_asleep()
    await machine.shards.records.open("orders", 3)
    record = await machine.record()
    left = {"deferred": {}, "dead": {}, "done": 20}
    for index in range(2):
        assert await machine.shards.records.report(record, "ended", index, left)
    await machine.shards.keep()
    begun = await machine.record()
    assert (begun.generation, begun.count, begun.done) == (2, 3, 40)
    table.open = {100, 101, 102}
    await machine.rounds(2)
    assert sorted(table.done)[-3:] == [100, 101, 102]
    for daemon in machine.daemons:  # what was left of the old ones ends
        assert not await daemon.claim("grouped", "w1")
