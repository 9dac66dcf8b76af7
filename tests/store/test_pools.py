"""Pools: to the store a worker that pulls is one more daemon, which claims from its pool alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.errors import SessionLost
from groupflow.operate.pools import PoolStatus, pools_in
from groupflow.store.clock import microseconds
from groupflow.store.envelope import Envelope
from groupflow.store.pulling import PLACES, Listed, Pulling
from groupflow.store.settlements import Complete, Release, Retry
from tests.store.bench import LEASE, Bench, bury, ids
from tests.store.story import named, play, stories
from tests.store.task_state import pass_time
from tests.store.worker import POOL, Worker, pooled

__all__ = ["POOL", "Worker", "pooled"]  # for others too

STORIES = named(
    """
    daemons and pools claim apart::
        take p1 a1 p2= b1= p3=others | drain p1 a1 | anna: all b1 p2 | anna: holds b1 p2
        carl: none | done b1 p2
    a head decides who may claim::
        take a0 a1= a2 | anna: none | claim a0 | done a0 | none | why a ready: pool couriers
        anna: all a1 | done a1 | drain a2
    limits hold for pullers::
        limits 2 60/min burst 3 | take a0= a1= a2= a3= a4= | open d1 | anna: claim a0 | carl: all a1
        anna: none | done a0 | anna: all a2 | done a1 | carl: none | done a2
    {id} comes back to its pool each time::
        take {id}= | anna: all {id} | retry {id} | anna: none | time | anna: all {id}/2
        advance {id} | anna: all {id}/1#two | release {id} | anna: all {id} | bury {id}
        anna: none | redrive {id} | anna: all {id} | done {id} | count done=1
    """,
    id=("p0", "a0"),
)


@stories(STORIES)
async def test_pools(shop: Bench, story: str) -> None:
    await play(shop, story)


async def pool(bench: Bench) -> PoolStatus:
    """What operators see of it."""
    return (await pools_in(bench.client, [POOL]))[0]


async def test_the_older_one_goes_first_of_groups_and_plain_ones(shop: Bench) -> None:
    """What is asked for is told in the order of both; a priority counts as seconds."""
    await play(shop, "take p0= a0= p1+30= b0= p2= | take p3=others")
    heads = [head.is_group for head in (await Worker(shop).poll(9)).heads]
    assert heads[:2] == [False, False]
    assert heads.count(True) == 2
    assert ids(await Worker(shop).claim(1)) == ["p1"]
    assert ids(await Worker(shop, "zoe", "others").claim(5)) == ["p3"]


async def test_a_silent_worker_is_refused_reaped_or_not(shop: Bench) -> None:
    """Any daemon's pass finds it, and says of whom it took; nothing is left of it."""
    await play(shop, "take p0=")
    anna, daemon = Worker(shop), await shop.daemon()
    [claim] = await anna.claim(1)
    assert (await pool(shop)).held == 1
    anna.expire()
    late = await anna.poll(opens=False)
    assert (late.session, late.held) == (None, {})
    with pytest.raises(SessionLost):
        await anna.store.settle(late, [Complete(claim)])
    await anna.claim(1)
    anna.expire()
    wait, rows = await daemon.sessions.reap()
    assert [(row.id, row.daemon) for row in rows] == [("p0", "pool/couriers/anna")]
    assert wait is not None
    seen = await pool(shop)
    assert (seen.claimable, seen.held, seen.workers) == (1, 0, [])


async def test_a_new_call_finds_all(shop: Bench) -> None:
    """A lost answer costs nothing: the next poll knows what is held, and what was settled last."""
    await play(shop, "take p0= p1=")
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
    assert poll.session is not None
    assert after.session is not None
    assert poll.session.shown == after.session.shown, "a call ends no session of another call's"


async def test_what_is_told_of_a_worker(shop: Bench) -> None:
    """Its claims whole, or those of some slots; its lease; whether it is silent."""
    await play(shop, "take p0= p1=")
    anna = Worker(shop)
    _, two = await anna.claim(2)
    told = await anna.store.holdings(anna.puller.daemon)
    assert {claim.task.type for claim, _ in told.claims} == {"t"}
    assert told.now < told.lease_until <= told.now + LEASE
    some = await anna.store.holdings(anna.puller.daemon, [two.slot])
    assert ids([claim for claim, _ in some.claims]) == [two.task.id]
    assert not (await pool(shop)).workers[0].is_silent
    late = microseconds(told.now + LEASE / 3)
    shop.raw.zadd(shop.keys("pool_pullers", POOL), {anna.puller.daemon: late})
    seen = await pool(shop)
    assert (seen.workers[0].is_silent, seen.silent) == (True, 1)


async def test_a_worker_is_told_of_as_many_as_it_may_still_hold(shop: Bench) -> None:
    """And of a quarantined task alone: who holds one is told of no other."""
    await play(shop, "take p0= p1= p2= p3= p4=")
    anna, carl = Worker(shop), Worker(shop, "carl")
    await anna.claim(2)
    assert [len((await anna.poll(limit)).heads) for limit in (3, 2, 1)] == [1, 0, 0]
    anna.expire()
    await anna.poll()
    orders = [head.order[:1] for head in (await carl.poll(9)).heads]
    assert orders.count(b"-") == 1
    assert ids(await carl.claim(1)) == ["p0"]
    assert not any(head.order[:1] == b"-" for head in (await carl.poll(9)).heads)


async def test_another_server_takes_all_away_and_gives_nothing_for_a_lease(shop: Bench) -> None:
    """It may have lost claims: no puller goes on or begins; daemons do (ADR 0071)."""
    told = await play(shop, "take p0= p1= p9 | open d1")
    daemon, anna = await told.daemon(), Worker(shop)
    [claim] = await anna.claim(1)
    shop.raw.hset(shop.keys("epoch"), "id", "f" * 40)
    shop.raw.hset(shop.keys("daemon", anna.puller.daemon), "epoch", "f" * 40)
    assert (await anna.poll(3, opens=False)).session is None, "its session is over"
    assert (await anna.poll(3)).heads == []
    assert await anna.complete(claim) == [Complete(claim)]
    shop.end_recovery()
    await daemon.register()
    assert await daemon.work_off() == ["p9"]
    assert (await anna.poll(3)).heads == []
    shop.raw.hset(shop.keys("epoch"), "since", 1)
    again = await anna.claim(3)
    assert sorted((each.task.id, each.task.crashes) for each in again) == [("p0", 0), ("p1", 0)]


# Lists, to which a pool is made equal


def listed(id_: str, priority: float = 0.0, scope: str = "", size: int = 0) -> Listed:
    """A line of a list, whose body has so many bytes."""
    body = b"x" * size or orjson.dumps({"id": id_})
    envelope = Envelope("deliver", None, None, None, {}, body, scope, POOL)
    return Listed(id_, priority, envelope.pack(), envelope.pack_facts(), scope)


async def put(bench: Bench, *tasks: Listed) -> tuple[dict[str, str], int]:
    """Make the pool equal to a list: what became of each, and how many went."""
    store = Pulling(bench.client, 8.0)
    number = await store.begin_list(POOL)
    words = await store.put(POOL, number, tasks)
    removed, cursor = 0, ""
    for where in PLACES:
        while cursor != "0":
            cursor, gone = await store.prune(POOL, number, where, cursor or "0")
            removed += gone
        cursor = ""
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
    again = [listed("e", 120.0), listed("a"), listed("b"), listed("d", 60.0)]
    words = {"e": "kept", "a": "assigned", "b": "kept", "d": "kept"}
    assert await put(shop, *again) == (words, 0)
    assert await anna.complete(first) == []
    assert ids(await anna.claim(3)) == ["e", "d", "b"]
    words, _ = await put(shop, listed("a"), listed("c"))
    assert words == {"a": "over", "c": "added"}, "done within the window; removed before"


async def test_a_list_leaves_others_and_newcomers_alone(shop: Bench) -> None:
    """Tasks of other pools and daemons, grouped ones, delayed ones, and what came meanwhile."""
    await play(
        shop, "take p2= | anna: claim p2 | retry p2 | take p0 p1=others a0= q0@ | take b0= p4="
    )
    store = Pulling(shop.client, 8.0)
    number = await store.begin_list(POOL)
    await play(shop, "take p3=")
    assert await store.put(POOL, number, [listed("p0"), listed("p1")]) == ["foreign"] * 2
    assert await store.prune(POOL, number, "ordered", "0") == ("0", 1)
    told = await play(shop, "task p1 queued | task q0 delayed | task p2 delayed | task p4 dropped")
    assert await put(shop, listed("p3")) == ({"p3": "kept"}, 1)
    await told.go_on("task p2 dropped type=t | task q0 delayed | task p1 queued")
    assert sorted(ids(await Worker(shop).claim(9))) == ["a0", "b0", "p3"]


async def test_a_list_that_is_sent_again_is_made_whole(shop: Bench) -> None:
    """What was written of it before its sender died is kept, and what was not removed yet goes."""
    await put(shop, listed("old"), listed("b"))
    store = Pulling(shop.client, 8.0)
    number = await store.begin_list(POOL)
    assert await store.put(POOL, number, [listed("a"), listed("b", 5.0)]) == ["added", "kept"]
    words = {"a": "kept", "b": "kept", "c": "added"}
    assert await put(shop, *map(listed, "abc")) == (words, 1)
    assert ids(await Worker(shop).claim(5)) == ["b", "a", "c"]


async def test_a_list_knows_what_waits_anywhere_and_what_died(shop: Bench) -> None:
    """A retry, a quarantined, a delayed, a grouped task; a dead letter is not made again."""
    await put(shop, *map(listed, "abcq"))
    anna = Worker(shop)
    a, b, *_ = await anna.claim(4)
    await anna.settle(Retry(a, 60.0, []), bury(b))
    assert await put(shop, listed("b"), listed("c"), listed("q")) == (
        {"b": "dead", "c": "assigned", "q": "assigned"},
        1,
    )
    anna.expire()
    await anna.poll()
    await play(shop, "take g0= p1=@60")
    words, removed = await put(shop, *(listed(id_) for id_ in ("c", "q", "g0", "p1")))
    assert (words, removed) == (dict.fromkeys(("c", "q", "g0", "p1"), "kept"), 0)


async def test_a_priority_is_of_what_waits(shop: Bench) -> None:
    """It holds from the next time on that a task is put in line; what is held keeps its own."""
    await put(shop, *map(listed, "abc"))
    anna = Worker(shop)
    [held] = await anna.claim(1)
    await put(shop, listed("a", 900.0), listed("b"), listed("c", 60.0))
    await anna.settle(Release(held))
    [first] = await anna.claim(1)
    assert first.task.id == "c", "a was held: its priority is what it was"
    await anna.settle(Release(first))
    assert ids(await anna.claim(3)) == ["c", "a", "b"], "c goes first again"


async def test_a_turn_that_came_by_a_retry_stays(shop: Bench) -> None:
    await put(shop, listed("tried"), listed("new"))
    anna = Worker(shop)
    [claim] = await anna.claim(1)
    await anna.settle(Retry(claim, 3600.0, []))
    await pass_time(shop)
    sequence: Any = shop.raw.hget(shop.keys("task_state", "tried"), "sequence")
    index, entry = shop.keys("pool_ordered", POOL), f"{sequence.decode()}+tried"
    before = shop.raw.zscore(index, entry)
    assert before is not None
    await put(shop, listed("tried", -900.0), listed("new"))
    assert shop.raw.zscore(index, entry) == before
