"""Why a group waits: due times, pauses, batches that aren't full; and that it goes on behind them.

A group is in one state at a time, and reaches it from each other one; see ARCHITECTURE.md.
"""

from __future__ import annotations

from typing import Any

from groupflow.core.limits import Limit, Limits
from groupflow.store.settlements import Complete, Proceed, Retry, Settlement
from tests.store.bench import Bench, Daemon, ids
from tests.store.story import Story, named, play, stories
from tests.store.task_state import promote, why

STORIES = named(
    """
    what comes up behind an end is told to promoters::
        take a0 a1@ | claim a0 | hears due done a0 | why a delayed head=a1
    a delayed task holds those behind it::
        take a0 a1@ a2 | drain a0 | why a delayed head=a1 queued=2 | time | drain a1 a2
    a plain one waits alone::
        take p0@ p1 | status queued_plain=2 | drain p1 | task p0 delayed | time | drain p0
    a paused group keeps its order, and what runs ends::
        take a0 a1 b0 | claim a0 | pause a | why a running | done a0 | take a2 | drain b0
        why a paused head=a1 queued=2 : ops | resume a | drain a1 a2
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
    """,
    target=("a", "all"),
)


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


@stories(STORIES)
async def test_groups_wait(shop: Bench, story: str) -> None:
    await Pauses(shop).go_on(story)


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
    what is left waits from its own arrival::
        take a0 a1 a2 a3 | claim a0>a1>a2 | tell a0 a1 a2 > | none | take a4 a5 | all a3>a4>a5
    what has filled one meanwhile is claimed once the group is free::
        take a0 a1 a2 | claim a0>a1>a2 | take a3 a4 a5 | none | tell a0 a1 a2 > | all a3>a4>a5
    others beside it wait for nothing:: take a0 b0%other p0 | all b0 p0
    in a pool nothing waits:: take a0= | why a ready
    what ends in front of a full one is followed by all of it::
        take a0%other a1 a2 a3 | claim a0 | swap a0 a1>a2>a3
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
