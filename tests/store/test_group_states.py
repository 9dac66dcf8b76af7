"""Why a group waits: due times, pauses, batches that aren't full; and that it goes on behind them.

A group is in one state at a time, and reaches it from each other one; see ARCHITECTURE.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.core.limits import Limit, Limits
from groupflow.store.enqueue import Enqueuer, pools_of
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Proceed, Retry, Settlement
from tests.store.bench import Bench, arrival, ids
from tests.store.story import Story, hears, play, played
from tests.store.task_state import fill, promote, why


class Pauses(Story):
    """A store whose groups are paused for a while."""

    async def pauses_end(self) -> None:
        """The time of all pauses that end by themselves is over."""
        key = self.shop.keys("resumes")
        groups: Any = self.shop.raw.zrange(key, 0, -1)
        for group in groups:
            self.shop.raw.zadd(key, {group: 1})

    async def lasts(self, seconds: str = "") -> None:
        """For how long the group a is paused in all; with no word: until it is resumed."""
        told = await why(self.shop, "a")
        assert told.state == "paused"
        lasts = "" if told.until is None else str(round(told.until - (told.since or 0)))
        assert lasts == seconds


test_groups_wait = played(
    """
    what comes up behind an end is told to promoters::
        take a0 a1@ | claim a0 | hears due done a0 | why a delayed head=a1
    how its tasks have ended lately, also in bulk; what was dead is not told of::
        take a0 a1 a2 a3! a4 b0 p0 q0 | claim a0 b0 p0 | done a0 | done b0 | done p0
        lately a a0/done | pause c | claim a1 | done a1 | drop a2 | drop a3 | cancel a4 | cancel q0
        lately a a4/cancelled a2/dropped a1/done a0/done | lately b b0/done | lately c
        size lately_new=5 lately_old=0
    a paused group keeps its order, and what runs ends::
        take a0 a1 b0 | claim a0 | pause a | why a running is_paused=True : ops | done a0
        take a2 | drain b0
        why a paused head=a1 queued=2 : ops | resume a | drain a1 a2
    a parked group that is paused too says both::
        take a0 a1 | claim a0 | park a0 | pause a
        why a paused behind=a0 : ops paused the group; it is parked too, behind dead letter a0
    all is paused::
        take a0 a1 b0 p0 p1 | claim a0 p0 | pause all | done a0 p0 | take b1 p2 | none
        why a paused | resume all | drain a1 b0 b1 p1 p2
    what was paused by name stays so when everything goes on::
        take a0 b0 | pause a | pause all | resume all | drain b0 | resume a | drain a0
    a pause with an end ends by itself: {target}::
        take a0 a1 | pause {target} 30 | lasts 30 | next 30 | why a paused: by itself | none
        pauses_end | promote 1 | why a ready | drain a0 a1 | gone resumes | next -1
    a pause that was lifted has no end left, nor does that lift a newer one: {target}::
        take a0 | pause {target} 30 | resume {target} | gone resumes | pause {target} | pauses_end
        promote 0 | lasts
    a pause takes the end of a newer one; but one that has none keeps that::
        take a0 | pause a 30 | pause a 300 | lasts 300 | pause a | lasts | pause a 30 | lasts
    the end of a pause leaves what is paused otherwise::
        take a0 b0 | pause a | pause all 30 | pauses_end | promote | drain b0 | why a paused
    a task says what it waits for: its group, a worker, or its time::
        take a0 a1 d0 b0 c0@ p0 | task a0 queued: next in its group, which is ready: its head may
        task p0 queued: waits for a worker: all are busy, or none | claim a0 d0 | retry d0
        task a1 queued: behind a0 in its group, which is running: attempt 1 of task a0 runs on d1
        park a0 | task a1 queued: next in its group, which is parked: parked behind dead letter a0
        pause b | task b0 queued: next in its group, which is paused: ops paused the group
        task d0 delayed: attempt 2, after ValueError, is not due yet | task c0 delayed: not due yet
        pause c | task c0 queued: next in its group, which is paused: ops paused the group
        pause all | task p0 queued: ops paused everything
    where a daemon died, why and task say who takes over what it ran, and when::
        take a0 p0 | claim a0 p0 | unheard 299 | why a running: its lease has
        task p0 running: None; None
        unheard 61 | why a running: min left; nothing was heard of d1 for 6 min: another daemon
        task p0 running: for 6 min: another daemon takes the task over in 4 min, when its lease ends
        task a0 running: for 6 min: another daemon takes the task over in 4 min, when its lease ends
        expire | why a running: lease ran out | why a running: task over as soon as a daemon runs
        take b0= | anna: claim b0 | anna: unheard 360
        task b0 running: heard of anna for 6 min: the task goes back to pool couriers in 4 min, when
    # What daemons are told
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
    a dead letter that is redriven, lest a run go on in front of it::
        take a0 | claim a0 | bury a0 | hears ready,hold:a redrive a0
    what comes behind others tells nothing::
        take a0 | hears - take a1 | claim a0 | hears - take a2 | hears - duplicates a0
        hears grouped take b0 | hears plain take p0+1
    a task that is passed over: its slot is idle still, and there may be more::
        take a0 p0 | lost a0 p0 | hears grouped,plain none | hears - none
    the daemon that promotes is told until when there is nothing to do::
        next -1 | take p0@14400 a0@10800 | next 10800 | take b0 c0 | claim b0 | retry b0 | next 3600
        drop b0 | next 10800 | claim c0 | retry c0 aside | next 3600
    """,
    Pauses,
    target=("a", "all"),
    goes_on=(
        *("grouped done", "grouped release", "grouped bury", "- park", "due retry"),
        *("due,grouped retry aside", "grouped advance"),
    ),
    ends=("- done", "- bury", "- park", "due retry", "due retry aside"),
    how=("crash", "lose", "leave"),
    id=("a0", "p0"),
)


@pytest.mark.parametrize("end", ["claim a1 | done a1", "pause b | claim a1 | done a1", "drop a1"])
async def test_so_many_ends_are_kept(shop: Bench, end: str) -> None:
    """The last 10,000 at least, however they end, and less than twice as many."""
    await play(shop, "take a0 a1 a2 | claim a0 | done a0")
    shop.raw.rpush(shop.keys("lately_new"), *map(str, range(9998)))
    how = f"a1/{end.split()[-2].replace('drop', 'dropped')} a0/done"
    await play(shop, f"{end} | size lately_new=0 lately_old=10000 | lately a {how}")
    await play(
        shop, f"claim a2 | done a2 | size lately_new=1 lately_old=10000 | lately a a2/done {how}"
    )


# Incomplete batches, which wait until they are full, or their oldest task has waited its time


class Batches(Story):
    """A store whose rule makes batches of three."""

    async def batches(self, wait: str) -> None:
        """They wait so many seconds."""
        self.shop.limits = Limits({"rule": Limit(batch=3, batch_wait=float(wait))})
        await self.runs("3")


test_incomplete_batches = played(
    """
    fewer wait, and the last one ends it::
        take a0 a1 | why a delayed: 2 so far: its batch isn't full | none | take a2 | why a ready
        all a0>a1>a2
    what is left waits from its own arrival::
        take a0 a1 a2 a3 | claim a0>a1>a2 | tell a0 a1 a2 > | none | take a4 a5 | all a3>a4>a5
    what has filled one meanwhile is claimed once the group is free::
        take a0 a1 a2 | claim a0>a1>a2 | take a3 a4 a5 | none | tell a0 a1 a2 > | all a3>a4>a5
    others beside it wait for nothing:: take a0 b0%other p0 | all b0 p0
    in a pool nothing waits:: take a0= | why a ready
    a reload takes one over:: take a0 a1 | none | limits | reload | all a0>a1
    a limit by hand ends it, and nothing waits::
        take a0 a1 | none | hand group a 2 | all a0 a1 | done a0 a1 | unhand group a | take a2
        none
    what ends in front of a full one is followed by all of it::
        take a0%other a1 a2 a3 | claim a0 | swap a0 a1>a2>a3
    """,
    Batches,
    first="batches 60",
)


async def test_the_oldest_of_a_batch_has_waited_its_time(shop: Bench) -> None:
    """A retry waits for its own time alone, which came long before."""
    told = Batches(shop)
    await told.go_on("batches 0.05 | take a0 a1 | none")
    daemon = await told.daemon()
    while not (claims := await daemon.claim("grouped", "w1")):
        await promote(shop)
    assert ids([claims[0], *claims[0].run]) == ["a0", "a1"]
    first, second = claims[0], claims[0].run[0]
    ended: list[Settlement] = [Proceed([Complete(first)], second), Retry(second, 0.0, [])]
    assert await daemon.exchange("grouped", ended, []) == ([], [])
    assert ids(await daemon.claim("grouped", "w1")) == ["a1"]


# What daemons are told: that something may be claimed or is due, and nothing where it isn't


async def test_promote_takes_as_many_as_asked_and_tells_of_the_rest(shop: Bench) -> None:
    await play(shop, "take p0 p1 p2 | claim p0 p1 p2 | retry_now p0 p1 p2")
    assert [await shop.client.run(Verb.PROMOTE, 2) for _ in range(2)] == [[2, 0], [1, -1]]


@pytest.mark.parametrize("idle", [1, 2, 3])
async def test_a_daemon_that_claims_what_it_settles_wakes_no_other(shop: Bench, idle: int) -> None:
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
