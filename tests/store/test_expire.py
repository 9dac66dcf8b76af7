"""Tasks that have to start in time, and don't, end as expired."""

from __future__ import annotations

from typing import Any

from groupflow.operate.listing import list_tasks
from tests.store import task_state
from tests.store.bench import Bench
from tests.store.story import play, played

test_what_becomes_of_it = played(
    """
    what is late is over, wherever it waits::
        take a0 a1? a2 p0 p1? b0@? q1@? c0?~@ c1 d0?=
        overdue a1 p1 b0 q1 c0 d0 | expired 6 | unchanged expired 0 | gone expiring | sound
        task a1 expired start_by=1e-06 attempt=1 | status queued_grouped=3 queued_plain=1
        count expired=6 | lane a0 a2 | claim a0 c1 p0 | none
    what isn't late waits::
        take a0? p0?60 | next 60 | expired 0 | task a0 queued | claim a0 p0 | gone expiring
    nothing starts late, not even before it is shown::
        take a0? a1? a2 p0? p1 | overdue a0 a1 p0 | hears due claim a2 | claim p1
        task a1 expired | task p0 expired
        count expired=3 | gone expiring | expired 3 | unchanged expired 0
    what has started once never expires, by {way}::
        take a0? p0? | claim a0 p0 | gone expiring | {way} a0 | {way} p0 | time | expired 0
        claim a0 p0
    nor what was taken over::
        take a0? | claim a0 | lose d1 a0 | expired 0 | d2: claim a0
    nor what is redriven::
        take a0?! p0?! | gone expiring | redrive a0 p0 | gone expiring | claim a0 p0
    a group goes on behind its head, and isn't held for it::
        take a0?@ a1 | size held=1 | overdue a0 | hears grouped expired 1 | gone held | claim a1
    a group that is paused or runs goes on later::
        take a0 a1? b0? b1 | claim a0 | pause b | overdue a1 b0 | expired 2 | why b paused
        done a0 | resume b | claim b1 | none
    what ends otherwise expires no more::
        take a0? b0? c0?^ | drop a0 | cancel b0 | take c1?^ | task c0 superseded | size expiring=1
        overdue c1 | expired 1 | gone expiring debouncing | count superseded=1 expired=1
    a cancelled one that is late too is cancelled::
        take a0? | claim a0 | cancel a0 requested | release a0 | task a0 cancelled
    it waits for its tenant's turn::
        tenants 1 | take 1/p0 1/p1? 1/a0? 1/a1 | claim p0 | overdue p1 a0 | expired 2 | done p0
        claim a1 | sound
    the bytes of a delay are given back::
        take a0@? p0@? | overdue a0 p0 | expired 2 | count delayed_bytes=0 | gone late
    """,
    way=("retry", "advance", "release"),
)


async def test_a_step_walks_a_lane_once_from_each_end_and_the_next_goes_on(shop: Bench) -> None:
    """Those that expire stand deep within the lane; most were not the first to be late."""
    told = await play(shop, "take " + " ".join(f"a{n:02}" + "?" * (n % 3 == 1) for n in range(90)))
    late = [f"a{n:02}" for n in range(1, 90, 3)]
    await told.go_on(f"overdue {' '.join(late)}")
    shop.raw.config_resetstat()
    await told.go_on("expired 16 1 | expired 14 | expired 0")
    commands: Any = shop.raw.info("commandstats")
    assert commands["cmdstat_lrem"]["calls"] <= 4
    assert shop.lane("a") == [f"a{n:02}" for n in range(90) if n % 3 != 1]


async def test_operators_see_what_expires(shop: Bench) -> None:
    """By when a task has to start, or had to; those that did not, and how many."""
    told = await play(shop, "take a0?60 b0?")
    waiting = await task_state.found(shop, "a0")
    assert waiting.start_by is not None
    assert 0 < waiting.start_by - shop.server_time() / 1e6 <= 60
    await told.go_on("overdue b0 | expired 1 | status expired_total=1")
    page = await list_tasks(shop.namespace, "expired", limit=10)
    assert [each.id for each in page.tasks] == ["b0"]
