"""Which group goes first: what each order of groups promises, and that nothing starves."""

from __future__ import annotations

import pytest

from groupflow.store.envelope import Pool
from tests.store.bench import Bench, arrival
from tests.store.story import named, play, stories
from tests.store.task_state import HOUR, Order

BOTH = pytest.mark.parametrize("order", ["oldest", "fair"], indirect=True)
FAIR = named(
    """
    each group has its turn:: take a0 | take b0 | take a1 b1 a2 a3 c0 | drain a0 b0 c0 a1 b1 a2 a3
    newcomers come in between::
        take a0 | take b0 | take a1 b1 a2 b2 | claim a0 | done a0 | claim b0 | take c0 | done b0
        drain a1 c0 b1 a2 b2
    """
)


@stories(FAIR)
@pytest.mark.parametrize("order", ["fair"], indirect=True)
async def test_fair(shop: Bench, story: str) -> None:
    await play(shop, story)


async def test_oldest_serves_the_group_whose_head_came_first(shop: Bench) -> None:
    await play(shop, "take a0 a1 b0 a2 b1 c0 | drain a0 a1 b0 a2 b1 c0")


def age(shop: Bench, seconds: float) -> None:
    """Let the store's last arrival, and so all that comes, be later by some seconds."""
    last = int(shop.raw.hget(shop.keys("count"), "sequence") or 0)
    shop.raw.hset(shop.keys("count"), "sequence", f"{last + round(seconds * 1e6):016d}")


def age_ready(shop: Bench, group: str, seconds: float) -> None:
    """Let a group have been ready for longer by some seconds."""
    shop.raw.zincrby(shop.keys("ready"), -round(seconds * 1e6), group)


@BOTH
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
    daemon, ran = await shop.daemon(), list[str]()
    while "ordinary" not in ran and len(ran) < 30:
        if order == "fair" and grouped:
            age_ready(shop, "slow", HOUR)
        else:
            age(shop, HOUR)
        id_ = f"urgent{len(ran) + 1:02d}"
        await shop.enqueue(arrival(id_, id_ if grouped else None, priority=10.5 * HOUR))
        claim = await daemon.claim_one(pool)
        ran.append(claim.task.id)
        await daemon.complete(claim)
    assert ran == [*(f"urgent{n:02d}" for n in range(1, 11)), "ordinary"]


@pytest.mark.parametrize("order", ["fair"], indirect=True)
@pytest.mark.parametrize(
    "event", ["resume a", "bury a0 | redrive a0", "bury a0 | drop a0", "retry a0 aside | time"]
)
async def test_fair_leaves_a_ready_group_its_turn_through_changes_in_it(
    shop: Bench, event: str
) -> None:
    """Else a group whose tasks keep coming back would stand behind all others for ever."""
    *settle, change = ["retry a0 aside", *event.split(" | ")][-2:]
    told = await play(shop, f"take a0 a1 a2 b0 | claim a0 | {settle[0]}")
    age_ready(shop, "a", 1)  # ready for longer than b, by more than the clock's grain
    await told.go_on(change)
    [claim] = await (await told.daemon()).claim("grouped", "w1")
    assert claim.task.group == "a"
