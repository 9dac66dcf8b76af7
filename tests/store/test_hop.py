"""hop: a slot goes on with the next task of its group, where nobody else's turn it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from groupflow.operate.groups import ALL, Groups
from groupflow.operate.tasks import Tasks
from groupflow.store.settlements import Complete
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.task_state import redrive


async def _hot(bench: Bench, number: int = 3) -> Daemon:
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(number)))
    return await bench.daemon()


async def test_a_slot_goes_on_in_its_group(bench: Bench) -> None:
    """Under the same lock, with a new fence, in order, to the end of the lane."""
    daemon = await _hot(bench)
    claim = await daemon.claim_one()
    first = await daemon.hop(claim)
    assert first is not None
    assert (first.task.id, first.task.body, first.task.group) == ("a1", b'{"id":"a1"}', "a")
    assert first.fence > claim.fence
    lock = bench.raw.get(bench.keys("lock", "a"))
    assert lock == f"{first.fence:016d} d1 w1".encode()
    assert bench.judge() == []
    second = await daemon.hop(first)
    assert second is not None
    assert second.task.id == "a2"
    await daemon.complete(second)
    assert bench.judge_drained() == []


async def test_a_pause_of_another_group_stops_no_hop(bench: Bench) -> None:
    daemon = await _hot(bench)
    claim = await daemon.claim_one()
    await Groups(bench.namespace).pause("other", "me")
    assert await daemon.hop(claim) is not None


async def _pause(bench: Bench, _: Daemon) -> None:
    await Groups(bench.namespace).pause("a", "me")


async def _pause_all(bench: Bench, _: Daemon) -> None:
    await Groups(bench.namespace).pause(ALL, "me")


async def _recover(bench: Bench, _: Daemon) -> None:
    bench.raw.set(bench.keys("recovering"), bench.server_time() * 2)


async def _drop_the_rest(bench: Bench, _: Daemon) -> None:
    assert await Tasks(bench.namespace).drop("a2") is None
    assert await Tasks(bench.namespace).drop("a3") is None


async def _end_the_lease(bench: Bench, _: Daemon) -> None:
    bench.expire("d1")


async def _quarantined(bench: Bench, _: Daemon) -> None:
    """Somebody else's task becomes one: quarantined tasks go first."""
    await bench.enqueue(arrival("z0", "z"))
    other = await bench.daemon("d2")
    other.drop(*await other.claim("grouped", "w1"))
    await other.sessions.leave()


async def _replace(bench: Bench, _: Daemon) -> None:
    """Though its slot still says what it said."""
    name = bench.keys("daemon", "d1")
    bench.raw.hset(name, "process", "9" * len(bench.raw.hget(name, "process") or ""))


async def _put_an_older_one_in_front(bench: Bench, _: Daemon) -> None:
    """What has a task state may be delayed, in quarantine, or large: an exchange knows of that."""
    await redrive(bench, "a0")


@pytest.mark.parametrize(
    "meanwhile",
    [
        *(_pause, _pause_all, _recover, _drop_the_rest, _end_the_lease, _quarantined),
        *(_replace, _put_an_older_one_in_front),
    ],
    ids=lambda each: each.__name__.strip("_"),
)
async def test_others_go_first(
    shop: Bench, meanwhile: Callable[[Bench, Daemon], Awaitable[None]]
) -> None:
    """Then nothing is written: the task is settled by an exchange, which finds out what is next."""
    daemon = await _hot(shop, 4)
    await daemon.settle(bury(await daemon.claim_one()))
    claim = await daemon.claim_one()
    await meanwhile(shop, daemon)
    before = shop.dump()
    assert await daemon.hop(claim) is None
    assert shop.dump() == before


async def test_where_the_next_ones_body_is_gone_nothing_is_written(shop: Bench) -> None:
    """An exchange passes it over; whoever deleted keys."""
    daemon = await _hot(shop)
    claim = await daemon.claim_one()
    shop.raw.hdel(shop.keys("tasks"), "a1")
    before = shop.dump()
    assert await daemon.hop(claim) is None
    assert shop.dump() == before
    assert await daemon.exchange("grouped", [Complete(claim)], ["w1"]) == ([], [])
    assert ids(await daemon.claim("grouped", "w1")) == ["a2"]


@pytest.mark.parametrize(("first", "goes_on"), [("b", False), ("a", True)])
async def test_the_oldest_group_goes_first(bench: Bench, first: str, goes_on: bool) -> None:
    """A hot group keeps nobody waiting that has waited longer: nor anybody else, by a hop."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    await bench.enqueue(arrival(f"{first}2", first))
    assert (await daemon.hop(claim) is not None) == goes_on


async def test_a_stale_fence_hops_nowhere(bench: Bench) -> None:
    daemon = await _hot(bench)
    claim = await daemon.claim_one()
    daemon.drop(claim)
    await daemon.register()
    before = bench.dump()
    assert await daemon.hop(claim) is None
    assert bench.dump() == before


async def test_a_lost_reply_costs_nothing(bench: Bench) -> None:
    """What went wrong is settled and claimed by an exchange."""
    daemon = await _hot(bench)
    claim = await daemon.claim_one()
    following = await daemon.hop(claim)
    assert following is not None
    before = bench.dump()
    assert await daemon.hop(claim, is_first=False) is None
    refused, claims = await daemon.exchange("grouped", [Complete(claim)], ["w1"])
    assert (refused, ids(claims), claims[0].fence) == ([], ["a1"], following.fence)
    assert bench.dump() == before
    assert bench.audit() == []


async def test_a_redelivery_of_what_was_hopped_from_is_a_duplicate(bench: Bench) -> None:
    daemon = await _hot(bench)
    assert await daemon.hop(await daemon.claim_one()) is not None
    assert bench.count("done") == 1
    enqueued = await bench.enqueuer.enqueue([arrival("a0", "a")])
    assert enqueued.taken == [False]
    assert bench.audit() == []
