"""Tasks that wait are dropped, or run now, however long the line they stand in.

In which states, and with what end: `tests/model` (`act_on_a_waiting_task`).
"""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

import pytest

from groupflow.operate import tasks as module
from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks
from tests.store.bench import Bench, arrival
from tests.store.story import named, play, stories

YEAR = 31_536_000.0


async def test_one_is_found_however_long_the_line(bench: Bench, monkeypatch: Any) -> None:
    """A script looks at so many places only; what comes meanwhile hides nothing."""
    monkeypatch.setattr(module, "LOOKED_AT", 3)
    tasks = Tasks(bench.namespace)
    await bench.enqueue(*(arrival(f"t{n}", "g") for n in range(20)))
    await bench.enqueue(*(arrival(f"p{n}") for n in range(20)))
    for id_ in ("t0", "t9", "t19", "p0", "p10", "p19"):
        assert await tasks.drop(id_) is None
    assert bench.lane("g") == [f"t{n}" for n in range(20) if n not in (0, 9, 19)]


@pytest.mark.parametrize("group", ["g", None])
async def test_one_is_found_while_younger_ones_are_dropped(bench: Bench, group: str | None) -> None:
    await bench.enqueue(*(arrival(f"t{n}", group) for n in range(9)))
    other, run, calls = bench.client.beside(bench.keys), bench.client.run, itertools.count(1)

    async def run_and_drop(verb: Any, *arguments: Any) -> Any:
        reply = await run(verb, *arguments)
        if verb == OperatorVerb.DROP_WAITING and next(calls) == 1:  # it has seen t8, t7 and t6
            for id_ in ("t8", "t7"):
                assert await Tasks(Namespace([other])).drop(id_) is None
        return reply

    try:
        with patch.object(module, "LOOKED_AT", 3), patch.object(bench.client, "run", run_and_drop):
            assert await Tasks(bench.namespace).drop("t5") is None
    finally:
        await other.close()


STORIES = named(
    """
    a group is idle once its last is dropped::
        take a0 b0@ | drop a0 | why a idle | drop b0 | why b idle
    what does not wait is left alone::
        take a0 b0 p0 | claim a0 b0 p0 | done b0 | bury p0 | unchanged drop a0 running
        unchanged drop b0 over | unchanged drop c0 unknown | unchanged run_now a0 running
        unchanged run_now b0 over | unchanged run_now c0 unknown | unchanged run_now p0 dead
    a dropped head lets those behind it go::
        take a0@ a1 | none | drop a0 | claim a1
    a delayed task runs now, once::
        take a0@ b0@~ p0@ q0@~ | none | run_now a0 | run_now b0 | run_now p0 | run_now q0
        task a0 queued | drain p0 q0 a0 b0
    crashed ones, retried ones and released ones are found too::
        take a0 p0 | claim a0 p0 | lose d1 a0 p0 | drop a0 | drop p0
        take b0 q0 | d2: claim b0 q0 | d2: retry b0 q0 | drop b0 | drop q0
        take c0 q1 | d2: claim c0 q1 | d2: release c0 q1 | drop c0 | drop q1
        status queued_plain=0 queued_grouped=0
    """
)


@stories(STORIES)
async def test_what_waits(bench: Bench, story: str) -> None:
    await play(bench, story)


async def test_the_delayed_ones_of_a_group(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    late = [
        arrival(f"{place}{n}", "g", delay=YEAR, steps_aside=place == "aside")
        for place in ("lane", "aside")
        for n in range(5)
    ]
    await bench.enqueue(arrival("due", "g"), *late, arrival("plain", delay=YEAR))
    await bench.enqueue(arrival("of-another", "h", delay=YEAR, steps_aside=True))
    tasks = Tasks(bench.namespace)
    assert sorted((await tasks.delayed_of("g"))[0]) == sorted(each.id for each in late)
    assert (await tasks.delayed_of("h"))[0] == ["of-another"]
    assert (await tasks.delayed_of("unknown"))[0] == []
