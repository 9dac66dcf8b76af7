"""The loop of the duties, and when each of them looks again."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.core.measures import UpkeepMeasures
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.sessions import HandedOver, Session, Sessions
from groupflow.upkeep import expire, promote, reap, sweep
from groupflow.upkeep.duty import Duty
from groupflow.upkeep.expire import Expirer
from groupflow.upkeep.reap import Reaper
from tests.store.bench import Bench, arrival, bury
from tests.turns import turns, turns_until


class Passes:
    """Passes of a duty, each with its answer."""

    def __init__(self, *answers: float | Exception) -> None:
        self.answers = list(answers)
        self.duty = Duty("promote", self, again=0.0)

    async def __call__(self) -> float:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until_done(self) -> None:
        await turns_until(lambda: not self.answers)


async def test_a_duty_sleeps_as_long_as_its_pass_says_or_until_a_wake() -> None:
    passes = Passes(0.0, 3600.0, 3600.0)
    running = asyncio.create_task(passes.duty.run())
    await turns(10)
    assert len(passes.answers) == 1
    passes.duty.wake()  # which cuts one sleep short
    await passes.until_done()
    await turns(10)
    assert not running.done()
    running.cancel()


ERRORS = [
    (GroupflowError("no right to"), "warning"),
    (StoreUnavailable("away"), "debug"),  # which the log is told once for all
]


@pytest.mark.parametrize(("error", "level"), ERRORS)
async def test_a_pass_that_fails_is_tried_again_and_said(error: Exception, level: str) -> None:
    passes = Passes(error, 3600.0)
    with capture_logs() as logs:
        running = asyncio.create_task(passes.duty.run())
        await passes.until_done()
    assert [(each["event"], each["log_level"]) for each in logs] == [("promote.failed", level)]
    running.cancel()


async def test_an_unforeseen_error_ends_it() -> None:
    with pytest.raises(ZeroDivisionError):
        await Passes(ZeroDivisionError()).duty.run()


async def test_promote_sleeps_until_something_is_due(bench: Bench) -> None:
    """And never too long: a wake may have been lost."""
    measures = UpkeepMeasures()
    expirer = Expirer(bench.client, measures)
    assert await promote.promote(bench.client, measures, expirer) == promote.LONGEST
    await bench.enqueue(arrival("late", "g", delay=600.0))
    assert await promote.promote(bench.client, measures, expirer) == promote.LONGEST
    await bench.enqueue(arrival("soon", "h", delay=20.0))
    assert 0 < await promote.promote(bench.client, measures, expirer) <= 20.001
    assert measures.promoted == 0


async def test_what_expires_is_told_of_once_a_second(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it comes, and what a claim has ended too."""
    now, measures = 100.0, UpkeepMeasures()
    monkeypatch.setattr(expire, "monotonic", lambda: now)
    monkeypatch.setattr(expire, "AT_ONCE", 2)
    expirer = Expirer(bench.client, measures)
    with capture_logs() as logs:
        for number in (5, 1):
            ids = [f"{number}-{n}" for n in range(number)]
            await bench.enqueue(*(arrival(id_, "g", expires=60.0) for id_ in ids))
            bench.raw.zadd(bench.keys("expiring"), dict.fromkeys(ids, 1))
            if number == 1:
                assert await (await bench.daemon()).claim("grouped", "w1") == []
            await promote.promote(bench.client, measures, expirer)
        assert await promote.promote(bench.client, measures, expirer) == expire.TOLD
        now += expire.TOLD
        assert await promote.promote(bench.client, measures, expirer) == promote.LONGEST
    told = [each["count"] for each in logs if each["event"] == "task.expired"]
    assert (told, measures.expired) == ([5, 1], 6)


async def test_a_sweep_goes_on_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    daemon = await bench.daemon()
    for n in range(3):
        await bench.enqueue(arrival(f"t{n}"))
        await daemon.settle(bury(await daemon.claim_one("plain")))
    measures = UpkeepMeasures()
    pauses = [await sweep.sweep(bench.client, 3600.0, measures)]
    pauses += [await sweep.sweep(bench.client, 0.0, measures) for _ in range(2)]
    assert pauses == [sweep.PAUSE, 0.0, sweep.PAUSE]
    assert measures.swept == 3


LEASE = 8.0


class Reaped(Sessions):
    """A store that says what the test wants, and a reaper before it."""

    def __init__(self, shortest: float | None = None) -> None:
        super().__init__(StoreClient("redis://127.0.0.1:1", Keys("none")), Session("d1"), LEASE)
        self.failed_at = 1000.0
        self.wait: float | None = None
        self.passes = 0
        self.measures = UpkeepMeasures()
        self.reaper = Reaper(self, LEASE, lambda: self.failed_at, self.measures, shortest)

    async def reap(self) -> tuple[float | None, list[HandedOver]]:
        self.passes += 1
        return self.wait, [HandedOver(f"t{n}", "g", n, "d2") for n in range(3)]


LOOKS = [
    # When the next lease may end, and as often as the shortest one ends: a worker that pulls
    # may come, and fall silent, behind its back.
    (None, None, LEASE),
    (1.0, None, 1.05),
    (LEASE, None, LEASE),
    (LEASE + 1, None, LEASE),
    (None, 2.0, 2.0),
    (0.0, None, reap.AGAIN),  # a pass takes so many, and there is more to take
]


@pytest.mark.parametrize(("wait", "shortest", "pause"), LOOKS)
async def test_its_next_look(wait: float | None, shortest: float | None, pause: float) -> None:
    reaped = Reaped(shortest)
    reaped.wait = wait
    assert await reaped.reaper.run_once() == pause
    assert (reaped.passes, reaped.measures.taken_over) == (1, 3)


async def test_an_outage_it_saw_gives_all_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the moment."""
    now = [1000.0]
    monkeypatch.setattr(reap, "monotonic", lambda: now[0])
    reaped = Reaped()
    now[0] = reaped.failed_at = 1100.0
    assert await reaped.reaper.run_once() == LEASE
    now[0] += LEASE - 1.0
    assert await reaped.reaper.run_once() == 1.0
    assert reaped.passes == 0
    now[0] += 1.0
    await reaped.reaper.run_once()
    assert reaped.passes == 1
