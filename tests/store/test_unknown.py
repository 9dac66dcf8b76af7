"""A task waits for a daemon that knows its type, or is dead once none has known it for long."""

from __future__ import annotations

from typing import Any

from groupflow.store.scripts import Verb
from tests.store.actors import UNKNOWN_FOR
from tests.store.bench import Bench
from tests.store.story import play, played

test_unknown = played(
    """
    it waits, and its group with it, until a daemon comes that knows the type::
        take a0 a1 p0 | claim a0 p0 | defer a0 p0 | waits a0 30 | waits p0 30 | lane a0 a1 | none
        why a delayed head=a0 : no daemon knows its type 't' | task a0 delayed attempt=1 crashes=0
        size unknown=1 unknown_tasks:t=2 | sound
        d2: hears due knows s t u | promote 2 | gone unknown unknown_tasks:t
        d2: claim a0/1 p0/1 | d2: done a0 p0 | d2: drain a1
    also one that registers::
        d2: knows t | d2: leave | take a0 | claim a0 | defer a0 | waits a0 30 | d2: back | promote 1
        d2: claim a0
    once it is over, all of that type are dead at their claims, and no others::
        take a0 b0 c0^ p0 | claim a0 b0 | defer a0 b0 | unknown_longer 29 | time b0 | claim b0
        defer b0 | waits b0 1 | unknown_longer 1 | time a0 b0 | claim a0 p0 | defer a0 p0
        task a0 dead reason=broken attempt=1 | task p0 dead | claim b0 | defer b0 | task b0 dead
        count buried=3 | time c0 | claim c0 | defer c0 | waits c0 30
    it stays over while tasks of that type come::
        take a0 | claim a0 | defer a0 | time a0 | unknown_longer 290 | claim a0 | defer a0
        unknown_longer 250 | take b0 | claim b0 | defer b0 | task a0 dead | task b0 dead
    it begins anew when none has come for long::
        take a0 | claim a0 | defer a0 | time a0 | claim a0 | unknown_longer 301 | take b0
        claim b0 | defer b0 | waits b0 30 | sound
    a task that waits keeps it::
        take a0 b0 | claim a0 b0 | defer a0 | unknown_longer 301 | defer b0 | task b0 dead
    another daemon's knowledge makes it wait for a moment::
        d2: knows t | take a0 a1 p0 | claim a0 p0 | defer a0 p0 | waits a0 1 | waits p0 1 | none
        gone unknown | time | d2: claim a0/1 p0/1
    its own does not::
        knows t | take a0 | claim a0 | defer a0 | waits a0 30
    nor that of one which ended, or was taken over from::
        d3: knows t | d3: leave | d4: knows t | lose d4 | take a0 | claim a0 | defer a0
        waits a0 30
    a daemon that came and went begins it anew::
        take a0 b0 | claim a0 b0 | defer a0 | unknown_longer 20 | d2: knows t | d2: leave
        defer b0 | waits a0 30 | waits b0 30 | sound | promote 0 | size unknown_tasks:t=2
    what waits so can be cancelled, dropped, and run now::
        take a0 b0 c0 p0 | claim a0 b0 c0 p0 | defer a0 b0 c0 p0 | cancel a0 | drop b0
        run_now c0 | run_now p0 | gone unknown_tasks:t | claim c0 p0
    one that is to be cancelled ends::
        take a0 | claim a0 | cancel a0 requested | defer a0 | task a0 cancelled | gone unknown
    told again, it changes nothing; nor with a stale fence::
        take a0 | claim a0 | defer a0 | unchanged defer a0 | d2: knows t | promote 1 | d2: claim a0
        take b0 | claim b0 | crash d1 b0 | claim b0 | unchanged refused defer b0'
    keys that an operator deleted stop nothing::
        take p0 q0 | claim p0 q0 | defer p0 q0 | lost p0 | stateless p0 | d2: knows t | promote 1
        gone unknown unknown_tasks:t | d2: claim q0 | time p0 | d2: idle plain | stateless p0
    what no task waits for needs no promotion::
        take a0 | claim a0 | defer a0 | drop a0 | hears - knows t | gone unknown
    a run ends with it::
        runs 3 | take a0 a1 a2 | claim a0>a1>a2 | tell a0 > a1 | defer a1 | lane a1 a2 | none
        time | drain a1 a2
    a quarantined one lets the next one run::
        crashed a0 b0 | claim a0*1 | defer a0 | claim b0*1 | time a0 | none | done b0 | claim a0*1
    """
)


async def test_many_are_due_in_steps(shop: Bench) -> None:
    told = await play(shop, "take a0 b0 c0 | claim a0 b0 c0 | defer a0 b0 c0 | d2: knows t")
    passes: Any = [await shop.client.run(Verb.PROMOTE, 2) for _ in range(3)]
    assert passes == [[2, 0], [1, -1], [0, -1]]
    await told.go_on("d2: claim a0 b0 c0")


async def test_types_of_strangers_need_bounded_memory(shop: Bench) -> None:
    """Where there are too many clocks, a task waits as long since it came; old clocks go."""
    unknown, now = shop.keys("unknown"), shop.server_time()
    shop.raw.zadd(unknown, {f"type {n}": now + n for n in range(1000)})
    told = await play(shop, "take a0 | claim a0 | defer a0 | waits a0 30 | gone unknown_tasks:t")
    shop.raw.hset(shop.keys("task_state", "a0"), "due", f"{now:016d}")
    await told.go_on("time a0 | claim a0")
    assert shop.raw.zscore(unknown, "t") is None
    shop.raw.zadd(unknown, {"type 0": now - int(11e6 * UNKNOWN_FOR)})
    await told.go_on("defer a0 | waits a0 30 | size unknown=1000 unknown_tasks:t=1")
    assert shop.raw.zscore(unknown, "type 0") is None
