"""What a list does to the tasks of a pool, and what a worker's call tells: the edges of both."""

from __future__ import annotations

import time
from typing import Any

import pytest

from groupflow.core.errors import OtherLayout
from groupflow.operate.dead import DeadLetters
from groupflow.operate.pools import pools_in
from groupflow.operate.tasks import Tasks
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.enqueue import CARRIED, READ_WHOLE, Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.history import rotate_history
from groupflow.store.pulling import Listed, Pulling
from groupflow.store.scans import present
from groupflow.store.settlements import Bury, Release, Retry
from tests.store.bench import Bench, arrival, ids
from tests.store.task_state import found, pass_time
from tests.store.test_pools import LEASE, POOL, Worker, listed, pool, pooled, put

AHEAD = 3600.0  # seconds


def move_arrivals_ahead(shop: Bench) -> str:
    """The server's clock was set back: what came last came an hour from now."""
    ahead = f"{microseconds(time.time() + AHEAD):016d}"
    shop.raw.hset(shop.keys("count"), "sequence", ahead)
    return ahead


async def fail(worker: Worker, *, standing: Any = "hold") -> None:
    """All that it holds is to be tried again in an hour."""
    claims = await worker.claim(9)
    await worker.settle(*(Retry(claim, 3600.0, [], standing) for claim in claims))


async def lose(worker: Worker, tasks: int = 1) -> None:
    """It claims some, and falls silent."""
    await worker.claim(tasks)
    worker.expire()
    await worker.poll()


class TestLists:
    async def test_what_waits_anywhere_is_kept(self, shop: Bench) -> None:
        """Quarantined tasks, tasks that are delayed, grouped ones."""
        await put(shop, listed("quarantined"))
        await lose(Worker(shop))
        await shop.enqueue(pooled("g", "g"))
        words, removed = await put(shop, listed("quarantined"), listed("g"))
        assert (words, removed) == ({"quarantined": "kept", "g": "kept"}, 0)
        await shop.enqueue(pooled("later", delay=60.0))
        assert (await put(shop, listed("quarantined"), listed("later")))[0]["later"] == "kept"

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
        index, entry = shop.keys("pool_ordered", POOL), f"{_arrival(shop, 'tried')}+tried"
        before = shop.raw.zscore(index, entry)
        await put(shop, listed("tried", -900.0), listed("new"))
        assert shop.raw.zscore(index, entry) == before is not None

    async def test_numbers_and_arrivals_only_rise(self, shop: Bench) -> None:
        """Also where the server's clock is set back: behind the last, in front of the next."""
        ahead = move_arrivals_ahead(shop)
        store = Pulling(shop.client, 8.0)
        numbers = [await store.begin_list(POOL) for _ in range(3)]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > ahead
        await shop.enqueue(pooled("first"))
        await store.put(POOL, numbers[-1], [listed("second"), listed("third")])
        assert {
            shop.raw.hget(shop.keys("task_state", id_), "list") for id_ in ("second", "third")
        } == {numbers[-1].encode()}
        await shop.enqueue(pooled("fourth"))
        assert ids(await Worker(shop).claim(9)) == ["first", "second", "third", "fourth"]

    async def test_it_is_told_of(self, shop: Bench) -> None:
        """Who waits for a pool is woken by it; a pool is known by its first task, and no sooner."""
        await shop.enqueue(arrival("p"))
        store = Pulling(shop.client, 8.0)
        async with shop.client.wakes() as wakes:
            assert await anext(wakes) == b"all"
            number = await store.begin_list(POOL)
            assert await store.put(POOL, number, [listed("p")]) == ["foreign"]
            assert (await pools_in(shop.client)) == []
            await store.put(POOL, number, [listed("a")])
            assert await anext(wakes) == b"pool"
        assert [each.name for each in (await pools_in(shop.client))] == [POOL]

    async def test_nothing_in_a_namespace_of_another_layout(self, shop: Bench) -> None:
        """Neither a list nor a session: an operator has moved it meanwhile."""
        shop.raw.hset(shop.keys("partitions"), "number", 4)
        other = StoreClient(shop.url, shop.keys, partitions=3)
        store = Pulling(other, 8.0)
        try:
            with pytest.raises(OtherLayout):
                await store.begin_list(POOL)
            with pytest.raises(OtherLayout):
                await store.poll(Worker(shop).puller, 1)
        finally:
            await other.close()
            shop.raw.delete(shop.keys("partitions"))


OURS, THEIRS = "0a0a0a0a", "1b1b1b1b"  # of two tenants


def of(scope: str, id_: str, pool: str | None = POOL, size: int = 2, **facts: Any) -> Arrival:
    """A tenant's message."""
    body = b"{" + b" " * (size - 2) + b"}"
    return Arrival(id_, Envelope("t", None, None, None, {}, body, scope, pool), **facts)


async def fill_with_theirs(shop: Bench) -> list[str]:
    """Another tenant has a task of each id, each in another state, or garbage has it."""
    await shop.enqueue(
        of(THEIRS, "done", None), of(THEIRS, "dropped", None), of(THEIRS, "of a pool")
    )
    assert await Tasks(shop.namespace).drop("dropped") is None
    assert await (await shop.daemon()).work_off() == ["done"]
    await shop.enqueue(
        of(THEIRS, "of daemons", None), of(THEIRS, "large", None, size=2 * READ_WHOLE),
        of(THEIRS, "late", delay=60.0), of(THEIRS, "dead", dead="no type"),
        Arrival("garbage", Envelope("", None, None, None, {}, b"\xff"), dead="not UTF-8"),
        of(THEIRS, "held", priority=9.0),
    )  # fmt: skip
    [held] = await Worker(shop, "carl").claim(1)
    assert held.task.id == "held"
    return [
        "done",
        "dropped",
        "of a pool",
        "of daemons",
        "large",
        "late",
        "dead",
        "garbage",
        "held",
    ]


class TestOthersIds:
    """A list's ids are known in their scope, as messages' are."""

    async def test_no_other_tenant_takes_a_list_s_ids_beforehand(self, shop: Bench) -> None:
        """All of it is handed out, once; sent again it is what it was."""
        names = await fill_with_theirs(shop)
        mine = [listed(id_, scope=OURS) for id_ in names]
        assert (await put(shop, *mine))[0] == dict.fromkeys(names, "added")
        assert await put(shop, *mine) == (dict.fromkeys(names, "kept"), 0)
        assert await present(shop.client, [(id_, OURS) for id_ in names]) == [True] * len(names)
        anna = Worker(shop)
        claims = await anna.claim(50)
        own = {claim.task.id.partition("~")[0] for claim in claims if "~" in claim.task.id}
        assert own == set(names)
        assert len(claims) == len(names), "theirs were not in the list, and are gone"
        assert (await put(shop, *mine))[0] == dict.fromkeys(names, "assigned")
        await anna.complete(*claims)
        assert await present(shop.client, [(id_, OURS) for id_ in names]) == [False] * len(names)
        for _ in range(2):  # in the history's newer part, and in its older one
            assert (await put(shop, *mine))[0] == dict.fromkeys(names, "over")
            await rotate_history(shop.client, keep=0, size=1)
        assert await anna.claim(50) == []

    async def test_a_list_takes_nothing_from_others(self, shop: Bench) -> None:
        """What another tenant's id ended as stays known, so its message is taken once (S6)."""
        await shop.enqueue(of(THEIRS, "x", None))
        await Tasks(shop.namespace).drop("x")
        assert (await put(shop, listed("x", scope=OURS)))[0] == {"x": "added"}
        assert await shop.enqueue(of(THEIRS, "x", None)) == [False]
        assert (await found(shop, "x")).state == "dropped"
        assert await put(shop) == ({}, 1)
        await rotate_history(shop.client, keep=0, size=1)
        assert (await put(shop, listed("x", scope=OURS)))[0] == {"x": "added"}, "it was dropped"
        [again] = await Worker(shop).claim(9)
        assert again.task.id.startswith("x~")
        assert not shop.raw.hexists(shop.keys("history_old"), again.task.id), "one place each"

    async def test_messages_of_its_own_tenant_are_the_same_tasks(self, shop: Bench) -> None:
        """Under a derived id too, in either order; and what is listed is none of theirs."""
        await shop.enqueue(of(THEIRS, "a"), of(OURS, "a"), of(THEIRS, "b"), of(THEIRS, "c"))
        await shop.enqueue(of(OURS, "c", None))
        mine = [listed(id_, scope=OURS) for id_ in "abc"]
        assert (await put(shop, *mine))[0] == {"a": "kept", "b": "added", "c": "foreign"}
        assert await shop.enqueue(*(of(OURS, id_) for id_ in "abc")) == [False] * 3
        assert await shop.enqueue(*(of(THEIRS, id_) for id_ in "abc")) == [False] * 3

    async def test_its_own_letters_stay_letters(self, shop: Bench) -> None:
        """However long they are dead, under a derived id as well."""
        await shop.enqueue(of(THEIRS, "b"), *(of(OURS, id_, dead="no") for id_ in "ab"))
        letters: Any = shop.raw.zrange(shop.keys("dead"), 0, -1)
        assert [id_.decode().partition("~")[0] for id_ in letters] == ["a", "b"]
        shop.raw.zadd(shop.keys("dead"), dict.fromkeys(letters, 1))
        mine = [listed(id_, scope=OURS) for id_ in "ab"]
        assert (await put(shop, *mine))[0] == {"a": "dead", "b": "dead"}
        assert await shop.enqueue(of(OURS, "a", None)) == [True], "its letter gave the id back"
        [done] = await (await shop.daemon()).work_off()
        assert done.startswith("a~")
        letter = await DeadLetters(shop.namespace).find("a")
        assert letter is not None
        assert await DeadLetters(shop.namespace).drop(letter)
        assert (await put(shop, mine[0]))[0] == {"a": "over"}, "it was done, whatever was dropped"


class TestPolls:
    async def test_it_is_told_of_as_many_as_it_may_still_hold(self, shop: Bench) -> None:
        await shop.enqueue(*(pooled(f"p{n}") for n in range(5)))
        anna = Worker(shop)
        await anna.claim(2)
        assert len((await anna.poll(3)).heads) == 1
        assert (await anna.poll(2)).heads == (await anna.poll(1)).heads == []

    async def test_a_suspect_comes_alone(self, shop: Bench) -> None:
        """Who holds one is told of no other."""
        await shop.enqueue(*map(pooled, "ab"))
        await lose(Worker(shop), 2)
        anna = Worker(shop)
        first = (await anna.poll(9)).heads
        assert [head.order[:1] for head in first] == [b"-"]
        await anna.claim(1)
        assert (await anna.poll(9)).heads == []

    async def test_nothing_before_a_lease_has_passed_on_another_server(self, shop: Bench) -> None:
        """Though daemons go on: they can prove what they were told."""
        await shop.enqueue(pooled("p"))
        daemon, anna = await shop.daemon(), Worker(shop)
        await anna.poll()
        shop.raw.hset(shop.keys("epoch"), "id", "f" * 40)
        await anna.poll()
        await daemon.register()
        shop.end_recovery()
        await daemon.register()
        assert (await anna.poll(3)).heads == []
        shop.raw.hset(shop.keys("epoch"), "since", 1)
        assert len((await anna.poll(3)).heads) == 1

    async def test_what_is_told_of_a_worker(self, shop: Bench) -> None:
        """Its claims whole, or those of some slots; its lease; whether it is silent."""
        await shop.enqueue(pooled("p0"), pooled("p1"))
        anna = Worker(shop)
        one, two = await anna.claim(2)
        first, second = (await anna.poll()).session, (await anna.poll()).session
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
    packed: Any = shop.raw.hget(shop.keys("task_state", id_), "sequence")
    return str(packed.decode())


class TestLargeLines:
    """A line that is too large for a script is laid in Redis in front of it."""

    async def test_it_becomes_what_a_small_one_does(self, shop: Bench) -> None:
        lines = [listed("a"), large("b"), listed("c"), large("d"), large("e")]
        assert (await put(shop, *lines))[0] == dict.fromkeys("abcde", "added")
        assert await put(shop, *lines) == (dict.fromkeys("abcde", "kept"), 0)
        anna = Worker(shop)
        claims = await anna.claim(9)
        assert ids(claims) == [*"abcde"], "in the order of the list"
        assert (await put(shop, *lines))[0] == dict.fromkeys("abcde", "assigned")
        for claim in claims:
            assert not claim.apart or await claim.fetch()
        sizes = {claim.task.id: len(claim.task.body) for claim in claims}
        assert {id_ for id_, size in sizes.items() if size >= CARRIED} == {*"bde"}
        await anna.complete(*claims)
        assert (await put(shop, *lines))[0] == dict.fromkeys("abcde", "over")
        assert shop.raw.hlen(shop.keys("tasks")) == 0, "no envelope is left behind"

    async def test_one_whose_id_others_have_comes_under_another(self, shop: Bench) -> None:
        await shop.enqueue(of(THEIRS, "x", None))
        mine = large("x", scope=OURS)
        assert (await put(shop, mine))[0] == {"x": "added"}
        assert (await put(shop, mine))[0] == {"x": "kept"}
        [claim] = await Worker(shop).claim(9)
        assert claim.task.id.startswith("x~")
        assert not claim.apart or await claim.fetch()
        assert len(claim.task.body) == CARRIED
        assert set(shop.raw.hkeys(shop.keys("tasks"))) == {b"x", claim.task.id.encode()}

    async def test_a_dead_letter_keeps_its_own_body(self, shop: Bench) -> None:
        await put(shop, large("x"))
        anna = Worker(shop)
        await anna.settle(*(Bury(claim, "no", []) for claim in await anna.claim(1)))
        before = shop.raw.hget(shop.keys("tasks"), "x")
        assert (await put(shop, large("x", more=5)))[0] == {"x": "dead"}
        assert shop.raw.hget(shop.keys("tasks"), "x") == before


def large(id_: str, *, scope: str = "", more: int = 0) -> Listed:
    """A line of a list whose envelope no script is given."""
    body = b"x" * (CARRIED + more)
    envelope = Envelope("deliver", None, None, None, {}, body, scope, POOL)
    return Listed(id_, 0.0, envelope.pack(), envelope.pack_facts(), scope)
