"""Tasks that wait are dropped, or run now, whatever line they stand in; nothing else is moved."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

import pytest

from groupflow.operate import tasks as module
from groupflow.operate.groups import Groups
from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks
from groupflow.store.envelope import Pool
from groupflow.store.settlements import Release, Retry
from tests.store.bench import Bench, arrival, bury, ids
from tests.store.task_state import found

YEAR = 31_536_000.0


@pytest.fixture
def tasks(bench: Bench) -> Tasks:
    """The verbs."""
    return Tasks(bench.namespace)


async def test_one_is_found_however_long_the_line(
    bench: Bench, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script looks at so many places only; what comes meanwhile hides nothing."""
    monkeypatch.setattr(module, "LOOKED_AT", 3)
    await bench.enqueue(*(arrival(f"t{n}", "g") for n in range(20)))
    await bench.enqueue(*(arrival(f"p{n}") for n in range(20)))
    for id_ in ("t0", "t9", "t19", "p0", "p10", "p19"):
        assert await tasks.drop(id_) is None
    assert bench.lane("g") == [f"t{n}" for n in range(20) if n not in (0, 9, 19)]


@pytest.mark.parametrize("group", ["g", None])
async def test_one_is_found_though_younger_ones_are_dropped_meanwhile(
    bench: Bench, tasks: Tasks, group: str | None
) -> None:
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
            assert await tasks.drop("t5") is None
    finally:
        await other.close()


async def test_a_group_is_idle_once_its_last_is_dropped(bench: Bench, tasks: Tasks) -> None:
    await bench.enqueue(arrival("t", "g"), arrival("u", "h", delay=YEAR))
    assert [await tasks.drop(id_) for id_ in ("t", "u")] == [None, None]
    for group in ("g", "h"):
        assert (await Groups(bench.namespace).why(group)).state == "idle"


async def test_a_dropped_head_lets_those_behind_it_go(bench: Bench, tasks: Tasks) -> None:
    await bench.enqueue(arrival("late", "g", delay=YEAR), arrival("next", "g"))
    daemon = await bench.daemon()
    assert await daemon.claim("grouped", "w1") == []
    assert await tasks.drop("late") is None
    assert ids(await daemon.claim("grouped", "w1")) == ["next"]


async def test_what_does_not_wait_is_left_alone(bench: Bench, tasks: Tasks) -> None:
    await bench.enqueue(arrival("runs", "g"), arrival("dies"), arrival("ends", "h"))
    daemon = await bench.daemon()
    claims = {c.task.id: c for c in await daemon.claim("grouped", "w1", "w2")}
    await daemon.settle(bury(await daemon.claim_one("plain", "w3")))
    await daemon.complete(claims["ends"])
    before = bench.dump()
    for act in (tasks.drop, tasks.run_now):
        assert await act("runs") == "running"
        assert await act("dies") == "dead"
        assert await act("ends") == "over"
        assert await act("never") == "unknown"
    assert bench.dump() == before


@pytest.mark.parametrize("group", ["g", None])
async def test_crashed_and_retried_ones_are_found_too(
    bench: Bench, tasks: Tasks, group: str | None
) -> None:
    bench.with_faults = True
    pool: Pool = "grouped" if group else "plain"
    await bench.enqueue(arrival("crashed", group))
    crashing = await bench.daemon("d1")
    await crashing.claim_one(pool)
    bench.expire("d1")
    daemon = await bench.daemon("d2")
    await daemon.sessions.reap()
    assert await tasks.drop("crashed") is None
    await bench.enqueue(arrival("again", group and "h"))
    claim = await daemon.claim_one(pool)
    await daemon.settle(Retry(claim, YEAR, [{"message": "x"}]))
    assert await tasks.drop("again") is None
    await bench.enqueue(arrival("back", group and "i"))
    await daemon.settle(Release(await daemon.claim_one(pool)))
    assert await tasks.drop("back") is None
    assert (await bench.status()).queued_plain + (await bench.status()).queued_grouped == 0


@pytest.mark.parametrize("aside", [True, False])
@pytest.mark.parametrize("group", ["g", None])
async def test_a_delayed_task_runs_now(
    bench: Bench, tasks: Tasks, group: str | None, aside: bool
) -> None:
    pool: Pool = "grouped" if group else "plain"
    await bench.enqueue(arrival("late", group, delay=YEAR, steps_aside=aside))
    daemon = await bench.daemon()
    assert await daemon.claim(pool, "w1") == []
    assert await tasks.run_now("late") is None
    assert (await found(bench, "late")).state == "queued"
    assert await tasks.run_now("late") == "due"
    claim = await daemon.claim_one(pool)
    assert (claim.task.id, claim.task.attempt) == ("late", 1)


async def test_the_delayed_ones_of_a_group(
    bench: Bench, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    late: Any = [
        arrival(f"{place}{n}", "g", delay=YEAR, steps_aside=place == "aside")
        for place in ("lane", "aside")
        for n in range(5)
    ]
    await bench.enqueue(arrival("due", "g"), *late, arrival("of-another", "h", delay=YEAR))
    await bench.enqueue(arrival("plain", delay=YEAR))
    assert sorted(await tasks.delayed_of("g")) == sorted(each.id for each in late)
    assert await tasks.delayed_of("nobody") == []


async def test_some_of_several_groups(bench: Bench, tasks: Tasks) -> None:
    for group in ("g", "h"):
        await bench.enqueue(arrival(group, group, delay=YEAR, steps_aside=True))
    assert await tasks.delayed_of("h") == ["h"]
