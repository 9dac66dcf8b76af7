"""Due times: kept by `promote`, told to the daemons that promote, and asked for by a delay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from groupflow.operate.listing import list_tasks
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import HOUR, fill, found, pass_time, retry, why


async def test_a_real_due_time_is_obeyed_and_told(shop: Bench) -> None:
    """The only test that lets real time pass: as long as `promote` itself says."""
    daemon = await fill(shop, "a0", "p0")
    await daemon.settle(retry(await daemon.claim_one(), after=0.2))
    await daemon.settle(retry(await daemon.claim_one("plain"), after=0.3))
    promoted, wait = await shop.client.run(Verb.PROMOTE, 200)
    seen = promoted
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
        await daemon.settle(retry(claim, after=0))
    assert [(await shop.client.run(Verb.PROMOTE, 2))[0] for _ in range(4)] == [2, 2, 1, 0]
    assert len(await daemon.work_off()) == 5


ENDINGS: dict[str, Callable[[Claim], Settlement]] = {
    "complete": Complete,
    "bury": bury,
    "step aside": lambda claim: retry(claim, "step-aside", after=2 * HOUR),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_due_time_is_told_to_promoters(shop: Bench, ending: str) -> None:
    """Also one that comes up only when the task before it has ended."""
    daemon = await fill(shop, "a0")
    await shop.enqueue(arrival("a1", "a", delay=HOUR))
    claim = await daemon.claim_one()
    async with shop.client.wakes() as wakes, asyncio.timeout(deadline()):
        assert await anext(wakes) == b"all"  # it begins with one, for what was missed
        await daemon.settle(ENDINGS[ending](claim))
        shop.raw.publish(shop.keys.wake, "that was all")
        heard = []
        while b"that was all" not in heard:
            heard.append(await anext(wakes))
        assert b"due" in heard
    told = await why(shop, "a")
    assert (told.state, told.head) == ("delayed", "a1")


async def test_a_delayed_task_holds_those_behind_it(shop: Bench) -> None:
    await shop.enqueue(arrival("a0", "a"), arrival("a1", "a", delay=HOUR), arrival("a2", "a"))
    daemon = await shop.daemon()
    assert await daemon.work_off() == ["a0"]
    told = await why(shop, "a")
    assert (told.state, told.head, told.queued) == ("delayed", "a1", 2)
    now = float(shop.raw.time()[0])
    assert now + HOUR / 2 < (told.until or 0) <= now + HOUR + 1
    await pass_time(shop)
    assert await daemon.work_off() == ["a1", "a2"]


async def test_a_delayed_task_may_step_aside(shop: Bench) -> None:
    aside = arrival("a0", "a", delay=HOUR, steps_aside=True)
    await shop.enqueue(aside, arrival("a1", "a"), arrival("a2", "a"))
    daemon = await shop.daemon()
    first = await daemon.claim_one()
    assert first.task.id == "a1"
    assert (await found(shop, "a0")).state == "delayed"
    await pass_time(shop)
    await daemon.complete(first)
    assert await daemon.work_off() == ["a0", "a2"]


async def test_a_delayed_plain_task_waits_alone(shop: Bench) -> None:
    await shop.enqueue(arrival("p0", delay=HOUR), arrival("p1"))
    daemon = await shop.daemon()
    assert await daemon.work_off() == ["p1"]
    (row,) = (await list_tasks(shop.namespace, "delayed", 10)).rows
    assert (row.id, row.group) == ("p0", None)
    assert row.until is not None
    assert row.enqueued_at is not None
    assert row.until > row.enqueued_at + HOUR - 1
    await pass_time(shop)
    assert await daemon.work_off() == ["p0"]
