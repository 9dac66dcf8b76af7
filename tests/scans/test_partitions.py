"""Scans over a namespace of several partitions: each shard lies where its group does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from groupflow import Scan
from groupflow.operate.scans import Scans
from groupflow.servers import RedisServer
from groupflow.store.keys import Keys
from groupflow.store.scans import group_of
from tests.operate.spread import Spread
from tests.scans.machine import Machine
from tests.scans.table import Table, scan_of

SHARDS = 7
Start = Callable[..., Awaitable[Machine]]


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
async def start(spread: Spread) -> AsyncIterator[Start]:
    """Starts a daemon on all partitions, and forgets what these share."""
    common = spread.benches[0].client.beside(Keys(spread.name))

    async def start(scan: Scan, name: str = "d1") -> Machine:
        machine = Machine(await spread.daemons(name), common, scan)
        await machine.shards.keep()
        return machine

    try:
        yield start
    finally:
        await common.erase_namespace()
        await common.close()


async def test_each_shard_lies_where_its_group_does(spread: Spread, start: Start) -> None:
    table = Table({*range(100)})
    machine = await start(scan_of(table, shards=SHARDS, idle=3600.0))
    record = await machine.record()
    places = [spread.place_of(group_of("orders", n)) for n in range(SHARDS)]
    assert len(set(places)) > 1
    for n, place in enumerate(places):
        bench = spread.benches[place]
        assert bench.raw.hexists(bench.keys("tasks"), record.id_of(n))
    await machine.work_off()
    assert sorted(table.done) == list(range(100))
    # All of them are woken, wherever they lie, and seen as of one.
    table.open = set(range(100, 120))
    assert await machine.shards.wake("orders")
    await machine.work_off()
    assert sorted(table.done) == list(range(120))
    scans = Scans(spread.namespace)
    (story,) = await scans.every()
    assert (story.shards, story.idle, story.rows_done) == (SHARDS, SHARDS, 120)
    assert [each.index for each in await scans.shards("orders")] == list(range(SHARDS))


async def test_another_number_of_shards(spread: Spread, start: Start) -> None:
    table = Table({*range(120)})
    machine = await start(scan_of(table, cursor=True, on_retry="hold", shards=SHARDS))
    for at in range(len(spread.benches)):
        assert await machine.turn(at) is not None
    machine = await start(scan_of(table, cursor=True, on_retry="hold", shards=4), "d2")
    await machine.rounds(12)
    assert sorted(table.done) == list(range(120))
    record = await machine.record()
    assert (record.count, record.generation, record.closing) == (4, 2, False)
    assert sum(bench.count("queued_grouped") for bench in spread.benches) == 4


async def test_the_last_shard_dies_before_the_next_word(start: Start) -> None:
    """All have told that they ended, and nobody has begun the next: any daemon does."""
    table = Table({*range(40)})
    machine = await start(scan_of(table, shards=2))
    await machine.work_off()
    records = machine.shards.records
    await records.open("orders", 3)
    record = await machine.record()
    for index in range(2):
        left = {"deferred": {}, "dead": {}, "done": 20}
        assert await records.report(record, "ended", index, left)
    await machine.shards.keep()
    begun = await machine.record()
    assert (begun.generation, begun.count, begun.done) == (2, 3, 40)
    table.open = {100, 101, 102}
    await machine.rounds(2)
    assert sorted(table.done)[-3:] == [100, 101, 102]
    assert await machine.work_off() == 0, "what was left of the old ones ends"
