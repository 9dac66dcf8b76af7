"""Why a group waits: due times, pauses, batches that aren't full; and that it goes on behind them.

A group is in one state at a time, and reaches it from each other one; see ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from groupflow.core.limits import Limit, Limits
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.listing import list_tasks
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Proceed, Retry, Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, Daemon, ids
from tests.store.story import named, play, stories
from tests.store.task_state import FAILURE, HOUR, fill, promote, why

DELAYS = {
    f"what comes up behind an end ({how}) is told to promoters": f"""
        take a0 a1@ | claim a0 | hears due {how} a0 | why a delayed head=a1
    """
    for how in ("done", "bury")
}
DELAYS |= {
    "a delayed task holds those behind it": """
        take a0 a1@ a2 | drain a0 | why a delayed head=a1 queued=2 | time | drain a1 a2
    """,
    "it may step aside": """
        take a0@~ a1 a2 | claim a1 | task a0 delayed | time | done a1 | drain a0 a2
    """,
    "a plain one waits alone": """
        take p0@ p1 | status queued_plain=2 | drain p1 | task p0 delayed | time | drain p0
    """,
}
PAUSES = named(
    """
    a paused group keeps its order, and what runs ends::
        take a0 a1 b0 | claim a0 | pause a | why a running | done a0 | take a2 | drain b0
        why a paused head=a1 queued=2 : ops | resume a | drain a1 a2
    a delayed one is delayed again, a ready one ready::
        take a0@ b0 c0 | pause a | pause b | gone held | why a paused | why b paused | why c ready
        take b1 c1 | why b paused | why c ready | resume a | resume b | why a delayed | why b ready
    everything::
        take a0 a1 b0 p0 p1 | claim a0 p0 | pause all | done a0 p0 | take b1 p2 | none
        why a paused | resume all | drain a1 b0 b1 p1 p2
    what was paused by name stays so when everything goes on::
        take a0 b0 | pause a | pause all | resume all | drain b0 | resume a | drain a0
    a group that is parked and paused needs both lifted::
        take a0 a1 | claim a0 | park a0 | pause a | resume a | none | pause a | redrive a0 | none
        resume a | drain a0 a1
    """
)
PAUSES |= {
    f"a task that comes back by {how} waits in its place": f"""
        take a0 a1 | claim a0 | pause a | {how} | none | lane a0 a1 | why a paused | resume a
        time | drain a0 a1
    """
    for how in ("retry a0", "retry a0 aside | time", "release a0", "advance a0", "crash")
}


@stories(DELAYS | PAUSES)
async def test_groups_wait(shop: Bench, story: str) -> None:
    await play(shop, story)


async def test_a_real_due_time_is_obeyed_and_told(shop: Bench) -> None:
    """The only test that lets real time pass: as long as `promote` itself says."""
    daemon = await fill(shop, "a0", "p0")
    await daemon.settle(Retry(await daemon.claim_one(), 0.2, FAILURE))
    await daemon.settle(Retry(await daemon.claim_one("plain"), 0.3, FAILURE))
    seen, wait = await shop.client.run(Verb.PROMOTE, 200)
    assert wait <= 200_000
    async with asyncio.timeout(deadline()):
        while wait >= 0:
            await asyncio.sleep(wait / 1_000_000)
            promoted, wait = await shop.client.run(Verb.PROMOTE, 200)
            seen += promoted
    assert seen == 2
    assert sorted(await daemon.work_off()) == ["a0", "p0"]


async def test_promote_takes_no_more_than_it_is_told(shop: Bench) -> None:
    daemon = await fill(shop, *(f"p{n}" for n in range(5)))
    for claim in await daemon.claim("plain", *(f"w{n}" for n in range(5))):
        await daemon.settle(Retry(claim, 0, FAILURE))
    assert [(await shop.client.run(Verb.PROMOTE, 2))[0] for _ in range(4)] == [2, 2, 1, 0]


async def test_it_is_told_until_when_a_delay_lasts(shop: Bench) -> None:
    await play(shop, "take a0@ p0@")
    now = shop.server_time() / 1e6
    rows = (await list_tasks(shop.namespace, "delayed", 10)).rows
    assert sorted((row.id, row.group) for row in rows if row.group is None) == [("p0", None)]
    for until in ((await why(shop, "a")).until, *(row.until for row in rows)):
        assert now + HOUR - 60 < (until or 0) <= now + HOUR


# Pauses that end by themselves


def let_pauses_end(shop: Bench) -> None:
    groups: Any = shop.raw.zrange(shop.keys("resumes"), 0, -1)
    for group in groups:
        shop.raw.zadd(shop.keys("resumes"), {group: 1})


async def lasts(shop: Bench, group: str = "a") -> int | None:
    """For how many seconds a pause lasts in all; none where nothing ends it."""
    told = await why(shop, group)
    assert told.state == "paused"
    return None if told.until is None else round(told.until - (told.since or 0))


@pytest.mark.parametrize("target", ["a", ALL])
async def test_a_pause_with_an_end_ends_by_itself(shop: Bench, target: str) -> None:
    told, groups = await play(shop, "take a0 a1"), Groups(shop.namespace)
    assert await groups.pause(target, "ops", 30.0)
    assert await lasts(shop) == 30
    _, wait = await shop.client.run(Verb.PROMOTE, 10)
    assert 0 < wait <= 30_000_000
    await told.go_on("why a paused: by itself | none")
    let_pauses_end(shop)
    assert await shop.client.run(Verb.PROMOTE, 10) == [1, -1]
    await told.go_on("why a ready | drain a0 a1 | gone resumes")


async def test_a_pause_takes_the_end_of_a_newer_one(shop: Bench) -> None:
    """But one that has none keeps that: who said so may have had a reason."""
    await fill(shop, "a0")
    groups = Groups(shop.namespace)
    assert await groups.pause("a", "ops", 30.0)
    assert await groups.pause("a", "ops", 300.0)
    assert await lasts(shop) == 300
    assert await groups.pause("a", "ops")
    assert await lasts(shop) is None
    assert not await groups.pause("a", "ops", 30.0)
    assert await lasts(shop) is None
    assert await groups.resume("a")
    assert not await groups.resume("a")


@pytest.mark.parametrize("target", ["a", ALL])
async def test_a_pause_that_was_lifted_has_no_end_left(shop: Bench, target: str) -> None:
    """Nor does its end lift one that came after it."""
    await fill(shop, "a0")
    groups = Groups(shop.namespace)
    await groups.pause(target, "ops", 30.0)
    assert await groups.resume(target)
    assert not shop.raw.exists(shop.keys("resumes"))
    await groups.pause(target, "ops")
    let_pauses_end(shop)
    assert await shop.client.run(Verb.PROMOTE, 10) == [0, -1]
    assert await lasts(shop) is None


async def test_the_end_of_a_pause_leaves_what_is_paused_otherwise(shop: Bench) -> None:
    told = await play(shop, "take a0 b0 | pause a")
    await Groups(shop.namespace).pause(ALL, "ops", 30.0)
    hold = (await shop.status()).everything_paused
    assert hold is not None
    assert hold.until is not None
    let_pauses_end(shop)
    await told.go_on("promote | drain b0 | why a paused")


# Incomplete batches, which wait until they are full, or their oldest task has waited its time


async def batches(shop: Bench, wait: float = 60.0) -> Daemon:
    """A daemon whose rule makes batches of three, which wait so many seconds."""
    shop.limits = Limits({"rule": Limit(batch=3, batch_wait=wait)})
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": 3})
    return daemon


BATCHES = named(
    """
    fewer wait, and the last one ends it::
        take a0 a1 | why a delayed: 2 so far: its batch isn't full | none | take a2 | why a ready
        all a0>a1>a2
    each group by itself, as many as there are::
        take a0 b0 a1 b1 a2 b2 a3 b3 c0 | all a0>a1>a2 b0>b1>b2
    what is left waits from its own arrival::
        take a0 a1 a2 a3 | claim a0>a1>a2 | tell a0 a1 a2 > | none | take a4 a5 | all a3>a4>a5
    what has filled one meanwhile is claimed once the group is free::
        take a0 a1 a2 | claim a0>a1>a2 | take a3 a4 a5 | none | tell a0 a1 a2 > | all a3>a4>a5
    others beside it wait for nothing:: take a0 b0%other p0 | all b0 p0
    in a pool nothing waits:: take a0= | why a ready
    no hop takes a task out of a full one::
        take a0%other a1 a2 a3 | claim a0 | hop a0 - | swap a0 a1>a2>a3
    nor out of one that isn't full:: take a0%other a1 a2 | claim a0 | hop a0 - | swap a0
    """
)


@stories(BATCHES)
async def test_incomplete_batches(shop: Bench, story: str) -> None:
    await batches(shop)
    await play(shop, f"runs 3 | {story}")


async def test_a_reload_takes_a_batch_over(shop: Bench) -> None:
    """Fewer make a batch from then on, or nothing is waited for."""
    await batches(shop)
    told = await play(shop, "runs 3 | take a0 a1 | none")
    shop.limits = Limits()
    await told.go_on("reload | all a0>a1")


async def test_the_oldest_of_a_batch_has_waited_its_time(shop: Bench) -> None:
    """A retry waits for its own time alone, which came long before."""
    daemon = await batches(shop, wait=0.05)
    await play(shop, "take a0 a1")
    assert await daemon.claim("grouped", "w1") == []
    while not (claims := await daemon.claim("grouped", "w1")):
        await promote(shop)
    assert ids([claims[0], *claims[0].run]) == ["a0", "a1"]
    first, second = claims[0], claims[0].run[0]
    ended: list[Settlement] = [Proceed([Complete(first)], second), Retry(second, 0.0, [])]
    assert await daemon.exchange("grouped", ended, []) == ([], [])
    assert ids(await daemon.claim("grouped", "w1")) == ["a1"]
