"""Pauses of one group and of all: order is kept, and what runs ends."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.operate.groups import ALL, Groups
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Release
from tests.store.bench import Bench, arrival
from tests.store.task_state import advance, fill, kill, pass_time, redrive, retry, why


async def test_a_paused_group_keeps_its_order_and_what_runs_ends(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1", "b0"), Groups(shop.namespace)
    running = await daemon.claim_one()
    assert await groups.pause("a", "ops")
    assert not await groups.pause("a", "another")
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
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.namespace)
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
    daemon, groups = await fill(shop, "a0", "a1", "b0", "p0", "p1"), Groups(shop.namespace)
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
    daemon, groups = await fill(shop, "a0", "b0"), Groups(shop.namespace)
    await groups.pause("a", "ops")
    await groups.pause(ALL, "ops")
    await groups.resume(ALL)
    assert await daemon.work_off() == ["b0"]
    await groups.resume("a")
    assert await daemon.work_off() == ["a0"]


async def test_a_group_that_is_parked_and_paused_needs_both_lifted(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.namespace)
    await kill(shop, daemon, park=True)
    await groups.pause("a", "ops")
    await groups.resume("a")
    assert await daemon.work_off() == []
    await groups.pause("a", "ops")
    await redrive(shop, "a0")
    assert await daemon.work_off() == []
    await groups.resume("a")
    assert await daemon.work_off() == ["a0", "a1"]


def _let_it_pass(shop: Bench) -> None:
    groups: Any = shop.raw.zrange(shop.keys("resumes"), 0, -1)
    for group in groups:
        shop.raw.zadd(shop.keys("resumes"), {group: 1})


@pytest.mark.parametrize("target", ["a", ALL])
async def test_a_pause_with_an_end_ends_by_itself(shop: Bench, target: str) -> None:
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.namespace)
    assert await groups.pause(target, "ops", 30.0)
    told = await why(shop, "a")
    assert (told.state, "by itself" in told.reason) == ("paused", True)
    assert told.until is not None
    assert told.since is not None
    assert round(told.until - told.since) == 30
    _, wait = await shop.client.run(Verb.PROMOTE, 10)
    assert 0 < wait <= 30_000_000
    assert await daemon.work_off() == []
    _let_it_pass(shop)
    assert await shop.client.run(Verb.PROMOTE, 10) == [1, -1]
    assert (await why(shop, "a")).state == "ready"
    assert await daemon.work_off() == ["a0", "a1"]
    assert not shop.raw.exists(shop.keys("resumes"))


async def test_a_pause_takes_the_end_of_a_newer_one(shop: Bench) -> None:
    """But one that has none keeps that: who said so may have had a reason."""
    await fill(shop, "a0")
    groups = Groups(shop.namespace)
    assert await groups.pause("a", "ops", 30.0)
    assert await groups.pause("a", "ops", 300.0)
    told = await why(shop, "a")
    assert told.until is not None
    assert told.since is not None
    assert round(told.until - told.since) == 300
    assert await groups.pause("a", "ops")
    assert (await why(shop, "a")).until is None
    assert not await groups.pause("a", "ops", 30.0)
    assert (await why(shop, "a")).until is None


@pytest.mark.parametrize("target", ["a", ALL])
async def test_a_pause_that_was_lifted_has_no_end_left(shop: Bench, target: str) -> None:
    """Nor does its end lift one that came after it."""
    await fill(shop, "a0")
    groups = Groups(shop.namespace)
    await groups.pause(target, "ops", 30.0)
    assert await groups.resume(target)
    assert not shop.raw.exists(shop.keys("resumes"))
    await groups.pause(target, "ops")
    _let_it_pass(shop)
    assert await shop.client.run(Verb.PROMOTE, 10) == [0, -1]
    assert (await why(shop, "a")).state == "paused"


async def test_the_end_of_a_pause_leaves_what_is_paused_otherwise(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "b0"), Groups(shop.namespace)
    await groups.pause("a", "ops")
    await groups.pause(ALL, "ops", 30.0)
    hold = (await shop.status()).everything_paused
    assert hold is not None
    assert hold.until is not None
    _let_it_pass(shop)
    await shop.client.run(Verb.PROMOTE, 10)
    assert await daemon.work_off() == ["b0"]
    assert (await why(shop, "a")).state == "paused"
