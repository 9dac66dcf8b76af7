"""What a list does to the tasks of a pool, and what a worker's call tells: the edges of both."""

from __future__ import annotations

import time
from typing import Any

import pytest

from groupflow.core.errors import OtherLayout
from groupflow.operate.pools import read_pools
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.pulling import Pulling
from groupflow.store.settlements import Release, Retry
from tests.store.bench import Bench, arrival, ids
from tests.store.life import found, pass_time
from tests.store.test_pools import LEASE, POOL, Worker, listed, pool, pooled, put

AHEAD = 3600.0  # seconds


def move_arrivals_ahead(shop: Bench) -> str:
    """The server's clock was set back: what came last came an hour from now."""
    ahead = f"{microseconds(time.time() + AHEAD):016d}"
    shop.raw.hset(shop.keys("count"), "arrival", ahead)
    return ahead


async def fail(worker: Worker, *, standing: Any = "hold") -> None:
    """All that it holds is to be tried again in an hour."""
    claims = await worker.claim(9)
    await worker.settle(*(Retry(claim, 3600.0, [], standing) for claim in claims))


async def lose(worker: Worker, tasks: int = 1) -> None:
    """It claims some, and falls silent."""
    await worker.claim(tasks)
    worker.expire()
    await worker.visit()


class TestLists:
    async def test_what_waits_anywhere_is_kept(self, shop: Bench) -> None:
        """Suspects, tasks that are delayed, grouped ones."""
        await put(shop, listed("suspect"))
        await lose(Worker(shop))
        await shop.enqueue(pooled("g", "g"))
        words, removed = await put(shop, listed("suspect"), listed("g"))
        assert (words, removed) == ({"suspect": "kept", "g": "kept"}, 0)
        await shop.enqueue(pooled("later", delay=60.0))
        assert (await put(shop, listed("suspect"), listed("later")))[0]["later"] == "kept"

    async def test_a_list_prunes_its_own_pool_alone(self, shop: Bench) -> None:
        """Of what is delayed: nothing of other pools and of daemons, and no grouped task."""
        others = Worker(shop, pool="others")
        await shop.enqueue(pooled("x", pool="others"), arrival("p", delay=60.0))
        await fail(others)
        await shop.enqueue(pooled("g", "g"), pooled("mine"))
        await fail(Worker(shop), standing="step-aside")
        assert await put(shop) == ({}, 1)
        assert [(await found(shop, id_)).state for id_ in ("x", "p", "g")] == ["delayed"] * 3
        gone = await found(shop, "mine")
        assert (gone.state, gone.type) == ("dropped", "t")

    async def test_a_priority_is_of_what_waits(self, shop: Bench) -> None:
        """It holds from the next time on that a task is put in line; what is held keeps its own."""
        await put(shop, *map(listed, "abc"))
        anna = Worker(shop)
        [held] = await anna.claim(1)
        await put(shop, listed("a", 900.0), listed("b"), listed("c", 60.0))
        await anna.settle(Release(held))
        assert ids(await anna.claim(1)) == ["c"], "a was held: its priority is what it was"
        [c] = [claim for claim, _ in (await anna.store.holdings(anna.puller.daemon)).claims]
        await anna.settle(Release(c))
        assert ids(await anna.claim(3)) == ["c", "a", "b"], "c goes first again"

    async def test_a_turn_that_came_by_a_retry_stays(self, shop: Bench) -> None:
        await put(shop, listed("tried"), listed("new"))
        anna = Worker(shop)
        claim = (await anna.claim(1))[0]
        await anna.settle(Retry(claim, 3600.0, []))
        await pass_time(shop)
        index, element = shop.keys("pool_ordered", POOL), f"{_arrival(shop, 'tried')}+tried"
        before = shop.raw.zscore(index, element)
        await put(shop, listed("tried", -900.0), listed("new"))
        assert shop.raw.zscore(index, element) == before is not None

    async def test_numbers_and_arrivals_only_rise(self, shop: Bench) -> None:
        """Whatever the server's clock says: behind what came last, and in front of what comes."""
        ahead = move_arrivals_ahead(shop)
        store = Pulling(shop.client, 8.0)
        numbers = [await store.begin_list(POOL) for _ in range(3)]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > ahead
        await shop.enqueue(pooled("first"))
        await store.put(POOL, numbers[-1], [listed("second"), listed("third")])
        assert {shop.raw.hget(shop.keys("life", id_), "list") for id_ in ("second", "third")} == {
            numbers[-1].encode()
        }
        await shop.enqueue(pooled("fourth"))
        assert ids(await Worker(shop).claim(9)) == ["first", "second", "third", "fourth"]

    async def test_it_is_told_of(self, shop: Bench) -> None:
        """Who waits for a pool is woken by it; a pool is known by its first task, and no sooner."""
        await shop.enqueue(arrival("p"))
        store = Pulling(shop.client, 8.0)
        async with shop.client.wakes() as wakes:
            assert await anext(wakes) == b"due"
            number = await store.begin_list(POOL)
            assert await store.put(POOL, number, [listed("p")]) == ["foreign"]
            assert (await read_pools(shop.client)).pools == []
            await store.put(POOL, number, [listed("a")])
            assert await anext(wakes) == b"pool"
        assert [each.name for each in (await read_pools(shop.client)).pools] == [POOL]

    async def test_nothing_in_a_namespace_of_another_layout(self, shop: Bench) -> None:
        """Neither a list nor a session: somebody has moved it meanwhile."""
        shop.raw.hset(shop.keys("partitions"), "number", 4)
        other = StoreClient(shop.url, shop.keys, partitions=3)
        store = Pulling(other, 8.0)
        try:
            with pytest.raises(OtherLayout):
                await store.begin_list(POOL)
            with pytest.raises(OtherLayout):
                await store.visit(Worker(shop).puller, 1)
        finally:
            await other.close()
            shop.raw.delete(shop.keys("partitions"))


class TestVisits:
    async def test_it_is_told_of_as_many_as_it_may_still_hold(self, shop: Bench) -> None:
        await shop.enqueue(*(pooled(f"p{n}") for n in range(5)))
        anna = Worker(shop)
        await anna.claim(2)
        assert len((await anna.visit(3)).heads) == 1
        assert (await anna.visit(2)).heads == (await anna.visit(1)).heads == []

    async def test_a_suspect_comes_alone(self, shop: Bench) -> None:
        """Who holds one is told of no other."""
        await shop.enqueue(*map(pooled, "ab"))
        await lose(Worker(shop), 2)
        anna = Worker(shop)
        first = (await anna.visit(9)).heads
        assert [head.order[:1] for head in first] == [b"-"]
        await anna.claim(1)
        assert (await anna.visit(9)).heads == []

    async def test_nothing_before_a_lease_has_passed_on_another_server(self, shop: Bench) -> None:
        """Though daemons go on: they can prove what they were told."""
        await shop.enqueue(pooled("p"))
        daemon, anna = await shop.daemon(), Worker(shop)
        await anna.visit()
        shop.raw.hset(shop.keys("epoch"), "id", "f" * 40)
        await anna.visit()
        await daemon.register()
        shop.end_recovery()
        await daemon.register()
        assert (await anna.visit(3)).heads == []
        shop.raw.hset(shop.keys("epoch"), "since", 1)
        assert len((await anna.visit(3)).heads) == 1

    async def test_what_is_told_of_a_worker(self, shop: Bench) -> None:
        """Its claims whole, or those of some slots; its lease; whether it is silent."""
        await shop.enqueue(pooled("p0"), pooled("p1"))
        anna = Worker(shop)
        one, two = await anna.claim(2)
        first, second = (await anna.visit()).session, (await anna.visit()).session
        assert first is not None
        assert second is not None
        assert first.shown == second.shown, "a call ends no session that another call has"
        told = await anna.store.holdings(anna.puller.daemon)
        assert {claim.task.type for claim, _ in told.claims} == {"t"}
        assert told.now < told.lease_until <= told.now + LEASE
        some = await anna.store.holdings(anna.puller.daemon, [two.slot])
        assert ids([claim for claim, _ in some.claims]) == [two.task.id] != [one.task.id]
        assert not (await pool(shop)).workers[0].is_silent
        late = microseconds(told.now + LEASE / 3)
        shop.raw.zadd(shop.keys("pool_pullers", POOL), {anna.puller.daemon: late})
        seen = await pool(shop)
        assert (seen.workers[0].is_silent, seen.silent) == (True, 1)


def _arrival(shop: Bench, id_: str) -> str:
    packed: Any = shop.raw.hget(shop.keys("life", id_), "arrival")
    return str(packed.decode())
