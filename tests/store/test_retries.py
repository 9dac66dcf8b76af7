"""Retries: what becomes of the task and its group; attempts and crashes, counted apart."""

from __future__ import annotations

import pytest

from groupflow.store.envelope import Pool
from groupflow.store.settlements import Bury
from tests.store.bench import Bench
from tests.store.task_state import (
    FAILURE,
    Standing,
    fill,
    found,
    pass_time,
    promote,
    redrive,
    retry,
    why,
)


async def test_a_retry_that_holds_stays_the_head_until_it_is_due(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0")
    await daemon.settle(retry(await daemon.claim_one()))
    assert await daemon.work_off() == ["b0"]
    assert shop.lane("a") == ["a0", "a1"]
    assert await promote(shop) == 0
    told = await why(shop, "a")
    assert (told.state, told.head, told.queued) == ("delayed", "a0", 2)
    assert "no such row" in told.reason
    assert (await shop.status()).delayed == 1

    await pass_time(shop)
    again = await daemon.claim_one()
    assert (again.task.id, again.task.attempt, again.errors) == ("a0", 2, FAILURE)
    await daemon.complete(again)
    assert await daemon.work_off() == ["a1"]


async def test_a_retry_that_steps_aside_lets_its_group_go_on(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2")
    await daemon.settle(retry(await daemon.claim_one(), "step-aside"))
    first = await daemon.claim_one()
    assert first.task.id == "a1"
    # Due while another of its group runs: it goes first as soon as that one has ended.
    await pass_time(shop)
    assert shop.lane("a") == ["a0", "a2"]
    assert await daemon.claim("grouped", "w2") == []
    await daemon.complete(first)
    assert await daemon.work_off() == ["a0", "a2"]


async def test_tasks_that_stepped_aside_come_back_in_order_of_arrival(shop: Bench) -> None:
    daemon = await fill(shop, *(f"a{n}" for n in range(6)))
    for _ in range(4):
        await daemon.settle(retry(await daemon.claim_one(), "step-aside"))
    await pass_time(shop, "a2", "a0", "a3", "a1")
    assert shop.lane("a") == [f"a{n}" for n in range(6)]


async def test_a_plain_retry_simply_waits(shop: Bench) -> None:
    daemon = await fill(shop, "p0", "p1")
    await daemon.settle(retry(await daemon.claim_one("plain")))
    assert await daemon.work_off() == ["p1"]
    assert await promote(shop) == 0
    assert (await found(shop, "p0")).state == "delayed"
    await pass_time(shop)
    again = await daemon.claim_one("plain")
    assert (again.task.id, again.task.attempt) == ("p0", 2)


@pytest.mark.parametrize("standing", ["hold", "step-aside"])
async def test_a_retry_at_once_is_due_at_once(shop: Bench, standing: Standing) -> None:
    daemon = await fill(shop, "a0", "a1")
    await daemon.settle(retry(await daemon.claim_one(), standing, after=0))
    await promote(shop)
    again = await daemon.claim_one()
    assert (again.task.id, again.task.attempt) == ("a0", 2)


@pytest.mark.parametrize(("pool", "id_"), [("grouped", "a0"), ("plain", "p0")])
async def test_crashes_are_counted_apart_from_attempts(shop: Bench, pool: Pool, id_: str) -> None:
    daemon = await fill(shop, "a0", "a1", "p0")
    shop.with_faults = True
    for crashes in range(3):
        claim = await daemon.claim_one(pool)
        assert (claim.task.attempt, claim.task.crashes) == (1, crashes)
        assert (await found(shop, id_)).crashes == crashes
        assert [each.id for each in await daemon.register()] == [id_]
    assert shop.count("crashed") == 3
    claim = await daemon.claim_one(pool)
    await daemon.settle(retry(claim))
    await pass_time(shop)
    assert (await daemon.claim_one(pool)).task.crashes == 3


async def test_a_redrive_forgets_crashes_and_attempts_and_keeps_the_history(shop: Bench) -> None:
    daemon = await fill(shop, "a0")
    shop.with_faults = True
    await daemon.claim_one()
    await daemon.register()
    await daemon.settle(retry(await daemon.claim_one()))
    await pass_time(shop)
    await daemon.settle(Bury(await daemon.claim_one(), "no", FAILURE * 2))
    await redrive(shop, "a0")
    again = await daemon.claim_one()
    assert (again.task.attempt, again.task.crashes, again.errors) == (1, 0, FAILURE * 2)
