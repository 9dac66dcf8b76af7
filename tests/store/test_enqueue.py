"""enqueue: a batch becomes durable, in order, once."""

from __future__ import annotations

import asyncio
import itertools

from groupflow.servers import RedisServer
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer, pools_of
from groupflow.store.given import Claim
from tests.deadlines import deadline
from tests.store.bench import Bench, arrival, ids


async def test_order_is_the_batches(bench: Bench) -> None:
    """Tasks wait in the order given, within a batch and from batch to batch."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("b0", "b"))
    await bench.enqueue(arrival("a3", "a"), arrival("p0"), arrival("p1"))
    assert bench.lane("a") == ["a0", "a1", "a2", "a3"]
    daemon = await bench.daemon()
    ran = await daemon.work_off(["w1"])
    assert ran == ["p0", "a0", "p1", "a1", "a2", "b0", "a3"]
    assert bench.judge_drained() == []


async def test_first_of_all_groups_goes_first(bench: Bench) -> None:
    """Of the free groups the one whose head came first is claimed first."""
    await bench.enqueue(arrival("c0", "c"), arrival("a0", "a"), arrival("b0", "b"))
    daemon = await bench.daemon()
    assert ids(await daemon.claim("grouped", "w1", "w2", "w3")) == ["c0", "a0", "b0"]


async def test_counts(bench: Bench) -> None:
    """It answers how many wait in all; the status tells plain from grouped."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("p0"))
    status = await bench.status()
    assert (status.queued_plain, status.queued_grouped) == (1, 2)
    assert (status.groups, status.ready) == (1, 1)


async def test_duplicate_while_waiting_running_dead_and_done(bench: Bench) -> None:
    """An id that is known is dropped, in each state of its task."""
    same = arrival("a0", "a")
    assert await bench.enqueue(same, same) == [True, False]
    assert await bench.enqueue(same) == [False]
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    assert await bench.enqueue(same, arrival("a1", "a")) == [False, True]
    await daemon.complete(claim)
    assert await bench.enqueue(same) == [False]
    assert await bench.enqueue(arrival("x", dead="no"), arrival("x")) == [True, False]
    assert bench.count("duplicates") == 5
    assert await daemon.work_off() == ["a1"]


async def test_one_id_in_two_groups_is_one_task(bench: Bench) -> None:
    """The id decides, not the group nor the body."""
    assert await bench.enqueue(arrival("x", "a"), arrival("x", "b"), arrival("x")) == [
        True,
        False,
        False,
    ]
    assert (await bench.status()).groups == 1


async def test_dead_on_arrival(bench: Bench) -> None:
    """What can't be routed is a dead letter at once, and holds no other up."""
    dead = arrival("bad", dead="not JSON")
    assert await bench.enqueue(arrival("a0", "a"), dead, arrival("a1", "a")) == [True] * 3
    status = await bench.status()
    assert (status.dead, status.buried_total, status.queued_grouped) == (1, 1, 2)
    assert bench.raw.hget(bench.keys("task_state", "bad"), "reason") == b"not JSON"
    packed = bench.raw.hget(bench.keys("tasks"), "bad")
    assert isinstance(packed, bytes)
    assert packed.endswith(b'\n{"id":"bad"}')
    daemon = await bench.daemon()
    assert await daemon.work_off() == ["a0", "a1"]


async def test_priority_overtakes_in_its_pool_not_in_its_group(bench: Bench) -> None:
    """Priority counts as age: among plain tasks and among groups' heads, never inside a group."""
    await bench.enqueue(arrival("p0"), arrival("p1", priority=60.0), arrival("p2", priority=-60.0))
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a", priority=60.0))
    await bench.enqueue(arrival("b0", "b", priority=60.0))
    daemon = await bench.daemon()
    assert ids(await daemon.claim("plain", "w1", "w2", "w3")) == ["p1", "p0", "p2"]
    assert ids(await daemon.claim("grouped", "w4", "w5")) == ["b0", "a0"]


async def test_delayed_waits(bench: Bench) -> None:
    """A delayed task isn't claimable; in a group it holds those behind it."""
    await bench.enqueue(arrival("p0", delay=60.0), arrival("p1"))
    await bench.enqueue(arrival("a0", "a", delay=60.0), arrival("a1", "a"))
    await bench.enqueue(arrival("b0", "b", delay=60.0, steps_aside=True), arrival("b1", "b"))
    daemon = await bench.daemon()
    assert ids(await daemon.claim("plain", "w1", "w2")) == ["p1"]
    assert ids(await daemon.claim("grouped", "w3", "w4", "w5")) == ["b1"]
    status = await bench.status()
    assert (status.queued_plain, status.queued_grouped, status.delayed) == (1, 3, 1)


async def test_empty_batch_asks_only(bench: Bench) -> None:
    """A batch of nothing writes nothing; intake asks so how many wait."""
    before = bench.dump()
    assert await bench.enqueue() == []
    assert bench.dump() == before


async def test_a_claim_that_is_asked_for_behind_it_finds_its_tasks(bench: Bench) -> None:
    """So no worker waits for a wake; also on a connection that is yet to be opened, and where Redis
    knows no script: a claim that comes while they are loaded doesn't overtake the tasks."""
    daemon = await bench.daemon()
    client = StoreClient(bench.url, bench.keys, "oldest")
    enqueuer, claims = Enqueuer(client, daemon.name), Claims(client, daemon.session, "grouped")

    async def late(slot: str) -> list[Claim]:
        for _ in range(3):
            await client.ping()
        return (await claims.exchange([], [slot])).claims

    try:
        for n in range(3):
            tasks = [arrival(f"a{n}", f"a{n}"), arrival(f"b{n}", f"b{n}")]
            _, first, second = await asyncio.gather(
                enqueuer.enqueue(tasks), claims.exchange([], [f"w{n}"]), late(f"v{n}")
            )
            assert sorted(ids([*first.claims, *second])) == [f"a{n}", f"b{n}"]
            bench.raw.script_flush()
    finally:
        await client.close()


def test_whose_workers_find_something() -> None:
    tasks = [arrival("b0", "b"), arrival("d0", delay=9.0), arrival("x", dead="no")]
    assert pools_of(tasks) == {"grouped"}
    assert pools_of([*tasks, arrival("p0")]) == {"grouped", "plain"}


async def test_who_enqueues_is_not_told_of_it(bench: Bench) -> None:
    """Others are, where there are any; and all, where no daemon says that it claims behind it."""
    numbers = itertools.count()

    async def hears(daemon: str) -> bool:
        async with bench.client.wakes() as wakes, asyncio.timeout(deadline()):
            await anext(wakes)  # it begins with one
            await Enqueuer(bench.client, daemon).enqueue([arrival(f"a{next(numbers)}")])
            bench.raw.publish(bench.keys.wake, "that was all")
            return await anext(wakes) == b"plain"

    assert await hears("")
    assert await hears("d1")  # it has no session: its claims are refused
    await bench.daemon("d1")
    assert not await hears("d1")
    assert await hears("")
    await bench.daemon("d2")
    assert await hears("d1")


async def test_arrivals_rise_across_clients(store_server: RedisServer, bench: Bench) -> None:
    """Batches of several daemons at once never share an arrival, nor mix within themselves."""
    other = Bench(store_server.url, keys=bench.keys)
    try:
        await asyncio.gather(
            *(
                side.enqueue(*(arrival(f"{name}{batch}-{n}", "a") for n in range(20)))
                for side, name in ((bench, "x"), (other, "y"))
                for batch in range(10)
            )
        )
    finally:
        await other.client.close()
        other.raw.close()
    lane = bench.lane("a")
    assert len(lane) == len(set(lane)) == 400
    for start in range(0, 400, 20):
        batch = lane[start].partition("-")[0]
        assert lane[start : start + 20] == [f"{batch}-{n}" for n in range(20)]
    bench.events.clear()  # who of the two published first, only Redis knows
