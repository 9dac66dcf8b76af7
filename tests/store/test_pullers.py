"""Workers of pools by the thousand: bounded by name, counted without a walk, reaped fairly."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock

import pytest

from groupflow.core.errors import PoolFull, StoreUnavailable
from groupflow.operate.pools import PoolStatus, pools_in
from groupflow.operate.scripts import OperatorVerb
from groupflow.store import pulling
from groupflow.store.pulling import daemon_name
from groupflow.store.settlements import Complete
from tests.store.actors import POOL, Worker, pooled
from tests.store.bench import LEASE, Bench, arrival, ids
from tests.store.test_pools import pool

TAKEN = 100  # tasks and sessions that one script takes away, about


def crowd(bench: Bench, names: Iterable[str], ends: int = 1, *, of: str = POOL) -> None:
    """Sessions that are there without a call."""
    key = bench.keys("pool_pullers", of)
    bench.raw.hsetnx(bench.keys("pools"), of, "1")
    every = list(enumerate(names))
    for first in range(0, len(every), 1000):
        writes = bench.raw.pipeline(transaction=False)
        for n, name in every[first : first + 1000]:
            daemon = daemon_name(of, name)
            facts = ("session", f"{n:016d}", "process", "pull", "lease", str(int(LEASE * 1e6)))
            writes.hset(bench.keys("daemon", daemon), items=[*facts, "epoch", "", "info", "{}"])
            writes.zadd(key, {daemon: ends})
        writes.execute()


def sessions(bench: Bench, of: str = POOL) -> int:
    found: Any = bench.raw.zcard(bench.keys("pool_pullers", of))
    return int(found)


async def test_a_pool_has_no_more_workers_than_it_may(shop: Bench) -> None:
    """One more is refused, however often it asks, and leaves nothing; all others go on."""
    await shop.enqueue(*(pooled(f"p{n}") for n in range(3)), pooled("x", pool="others"))
    anna, carl, zoe = (Worker(shop, name, most=2) for name in ("anna", "carl", "zoe"))
    [first] = await anna.claim(1)
    await carl.poll()
    before = shop.dump()
    for _ in range(2):
        with pytest.raises(PoolFull, match=r"'couriers' has 2 workers.*max_workers.*'zoe'"):
            await zoe.poll(5)
    assert (await zoe.poll(opens=False)).session is None
    assert shop.dump() == before
    assert ids(await anna.claim(2)) == ["p1"]
    assert await anna.complete(first) == []
    assert ids(await Worker(shop, "zoe", "others", 2).claim(1)) == ["x"]


@pytest.mark.parametrize("way", ["leaves", "is reaped"])
async def test_whose_session_ends_makes_room(shop: Bench, way: str) -> None:
    anna, zoe = (Worker(shop, name, most=1) for name in ("anna", "zoe"))
    await anna.poll()
    if way == "leaves":
        await anna.store.leave(await anna.poll())
    else:
        anna.expire()
        with pytest.raises(PoolFull):
            await zoe.poll()
        await (await shop.daemon()).sessions.reap()
    assert (await zoe.poll()).session
    with pytest.raises(PoolFull):
        await anna.poll()


async def test_who_hands_nothing_back_needs_no_session(shop: Bench) -> None:
    """A partition that recovers gives none, and another one may have all that goes back."""
    anna = Worker(shop)
    poll = await anna.poll(opens=False)
    assert poll.session is None
    await anna.store.hand_back(poll, 0)


async def test_a_lower_bound_ends_no_session(shop: Bench) -> None:
    """Who has a session goes on under it; one that lost it isn't let in before there is room."""
    names = ("anna", "carl", "zoe")
    for name in names:
        await Worker(shop, name, most=3).poll()
    anna, carl, zoe = (Worker(shop, name, most=2) for name in names)
    for one in (anna, carl, zoe):
        assert (await one.poll()).session
    zoe.expire()
    with pytest.raises(PoolFull):
        await zoe.poll()
    carl.expire()
    assert (await carl.poll()).session, "its own end made room"


async def _commands(bench: Bench) -> int:
    bench.raw.config_resetstat()
    await pools_in(bench.client, [POOL], workers=0)
    stats: Any = bench.raw.info("commandstats")
    return int(sum(each["calls"] for each in stats.values()))


async def test_a_look_at_pools_costs_the_same_for_any_number(shop: Bench) -> None:
    """Its figures are counts."""
    await Worker(shop).poll()
    await pool(shop)  # Redis has the scripts from here on
    few, late = await _commands(shop), shop.server_time() + int(0.3 * LEASE * 1e6)
    crowd(shop, (f"s{n}" for n in range(1000)), late)
    crowd(shop, (f"gone{n}" for n in range(500)))
    assert await _commands(shop) == few
    [seen] = await pools_in(shop.client, [POOL], workers=150)
    assert (seen.known, seen.silent, len(seen.workers)) == (1001, 1000, 150)


async def test_workers_are_told_by_pages_and_none_is_passed_over(shop: Bench) -> None:
    """Who is heard of between two pages is told again; the most silent come first."""
    for name in "abcdef":
        await Worker(shop, name).poll()
    told, last, ends = list[str](), "", ""
    for page in range(4):
        reply = await shop.client.run(OperatorVerb.POOL_WORKERS, POOL, 2, last, ends)
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in reply[1]]
        told += [row[b"name"].decode() for row in rows]
        if rows:
            last, ends = rows[-1][b"name"].decode(), rows[-1][b"ends"].decode()
        if page == 0:
            await Worker(shop, "b").poll()  # the last one that was told
        if page == 1:
            await Worker(shop, "e").poll()  # the next one to be told
    assert told == ["a", "b", "c", "d", "f", "b", "e"]
    seen: PoolStatus = (await pools_in(shop.client, [POOL], workers=3))[0]
    assert [each.name for each in seen.workers] == ["a", "c", "d"]


async def test_a_page_of_workers_looks_at_so_many_slots(shop: Bench) -> None:
    """Those that hold much come in more pages; all are told, and since when each holds."""
    for n in range(6):
        await shop.enqueue(*(pooled(f"p{n}-{m}") for m in range(300)))
        worker = Worker(shop, f"w{n}")
        assert len(await worker.claim(300)) == 300
    reply = await shop.client.run(OperatorVerb.POOL_WORKERS, POOL, 100, "", "")
    assert len(reply[1]) == 4, "1000 slots, about"
    workers = (await pool(shop)).workers
    assert [(each.name, each.held) for each in workers] == [(f"w{n}", 300) for n in range(6)]
    assert all(each.since for each in workers)


async def test_a_crowd_keeps_no_puller_waiting(shop: Bench) -> None:
    """One script takes a share of each pool, beside a daemon's tasks; and no more than so much."""
    await shop.enqueue(pooled("x", pool="others"), arrival("a", "a"))
    dead, olga = await shop.daemon("dead"), Worker(shop, "olga", "others")
    await dead.claim_one()
    assert len(await olga.claim(1)) == 1
    crowd(shop, (f"gone{n}" for n in range(2000)))
    olga.bench.raw.zadd(shop.keys("pool_pullers", "others"), {olga.puller.daemon: 2})
    shop.expire("dead")
    reaper = await shop.daemon("d2")
    wait, rows = await reaper.sessions.reap()
    assert {row.id for row in rows} == {"x", "a"}
    assert wait == 0, "there is more"
    assert 2000 - TAKEN <= sessions(shop) <= 2000 - TAKEN // 2
    passes = 1
    while wait == 0:
        wait, _ = await reaper.sessions.reap()
        passes += 1
    assert passes <= 2000 // TAKEN + 2
    assert sessions(shop) == 0


async def test_more_pools_than_a_script_takes_from_have_their_turns(shop: Bench) -> None:
    names = [f"pool{n}" for n in range(TAKEN + 20)]
    for name in names:
        crowd(shop, "abc", of=name)
    reaper, left, has_more = await shop.daemon(), 3 * len(names), True
    while has_more:
        before, (wait, _) = left, await reaper.sessions.reap()
        has_more, left = wait == 0, sum(sessions(shop, name) for name in names)
        assert before - TAKEN <= left <= before
    assert left == 0


async def test_much_that_a_silent_worker_held_goes_back_in_pieces(shop: Bench) -> None:
    """All of it, once, in its order; what is left of it meanwhile is still the worker's own."""
    names = [f"p{n:03d}" for n in range(350)]
    await shop.enqueue(*(pooled(name) for name in names))
    anna, reaper = Worker(shop), await shop.daemon()
    claims = {claim.task.id: claim for claim in await anna.claim(350)}
    poll = await anna.poll()
    anna.expire()
    wait, rows = await reaper.sessions.reap()
    taken = [row.id for row in rows]
    assert len(taken) < TAKEN + 1
    assert shop.audit() == []
    assert (await pool(shop)).held == 350 - len(taken)
    gone, kept = Complete(claims[taken[0]]), Complete(claims[names[0]])
    assert await anna.store.settle(poll, [gone, kept]) == [gone]
    while wait == 0:
        wait, rows = await reaper.sessions.reap()
        taken += [row.id for row in rows]
    assert sorted(taken) == names[1:]
    assert await anna.held() == []
    [again] = await Worker(shop, "carl").claim(3)  # quarantined tasks come one at a time
    assert (again.task.id, again.task.crashes) == (names[1], 1)
    assert shop.count("crashed") == len(names) - 1


@pytest.mark.parametrize(
    ("holding", "left"),
    [([60, 60, 60], [0, 21, 60]), ([99, 20], [0, 20])],
    ids=["in the midst", "between two"],
)
async def test_a_pass_has_a_hundred_steps(shop: Bench, holding: list[int], left: list[int]) -> None:
    """A session is one, and so is each of its tasks; where they end, others wait."""
    await shop.enqueue(*(pooled(f"p{n:03d}") for n in range(sum(holding))))
    workers = [Worker(shop, f"w{n}") for n in range(len(holding))]
    for one, number in zip(workers, holding, strict=True):
        assert len(await one.claim(number)) == number
        one.expire()
    wait, rows = await (await shop.daemon()).sessions.reap()
    assert (wait, len(rows)) == (0, TAKEN - 1)
    assert [len(await one.held()) for one in workers] == left


@pytest.mark.parametrize("by", ["its own worker", "the page"])
async def test_it_goes_back_when_anybody_looks(shop: Bench, by: str) -> None:
    await shop.enqueue(*(pooled(f"p{n:03d}") for n in range(350)))
    anna = Worker(shop)
    assert len(await anna.claim(350)) == 350
    anna.expire()
    if by == "the page":
        while await anna.store.tend():
            pass
    else:
        assert (await anna.poll(opens=False)).session is None
    assert await anna.held() == []
    assert shop.count("crashed") == 350


async def test_after_an_outage_daemons_have_a_lease_to_renew(
    shop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, all leases look expired, though the daemons live."""
    daemon, anna, at = await shop.daemon(), Worker(shop), monotonic()
    shop.raw.zadd(shop.keys("daemons"), {daemon.name: 1})
    with monkeypatch.context() as outage:
        outage.setattr(shop.client, "run_all", AsyncMock(side_effect=StoreUnavailable("away")))
        with pytest.raises(StoreUnavailable):
            await anna.store.tend()
    assert not await anna.store.tend()
    assert shop.raw.exists(shop.keys("daemon", daemon.name))
    monkeypatch.setattr(pulling, "monotonic", lambda: at + 60.0)
    await anna.store.tend()
    assert not shop.raw.exists(shop.keys("daemon", daemon.name))
