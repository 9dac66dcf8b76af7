"""A group is in one state at a time, and reaches it from each other one; see ARCHITECTURE.md."""

from __future__ import annotations

import pytest

from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.servers import RedisServer
from tests.store.bench import Bench, arrival

YEAR = 31_536_000.0


async def state_of(bench: Bench, group: str) -> str:
    """What operators are told, where nothing contradicts it."""
    assert bench.audit() == []
    return (await Groups(bench.namespace).why(group)).state


async def test_delayed_paused_and_delayed_again(bench: Bench) -> None:
    groups = Groups(bench.namespace)
    await bench.enqueue(arrival("a0", "a", delay=YEAR))
    assert await state_of(bench, "a") == "delayed"
    await groups.pause("a", "me")
    assert await state_of(bench, "a") == "paused"
    assert not bench.raw.exists(bench.keys("held"))
    await groups.resume("a")
    assert await state_of(bench, "a") == "delayed"


async def test_ready_paused_and_ready_again(bench: Bench) -> None:
    """Nothing else is paused by it, and the same group is no second time."""
    groups = Groups(bench.namespace)
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    await groups.pause("a", "me")
    assert (await state_of(bench, "a"), await state_of(bench, "b")) == ("paused", "ready")
    await bench.enqueue(arrival("a1", "a"), arrival("b1", "b"))
    assert (await state_of(bench, "a"), await state_of(bench, "b")) == ("paused", "ready")
    await groups.resume("a")
    assert await state_of(bench, "a") == "ready"


async def test_ready_and_then_delayed_by_an_older_task(bench: Bench) -> None:
    """One that comes back before its head, and has the rest of its delay to wait."""
    late = arrival("a0", "a", delay=YEAR)
    assert (await bench.enqueuer.enqueue([late], 0)).crowded_out == {0}
    await bench.enqueuer.enqueue([arrival("a1", "a")])
    assert await state_of(bench, "a") == "ready"
    letters = DeadLetters(bench.namespace)
    letter = await letters.find("a0")
    assert letter is not None
    assert await letters.redrive(letter)
    assert bench.lane("a") == ["a0", "a1"]
    assert await state_of(bench, "a") == "delayed"
    daemon = await bench.daemon()
    assert await daemon.claim("grouped", "w1") == []
    bench.events.clear()  # they were taken in by the side door


@pytest.mark.parametrize("priority", [0.0, 1.0])
async def test_fair_turns_are_told_by_the_clock_for_all_tasks(
    store_server: RedisServer, priority: float
) -> None:
    """Also where each task has a task state, and its group goes the longer way back to `ready`."""
    bench = Bench(store_server.url, order="fair")
    try:
        tasks = [f"{group}{n}" for group in "ab" for n in range(3)]
        await bench.enqueue(*(arrival(id_, id_[0], priority=priority) for id_ in tasks))
        daemon = await bench.daemon()
        assert await daemon.work_off(["w1"]) == ["a0", "b0", "a1", "b1", "a2", "b2"]
        assert bench.judge_drained() == []
    finally:
        await bench.close()
