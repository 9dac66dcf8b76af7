"""advance, where what usually holds doesn't: clocks that stand behind, plain tasks, counters."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.store.keys import split_entry
from groupflow.store.settlements import Advance, Retry
from tests.store.bench import Bench, arrival

HOUR = 3_600_000_000  # µs


@pytest.fixture(autouse=True)
async def _without_history(bench: Bench) -> Any:
    """Stages are the model's business; the structure is judged all the same."""
    yield
    bench.events.clear()


async def test_it_lines_up_behind_all_that_came_however_late_the_clock_is(bench: Bench) -> None:
    """Arrivals rise even where Redis's clock went back: at a stage as at an enqueue."""
    ahead = bench.server_time() + HOUR
    bench.raw.hset(bench.keys("count"), "sequence", f"{ahead:016d}")
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    daemon = await bench.daemon()
    await daemon.settle(Advance(await daemon.claim_one(), "two", b"{}", "step-aside"))
    assert bench.lane("a") == ["a1", "a0"]
    await bench.enqueue(arrival("a2", "a"))
    lane: Any = bench.raw.lrange(bench.keys("lane", "a"), 0, -1)
    assert [split_entry(entry)[0] - ahead for entry in lane] == [4, 3, 2]


async def test_a_plain_one_keeps_its_arrival(bench: Bench) -> None:
    """There is no line to step aside from: it is put in order as a stage is anyway."""
    await bench.enqueue(arrival("p0"))
    daemon = await bench.daemon()
    claim = await daemon.claim_one("plain")
    await daemon.settle(Advance(claim, "two", b"{}", "step-aside"))
    again = await daemon.claim_one("plain")
    assert split_entry(again.entry)[0] == split_entry(claim.entry)[0]
    assert not bench.raw.hexists(bench.keys("task_state", "p0"), "enqueued")


async def test_stages_and_retries_are_counted(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await bench.daemon()
    await daemon.settle(Advance(await daemon.claim_one(), "two", b"{}"))
    await daemon.settle(Advance(await daemon.claim_one("plain", "w2"), "two", b"{}"))
    assert bench.count("advanced") == 2
    await daemon.settle(Retry(await daemon.claim_one(), 60.0, []))
    assert bench.count("retried") == 1
