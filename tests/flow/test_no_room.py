"""An advance for which there is no room, on its way through an exchange."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import StoreUnavailable
from groupflow.core.outcome import Advance
from groupflow.core.policy import Policy
from groupflow.core.retry import RetryPolicy
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.settling import Ran, settlement_of
from groupflow.operate.tasks import find_task
from tests.flow.dispatchers import ListedClaims, Served, dispatcher_of, run_once
from tests.store.bench import Bench, arrival
from tests.store.task_state import Bounded, letter, pass_time

POLICY = Policy(RetryPolicy(2, -60.0, 0.0), "hold", parks=False, stage_order="hold")


@pytest.fixture(autouse=True)
async def _without_history(bench: Bench) -> Any:
    """Settled behind the bench's back; the structure is judged all the same."""
    yield
    bench.events.clear()


async def advance(dispatcher: Served, size: int = 100) -> None:
    """A worker gets a task, comes to its next stage, and settles that."""
    waiting = asyncio.create_task(dispatcher.next("w-0"))
    await asyncio.sleep(0)
    await run_once(dispatcher)
    slot = await waiting
    assert slot is not None
    outcome = Advance("two", "x" * size)
    settlement = settlement_of(slot.held, outcome, POLICY, Ran(0.0, 0.0, "d1"), lambda: 0.5)
    waiting = asyncio.create_task(dispatcher.next("w-0", slot, settlement))
    await asyncio.sleep(0)
    await run_once(dispatcher)
    waiting.cancel()


def settled(dispatcher: Dispatcher) -> dict[str, int]:
    """How often each way to settle was counted."""
    return {how: n for how, n in dispatcher.measures.types.of("t").settled.items() if n}


async def test_it_is_tried_again_and_dies_by_the_policy(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"))
    claims = ListedClaims(await bench.daemon())
    claims._carrying = Bounded(50, 50)
    dispatcher = dispatcher_of(claims)
    with capture_logs() as logs:
        await advance(dispatcher)
    assert settled(dispatcher) == {"retry": 1}
    [line] = [each for each in logs if each["event"] == "task.no_room_to_carry"]
    assert (line["task"], line["tenant"], line["outcome"]) == ("a0", "42", "retry")
    found = await find_task(bench.client, "a0")
    assert found is not None
    assert (found.state, found.attempt, found.stage) == ("delayed", 2, None)
    assert "no room" in found.errors[-1]["message"]
    await pass_time(bench)
    for exchanger in dispatcher.exchangers:
        exchanger.wake()
    await advance(dispatcher)
    assert settled(dispatcher) == {"retry": 1, "bury": 1}
    dead = await letter(bench, "a0")
    assert "no room for the 102 bytes" in dead.reason
    assert [each["attempt"] for each in dead.errors] == [1, 2]


@pytest.mark.parametrize(("room", "expected"), [(10_000, "advanced"), (50, "retried")])
async def test_a_lost_reply_changes_no_decision(bench: Bench, room: int, expected: str) -> None:
    """What was accepted stays so, though there is no room by then; and the other way round."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    claims = ListedClaims(await bench.daemon())
    claims._carrying = Bounded(room, room)
    dispatcher = dispatcher_of(claims)
    claims.lose = {1}
    with pytest.raises(StoreUnavailable):
        await advance(dispatcher)
    written = {name: bench.count(name) for name in ("advanced", "retried", "carried_bytes")}
    assert written[expected] == 1
    claims._carrying = Bounded(10_050 - room, 10_050 - room)
    await run_once(dispatcher)
    assert {name: bench.count(name) for name in written} == written
