"""The loop of the duties, and when each of them looks again."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.core.measures import UpkeepMeasures
from groupflow.upkeep import promote, sweep
from groupflow.upkeep.duty import Duty
from tests.deadlines import deadline
from tests.store.bench import Bench, arrival, bury


class Passes:
    """Passes of a duty, each with its answer; a test can wait for one."""

    def __init__(self, *answers: float | Exception) -> None:
        self._answers = list(answers)
        self.done = 0
        self.all_done = asyncio.Event()
        self.duty = Duty("promote", self, again=0.0)

    async def __call__(self) -> float:
        answer = self._answers[self.done]
        self.done += 1
        if self.done == len(self._answers):
            self.all_done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_duty_sleeps_as_long_as_its_pass_says_or_until_a_wake() -> None:
    passes = Passes(0.0, 3600.0, 3600.0)
    running = asyncio.create_task(passes.duty.run())
    await _settle_down()
    assert passes.done == 2
    passes.duty.wake()  # which cuts one sleep short
    async with asyncio.timeout(deadline()):
        await passes.all_done.wait()
    await _settle_down()
    assert not running.done()
    running.cancel()


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (GroupflowError("no right to"), "warning"),
        (StoreUnavailable("away"), "debug"),  # which the log is told once for all
    ],
)
async def test_a_pass_that_fails_is_tried_again_and_said(error: Exception, level: str) -> None:
    passes = Passes(error, 3600.0)
    with capture_logs() as logs:
        running = asyncio.create_task(passes.duty.run())
        async with asyncio.timeout(deadline()):
            await passes.all_done.wait()
    assert [(each["event"], each["log_level"]) for each in logs] == [("promote.failed", level)]
    running.cancel()


async def test_an_unforeseen_error_ends_it() -> None:
    with pytest.raises(ZeroDivisionError):
        await Passes(ZeroDivisionError()).duty.run()


async def test_promote_sleeps_until_something_is_due(bench: Bench) -> None:
    """And never too long: a wake may have been lost."""
    measures = UpkeepMeasures()
    assert await promote.promote(bench.client, measures) == promote.LONGEST
    await bench.enqueue(arrival("late", "g", delay=600.0))
    assert await promote.promote(bench.client, measures) == promote.LONGEST
    await bench.enqueue(arrival("soon", "h", delay=20.0))
    assert 0 < await promote.promote(bench.client, measures) <= 20.001
    assert measures.promoted == 0


async def test_a_sweep_goes_on_at_once_where_there_may_be_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    daemon = await bench.daemon()
    for n in range(3):
        await bench.enqueue(arrival(f"t{n}"))
        await daemon.settle(bury(await daemon.claim_one("plain")))
    measures = UpkeepMeasures()
    pauses = [await sweep.sweep(bench.client, 3600.0, measures)]
    pauses += [await sweep.sweep(bench.client, 0.0, measures) for _ in range(2)]
    assert pauses == [sweep.PAUSE, 0.0, sweep.PAUSE]
    assert measures.expired == 3
