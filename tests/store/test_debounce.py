"""Debounce: of a group's tasks of one type the newest replaces those that wait, or run.

After each test the auditor has looked whether each task that may be replaced waits, and whether
what was replaced says by which, of its group and type.
"""

from __future__ import annotations

import re

from groupflow.operate.listing import list_tasks
from groupflow.store.history import rotate_history
from tests.store.actors import made
from tests.store.bench import Bench
from tests.store.story import play, played
from tests.store.task_state import HOUR, found, why

test_debounce = played(
    """
    it ends at its most::
        take c1^ | bursts_are_older 590 | take c2^ | waits c2 10 | bursts_are_older 10 | take c3^
        waits c3 0 | count delayed_bytes=0 | drain c3 | take c4^ | waits c4 60
    a message's own delay holds where it is longer::
        take c1^ | take c2^@ | waits c2 3600 | take c3^@1 | waits c3 60 | superseded c1=c2 c2=c3
        size late=1
    it takes its own place, and holds what comes behind it::
        take c1^ c7 | take c2^ c8 | drain c7 | task c2 delayed | superseded c1=c2 | take c3^
        drain c8 | time | drain c3 | count delayed_bytes=0
    it takes its own place, and holds nothing where it steps aside::
        take c1^~ c7 | take c2^~ c8 | drain c7 c8 | task c2 delayed | superseded c1=c2
        take c3^~ | none | time | drain c3 | count delayed_bytes=0
    one that stood aside is replaced where it waits now::
        take c7 c1^~ | claim c7 | time | lane c1 | take c2^~ | superseded c1=c2 | done c7 | none
        time | drain c2
    a group that was ready for it is not any more::
        take c1^~ | time | why c ready | take c2^~ | why c idle
    what it held goes on at once::
        take c1^ c7 | why c delayed | open d2 | hears grouped take c2^ | drain c7
        why c delayed head=c2
    without a group nothing is replaced:: take p1^ p2^ | drain p1 p2
    nothing of another scope or tenant is replaced::
        take 1/c1^ 2/c2^ c3^ | lane c1 c2 c3 | take 1/c4^ c6^ | superseded c1=c4 c3=c6
        lane c2 c4 c6 | time | claim c2 | done c2 | time | claim c4 | done c4 | time | claim c6
        done c6 | gone debouncing
    who asks for a retry gives way to what came after it::
        take c1^ c7 | time | claim c1 | take c2^ | retry c1 | unchanged retry c1 | superseded c1=c2
        count superseded=1 retried=0 | drain c7 | waits c2 60
    a drop of another one leaves the burst alone::
        take c1^ | time | claim c1 | release c1 | take c2^ | drop c1 | take c3^ | superseded c2=c3
    a later stage is not replaced::
        take c1^ | time | claim c1 | advance c1 | take c2^ | claim c1#two | retry c1 | take c3^
        superseded c2=c3 | time | drain c1
    a dead letter from the door replaces nothing::
        take c1^ | take c2^! | count superseded=0 | lane c1
    a pool's tasks debounce too::
        take c1^= c2^= | superseded c1=c2 | anna: none | time | anna: all c2 | take c3^=
        retry c2 | superseded c2=c3 | time | anna: all c3
    what is to run now is due, and so is what replaces it {aside}::
        take c1^{aside} | run_now c1 | waits c1 0 | take c2^{aside} | superseded c1=c2
        drain c2 | take c3^{aside} | waits c3 60
    a retry is replaced by what comes after it, a burst of its own {retry}::
        take c1^ | time | claim c1 | crash | claim c1*1 | {retry} | take c2^ | superseded c1=c2
        task c1 superseded attempt=2 crashes=1 | waits c2 60 | time | claim c2/1*0 | done c2
        count retried=1
    of two that asked for a retry the newer one stays: {ends}::
        limits 2 | open d1 | take c1^ | time | claim c1 | take c2^ | time | claim c2 | {ends}
        superseded c1=c2 | take c3^ | superseded c2=c3
    """,
    aside=("", "~"),
    retry=("retry c1", "retry c1 aside"),
    ends=("retry c1 | retry c2", "retry c2 | retry c1"),
)


async def test_a_burst_runs_once_with_the_newest(shop: Bench) -> None:
    """After so much quiet; what it replaced is over, is counted, and is known."""
    told = await play(
        shop,
        """take c1^ c2^ | take c3^ | superseded c1=c2 c2=c3 | task c1 superseded attempt=1 crashes=0
        lane c3 | waits c3 60 | status queued_grouped=1 delayed=1 superseded_total=2
        duplicates c1^ c2^ c3^ | lane c3 | none | time | drain c3 | duplicates c1^ c2^ c3^""",
    )
    await rotate_history(shop.client, keep=HOUR, size=1)
    await told.go_on("superseded c1=c2 | leave")
    assert shop.judge_drained() == []


async def test_it_is_said_what_is_waited_for(shop: Bench) -> None:
    """Until when, and until when at the latest; not of what waits for something else."""
    told = await play(shop, "take c1^ d1^@ c2^ | why d delayed: delayed for another")
    story, task = await why(shop, "c"), await found(shop, "c2")
    words = r"waits for quiet until \d\d:\d\d:\d\d UTC, at \d\d:\d\d:\d\d UTC at the latest"
    assert re.fullmatch(words, story.reason)
    assert (task.state, task.reason, task.until) == ("delayed", story.reason, story.until)
    assert (await found(shop, "d1")).reason == "it is not due yet"
    await told.go_on("time | claim c2 d1 | retry c2 d1 | why c delayed: ValueError")
    await told.go_on("task c2 delayed: attempt 2, after ValueError, is not due yet")
    rows = (await list_tasks(shop.namespace, "superseded", 10)).tasks
    assert [(row.id, row.type, row.group) for row in rows] == [("c1", "changed", "c")]
    assert (await list_tasks(shop.namespace, "done", 10)).tasks == []


async def test_groups_and_types_are_apart(shop: Bench) -> None:
    """Also such as look alike when they are written one behind the other."""
    kinds = [("g", "changed"), ("g", "gone"), ("gc", "hanged"), ("h", "changed"), ("0", "1g")]
    kinds += [("0004g", "x"), ("0005", "gx")]
    for letter in "cd":
        batch = [made(f"{letter}{n}^") for n in range(len(kinds))]
        for each, (group, type_) in zip(batch, kinds, strict=True):
            each.envelope.group, each.envelope.type = group, type_
        await shop.enqueue(*batch)
        assert shop.count("superseded") == (0 if letter == "c" else len(kinds))
    await play(shop, " | ".join(f"superseded c{n}=d{n}" for n in range(len(kinds))))


test_newest = played(
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
        take c1& | claim c1 | hears due take c2&@ | done c1 | take c3& | superseded c2=c3
    one that its group has no room for replaces nothing::
        take c1& c7 | claim c1 | hears - take c2&<1 | task c2 dead | done c1
    a puller's task makes way::
        take c1&= | anna: all c1 | take c2&= | task c1 running superseded_by=c2 | release c1
        superseded c1=c2 | anna: all c2
    of updates that come faster than they are handled one ends behind `newest_max`: {comes}::
        take c1&60 | claim c1 | take c2&60 | release c1 | claim c2 | updates_are_older c2 59
        hears cancel:c2 {comes} | release c2 | claim c4 | updates_are_older c4 1
        hears - take c5&60 c6&60 | done c4 | task c4 done | claim c6 | hears cancel:c6 take c7&60
    they count from the first of them, however many come before what runs has ended::
        take c1&60 | claim c1 | take c2&60 | updates_are_older c2 61 | take c3&60 | release c1
        claim c3 | hears - take c4&60 | done c3 | drain c4
    behind one that was done in spite of the request others make way for as long again::
        take c1&60 | claim c1 | take c2&60 | done c1 | claim c2 | updates_are_older c2 61
        hears cancel:c2 take c3&60 | release c2 | drain c3
    """,
    comes=("take c4&60", "take c3&60 | take c4&60 | superseded c3=c4"),
    ends=("release c1", "retry c1", "retry c1 aside", "advance c1"),
    back=("release c1", "bury c1 | redrive c1", "advance c1"),
)
