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
