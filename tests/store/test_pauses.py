"""Pauses of one group and of all: order is kept, and what runs ends."""

from __future__ import annotations

import pytest

from groupflow.operate.groups import ALL, Groups
from groupflow.store.settlements import Release
from tests.store.bench import Bench, arrival
from tests.store.life import advance, fill, kill, pass_time, redrive, retry, why


async def test_a_paused_group_keeps_its_order_and_what_runs_ends(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1", "b0"), Groups(shop.client)
    running = await daemon.claim_one()
    assert await groups.pause("a", "ops")
    assert not await groups.pause("a", "somebody else")
    assert (await why(shop, "a")).state == "running"
    await daemon.complete(running)
    await shop.enqueue(arrival("a2", "a"))
    assert await daemon.work_off() == ["b0"]
    told = await why(shop, "a")
    assert (told.state, told.queued, told.head) == ("paused", 2, "a1")
    assert "ops" in told.reason
    assert await groups.resume("a")
    assert not await groups.resume("a")
    assert await daemon.work_off() == ["a1", "a2"]


@pytest.mark.parametrize("how", ["retry", "release", "crash", "advance", "aside"])
async def test_a_task_that_comes_back_into_a_paused_group_waits_in_its_place(
    shop: Bench, how: str
) -> None:
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.client)
    shop.with_faults = True
    running = await daemon.claim_one()
    await groups.pause("a", "ops")
    match how:
        case "retry":
            await daemon.settle(retry(running))
        case "aside":
            await daemon.settle(retry(running, "step-aside"))
            await pass_time(shop)
        case "release":
            await daemon.settle(Release(running))
        case "advance":
            await daemon.settle(advance(running))
        case _:
            await daemon.register()
    assert await daemon.work_off() == []
    assert shop.lane("a") == ["a0", "a1"]
    assert (await why(shop, "a")).state == "paused"
    await groups.resume("a")
    if how == "retry":
        await pass_time(shop)
    assert await daemon.work_off() == ["a0", "a1"]


async def test_everything_paused_keeps_every_order(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1", "b0", "p0", "p1"), Groups(shop.client)
    running = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    assert await groups.pause(ALL, "ops")
    await daemon.complete(*running)
    await shop.enqueue(arrival("b1", "b"), arrival("p2"))
    assert await daemon.work_off() == []
    assert (await why(shop, "a")).state == "paused"
    assert await groups.resume(ALL)
    ran = await daemon.work_off(["w1"])
    for name in "abp":
        assert [id_ for id_ in ran if id_[0] == name] == sorted(
            id_ for id_ in ran if id_[0] == name
        )
    assert len(ran) == 5


async def test_who_was_paused_by_name_stays_so_when_everything_goes_on(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "b0"), Groups(shop.client)
    await groups.pause("a", "ops")
    await groups.pause(ALL, "ops")
    await groups.resume(ALL)
    assert await daemon.work_off() == ["b0"]
    await groups.resume("a")
    assert await daemon.work_off() == ["a0"]


async def test_a_group_that_is_parked_and_paused_needs_both_lifted(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.client)
    await kill(shop, daemon, park=True)
    await groups.pause("a", "ops")
    await groups.resume("a")
    assert await daemon.work_off() == []
    await groups.pause("a", "ops")
    await redrive(shop, "a0")
    assert await daemon.work_off() == []
    await groups.resume("a")
    assert await daemon.work_off() == ["a0", "a1"]
