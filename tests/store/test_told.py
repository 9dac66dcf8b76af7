"""What daemons are told: that something may be claimed or is due, and nothing where it isn't."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from groupflow.operate.groups import Groups
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Complete, Proceed, Release, Retry, Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import pass_time

HOUR = 3600.0


async def heard(bench: Bench, work: Callable[[], Awaitable[Any]]) -> list[bytes]:
    """What everybody is told while something is done."""
    told = []
    async with bench.client.wakes() as wakes, asyncio.timeout(deadline()):
        await anext(wakes)  # it begins with one, for what was missed
        await work()
        bench.raw.publish(bench.keys.wake, "that was all")
        async for wake in wakes:
            if wake == b"that was all":
                break
            told.append(wake)
    return told


PAUSES = count(HOUR, -1)
"""Each is due before those that were settled before."""

ENDINGS: dict[str, tuple[Callable[[Claim], Settlement], list[bytes]]] = {
    "complete": (Complete, [b"grouped"]),
    "release": (Release, [b"grouped"]),
    "bury": (bury, [b"grouped"]),
    "park": (lambda claim: bury(claim, park=True), []),
    "retry": (lambda claim: Retry(claim, next(PAUSES), []), [b"due"]),
    "step aside": (
        lambda claim: Retry(claim, next(PAUSES), [], "step-aside"),
        [b"due", b"grouped"],
    ),
    "advance": (lambda claim: Advance(claim, "two", b"{}"), [b"grouped"]),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_group_that_goes_on_is_told(bench: Bench, ending: str) -> None:
    """Any daemon may claim its next task, so all have to know: of several, once."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "ab"))
    daemon = await bench.daemon()
    settle, expected = ENDINGS[ending]
    for claim in await daemon.claim("grouped", "w1", "w2"):
        assert await heard(bench, partial(daemon.settle, settle(claim))) == expected
    bench.events.clear()  # stages and retries are the model's business


LAST: dict[str, tuple[Callable[[Claim], Settlement], list[bytes]]] = {
    "complete": (Complete, []),
    "bury": (bury, []),
    "step aside": (lambda claim: Retry(claim, HOUR, [], "step-aside"), [b"due"]),
}


@pytest.mark.parametrize("ending", LAST)
@pytest.mark.parametrize("group", ["a", None])
async def test_where_nothing_may_be_claimed_no_daemon_is_told(
    bench: Bench, group: str | None, ending: str
) -> None:
    await bench.enqueue(arrival("t0", group))
    daemon = await bench.daemon()
    claim = await daemon.claim_one("grouped" if group else "plain")
    settle, expected = LAST[ending]
    assert await heard(bench, lambda: daemon.settle(settle(claim))) == expected


@pytest.mark.parametrize("idle", [1, 2, 3])
async def test_a_daemon_that_claims_as_much_as_it_settles_wakes_no_other(
    bench: Bench, idle: int
) -> None:
    """What its settle has freed is for its own claim, right behind it; of the rest others hear."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "ab"))
    daemon = await bench.daemon()
    done = [Complete(claim) for claim in await daemon.claim("grouped", "w1", "w2")]
    slots = ["w1", "w2", "w3"][:idle]
    told = await heard(bench, lambda: daemon.exchange("grouped", done, slots))
    assert told == ([b"grouped"] if idle < len(done) else [])


async def test_a_slot_that_holds_a_claim_is_not_idle(bench: Bench) -> None:
    """Its reply was lost, so it is asked first: what another slot has freed is for others."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "ab"))
    daemon = await bench.daemon()
    done, _ = await daemon.claim("grouped", "w1", "w2")
    told = await heard(bench, lambda: daemon.exchange("grouped", [Complete(done)], ["w2"]))
    assert told == [b"grouped"]


@pytest.mark.parametrize("idle", [0, 1])
async def test_so_does_who_claims_as_much_as_its_runs_end(bench: Bench, idle: int) -> None:
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)))
    daemon = await bench.daemon()
    daemon.claims("grouped").adopt({"rule": 2})
    claim = await daemon.claim_one()
    ended = [Proceed([Complete(each) for each in (claim, *claim.run)], None)]
    told = await heard(bench, lambda: daemon.exchange("grouped", ended, ["w1"][:idle]))
    assert told == ([] if idle else [b"grouped"])
    bench.events.clear()  # a run's other tasks began without a word


@pytest.mark.parametrize("group", ["a", None])
async def test_of_due_times_the_nearest_is_told(bench: Bench, group: str | None) -> None:
    """Who promotes sleeps until then, and looks for the others itself."""
    groups = [group and f"{group}{n}" for n in range(4)]
    await bench.enqueue(*(arrival(f"t{n}", group) for n, group in enumerate(groups)))
    daemon = await bench.daemon()
    pool: Pool = "grouped" if group else "plain"
    claims = await daemon.claim(pool, "w1", "w2", "w3", "w4")
    told = [
        await heard(bench, partial(daemon.settle, Retry(claim, pause, [])))
        for claim, pause in zip(claims, (HOUR, 2 * HOUR, HOUR / 2, HOUR), strict=True)
    ]
    assert told == [[b"due"], [], [b"due"], []]
    bench.events.clear()  # retries are the model's business


async def test_many_groups_that_go_on_are_told_of_once(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abc"))
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    assert await heard(bench, lambda: daemon.complete(*claims)) == [b"grouped"]


async def test_a_next_task_with_a_life_of_its_own_is_told_of(bench: Bench) -> None:
    """Its group goes a longer way there; a paused one doesn't go at all."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a", priority=1.0), arrival("a2", "a"))
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    assert await heard(bench, lambda: daemon.complete(claim)) == [b"grouped"]
    claim = await daemon.claim_one()
    await Groups(bench.namespace).pause("a", "me")
    assert await heard(bench, lambda: daemon.complete(claim)) == []


async def test_stale_settles_wake_no_daemon(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("p0"))
    daemon = await bench.daemon()
    claims = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    await daemon.settle(*(Release(claim) for claim in claims))
    again = [Release(claim) for claim in claims]
    assert await heard(bench, lambda: daemon.settle(*again, end=False)) == []
    bench.events.clear()  # one settle, answered twice


@pytest.mark.parametrize("way", ["register", "reap", "leave"])
async def test_what_is_handed_over_is_told(bench: Bench, way: str) -> None:
    """It is for anybody; where nothing was held, nothing is told."""
    bench.with_faults = True
    other = await bench.daemon("other")

    async def end() -> None:
        if way == "reap":
            bench.expire("d1")
            await other.sessions.reap()
        else:
            await getattr(daemon, way, getattr(daemon.sessions, way))()

    for group in (None, "a"):
        daemon = await bench.daemon("d1")
        assert await heard(bench, end) == []
        await bench.enqueue(arrival(f"t{group}", group))
        daemon = await bench.daemon("d1")
        await daemon.claim_one("grouped" if group else "plain")
        assert await heard(bench, end) == [b"ready"]
        await other.work_off()


async def test_what_is_promoted_is_told(bench: Bench) -> None:
    """A task, or a group; and nothing while neither is due."""

    async def promote() -> None:
        await bench.client.run(Verb.PROMOTE, 10)

    delayed = [arrival("p0", delay=HOUR), arrival("a0", "a", delay=HOUR)]
    assert await heard(bench, lambda: bench.enqueue(*delayed)) == [b"due"]
    assert await heard(bench, promote) == []
    for id_, pool in (("p0", b"plain"), ("a0", b"grouped")):
        assert await heard(bench, partial(pass_time, bench, id_)) == [pool]
    assert await heard(bench, promote) == []
    assert await (await bench.daemon()).work_off() == ["p0", "a0"]


async def test_promote_tells_how_long_until_the_next(bench: Bench) -> None:
    """Be that a task, a group, or the end of a delay; and none where what is due was too much."""

    async def hours(most: int = 10) -> float:
        _, wait = await bench.client.run(Verb.PROMOTE, most)
        return float(wait) if wait <= 0 else round(wait / 1e6 / HOUR, 1)

    assert await hours() == -1
    daemon = await bench.daemon()
    await bench.enqueue(arrival("p0", delay=4 * HOUR), arrival("a0", "a", delay=3 * HOUR))
    assert await hours() == 3
    await bench.enqueue(arrival("b0", "b"), arrival("c0", "c"), arrival("d0", "d"))
    for after in (5.0, 2.0):
        claim = await daemon.claim_one()
        await daemon.settle(Retry(claim, after * HOUR, []))
        assert await hours() == min(after, 3)
    await daemon.settle(Retry(await daemon.claim_one(), HOUR, [], "step-aside"))
    assert await hours() == 1
    await bench.enqueue(arrival("p1"), arrival("p2"))
    for claim in await daemon.claim("plain", "w1", "w2"):
        await daemon.settle(Retry(claim, 0.0, []))
    assert [await hours(1), await hours(1)] == [0, 1]
    bench.events.clear()  # retries are the model's business


async def test_a_task_that_is_passed_over_is_told(bench: Bench) -> None:
    """The slot that it was for is idle still, and there may be more."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    bench.raw.hdel(bench.keys("tasks"), "a0", "p0")
    bench.events.clear()
    daemon = await bench.daemon()
    assert await heard(bench, lambda: daemon.claim("grouped", "w1")) == [b"grouped"]
    assert await heard(bench, lambda: daemon.claim("plain", "w2")) == [b"plain"]
    assert await heard(bench, lambda: daemon.claim("plain", "w2")) == []


async def test_a_claim_and_a_renewal_wake_no_daemon(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("p0"))
    daemon = await bench.daemon()
    assert await heard(bench, lambda: daemon.claim("grouped", "w1", "w3")) == []
    assert await heard(bench, lambda: daemon.claim("plain", "w2", "w4")) == []
    assert await heard(bench, lambda: daemon.claim("plain", "w2", "w4")) == []
    assert await heard(bench, daemon.sessions.renew) == []


async def test_the_end_of_the_only_suspect_wakes_no_daemon(bench: Bench) -> None:
    """Where others wait, they are told: see `test_quarantine`."""
    bench.with_faults = True
    await bench.enqueue(arrival("p0"))
    daemon = await bench.daemon()
    await daemon.claim_one("plain")
    await daemon.register()
    claim = await daemon.claim_one("plain")
    assert claim.task.crashes == 1
    assert await heard(bench, lambda: daemon.complete(claim)) == []


@pytest.mark.parametrize(
    "facts", [{"dead": "no"}, {"delay": HOUR}, {"delay": HOUR, "steps_aside": True}]
)
@pytest.mark.parametrize("group", ["a", None])
async def test_what_may_not_be_claimed_is_not_told_as_ready(
    bench: Bench, group: str | None, facts: dict[str, Any]
) -> None:
    told = await heard(bench, lambda: bench.enqueue(arrival("t0", group, **facts)))
    assert told == ([] if "dead" in facts else [b"due"])


async def test_what_comes_behind_others_is_not_told(bench: Bench) -> None:
    """Its group runs, or is ready and known to be, or held."""
    await bench.enqueue(arrival("a0", "a"))
    assert await heard(bench, lambda: bench.enqueue(arrival("a1", "a"))) == []
    daemon = await bench.daemon()
    await daemon.claim_one()
    assert await heard(bench, lambda: bench.enqueue(arrival("a2", "a"))) == []
    assert await heard(bench, lambda: bench.enqueue(arrival("a0", "a"))) == []
    assert await heard(bench, lambda: bench.enqueue(arrival("b0", "b"))) == [b"grouped"]
    assert await heard(bench, lambda: bench.enqueue(arrival("p0", priority=1.0))) == [b"plain"]
