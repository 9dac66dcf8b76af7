"""What daemons are told: that something may be claimed or is due, and nothing where it isn't."""

from __future__ import annotations

import pytest

from groupflow.store.enqueue import Enqueuer, pools_of
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete
from tests.store.bench import Bench, arrival
from tests.store.story import hears, named, play, stories
from tests.store.task_state import fill

STORIES = named(
    """
    {goes_on}: a group that goes on:: take a0 a1 | claim a0 | hears {goes_on} a0
    {ends}: {id} that ends alone:: take {id} | claim {id} | hears {ends} {id}
    {how} hands {id} over::
        open d2 | hears - {how} | crash | take {id} | claim {id} | hears ready {how}
    many groups that go on, once::
        take a0 b0 c0 a1 b1 c1 | claim a0 b0 c0 | hears grouped done a0 b0 c0
    a next task with more known of it; not of a paused group::
        take a0 a1+1 a2 | claim a0 | hears grouped done a0 | claim a1 | pause a | hears - done a1
    stale settles tell nothing::
        take a0 a1 p0 | claim a0 p0 | release a0 p0 | hears - release a0 p0
    a slot that has its own next task leaves nothing to others::
        take a0 a1 | claim a0 | hears - swap a0 a1
    a run that ends counts as one that is settled::
        take a0 a1 a2 | runs 2 | claim a0>a1 | hears grouped tell a0 a1 >
    a task, or a group, that is promoted::
        hears due take p0@ a0@ | hears - promote 0 | hears plain time p0 | hears grouped time a0
        hears - promote 0 | drain p0 a0
    claims and renewals tell nothing::
        take a0 a1 p0 | hears - all a0 p0 | hears - none | hears - renew
    nor does the end of the only quarantined task::
        take p0 | claim p0 | crash | claim p0*1 | hears - done p0
    what may not be claimed is not ready; of due times the nearest is told::
        hears - take a0! p0! | hears due take a1@60 | hears due take b1@50~ | hears due take p1@40
        hears - take p2@45
    what comes behind others tells nothing::
        take a0 | hears - take a1 | claim a0 | hears - take a2 | hears - duplicates a0
        hears grouped take b0 | hears plain take p0+1
    whoever promotes is told until when there is nothing to do::
        next -1 | take p0@14400 a0@10800 | next 10800 | take b0 c0 | claim b0 | retry b0 | next 3600
        drop b0 | next 10800 | claim c0 | retry c0 aside | next 3600
    """,
    goes_on=(
        *("grouped done", "grouped release", "grouped bury", "- park", "due retry"),
        *("due,grouped retry aside", "grouped advance"),
    ),
    ends=("- done", "- bury", "- park", "due retry", "due retry aside"),
    how=("crash", "lose", "leave"),
    id=("a0", "p0"),
)


@stories(STORIES)
async def test_what_is_told(shop: Bench, story: str) -> None:
    await play(shop, story)


async def test_promote_takes_no_more_than_it_is_asked_for_and_tells_of_the_rest(
    shop: Bench,
) -> None:
    await play(shop, "take p0 p1 p2 | claim p0 p1 p2 | retry_now p0 p1 p2")
    assert [await shop.client.run(Verb.PROMOTE, 2) for _ in range(2)] == [[2, 0], [1, -1]]


@pytest.mark.parametrize("idle", [1, 2, 3])
async def test_a_daemon_that_claims_as_much_as_it_settles_wakes_no_other(
    shop: Bench, idle: int
) -> None:
    """What its settle has freed is for its own claim, right behind it; of the rest others hear."""
    daemon = await fill(shop, "a0", "b0", "a1", "b1")
    done = [Complete(claim) for claim in await daemon.claim("grouped", "w1", "w2")]
    told = await hears(shop, lambda: daemon.exchange("grouped", done, ["w1", "w2", "w3"][:idle]))
    assert told == (["grouped"] if idle < len(done) else [])


async def test_a_slot_that_holds_a_claim_is_not_idle(shop: Bench) -> None:
    """Its reply was lost, so it is asked first: what another slot has freed is for others."""
    daemon = await fill(shop, "a0", "b0", "a1", "b1")
    done, _ = await daemon.claim("grouped", "w1", "w2")
    told = await hears(shop, lambda: daemon.exchange("grouped", [Complete(done)], ["w2"]))
    assert told == ["grouped"]


async def test_a_task_that_is_passed_over_is_told(shop: Bench) -> None:
    """The slot that it was for is idle still, and there may be more."""
    told = await play(shop, "take a0 p0")
    shop.raw.hdel(shop.keys("tasks"), "a0", "p0")
    await told.go_on("hears grouped,plain none | hears - none")


def test_whose_workers_find_something() -> None:
    tasks = [arrival("b0", "b"), arrival("d0", delay=9.0), arrival("x", dead="no")]
    assert pools_of(tasks) == {"grouped"}
    assert pools_of([*tasks, arrival("p0")]) == {"grouped", "plain"}


async def test_who_enqueues_is_not_told_of_it(shop: Bench) -> None:
    """Others are, where there are any; and all, where no daemon says that it claims behind it."""

    async def told(number: int, daemon: str) -> list[str]:
        enqueuer = Enqueuer(shop.client, daemon)
        return await hears(shop, lambda: enqueuer.enqueue([arrival(f"p{number}")]))

    assert await told(0, "") == ["plain"]
    assert await told(1, "d1") == ["plain"]  # it has no session: its claims are refused
    await shop.daemon("d1")
    assert await told(2, "d1") == []
    assert await told(3, "") == ["plain"]
    await shop.daemon("d2")
    assert await told(4, "d1") == ["plain"]
