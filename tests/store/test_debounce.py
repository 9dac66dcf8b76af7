"""Debounce: of a group's waiting tasks of one type the newest replaces the older ones.

After each test the auditor has looked whether each task that may be replaced waits, and whether
what was replaced says by which, of its group and type.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from groupflow.core.limits import Debounce
from groupflow.operate.dead import DeadLetters
from groupflow.operate.listing import list_tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.history import rotate_history
from tests.history.held_bytes import DELAY_COSTS
from tests.store.bench import Bench, arrival
from tests.store.story import named, play, stories
from tests.store.task_state import HOUR, dead_ids, found, why
from tests.store.words import MOST, QUIET


def changed(
    id_: str, group: str | None = "g", type_: str = "changed", pool: str = "", **facts: Any
) -> Arrival:
    """A message of a rule that debounces."""
    plain = arrival(id_, group, **facts)
    envelope = replace(plain.envelope, type=type_, named_pool=pool or None)
    return replace(plain, envelope=envelope, debounce=Debounce(QUIET, MOST))


STORIES = named(
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
    other rules are as ever:: take c7 c1^ c8@ | take c2^ | lane c7 c8 c2
    nothing of another scope or tenant is replaced::
        take 1/c1^ 2/c2^ c3^ | lane c1 c2 c3 | take 1/c4^ c6^ | superseded c1=c4 c3=c6
        lane c2 c4 c6 | time | claim c2 | done c2 | time | claim c4 | done c4 | time | claim c6
        done c6 | gone debouncing
    what runs is not replaced::
        take c1^ | time | claim c1 | take c2^ c3^ | superseded c2=c3 | done c1 | task c1 done
        time | drain c3
    who asks for a retry gives way to what came after it::
        take c1^ c7 | time | claim c1 | take c2^ | retry c1 | unchanged retry c1 | superseded c1=c2
        count superseded=1 retried=0 | drain c7 | waits c2 60
    a later stage is not replaced::
        take c1^ | time | claim c1 | advance c1 | take c2^ | claim c1#two | retry c1 | take c3^
        superseded c2=c3 | time | drain c1
    what is handed back runs once more, and replaces nothing::
        take c1^ | time | claim c1 | release c1 | take c2^ | claim c1 | lose | take c3^
        superseded c2=c3 | crash | drain c1 | lane c3
    a redriven one replaces nothing::
        take c1^ | time | claim c1 | bury c1 | take c2^ | redrive c1 | lane c1 c2 | claim c1
        done c1 | task c1 done | take c3^ | superseded c2=c3
    with the newest its burst is dropped::
        take c1^ c2^ | drop c2 | gone debouncing | take c3^ | count superseded=1 | superseded c1=c2
    a drop of another one leaves the burst alone::
        take c1^ | time | claim c1 | release c1 | take c2^ | drop c1 | take c3^ | superseded c2=c3
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


@stories(STORIES)
async def test_debounce(shop: Bench, story: str) -> None:
    await play(shop, story)


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
    words = r"waits for quiet until \d\d:\d\d:\d\d, at \d\d:\d\d:\d\d at the latest"
    assert re.fullmatch(words, story.reason)
    assert (task.state, task.reason, task.until) == ("delayed", story.reason, story.until)
    assert (await found(shop, "d1")).reason is None
    await told.go_on("time | claim c2 d1 | retry c2 d1 | why c delayed: ValueError")
    await told.go_on("task c2 delayed reason=None")
    rows = (await list_tasks(shop.namespace, "superseded", 10)).rows
    assert [(row.id, row.type, row.group) for row in rows] == [("c1", "changed", "c")]
    assert (await list_tasks(shop.namespace, "done", 10)).rows == []


async def test_groups_and_types_are_apart(shop: Bench) -> None:
    """Also such as look alike when they are written one behind the other."""
    kinds = [("g", "changed"), ("g", "gone"), ("gc", "hanged"), ("h", "changed"), ("0", "1g")]
    kinds += [("0004g", "x"), ("0005", "gx")]
    for letter in "cd":
        await shop.enqueue(*(changed(f"{letter}{n}", *kind) for n, kind in enumerate(kinds)))
        assert shop.count("superseded") == (0 if letter == "c" else len(kinds))
    await play(shop, " | ".join(f"superseded c{n}=d{n}" for n in range(len(kinds))))


# Quiet is a delay, and delays are bounded in bytes: no task dies of one not its own

ROOM = DELAY_COSTS + len(changed("c1").envelope.pack())


async def test_it_replaces_within_the_room_of_what_it_replaces(shop: Bench) -> None:
    """Within a batch as well."""
    for batch in ([changed("c1")], [changed("c2")], [changed(f"c{n}") for n in (3, 4, 5)]):
        assert not (await shop.enqueuer.enqueue(batch, ROOM)).crowded_out
        await play(shop, f"waits {batch[-1].id} 60 | count delayed_bytes={ROOM}")
    await shop.enqueuer.enqueue([changed("d1", "h"), changed("d2", "h")], 2 * ROOM)
    await play(shop, f"waits d2 60 | count delayed_bytes={2 * ROOM}")


async def test_without_room_it_waits_for_no_quiet(shop: Bench) -> None:
    taken = await shop.enqueuer.enqueue([changed("c1"), changed("c2")], 0)
    assert (taken.taken, taken.crowded_out, taken.queued) == ([True] * 2, frozenset(), 1)
    await play(shop, "superseded c1=c2 | drain c2")


async def test_without_room_what_waits_behind_quiet_is_no_letter(shop: Bench) -> None:
    batch = [changed("c1"), arrival("b", "g"), changed("d1", "g", "other")]
    taken = await shop.enqueuer.enqueue(batch, ROOM)
    assert (taken.crowded_out, taken.queued) == (frozenset(), 2)
    assert shop.lane("g") == ["c1", "b", "d1"]
    await shop.enqueuer.enqueue([changed("c2")])
    await play(shop, "why g ready")


async def test_without_room_for_its_own_delay_the_older_one_stays(shop: Bench) -> None:
    await shop.enqueue(changed("c1"))
    batch = [changed("c2", delay=HOUR), changed("c3")]
    assert (await shop.enqueuer.enqueue(batch, 10)).crowded_out == frozenset({0})
    assert await dead_ids(shop) == ["c2"]
    await play(shop, "superseded c1=c3")
    letters = DeadLetters(shop.namespace)
    kept = await letters.find("c2")
    assert kept is not None
    assert await letters.redrive(kept, delayed_memory=10_000)
    assert shop.lane("g") == ["c2", "c3"]
    await play(shop, "waits c2 3600")


async def test_behind_a_delay_that_was_asked_for_it_is_a_letter(shop: Bench) -> None:
    delayed = arrival("a", "g", delay=HOUR)
    room = DELAY_COSTS + len(delayed.envelope.pack())
    taken = await shop.enqueuer.enqueue([delayed, changed("c1")], room)
    assert taken.crowded_out == frozenset({1})
    assert shop.raw.exists(shop.keys("debouncing")) == 0
