"""advance: the next stage, its place in line, and where a crash resumes."""

from __future__ import annotations

from dataclasses import replace

from tests.store.bench import Bench, arrival
from tests.store.task_state import FAILURE, POOLS, advance, fill, pass_time, retry


async def test_a_stage_that_holds_is_the_next_of_its_group(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1")
    claim = await daemon.claim_one()
    await daemon.settle(advance(claim))
    assert shop.lane("a") == ["a0", "a1"]
    again = await daemon.claim_one()
    assert (again.task.id, again.task.stage, again.task.context) == ("a0", "two", {"rows": 3})
    assert (again.task.attempt, again.task.crashes) == (1, 0)
    assert again.task.enqueued_at == claim.task.enqueued_at


async def test_a_stage_that_steps_aside_lines_up_again(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2")
    claim = await daemon.claim_one()
    await daemon.settle(advance(claim, standing="step-aside"))
    await shop.enqueue(arrival("a3", "a"))
    assert shop.lane("a") == ["a1", "a2", "a0", "a3"]
    seen = []
    while claims := await daemon.claim("grouped", "w1"):
        seen.append((claims[0].task.id, claims[0].task.stage))
        if claims[0].task.id == "a0":
            # Where it lines up is new; when it came first is not.
            assert claims[0].task.enqueued_at == claim.task.enqueued_at
        await daemon.complete(*claims)
    assert seen == [("a1", None), ("a2", None), ("a0", "two"), ("a3", None)]


async def test_a_plain_stage_gives_the_others_a_turn(shop: Bench) -> None:
    daemon = await fill(shop, "p0", "p1")
    await daemon.settle(advance(await daemon.claim_one("plain")))
    first, second = await daemon.claim_one("plain", "w1"), await daemon.claim_one("plain", "w2")
    assert [first.task.id, second.task.id] == ["p1", "p0"]
    assert (second.task.stage, second.task.context) == ("two", {"rows": 3})


async def test_a_stage_starts_at_attempt_1_and_keeps_what_failed_before(shop: Bench) -> None:
    daemon = await fill(shop, "a0")
    await daemon.settle(retry(await daemon.claim_one()))
    await pass_time(shop)
    await daemon.settle(advance(await daemon.claim_one()))
    third = await daemon.claim_one()
    assert (third.task.attempt, third.task.stage, third.errors) == (1, "two", FAILURE)


async def test_a_crash_resumes_at_the_last_stage_with_its_context(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "p0")
    other = await shop.daemon("d2")
    for pool in POOLS:
        await daemon.settle(advance(await daemon.claim_one(pool, "w1")))
    before = {c.task.id: c for p in POOLS for c in await daemon.claim(p, f"{p}-w")}
    shop.with_faults = True
    shop.expire("d1")
    await other.sessions.reap()
    for pool in POOLS:
        again = await other.claim_one(pool, f"{pool}-w")
        old = before[again.task.id].task
        assert again.task == replace(old, crashes=1, lost_leases=1, fence=again.fence)
        assert (again.task.stage, again.task.context) == ("two", {"rows": 3})
        await other.complete(again)
    assert await other.work_off() == ["a1"]
