"""The newest task of a type replaces those that wait in its group, and the one that runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.bench import Bench
from tests.store.story import named, play, stories

ENDS = ("release c1", "retry c1", "retry c1 aside", "advance c1")
STORIES = named(
    """
    of those that wait the newest runs, at once::
        take c1&0 c2&0 c7 | take c3&0 | superseded c1=c2 c2=c3 | lane c7 c3 | claim c7
        take c4&0 | superseded c3=c4 | done c7 | claim c4 | take c5&0 | gone cancels | done c4
        drain c5 | gone debouncing | count superseded=3
    what runs goes on behind {ends}, and starts as the newer one::
        take c1& | claim c1 | hears cancel:c1 take c2& | task c1 running superseded_by=c2 | none
        {ends} | superseded c1=c2 | claim c2 | count superseded=1 retried=0 advanced=0
        gone cancels | done c2 | none
    it is asked once::
        take c1& | claim c1 | hears cancel:c1 take c2& c3& | hears - take c4& | release c1
        superseded c1=c2 c2=c3 c3=c4 | drain c4 | gone cancels
    done and dead stand::
        take c1& d1& | claim c1 d1 | take c2& d2& | done c1 | bury d1 | task c1 done | task d1 dead
        gone cancels | claim c2 d2 | redrive d1 | take d3& | task d2 running superseded_by=d3
        release d2 | superseded d2=d3 | drain d1 d3
    it is not taken over::
        take c1& c7 | claim c1 | take c2& | lose d1 c1 | superseded c1=c2
        task c1 superseded crashes=0 | d2: claim c7 | gone cancels
    an operator's cancel stands before it::
        take c1& c2& | claim c2 | cancel c2 requested | take c3& | task c2 running cancelled_by=ops
        release c2 | task c2 cancelled | claim c3 | take c4& | cancel c3 requested | release c3
        task c3 cancelled reason=mistake | drain c4
    what was handed back, redriven, or is at a later stage goes on {back}::
        take c1& | claim c1 | {back} | claim c1 | hears - take c2& | task c1 running
        done c1 | task c1 done | drain c2 | gone cancels
    a retry starts as the newest one, and makes way::
        take c1& | claim c1 | retry c1 | time | claim c1/2 | take c2& | release c1
        superseded c1=c2 | drain c2
    only a task of its own type, scope and rule makes way::
        take c1& 2/c2& c7 | claim c1 | hears - take 2/c3& c8 | superseded c2=c3 | done c1
        take c4&0 | claim c7 | hears - take c5& | superseded c4=c5 | done c7
    one that is delayed lets it go on::
        take c1& | claim c1 | hears - take c2&@ | done c1 | take c3& | superseded c2=c3
    one that its group has no room for replaces nothing::
        take c1& c7 | claim c1 | hears - take c2&<1 | task c2 dead | done c1
    a puller's task makes way::
        take c1&= | anna: all c1 | take c2&= | task c1 running superseded_by=c2 | release c1
        superseded c1=c2 | anna: all c2
    """,
    ends=ENDS,
    back=("release c1", "bury c1 | redrive c1", "advance c1"),
)


@stories(STORIES)
async def test_newest(shop: Bench, story: str) -> None:
    await play(shop, story)


def _make_older(shop: Bench, id_: str, seconds: int) -> None:
    """Tasks have made way since so much earlier."""
    key = shop.keys("task_state", id_)
    told: Any = shop.raw.hget(key, "updating")
    since = int(told[:16]) - seconds * 1_000_000
    shop.raw.hset(key, "updating", b"%016d" % since + told[16:])


@pytest.mark.parametrize("waits", [False, True])
async def test_updates_that_come_faster_than_the_handler_end(shop: Bench, waits: bool) -> None:
    """After `newest_max` the one that runs may finish; then others make way as long again."""
    told = await play(shop, "take c1&60 | claim c1 | take c2&60 | release c1 | claim c2")
    _make_older(shop, "c2", 59)
    await told.go_on("hears cancel:c2 take c3&60")
    if waits:  # another one comes before it starts
        await told.go_on("take c4&60 | superseded c3=c4")
    newest = "c4" if waits else "c3"
    await told.go_on(f"release c2 | claim {newest}")
    _make_older(shop, newest, 1)
    await told.go_on(f"hears - take c5&60 c6&60 | done {newest} | task {newest} done | claim c6")
    await told.go_on("hears cancel:c6 take c7&60")


async def test_they_count_from_the_first_of_them(shop: Bench) -> None:
    """However many come before what runs has ended."""
    told = await play(shop, "take c1&60 | claim c1 | take c2&60")
    _make_older(shop, "c2", 61)
    await told.go_on("take c3&60 | release c1 | claim c3 | hears - take c4&60 | done c3 | drain c4")


async def test_one_that_ended_by_itself_begins_anew(shop: Bench) -> None:
    """It was done in spite of the request, so the next ones make way for as long again."""
    told = await play(shop, "take c1&60 | claim c1 | take c2&60 | done c1 | claim c2")
    _make_older(shop, "c2", 61)
    await told.go_on("hears cancel:c2 take c3&60 | release c2 | drain c3")
