"""hand_on: a slot goes on with the next task of its group, where nobody else's turn it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from groupflow.core.errors import SessionReplaced
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.tasks import WaitingTasks
from groupflow.store.settlements import Complete
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.life import redrive


@pytest.fixture(autouse=True, params=[True, False], ids=["hop", "hand_on"])
def way(request: pytest.FixtureRequest) -> None:
    """By the small script as far as that goes, and by the one that knows of everything."""
    name = "bench" if "bench" in request.fixturenames else "shop"
    request.getfixturevalue(name).hops = request.param


async def _hot(bench: Bench, number: int = 3) -> Daemon:
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(number)))
    return await bench.daemon()


async def test_a_slot_goes_on_in_its_group(bench: Bench) -> None:
    """Under the same lock, with a new fence, in order, to the end of the lane."""
    daemon = await _hot(bench)
    claim = await daemon.claim_hot()
    assert [element[17:] for element, _ in claim.behind] == [b"a1", b"a2"]
    first = await daemon.hand_on(claim)
    assert first.claim is not None
    assert (first.claim.task.id, first.claim.task.body) == ("a1", b'{"id":"a1"}')
    assert first.claim.fence > claim.fence
    lock = bench.raw.get(bench.keys("lock", "a"))
    assert lock == f"{first.claim.fence:016d} d1 w1".encode()
    assert bench.judge() == []
    second = await daemon.hand_on(first.claim)
    assert second.claim is not None
    assert (second.claim.task.id, second.claim.behind) == ("a2", [])
    await daemon.complete(second.claim)
    assert bench.judge_drained() == []


async def test_the_last_one_that_was_told_brings_those_behind_it(bench: Bench) -> None:
    daemon = await _hot(bench, 40)
    claim, ran = await daemon.claim_hot(), ["a0"]
    while claim.behind:
        handed = await daemon.hand_on(claim)
        assert handed.claim is not None
        claim = handed.claim
        ran.append(claim.task.id)
    await daemon.complete(claim)
    assert ran == [f"a{n}" for n in range(40)]
    assert bench.judge_drained() == []


async def test_what_has_a_life_is_not_told(bench: Bench) -> None:
    """It may be delayed, or a suspect, or large: the ordinary way knows of that."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("a2", "a", priority=5.0))
    daemon = await bench.daemon()
    claim = await daemon.claim_hot()
    assert [element[17:] for element, _ in claim.behind] == [b"a1"]


async def _pause(bench: Bench, _: Daemon) -> None:
    await Groups(bench.client).pause("a", "me")


async def _pause_all(bench: Bench, _: Daemon) -> None:
    await Groups(bench.client).pause(ALL, "me")


async def _recover(bench: Bench, _: Daemon) -> None:
    bench.raw.set(bench.keys("recovering"), bench.server_time() * 2)


async def _drop_the_next(bench: Bench, _: Daemon) -> None:
    assert await WaitingTasks(bench.client).drop("a1") is None


async def _end_the_lease(bench: Bench, _: Daemon) -> None:
    bench.expire("d1")


async def _suspect(bench: Bench, _: Daemon) -> None:
    """Somebody else's task becomes one: suspects go first."""
    await bench.enqueue(arrival("z0", "z"))
    other = await bench.daemon("d2")
    other.drop(*await other.claim("grouped", "w1"))
    await other.sessions.leave()


@pytest.mark.parametrize(
    "meanwhile",
    [_pause, _pause_all, _recover, _drop_the_next, _end_the_lease, _suspect],
    ids=lambda each: each.__name__.strip("_"),
)
async def test_others_go_first(
    bench: Bench, meanwhile: Callable[[Bench, Daemon], Awaitable[None]]
) -> None:
    """Then the task is done, its group free, and the slot empty."""
    daemon = await _hot(bench)
    claim = await daemon.claim_hot()
    await meanwhile(bench, daemon)
    handed = await daemon.hand_on(claim)
    assert not handed.is_refused
    assert handed.claim is None
    assert not bench.raw.exists(bench.keys("lock", "a"))
    assert (bench.count("done"), bench.count("running_grouped")) == (1, 0)
    assert bench.judge() == []


async def test_an_older_task_that_was_redriven_goes_first(shop: Bench) -> None:
    daemon = await _hot(shop, 4)
    await daemon.settle(bury(await daemon.claim_one()))
    claim = await daemon.claim_hot()
    await redrive(shop, "a0")
    assert (await daemon.hand_on(claim)).claim is None
    assert ids(await daemon.claim("grouped", "w1")) == ["a0"]
    assert shop.audit() == []


@pytest.mark.parametrize(("first", "goes_on"), [("b", False), ("a", True)])
async def test_the_oldest_group_goes_first(bench: Bench, first: str, goes_on: bool) -> None:
    """A hot group keeps nobody waiting that has waited longer."""
    await bench.enqueue(arrival("a0", "a"))
    await bench.enqueue(arrival(f"{first}1", first))
    await bench.enqueue(arrival("a2", "a"), arrival("b3", "b"), arrival("a4", "a"))
    daemon = await bench.daemon()
    claim = await daemon.claim_hot()
    assert claim.task.id == "a0"
    assert ((await daemon.hand_on(claim)).claim is not None) == goes_on
    assert bench.judge() == []


async def test_a_stale_fence_hands_nothing_on(bench: Bench) -> None:
    daemon = await _hot(bench)
    claim = await daemon.claim_hot()
    daemon.drop(claim)
    await daemon.register()
    before = bench.dump()
    handed = await daemon.hand_on(claim)
    assert (handed.is_refused, handed.claim) == (True, None)
    assert bench.dump() == before


async def test_a_lost_reply_costs_nothing(bench: Bench) -> None:
    """It may be made again; or settled and claimed by an exchange, as all is that went wrong."""
    daemon = await _hot(bench)
    claim = await daemon.claim_hot()
    handed = await daemon.hand_on(claim)
    assert handed.claim is not None
    before = bench.dump()
    again = await daemon.hand_on(claim, is_first=False)
    assert again.is_open == bench.hops
    assert again.is_open or (again.claim and again.claim.fence == handed.claim.fence)
    refused, claims = await daemon.exchange("grouped", [Complete(claim)], ["w1"])
    assert (refused, ids(claims), claims[0].fence) == ([], ["a1"], handed.claim.fence)
    assert bench.dump() == before
    assert bench.audit() == []


async def test_a_session_that_is_over_hands_nothing_on(bench: Bench) -> None:
    """Though its slot still says what it said."""
    daemon = await _hot(bench)
    claim = await daemon.claim_hot()
    name = bench.keys("daemon", "d1")
    process = bench.raw.hget(name, "process")
    bench.raw.hset(name, "process", "9" * len(process or ""))
    with pytest.raises(SessionReplaced):
        await daemon.hand_on(claim)
    bench.raw.hset(name, "process", process or b"")


async def test_a_redelivery_of_what_was_handed_on_is_a_duplicate(bench: Bench) -> None:
    daemon = await _hot(bench)
    claim = await daemon.claim_hot()
    assert (await daemon.hand_on(claim)).claim is not None
    assert bench.count("done") == 1
    enqueued = await bench.enqueuer.enqueue([arrival("a0", "a")])
    assert enqueued.taken == [False]
    assert bench.audit() == []
