"""A shard goes through its rows page by page, sleeps, and lets nobody else at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from groupflow import Scan, Shard
from groupflow.core.outcome import Turn
from tests.scans.machine import Machine
from tests.scans.table import Table, scan_of
from tests.store.bench import Bench, arrival


async def test_every_row_is_done_once(bench: Bench) -> None:
    table = Table(set(range(95)))
    machine = await Machine.start(bench, scan_of(table, shards=4))
    await machine.until_asleep()
    assert sorted(table.done) == list(range(95))
    assert table.open == set()
    assert machine.measures["orders"].done == 95


async def test_an_empty_table_costs_one_fetch_a_sleep(bench: Bench) -> None:
    table = Table()
    machine = await Machine.start(bench, scan_of(table, shards=3, idle=7.0))
    assert await machine.until_asleep() == 3
    assert len(table.pages) == 3
    assert await machine.until_asleep() == 0
    assert await machine.round() == 3
    assert len(table.pages) == 6


async def test_a_shard_sleeps_for_as_long_as_it_says(bench: Bench) -> None:
    machine = await Machine.start(bench, scan_of(Table(), idle=7.0))
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == 7.0
    assert (bench.count("queued_grouped"), bench.count("running_grouped")) == (1, 0)


async def test_others_of_the_group_get_their_turn_between_pages(bench: Bench) -> None:
    table = Table(set(range(30)))
    machine = await Machine.start(bench, scan_of(table))
    await machine.turn()
    await bench.enqueue(arrival("guest", "scan:orders:0"))
    await machine.turn()
    claim = await machine.claim()
    assert claim.task.id == "guest"
    assert len(table.done) == 20
    await machine.daemon.complete(claim)
    await machine.until_asleep()
    assert len(table.done) == 30


async def test_two_daemons_make_the_shards_once(bench: Bench) -> None:
    table = Table(set(range(20)))
    first = await Machine.start(bench, scan_of(table, shards=2))
    second = await Machine.start(bench, scan_of(table, shards=2), name="d2")
    assert bench.count("queued_grouped") == 2
    one, other = await first.claim(), await second.claim()
    assert {one.task.group, other.task.group} == {"scan:orders:0", "scan:orders:1"}
    assert await first.settle(one, await first.outcome(one))
    assert await second.settle(other, await second.outcome(other))


async def test_a_killed_daemons_page_goes_on_elsewhere_from_its_rows(bench: Bench) -> None:
    """Its rows are marked one by one, so none is done twice; its late word is refused."""
    table = Table(set(range(30)))
    bench.with_faults = True
    first = await Machine.start(bench, scan_of(table))
    claim = await first.claim()
    late = await first.outcome(claim)
    second = await Machine.start(bench, scan_of(table), name="d2")
    assert await second.turn() is None  # two would be at the shard at once
    bench.expire("d1")
    await second.daemon.sessions.reap()
    await second.until_asleep()
    assert not await _accepts(first, claim, late)
    assert table.done == list(range(30))


async def _accepts(machine: Machine, claim: object, outcome: object) -> bool:
    try:
        return await machine.settle(claim, outcome)  # type: ignore[arg-type]
    except Exception:
        return False


async def test_a_cursor_goes_on_where_it_was(bench: Bench) -> None:
    table = Table(set(range(40)))
    machine = await Machine.start(bench, scan_of(table, cursor=True, on_retry="hold", shards=2))
    await machine.until_asleep()
    assert sorted(table.done) == list(range(40))
    table.open |= {40, 41, 57}
    await machine.round()
    assert sorted(table.done) == [*range(40), 40, 41, 57]
    assert ((await machine.state(0))["after"], (await machine.state(1))["after"]) == (40, 57)


async def test_rows_out_of_order_stop_a_cursor(bench: Bench) -> None:
    """What comes behind a later place would be passed over for good."""
    scan = Scan("orders")

    @scan.fetch
    async def fetch(shard: object) -> list[int]:
        return [3, 1, 2]

    done: list[int] = []

    @scan.find
    async def find(keys: object, shard: object) -> list[int]:
        return []

    @scan.row(key=str, after=int)
    async def work(row: int, shard: object) -> None:
        done.append(row)

    machine = await Machine.start(bench, scan)
    await machine.turn()
    assert done == []
    assert "order of their places" in (await machine.state())["trouble"]


async def test_a_database_that_is_away_fails_no_row(bench: Bench) -> None:
    table = Table({1, 2}, away="connection refused")
    machine = await Machine.start(bench, scan_of(table))
    pauses = []
    for _ in range(7):
        outcome = await machine.turn()
        assert isinstance(outcome, Turn)
        pauses.append(outcome.after)
        await machine.wake_up()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert "connection refused" in (await machine.state())["trouble"]
    table.away = ""
    await machine.until_asleep()
    assert table.done == [1, 2]
    assert (await machine.state())["trouble"] == ""


async def test_no_connection_for_the_rows_fails_none(bench: Bench) -> None:
    class Away(Scan):
        @asynccontextmanager
        async def working(self, shard: Shard) -> AsyncIterator[Shard]:
            raise OSError("connection refused")
            yield shard

    table = Table({1})
    scan = Away("orders")
    scan.fetch(table.fetch)
    scan.row(key=int)(table.work)
    machine = await Machine.start(bench, scan)
    assert isinstance(await machine.turn(), Turn)
    state = await machine.state()
    assert (state["trouble"], state["deferred"]) == ("OSError: connection refused", {})


async def test_an_exit_in_a_fetch_is_trouble_and_no_end(bench: Bench) -> None:
    scan = scan_of(Table())

    @scan.fetch
    async def fetch(shard: object) -> list[int]:
        raise SystemExit(3)

    machine = await Machine.start(bench, scan)
    assert isinstance(await machine.turn(), Turn)
    assert "SystemExit" in (await machine.state())["trouble"]


async def test_a_row_may_take_only_so_long(bench: Bench) -> None:
    table = Table({1})
    scan = scan_of(table, timeout=0.01, max_attempts=2)

    @scan.row(key=int)
    async def work(row: int, shard: object) -> None:
        await asyncio.Event().wait()

    machine = await Machine.start(bench, scan)
    await machine.until_asleep()
    assert machine.measures["orders"].dead == 1


@pytest.mark.parametrize("find", [True, False])
async def test_a_fetch_may_take_only_so_long(bench: Bench, find: bool) -> None:
    """A database that answers nothing holds no worker for ever; no row has failed of it."""
    table = Table({1}, broken=lambda row: True)
    scan = scan_of(table, find=find, fetch_timeout=0.01)
    machine = await Machine.start(bench, scan)
    await machine.turn()

    async def wait(*_: object) -> list[int]:
        await asyncio.Event().wait()
        return []

    (scan.find if find else scan.fetch)(wait)
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == 1.0
    what = "find" if find else "fetch"
    state = await machine.state()
    assert state["trouble"] == f"TimeoutError: {what} took over 0.01 s (fetch_timeout)"
    assert state["deferred"]["1"][0] == 1


async def test_a_timeout_of_the_database_is_told_as_it_is(bench: Bench) -> None:
    scan = scan_of(Table())

    @scan.fetch
    async def fetch(shard: object) -> list[int]:
        raise TimeoutError("the pool has no connection")

    machine = await Machine.start(bench, scan)
    await machine.turn()
    assert (await machine.state())["trouble"] == "TimeoutError: the pool has no connection"


async def test_a_cancelled_turn_writes_nothing(bench: Bench) -> None:
    """As when the lease ends, or the daemon stops: the task goes back as it was."""
    scan = scan_of(Table({1}))
    begun = asyncio.Event()

    @scan.row(key=int)
    async def work(row: int, shard: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    machine = await Machine.start(bench, scan)
    claim = await machine.claim()
    attempt = asyncio.create_task(machine.outcome(claim))
    await begun.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"name": "a b"}, "the scan's name"),
        ({"shards": 0}, "shards = 0"),
        ({"page": 0}, "page = 0"),
        ({"idle": 0}, "idle = 0"),
        ({"max_attempts": 0}, "max_attempts = 0"),
        ({"interval": 0}, "interval = 0"),
        ({"jitter": 2}, "jitter = 2"),
        ({"on_retry": "wait"}, "on_retry = 'wait'"),
        ({"timeout": 0}, "timeout = 0"),
        ({"fetch_timeout": 0}, "fetch_timeout = 0"),
    ],
)
def test_what_can_not_be(facts: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Scan(**{"name": "orders", **facts})  # type: ignore[arg-type]


def test_a_scan_has_all_its_functions() -> None:
    scan = Scan("orders")
    with pytest.raises(ValueError, match="no @fetch"):
        scan.check()
    with pytest.raises(ValueError, match="coroutine function"):
        scan.fetch(lambda shard: [])  # type: ignore[type-var]
    scan.fetch(Table().fetch)
    with pytest.raises(ValueError, match="no @row"):
        scan.check()
    scan.row(key=int, after=int)(Table().work)
    with pytest.raises(ValueError, match="needs @find"):
        scan.check()
