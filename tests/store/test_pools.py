"""Pools: to the store a worker that pulls is one more daemon, which claims from its pool alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from groupflow.core.errors import SessionLost
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.pools import PoolStatus, pools_in
from groupflow.operate.tasks import Tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.pulling import PLACES, Listed, Poll, Puller, Pulling
from groupflow.store.settlements import Advance, Complete, Release, Retry, Settlement
from tests.store.bench import Bench, arrival, bury, ids
from tests.store.task_state import pass_time, redrive, why
from tests.store.test_limits import limited

POOL, LEASE = "couriers", 600.0


def pooled(id_: str, group: str | None = None, pool: str = POOL, **facts: Any) -> Arrival:
    """A message of a type that a pool has."""
    plain = arrival(id_, group, **facts)
    return replace(plain, envelope=replace(plain.envelope, named_pool=pool))


class Worker:
    """A worker that pulls, with a process of its own for each call."""

    def __init__(self, bench: Bench, name: str = "anna", pool: str = POOL) -> None:
        self.bench = bench
        self.puller = Puller(pool, name, LEASE)
        self.store = Pulling(bench.client, 8.0)

    async def poll(self, limit: int = 0, *, opens: bool = True) -> Poll:
        return await self.store.poll(self.puller, limit, opens=opens)

    async def claim(self, limit: int) -> list[Claim]:
        """Top up to a limit, in one round."""
        poll = await self.poll(limit)
        groups = sum(head.is_group for head in poll.heads)
        return await self.store.claim(poll, groups=groups, plain=len(poll.heads) - groups)

    async def settle(self, *settlements: Settlement) -> list[Settlement]:
        return await self.store.settle(await self.poll(), settlements)

    async def complete(self, *claims: Claim) -> list[Settlement]:
        return await self.settle(*(Complete(claim) for claim in claims))

    async def held(self) -> list[str]:
        found = await self.store.holdings(self.puller.daemon)
        return ids([claim for claim, _ in found.claims])

    def expire(self) -> None:
        self.bench.raw.zadd(
            self.bench.keys("pool_pullers", self.puller.pool), {self.puller.daemon: 1}
        )


async def pool(bench: Bench) -> PoolStatus:
    return (await pools_in(bench.client, [POOL]))[0]


async def test_daemons_and_pools_claim_apart(shop: Bench) -> None:
    """What is of a pool waits for its workers alone, and they get nothing else."""
    await shop.enqueue(arrival("p1"), arrival("a1", "a"), pooled("p2"), pooled("b1", "b"))
    await shop.enqueue(pooled("x1", pool="others"))
    daemon, anna = await shop.daemon(), Worker(shop)
    assert await daemon.work_off() == ["p1", "a1"]
    claims = await anna.claim(10)
    assert sorted(ids(claims)) == ["b1", "p2"]
    assert sorted(await anna.held()) == ["b1", "p2"]
    assert ids(await Worker(shop, "carl").claim(10)) == []
    seen = await pool(shop)
    assert (seen.claimable, seen.held, [each.name for each in seen.workers]) == (
        0,
        2,
        ["anna", "carl"],
    )
    assert await anna.complete(*claims) == []
    assert ids(await Worker(shop, "zoe", "others").claim(5)) == ["x1"]


async def test_a_group_is_serial_across_workers(shop: Bench) -> None:
    """No second of a group while the first is held; behind its end another worker goes on."""
    await shop.enqueue(*(pooled(f"a{n}", "a") for n in range(3)))
    anna, carl = Worker(shop), Worker(shop, "carl")
    [first] = await anna.claim(10)
    assert await carl.claim(10) == []
    assert await anna.complete(first) == []
    assert ids(await carl.claim(10)) == ["a1"]
    assert (await why(shop, "a")).state == "running"


async def test_a_head_decides_who_may_claim(shop: Bench) -> None:
    """A group with tasks for both is ready for daemons, then for the pool, and back."""
    await shop.enqueue(arrival("a0", "a"), pooled("a1", "a"), arrival("a2", "a"))
    daemon, anna = await shop.daemon(), Worker(shop)
    assert await anna.claim(5) == []
    await daemon.complete(await daemon.claim_one())
    assert await daemon.claim("grouped", "w1") == []
    story = await why(shop, "a")
    assert story.state == "ready"
    assert "pool couriers" in story.reason
    await anna.complete(*await anna.claim(5))
    assert await daemon.work_off() == ["a2"]


async def test_the_older_one_goes_first_of_groups_and_plain_ones(shop: Bench) -> None:
    """What is asked for is told in the order of both; a priority counts as seconds."""
    await shop.enqueue(
        pooled("p0"),
        pooled("a0", "a"),
        pooled("p1", priority=30.0),
        pooled("b0", "b"),
        pooled("p2"),
    )
    heads = [head.is_group for head in (await Worker(shop).poll(9)).heads]
    assert heads[:2] == [False, False]
    assert heads.count(True) == 2
    assert ids(await Worker(shop).claim(1)) == ["p1"]


async def test_silence_gives_all_of_it_back_once(shop: Bench) -> None:
    """Crashes + 1, at its place; the silent puller is refused, reaped or not."""
    await shop.enqueue(pooled("p0"), pooled("a0", "a"), pooled("a1", "a"))
    anna, carl = Worker(shop), Worker(shop, "carl")
    claims = await anna.claim(10)
    anna.expire()
    late = await anna.poll(opens=False)
    assert late.session is None
    assert late.held == {}
    with pytest.raises(SessionLost):
        await anna.store.settle(late, [Complete(claims[0])])
    ran: dict[str, int] = {}
    while again := await carl.claim(10):
        assert len([claim for claim in again if claim.task.crashes]) <= 1, (
            "one quarantined task at a time"
        )
        ran |= {claim.task.id: claim.task.crashes for claim in again}
        assert await carl.complete(*again) == []
    assert ran == {"p0": 1, "a0": 1, "a1": 0}


async def test_reaping_takes_from_silent_workers(shop: Bench) -> None:
    """Any daemon's pass finds them, and says of whom it took."""
    await shop.enqueue(pooled("p0"))
    anna, daemon = Worker(shop), await shop.daemon()
    await anna.claim(1)
    assert (await pool(shop)).held == 1
    anna.expire()
    wait, rows = await daemon.sessions.reap()
    assert [(row.id, row.daemon) for row in rows] == [("p0", "pool/couriers/anna")]
    assert wait is not None
    assert (await pool(shop)).workers == []


async def test_a_renewal_keeps_and_a_new_call_finds_all(shop: Bench) -> None:
    """A lost answer costs nothing: the next poll knows what is held, and what was settled last."""
    await shop.enqueue(pooled("p0"), pooled("p1"))
    anna = Worker(shop)
    one, two = await anna.claim(5)
    poll = await anna.poll(5)
    assert poll.held.keys() == {one.fence, two.fence}
    assert poll.heads == []
    await anna.complete(one)
    after = await anna.poll(5)
    assert one.fence in after.settled
    assert after.held.keys() == {two.fence}
    assert await anna.complete(one) == [], "accepted again"


async def test_less_than_held_hands_the_newest_back(shop: Bench) -> None:
    """They go back as they were, without a crash."""
    await shop.enqueue(*(pooled(f"p{n}") for n in range(4)))
    anna = Worker(shop)
    await anna.claim(4)
    await anna.store.hand_back(await anna.poll(1), 3)
    assert await anna.held() == ["p0"]
    claims = await Worker(shop, "carl").claim(4)
    assert ids(claims) == ["p1", "p2", "p3"]
    assert not any(c.task.crashes for c in claims)


async def test_leaving_gives_all_back(shop: Bench) -> None:
    """And nothing of the worker is left."""
    await shop.enqueue(pooled("p0"), pooled("a0", "a"))
    anna = Worker(shop)
    await anna.claim(4)
    await anna.store.leave(await anna.poll())
    assert await anna.held() == []
    assert (await pool(shop)).workers == []
    assert sorted(ids(await Worker(shop, "carl").claim(4))) == ["a0", "p0"]


@pytest.mark.parametrize("group", [None, "a"])
async def test_the_life_of_a_task_is_the_same(shop: Bench, group: str | None) -> None:
    """Retried, advanced, buried, redriven, handed back: it comes back to its pool each time."""
    await shop.enqueue(pooled("t0", group))
    anna = Worker(shop)

    async def again() -> Claim:
        await pass_time(shop)
        [claim] = await anna.claim(3)
        return claim

    claim = await again()
    await anna.settle(Retry(claim, 5.0, [{"error": "E", "message": ""}]))
    assert await anna.claim(3) == [], "not before its time"
    claim = await again()
    assert claim.task.attempt == 2
    await anna.settle(Advance(claim, "next", b"[1]"))
    claim = await again()
    assert (claim.task.stage, claim.task.context) == ("next", [1])
    await anna.settle(Release(claim))
    await anna.settle(bury(await again()))
    assert await anna.claim(3) == []
    await redrive(shop, "t0")
    await anna.complete(await again())
    assert shop.count("done") == 1


async def test_a_delay_and_a_pause_hold_it_back(shop: Bench) -> None:
    """Its workers get it when it is due, and nothing while everything is paused."""
    await shop.enqueue(pooled("p0", delay=60.0), pooled("a0", "a", delay=60.0))
    anna, groups = Worker(shop), Groups(shop.namespace)
    assert await anna.claim(3) == []
    await pass_time(shop)
    await groups.pause(ALL, "me")
    assert (await anna.poll(3)).heads == []
    await groups.resume(ALL)
    await groups.pause("a", "me")
    assert ids(await anna.claim(3)) == ["p0"]
    await groups.resume("a")
    assert sorted(await anna.held() + ids(await anna.claim(3))) == ["a0", "p0"]


async def test_limits_hold_for_pullers(shop: Bench) -> None:
    """Two of a group at once, and no start sooner than its rate lets it."""
    limited(shop, 2, "60/min burst 3")
    await shop.enqueue(*(pooled(f"a{n}", "a") for n in range(5)))
    await shop.daemon()
    anna, carl = Worker(shop), Worker(shop, "carl")
    [first] = await anna.claim(1)
    [second] = await carl.claim(5)
    assert await anna.claim(5) == []
    assert await anna.complete(first) == []
    [third] = await anna.claim(5)
    assert await carl.complete(second) == []
    assert await carl.claim(5) == [], "its burst is spent"
    assert await anna.complete(third) == []


async def test_more_may_run_beside_what_a_puller_runs_from_a_reload_on(shop: Bench) -> None:
    """As beside a daemon's task; else the group would wait for the end of that one."""
    await shop.enqueue(*(pooled(f"a{n}", "a") for n in range(4)))
    anna, carl = Worker(shop), Worker(shop, "carl")
    [first] = await anna.claim(1)
    limited(shop, 3)
    await shop.daemon()
    more = [*await carl.claim(1), *await carl.claim(5)]
    assert {*ids(more)} == {"a1", "a2"}
    assert await anna.complete(first) == []
    await carl.complete(*more)
    assert ids(await carl.claim(5)) == ["a3"]


async def test_one_that_waits_can_be_dropped(shop: Bench) -> None:
    """A plain task is found in its pool, a quarantined task too."""
    await shop.enqueue(pooled("p0"), pooled("p1"))
    anna = Worker(shop)
    await anna.claim(1)
    anna.expire()
    await anna.poll()
    waiting = Tasks(shop.namespace)
    assert [await waiting.drop(id_) for id_ in ("p0", "p1")] == [None, None]
    assert (await pool(shop)).claimable == 0


async def test_another_server_takes_all_away_and_gives_nothing_for_a_lease(shop: Bench) -> None:
    """It may have lost claims: no puller goes on or begins; daemons do (ADR 0071)."""
    await shop.enqueue(pooled("p0"), pooled("p1"), arrival("d0"))
    daemon, anna = await shop.daemon(), Worker(shop)
    [claim] = await anna.claim(1)
    shop.raw.hset(shop.keys("epoch"), "id", "f" * 40)
    shop.raw.hset(shop.keys("daemon", anna.puller.daemon), "epoch", "f" * 40)
    late = await anna.poll(3, opens=False)
    assert late.session is None, "its session is over"
    assert (await anna.poll(3)).heads == []
    assert await anna.complete(claim) == [Complete(claim)]
    shop.end_recovery()
    await daemon.register()
    assert await daemon.work_off() == ["d0"]
    shop.raw.hset(shop.keys("epoch"), "since", 1)
    again = await anna.claim(3)
    assert sorted(ids(again)) == ["p0", "p1"]
    assert not any(each.task.crashes for each in again)


def listed(id_: str, priority: float = 0.0, scope: str = "") -> Listed:
    envelope = Envelope("deliver", None, None, None, {}, orjson.dumps({"id": id_}), scope, POOL)
    return Listed(id_, priority, envelope.pack(), envelope.pack_facts(), scope)


async def put(bench: Bench, *tasks: Listed) -> tuple[dict[str, str], int]:
    """Make the pool equal to a list: what became of each, and how many went."""
    store = Pulling(bench.client, 8.0)
    number = await store.begin_list(POOL)
    words = await store.put(POOL, number, tasks)
    removed = 0
    for where in PLACES:
        cursor = "0"
        while True:
            cursor, gone = await store.prune(POOL, number, where, cursor)
            removed += gone
            if cursor == "0":
                break
    return dict(zip([task.id for task in tasks], words, strict=True)), removed


async def test_a_pool_is_made_equal_to_a_list(shop: Bench) -> None:
    """New ones come, others go, priorities change in place; what is held is left alone."""
    anna = Worker(shop)
    assert await put(shop, *map(listed, "abc")) == (dict.fromkeys("abc", "added"), 0)
    [first] = await anna.claim(1)
    assert first.task.id == "a"
    words, removed = await put(shop, listed("b"), listed("d", 60.0), listed("e"))
    assert (words, removed) == ({"b": "kept", "d": "added", "e": "added"}, 1)
    assert await anna.held() == ["a"], "not in the list, and held: left alone"
    words, removed = await put(
        shop, listed("e", 120.0), listed("a"), listed("b"), listed("d", 60.0)
    )
    assert removed == 0
    assert words == {"e": "kept", "a": "assigned", "b": "kept", "d": "kept"}
    assert await anna.complete(first) == []
    assert ids(await anna.claim(3)) == ["e", "d", "b"]
    words, _ = await put(shop, listed("a"), listed("c"))
    assert words == {"a": "over", "c": "added"}, "done within the window; removed before"


async def test_a_list_leaves_others_and_newcomers_alone(shop: Bench) -> None:
    """Tasks of other pools and daemons, grouped ones, and what came while it was sent."""
    await shop.enqueue(arrival("p"), pooled("x", pool="others"), pooled("g", "g"), pooled("old"))
    store = Pulling(shop.client, 8.0)
    number = await store.begin_list(POOL)
    await shop.enqueue(pooled("new"))
    assert await store.put(POOL, number, [listed("p"), listed("x")]) == ["foreign", "foreign"]
    assert (await store.prune(POOL, number, "ordered", "0")) == ("0", 1)
    assert sorted(ids(await Worker(shop).claim(9))) == ["g", "new"]


async def test_a_list_that_is_sent_again_is_made_whole(shop: Bench) -> None:
    """What was written of it before its sender died is kept, and what was not removed yet goes."""
    await put(shop, listed("old"), listed("b"))
    store = Pulling(shop.client, 8.0)
    number = await store.begin_list(POOL)
    assert await store.put(POOL, number, [listed("a"), listed("b", 5.0)]) == ["added", "kept"]
    words, removed = await put(shop, *map(listed, "abc"))
    assert (words, removed) == ({"a": "kept", "b": "kept", "c": "added"}, 1)
    assert ids(await Worker(shop).claim(5)) == ["b", "a", "c"]


async def test_a_list_knows_what_is_retried_and_what_died(shop: Bench) -> None:
    """A task that waits for its retry is in the pool too; a dead letter is not made again."""
    await put(shop, *map(listed, "abc"))
    anna = Worker(shop)
    a, b, _ = await anna.claim(3)
    await anna.settle(Retry(a, 60.0, []), bury(b))
    assert await put(shop, listed("b"), listed("c")) == ({"b": "dead", "c": "assigned"}, 1)
