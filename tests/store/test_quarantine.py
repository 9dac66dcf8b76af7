"""Quarantine: a task with crashes runs beside no other one of its daemon, in either pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from groupflow.operate.busy import read_busy, read_tops
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.listing import list_groups, list_tasks
from groupflow.operate.namespace import Namespace
from groupflow.operate.statistics import find_longest
from groupflow.operate.tasks import Tasks
from groupflow.servers import RedisServer
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Complete, Release, Retry, Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.task_state import pass_time, redrive, why

POOLS: tuple[Pool, Pool] = ("plain", "grouped")
BOTH_POOLS = pytest.mark.parametrize("pool", POOLS)


@pytest.fixture
async def shop(store_server: RedisServer) -> AsyncIterator[Bench]:
    bench = Bench(store_server.url)
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


async def crashed(shop: Bench, *named: str) -> None:
    """Enqueue tasks and have one daemon die with all of them, where none is in quarantine yet."""
    await waiting(shop, *named)
    victim = await shop.daemon("victim")
    held: list[Claim] = []
    for pool in POOLS:
        held += await victim.claim(pool, *(f"{pool}-{n}" for n in range(9)))
    assert sorted(ids(held)) == sorted(named)
    await victim.sessions.leave()


async def crashed_again(shop: Bench, id_: str, pool: Pool = "grouped") -> None:
    """Have a daemon die with the best quarantined task of a pool, which is to be this one."""
    victim = await shop.daemon("victim")
    assert (await victim.claim_one(pool)).task.id == id_
    await victim.sessions.leave()


async def waiting(shop: Bench, *named: str) -> None:
    """Enqueue tasks: the first letter is the group, ``p`` stands for plain ones."""
    await shop.enqueue(*(arrival(id_, id_[0] if id_[0] != "p" else None) for id_ in named))


def kind(pool: Pool, *numbers: int) -> list[str]:
    """Ids of tasks in a pool; grouped ones each in a group of its own."""
    return [f"p{n}" if pool == "plain" else f"{chr(ord('a') + n)}0" for n in numbers]


def _mark(shop: Bench, daemon: str) -> bytes | None:
    found: Any = shop.raw.hget(shop.keys("daemon", daemon), "quarantined")
    return found if found is None else bytes(found)


async def grow_old(shop: Bench, daemon: Daemon, claim: Claim) -> None:
    """Let a claim have been made a lease ago."""
    since = b"%016d" % 1
    key, name = shop.keys("worker", daemon.name), shop.keys("daemon", daemon.name)
    checkpoint: Any = shop.raw.hget(key, claim.slot)
    shop.raw.hset(key, claim.slot, checkpoint[:33] + since + checkpoint[49:])
    mark = _mark(shop, daemon.name)
    if mark is not None and len(mark) > 16:
        shop.raw.hset(name, "quarantined", mark[:16] + since)


@BOTH_POOLS
async def test_a_daemon_runs_one_at_a_time(shop: Bench, pool: Pool) -> None:
    """The best goes first, and alone; tasks without crashes run beside it."""
    quarantined_tasks, harmless = kind(pool, 0, 1), kind(pool, 5, 6)
    await crashed(shop, *quarantined_tasks)
    await waiting(shop, *harmless)
    daemon = await shop.daemon()
    (first,) = await daemon.claim(pool, "w1", "w2", "w3", "w4")
    assert (first.task.id, first.task.crashes) == (quarantined_tasks[0], 1)
    assert ids(await daemon.claim(pool, "w2", "w3", "w4")) == harmless
    assert await daemon.claim(pool, "w4") == []
    await daemon.complete(first)
    assert ids(await daemon.claim(pool, "w4", "w5")) == quarantined_tasks[1:]


async def test_one_of_both_pools(shop: Bench) -> None:
    """A crash takes both pools: what runs in one holds the other's quarantined tasks back."""
    await crashed(shop, "p0", "p1", "a0", "b0")
    daemon = await shop.daemon()
    claim = await daemon.claim_one("plain")
    assert await daemon.claim("grouped", "g1", "g2") == []
    await daemon.complete(claim)
    claim = await daemon.claim_one("grouped")
    assert await daemon.claim("plain", "w2") == []
    await daemon.complete(claim)
    assert len(await daemon.work_off()) == 2


async def test_each_daemon_runs_one_of_its_own(shop: Bench) -> None:
    await crashed(shop, "p0", "a0", "b0")
    first, second = await shop.daemon("d1"), await shop.daemon("d2")
    held = [await first.claim_one("grouped"), await second.claim_one("plain")]
    assert ids(held) == ["a0", "p0"]
    assert await first.claim("grouped", "w2") == await second.claim("grouped", "w2") == []
    await second.complete(held[1])
    assert ids(await second.claim("grouped", "w2")) == ["b0"]


ENDINGS: dict[str, Callable[[Claim], Settlement]] = {
    "complete": Complete,
    "release": Release,
    "retry": lambda claim: Retry(claim, 3600.0, []),
    "advance": lambda claim: Advance(claim, "two", b"{}"),
    "bury": bury,
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_its_end_lets_the_next_one_run(shop: Bench, ending: str) -> None:
    """However it ends: and all daemons hear of it, since the next may be of the other pool."""
    await crashed(shop, "a0", "p0")
    daemon = await shop.daemon()
    claim = await daemon.claim_one()
    async with shop.client.wakes() as wakes, asyncio.timeout(deadline()):
        await anext(wakes)  # it begins with one, for what was missed
        await daemon.settle(ENDINGS[ending](claim))
        shop.raw.publish(shop.keys.wake, "that was all")
        heard = []
        while b"that was all" not in heard:
            heard.append(await anext(wakes))
    assert b"ready" in heard
    assert (await daemon.claim_one("plain")).task.id == "p0"
    assert await daemon.claim("grouped", "w2") == []


async def test_the_end_of_another_task_changes_nothing(shop: Bench) -> None:
    await crashed(shop, "a0", "b0")
    await waiting(shop, "c0", "d0", "p0")
    daemon = await shop.daemon()
    quarantined = await daemon.claim_one()
    other, buried = await daemon.claim("grouped", "w2", "w3")
    await daemon.complete(other)
    await daemon.settle(bury(buried))
    assert await daemon.claim("grouped", "w2") == []
    # Nor does its own, told a second time, while the next one runs.
    await daemon.complete(quarantined)
    assert (await daemon.claim_one()).task.id == "b0"
    assert (await daemon.exchange("plain", [Complete(quarantined)], []))[0] == []
    assert await daemon.claim("grouped", "w4") == []
    assert _mark(shop, "d1") is not None


@BOTH_POOLS
async def test_a_lost_reply_gives_the_same_one(shop: Bench, pool: Pool) -> None:
    await crashed(shop, *kind(pool, 0, 1))
    daemon = await shop.daemon()
    claim = await daemon.claim_one(pool)
    (again,) = await daemon.claim(pool, "w1", "w2")
    assert (again.task, again.slot) == (claim.task, claim.slot)


async def test_a_new_session_runs_one_again(shop: Bench) -> None:
    await crashed(shop, "a0", "b0")
    daemon, other = await shop.daemon("d1"), await shop.daemon("d2")
    await daemon.claim_one()
    await daemon.register()
    assert (await daemon.claim_one()).task.crashes == 2
    shop.expire("d1")
    await other.sessions.reap()
    await pass_time(shop)  # it waits, since nothing tells yet whether this was a third death
    assert (await other.claim_one()).task.crashes == 3


async def test_it_is_none_any_more_when_it_has_run_for_a_lease(shop: Bench) -> None:
    """Then a renewal, which happens anyway, lets the next one run beside it."""
    await crashed(shop, "a0", "b0", "p0")
    daemon = await shop.daemon()
    claim = await daemon.claim_one()
    told = await daemon.sessions.renew()
    assert (told.plain, told.groups) == (0, 0), "it may claim neither of the two"
    await grow_old(shop, daemon, claim)
    told = await daemon.sessions.renew()
    assert (told.plain, told.groups) == (1, 1)
    assert (await daemon.claim_one("plain", "w2")).task.id == "p0"
    assert await daemon.claim("grouped", "w3") == []
    await daemon.complete(claim)
    assert await daemon.claim("grouped", "w3") == []


async def test_who_crashed_twice_stays_one_to_its_end(shop: Bench) -> None:
    """However long it runs: a third of its crashes may be its last, and takes no other along."""
    await crashed(shop, "a0", "b0")
    await crashed_again(shop, "a0")
    daemon = await shop.daemon()
    claim = await daemon.claim_one()
    assert claim.task.crashes == 2
    await grow_old(shop, daemon, claim)
    assert (await daemon.sessions.renew()).groups == 0
    assert await daemon.claim("grouped", "w2") == []
    await daemon.complete(claim)
    assert (await daemon.claim_one("grouped", "w2")).task.id == "b0"


async def test_a_younger_lease_clears_nothing(shop: Bench) -> None:
    await crashed(shop, "a0", "b0")
    daemon = await shop.daemon()
    await daemon.claim_one()
    await daemon.sessions.renew()
    assert await daemon.claim("grouped", "w2") == []


@BOTH_POOLS
async def test_it_stays_one_through_each_settlement(shop: Bench, pool: Pool) -> None:
    """Released, advanced, or back after a delay, it waits among the quarantined tasks again."""
    await crashed(shop, *kind(pool, 0, 1))
    daemon = await shop.daemon()
    for ending in ("release", "advance", "retry"):
        await daemon.settle(ENDINGS[ending](await daemon.claim_one(pool)))
        await pass_time(shop)
        assert shop.audit() == []
    assert (await daemon.claim_one(pool)).task.crashes == 1
    assert await daemon.claim(pool, "w2") == []


async def test_an_older_task_in_front_of_it(shop: Bench) -> None:
    await waiting(shop, "a0")
    daemon = await shop.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    await crashed(shop, "a1")
    await redrive(shop, "a0")
    assert shop.audit() == []
    claims = await daemon.claim("grouped", "w1", "w2")
    assert [(claim.task.id, claim.task.crashes) for claim in claims] == [("a0", 0)]
    await daemon.complete(*claims)
    assert (await daemon.claim_one()).task.crashes == 1


async def test_it_comes_back_in_front_of_a_group_that_is_ready(shop: Bench) -> None:
    await crashed(shop, "a0")
    await waiting(shop, "a1")
    daemon = await shop.daemon()
    await daemon.settle(Retry(await daemon.claim_one(), 3600.0, [], "step-aside"))
    assert (await why(shop, "a")).head == "a1"
    await pass_time(shop)
    assert shop.audit() == []
    assert (await daemon.claim_one()).task.id == "a0"


async def test_a_pause_holds_it(shop: Bench) -> None:
    await crashed(shop, "a0")
    daemon, groups = await shop.daemon(), Groups(shop.namespace)
    await groups.pause("a", "me")
    assert await daemon.claim("grouped", "w1") == []
    assert shop.audit() == []
    await groups.resume("a")
    assert (await daemon.claim_one()).task.id == "a0"


@BOTH_POOLS
async def test_one_that_waits_can_be_dropped(shop: Bench, pool: Pool) -> None:
    first, second = kind(pool, 0, 1)
    await crashed(shop, first, second)
    assert await Tasks(shop.namespace).drop(first) is None
    assert shop.audit() == []
    daemon = await shop.daemon()
    assert ids(await daemon.claim(pool, "w1", "w2")) == [second]


async def test_a_redrive_makes_it_a_task_like_any_other(shop: Bench) -> None:
    await crashed(shop, "a0", "b0")
    daemon = await shop.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    await redrive(shop, "a0")
    assert (await daemon.claim_one()).task.id == "b0"
    assert ids(await daemon.claim("grouped", "w2")) == ["a0"]


@BOTH_POOLS
async def test_one_whose_envelope_is_gone_is_passed_over(shop: Bench, pool: Pool) -> None:
    first, second = kind(pool, 0, 1)
    await crashed(shop, first, second)
    shop.raw.hdel(shop.keys("tasks"), first)
    shop.raw.delete(shop.keys("task_state", first))
    daemon = await shop.daemon()
    assert await daemon.claim(pool, "w1") == []
    assert _mark(shop, "d1") is None
    assert ids(await daemon.claim(pool, "w1")) == [second]


async def test_views_show_it_waiting_like_the_rest(shop: Bench) -> None:
    """It is counted and listed with all that is ready, and goes first."""
    await crashed(shop, "c0", "d0", "p0", "p1")
    await waiting(shop, "a0", "b0", "p5")
    await shop.enqueue(arrival("p6", priority=5.0))
    status = await shop.status()
    assert (status.queued_plain, status.queued_grouped, status.ready) == (4, 4, 4)
    assert min(status.waited_plain, status.waited_grouped) > 0
    listed = [row.id for row in (await list_tasks(shop.namespace, "queued", 50)).rows]
    assert listed == ["p5", "p0", "p1", "p6", "c0", "d0", "a0", "b0"]
    pages, cursor = [], "0"
    while True:
        page = await list_groups(Namespace([shop.client]), "ready", cursor=cursor, limit=1)
        pages += [(row.group, row.state, page.total) for row in page.groups]
        if page.next is None:
            break
        cursor = page.next
    assert pages == [(group, "ready", 4) for group in "cdab"]
    assert {row.group for row in await read_busy(shop.namespace)} == set("abcd")
    assert await find_longest(shop.client) == 4
    tops = await read_tops(shop.namespace)
    assert {(top.group, top.state) for top in tops.slowest} == {(g, "ready") for g in "abcd"}
    assert len(tops.longest) == 4


async def test_what_only_suspects_wait_for_is_seen(shop: Bench) -> None:
    await crashed(shop, "c0", "p0")
    status = await shop.status()
    assert min(status.waited_plain, status.waited_grouped) > 0


async def test_why_it_waits(shop: Bench) -> None:
    await crashed(shop, "a0", "b0")
    await waiting(shop, "c0")
    assert (await why(shop, "b")).reason == (
        "its head is in quarantine, since 1 of its claims ended in a crash; it may be claimed: "
        "all workers are busy, or none is running"
    )
    daemon = await shop.daemon()
    await daemon.claim_one()
    told = await why(shop, "b")
    assert (told.state, told.head) == ("ready", "b0")
    assert told.reason == (
        "its head is in quarantine, since 1 of its claims ended in a crash: a daemon runs one such "
        "task at a time; that run another: d1"
    )
    assert "quarantine" not in (await why(shop, "c")).reason


async def test_without_any_nothing_is_left_of_it(shop: Bench) -> None:
    await crashed(shop, "a0", "p0", "p1")
    daemon = await shop.daemon()
    shop.with_faults = True
    assert len(await daemon.work_off()) == 3
    assert _mark(shop, "d1") is None
    assert not shop.raw.exists(shop.keys("quarantined_plain"), shop.keys("quarantined_groups"))


@BOTH_POOLS
async def test_a_claim_tells_whether_the_daemon_runs_one(shop: Bench, pool: Pool) -> None:
    """Where it gives something, where nothing is there, and where it gives the same again."""
    await waiting(shop, "p0", "a0")
    daemon = await shop.daemon()

    async def told(*slots: str) -> tuple[int, int]:
        front: list[str | int] = [daemon.name, daemon.session.shown, pool, 0, 0, "", 0]
        _, _, rows, _, quarantined, *_ = await shop.client.run(Verb.EXCHANGE, *front, *slots)
        return len(rows) // 7, quarantined

    assert [await told("w1"), await told("w1"), await told("w2")] == [(1, 0), (1, 0), (0, 0)]
    await daemon.register()
    assert [await told("w1"), await told("w1"), await told("w2")] == [(1, 1), (1, 1), (0, 1)]


@BOTH_POOLS
async def test_where_no_slot_is_idle_none_is_taken(shop: Bench, pool: Pool) -> None:
    """All hold claims already, or all is paused, or the lease is over."""
    first, quarantined = kind(pool, 0, 1)
    await waiting(shop, first)
    daemon, groups = await shop.daemon(), Groups(shop.namespace)
    held = await daemon.claim_one(pool)
    await crashed(shop, quarantined)
    assert ids(await daemon.claim(pool, "w1")) == [first]
    await groups.pause(ALL, "me")
    assert ids(await daemon.claim(pool, "w1", "w2")) == [first]
    await groups.resume(ALL)
    shop.expire("d1")
    assert ids(await daemon.claim(pool, "w1", "w2")) == [first]
    assert shop.audit() == []
    await daemon.sessions.renew()
    assert ids(await daemon.claim(pool, "w2")) == [quarantined]
    assert await daemon.complete(held) == []
