"""Which task goes first: priority, and what each order of groups promises.

A group's age is `now - count.arrival`, as the store has it.
"""

from __future__ import annotations

import pytest

from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.store.envelope import Pool
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import (
    HOUR,
    POOLS,
    Order,
    advance,
    fill,
    letter,
    pass_time,
    promote,
    redrive,
    retry,
)


async def test_priority_decides_between_groups_and_never_within(shop: Bench) -> None:
    await shop.enqueue(
        arrival("a0", "a"),
        arrival("b0", "b", priority=HOUR),
        arrival("c0", "c", priority=2 * HOUR),
        arrival("a1", "a", priority=9 * HOUR),
        arrival("d0", "d", priority=-HOUR),
    )
    daemon = await shop.daemon()
    assert await daemon.work_off(["w1"]) == ["c0", "b0", "a0", "a1", "d0"]


async def test_priority_decides_among_plain_tasks(shop: Bench) -> None:
    await shop.enqueue(
        arrival("p0"),
        arrival("p1", priority=HOUR),
        arrival("p2", priority=-HOUR),
        arrival("p3", priority=2 * HOUR),
        arrival("p4"),
    )
    daemon = await shop.daemon()
    assert await daemon.work_off(["w1"]) == ["p3", "p1", "p0", "p4", "p2"]


async def test_a_retry_is_due_by_its_delay_alone(shop: Bench) -> None:
    """Its priority counts no more: all that has one goes before it."""
    await shop.enqueue(arrival("p0", priority=HOUR), arrival("a0", "a", priority=HOUR))
    daemon = await shop.daemon()
    for pool in POOLS:
        await daemon.settle(retry(await daemon.claim_one(pool), after=0))
    await shop.enqueue(arrival("p1", priority=60), arrival("b0", "b", priority=60))
    await promote(shop)
    ran = await daemon.work_off(["w1"])
    assert [id_ for id_ in ran if id_[0] == "p"] == ["p1", "p0"]
    assert [id_ for id_ in ran if id_[0] != "p"] == ["b0", "a0"]


async def test_a_stage_counts_its_priority_again(shop: Bench) -> None:
    """After each run: now less its priority."""
    await shop.enqueue(arrival("p0", priority=HOUR))
    daemon = await shop.daemon()
    claim = await daemon.claim_one("plain")
    await shop.enqueue(arrival("p1"), arrival("p2", priority=2 * HOUR))
    await daemon.settle(advance(claim))
    assert await daemon.work_off(["w1"]) == ["p2", "p0", "p1"]


def age(shop: Bench, seconds: float) -> None:
    """Let the store's last arrival, and so all that comes, be later by some seconds."""
    last = int(shop.raw.hget(shop.keys("count"), "sequence") or 0)
    shop.raw.hset(shop.keys("count"), "sequence", f"{last + round(seconds * 1e6):016d}")


def age_ready(shop: Bench, group: str, seconds: float) -> None:
    """Let a group have been ready for longer by some seconds."""
    shop.raw.zincrby(shop.keys("ready"), -round(seconds * 1e6), group)


@pytest.mark.parametrize("pool", ["plain", "grouped"])
async def test_endless_urgent_arrivals_starve_no_task(
    shop: Bench, order: Order, pool: Pool
) -> None:
    """An ordinary task runs once its age has passed the difference of the priorities.

    Each round one urgent task (10 h) comes and one task is claimed, and one hour passes: the urgent
    ones of the rounds 1 to 10 count as older than the ordinary one, that of round 11 does not. What
    real time passes within the test is no hour, so it decides nothing.
    """
    grouped = pool == "grouped"
    await shop.enqueue(arrival("ordinary", "slow" if grouped else None))
    daemon = await shop.daemon()
    ran: list[str] = []
    for n in range(1, 31):
        group = f"fast{n}" if grouped else None
        if order == "fair" and grouped:
            age_ready(shop, "slow", HOUR)
        else:
            age(shop, HOUR)
        await shop.enqueue(arrival(f"urgent{n:02d}", group, priority=10.5 * HOUR))
        claim = await daemon.claim_one(pool)
        ran.append(claim.task.id)
        await daemon.complete(claim)
        if claim.task.id == "ordinary":
            break
    assert ran == [*(f"urgent{n:02d}" for n in range(1, 11)), "ordinary"]


@pytest.mark.parametrize("order", ["oldest"], indirect=True)
async def test_oldest_serves_the_group_whose_head_came_first(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0", "a2", "b1", "c0")
    assert await daemon.work_off(["w1"]) == ["a0", "a1", "b0", "a2", "b1", "c0"]


@pytest.mark.parametrize("order", ["fair"], indirect=True)
async def test_fair_gives_each_group_its_turn(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2", "a3", "b0", "b1", "c0")
    ran = await daemon.work_off(["w1"])
    # Groups that became ready in one batch did so at one instant; then each has its turn.
    assert sorted(ran[:3]) == ["a0", "b0", "c0"]
    assert sorted(ran[3:5]) == ["a1", "b1"]
    assert ran[5:] == ["a2", "a3"]


@pytest.mark.parametrize("order", ["fair"], indirect=True)
async def test_fair_lets_a_newcomer_wait_one_turn_and_not_a_backlog(shop: Bench) -> None:
    """A thousand tasks of one tenant's ten groups are before it, and it is claimed eleventh."""
    await shop.enqueue(*(arrival(f"g{n % 10}-{n}", f"g{n % 10}") for n in range(1000)))
    daemon = await shop.daemon()
    for _ in range(10):
        await daemon.complete(await daemon.claim_one())
    await shop.enqueue(arrival("newcomer", "new"))
    ran = []
    while "newcomer" not in ran:
        claim = await daemon.claim_one()
        ran.append(claim.task.id)
        await daemon.complete(claim)
    assert len(ran) == 11


@pytest.mark.parametrize("order", ["fair"], indirect=True)
@pytest.mark.parametrize("event", ["resume", "redrive", "drop", "promote"])
async def test_fair_leaves_a_ready_group_its_turn_through_changes_in_it(
    shop: Bench, event: str
) -> None:
    """Else a group whose tasks keep coming back would stand behind all others for ever."""
    daemon = await fill(shop, "a0", "a1", "a2", "b0")
    letters = DeadLetters(shop.namespace)
    aside = await daemon.claim_one()
    assert aside.task.id == "a0"
    await daemon.settle(bury(aside) if event in ("redrive", "drop") else retry(aside, "step-aside"))
    age_ready(shop, "a", 1)  # ready for longer than b, by more than the clock's grain
    match event:
        case "resume":
            await Groups(shop.namespace).resume("a")
        case "redrive":
            await redrive(shop, "a0")
        case "drop":
            await letters.drop(await letter(shop, "a0"))
        case _:
            await pass_time(shop)
    [claim] = await daemon.claim("grouped", "w1")
    assert claim.task.group == "a"
    await daemon.complete(claim)
