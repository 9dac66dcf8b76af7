"""A worker between a dispatcher and a handler, step by step: what it hands in, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from time import time
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.core.outcome import Dead, Done, Outcome
from groupflow.core.retry import RetryOverride
from groupflow.core.task import Task
from groupflow.core.tracing import Attempt
from groupflow.flow import handling as module
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.handling import LATE, STUCK_LOOK, Failed
from groupflow.flow.prefetch import Prefetch
from groupflow.flow.slots import Slot
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.settings.model import Settings
from groupflow.store.given import Claim
from groupflow.store.settlements import Bury, Complete, Release, Retry, Settlement
from tests.deadlines import deadline

Handler = Callable[[Task], Awaitable[Outcome | Failed]]


class Store:
    """Where claims come from, as far as a worker knows it."""

    def __init__(self) -> None:
        self.prefetch, self.held, self.is_settled = Prefetch(), 0, True
        self.has_asked = self.waits = False
        self.position, self.has_some = 0.0, False
        self.holds_lease: Callable[[], bool] = lambda: True

    def wake(self) -> None: ...
    def stir(self) -> None: ...
    def end(self, slot: Slot, settlement: Settlement | None) -> None: ...

    async def settle(self, slot: Slot, settlement: Settlement | None, **_: bool) -> bool:
        raise AssertionError("this dispatcher has no such source")


class Script(Dispatcher):
    """Gives these tasks one after another, and notes what is handed in for them."""

    def __init__(self, *tasks: Task) -> None:
        super().__init__()
        self.store = Store()
        self.slots = [
            Slot(task.id, self.store, Claim(task.id, n + 1, b"", task, None))
            for n, task in enumerate(tasks)
        ]
        self.handed_in: list[tuple[str, Settlement | None]] = []
        self.waited: list[Any] = []
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.on_hand_in: Callable[[], None] = lambda: None

    async def next(
        self, worker: str, slot: Slot | None = None, settlement: Settlement | None = None
    ) -> Slot | None:
        if slot is not None:
            self.handed_in.append((slot.name, settlement))
            self.on_hand_in()
        if self.slots:
            return self.slots.pop(0)
        self.waited.append((slot.name if slot else None, settlement))
        self.waits.set()
        await self.goes_on.wait()
        return None


class Function:
    """A handler's runner, and the finder of it."""

    retry = RetryOverride()

    def __init__(self, handler: Handler, timeout: float | None = None) -> None:
        self._handler, self.timeout = handler, timeout

    async def handle(self, task: Task) -> Outcome | Failed:
        return await self._handler(task)

    def find(self, type: str) -> Function | None:
        return self if type == "t" else None


class Traced:
    """Tracing that notes how attempts ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str]] = []

    @contextmanager
    def processing(self, task: Task) -> Iterator[Attempt]:
        yield self

    def ended(self, outcome: str, error: str = "") -> None:
        self.ends.append((outcome, error))


def task(id_: str, **facts: Any) -> Task:
    return Task(id_, **{"type": "t", **facts})


def worker_of(dispatcher: Dispatcher, runner: Function, tracing: Any = None) -> LocalWorker:
    return LocalWorker("w", dispatcher, Rules(runner, Settings().policies(), 3, "d1"), tracing)


async def _done(_: Task) -> Outcome:
    return Done()


async def _until_it_waits(dispatcher: Script, running: asyncio.Task[None]) -> None:
    async with asyncio.timeout(deadline()):
        await asyncio.wait(
            [running, asyncio.ensure_future(dispatcher.waits.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )


async def _end(dispatcher: Script, running: asyncio.Task[None]) -> None:
    dispatcher.goes_on.set()
    async with asyncio.timeout(deadline()):
        await running


async def _settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_takes_one_after_another_until_there_is_nothing_more() -> None:
    dispatcher, seen = Script(task("a"), task("b")), list[Any]()

    async def handle(_: Task) -> Outcome:
        current = asyncio.current_task()
        assert current is not None
        seen.append((worker.is_busy, worker.names_of(current)["task"]))
        return Done()

    worker = worker_of(dispatcher, Function(handle))
    running = asyncio.create_task(worker.run())
    await _until_it_waits(dispatcher, running)
    assert seen == [(True, "a"), (True, "b")]
    assert 0 < dispatcher.store.prefetch._seconds < deadline()
    assert [(name, type(each)) for name, each in dispatcher.handed_in] == [
        ("a", Complete),
        ("b", Complete),
    ]
    assert dispatcher.waited == [dispatcher.handed_in[1]]
    assert not worker.is_busy
    await _end(dispatcher, running)


async def test_one_that_is_handed_back_before_its_first_step_is_still_handed_in() -> None:
    """A worker cancelled then would lose its slot."""
    dispatcher, ran = Script(task("a"), task("b")), list[str]()

    async def handle(each: Task) -> Outcome:
        ran.append(each.id)
        return Done()

    worker = worker_of(dispatcher, Function(handle))

    def hands_back() -> None:
        dispatcher.on_hand_in = lambda: None
        asyncio.get_running_loop().call_soon(worker.hand_back)

    dispatcher.on_hand_in = hands_back
    running = asyncio.create_task(worker.run())
    await _until_it_waits(dispatcher, running)
    assert ran == ["a"]
    assert [type(each) for _, each in dispatcher.handed_in] == [Complete, Release]
    await _end(dispatcher, running)


async def test_one_that_waits_has_nothing_to_hand_back() -> None:
    dispatcher = Script(task("a"))
    worker = worker_of(dispatcher, Function(_done))
    worker.hand_back()  # nor before it runs
    running = asyncio.create_task(worker.run())
    await _until_it_waits(dispatcher, running)
    assert worker._attempt is not None
    assert worker.names_of(worker._attempt) == {}
    worker.hand_back()
    worker.lose()
    await _settle_down()
    assert not running.done()
    dispatcher.slots.append(Script(task("b")).slots[0])
    dispatcher.goes_on.set()
    async with asyncio.timeout(deadline()):
        await running
    assert [type(each) for _, each in dispatcher.handed_in] == [Complete]


@pytest.mark.parametrize(("is_lost", "settled"), [(False, Release), (True, type(None))])
async def test_a_handler_that_is_cut_off(is_lost: bool, settled: type[Any]) -> None:
    """It says nothing of how long handlers take; the next one is as good as new."""
    dispatcher, begun = Script(task("a"), task("b")), asyncio.Event()

    async def handle(each: Task) -> Outcome:
        if each.id == "a":
            begun.set()
            await asyncio.Event().wait()
        return Done()

    traced = Traced()
    worker = worker_of(dispatcher, Function(handle), traced)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(deadline()):
        await begun.wait()
    assert worker.is_busy
    assert worker._attempt is not None
    assert worker.names_of(worker._attempt)["task"] == "a"
    assert worker.names_of(running) == {}
    (worker.lose if is_lost else worker.hand_back)()
    await _until_it_waits(dispatcher, running)
    assert [type(each) for _, each in dispatcher.handed_in] == [settled, Complete]
    assert traced.ends[0] == (("lost", "ClaimLost") if is_lost else ("release", ""))
    assert dispatcher.store.prefetch._attempts == 1
    await _end(dispatcher, running)


@pytest.mark.parametrize(
    ("crashes", "lost", "reason"),
    [
        (22, 19, "3 daemons died while they ran it"),
        (21, 19, None),
        (20, 20, "20 leases were lost while it ran, by daemons that aren't known to have died"),
        (19, 19, None),
    ],
)
async def test_lost_leases_bury_apart_from_deaths(
    crashes: int, lost: int, reason: str | None
) -> None:
    dispatcher, ran = Script(task("a", crashes=crashes, lost_leases=lost)), []

    async def handle(each: Task) -> Outcome | Failed:
        ran.append(each.id)
        return Done()

    running = asyncio.create_task(worker_of(dispatcher, Function(handle), Traced()).run())
    await _until_it_waits(dispatcher, running)
    [(_, settled)] = dispatcher.handed_in
    assert isinstance(settled, Bury) == bool(reason) != bool(ran)
    assert not isinstance(settled, Bury) or settled.reason == reason
    await _end(dispatcher, running)


async def test_how_attempts_end_is_traced() -> None:
    dispatcher = Script(task("a"), task("b"), task("c"), task("d", type="u"), task("e", crashes=3))

    async def handle(each: Task) -> Outcome | Failed:
        answers: dict[str, Outcome | Failed] = {"b": Failed("ValueError", "no"), "c": Dead("over")}
        return answers.get(each.id, Done())

    traced = Traced()
    with capture_logs() as logs:
        running = asyncio.create_task(worker_of(dispatcher, Function(handle), traced).run())
        await _until_it_waits(dispatcher, running)
    settled = [Complete, Retry, Bury, Bury, Bury]
    assert [type(each) for _, each in dispatcher.handed_in] == settled
    assert traced.ends == [
        ("complete", ""),
        ("retry", "ValueError"),
        ("bury", "Dead"),
        ("bury", "Dead"),
        ("bury", "Dead"),
    ]
    buried = [each["reason"] for each in logs if each["event"] == "task.buried"]
    assert buried[0] == "over"
    assert "no handler for type 'u'" in buried[1]
    assert "3 daemons died" in buried[2]
    assert [each["task"] for each in logs if each["event"] == "task.settled"][-1] == "b"
    await _end(dispatcher, running)


async def test_the_log_says_of_each_failed_attempt_where_it_failed() -> None:
    dispatcher = Script(task("a"), task("b", attempt=9), task("c"))

    async def handle(each: Task) -> Outcome | Failed:
        raised = Failed("KeyError", "'price'", traceback="Traceback …")
        return Failed("TimeoutError", "late") if each.id == "c" else raised

    with capture_logs() as logs:
        running = asyncio.create_task(worker_of(dispatcher, Function(handle)).run())
        await _until_it_waits(dispatcher, running)
    lines = [each for each in logs if each["event"] in ("task.settled", "task.buried")]
    assert [(each["event"], each["attempt"], each["error"]) for each in lines] == [
        ("task.settled", 1, "KeyError"),
        ("task.buried", 9, "KeyError"),
        ("task.settled", 1, "TimeoutError"),
    ]
    assert [each.get("exception") for each in lines] == ["Traceback …", "Traceback …", None]
    settlement = dispatcher.handed_in[0][1]
    assert isinstance(settlement, Retry)
    noted = settlement.errors[-1]
    assert noted["daemon"] == "d1"
    assert noted["seconds"] >= 0
    assert abs(noted["at"] - time()) < deadline()
    await _end(dispatcher, running)


async def test_an_attempt_over_its_time_says_where_it_was() -> None:
    dispatcher = Script(task("a"))

    async def handle(_: Task) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    running = asyncio.create_task(worker_of(dispatcher, Function(handle, timeout=0.01)).run())
    await _until_it_waits(dispatcher, running)
    settlement = dispatcher.handed_in[0][1]
    assert isinstance(settlement, Retry)
    assert "in handle" in settlement.errors[-1]["traceback"]
    await _end(dispatcher, running)


async def test_one_crash_below_the_limit_is_run() -> None:
    dispatcher = Script(task("a", crashes=2))
    running = asyncio.create_task(worker_of(dispatcher, Function(_done)).run())
    await _until_it_waits(dispatcher, running)
    assert [type(each) for _, each in dispatcher.handed_in] == [Complete]
    await _end(dispatcher, running)


async def test_an_unforeseen_error_ends_the_worker_and_is_told() -> None:
    """While it waits, and while it hands in: the daemon must hear of it."""

    def breaks() -> None:
        raise ZeroDivisionError

    dispatcher = Script(task("a"))
    dispatcher.on_hand_in = breaks
    with pytest.raises(ZeroDivisionError):
        await worker_of(dispatcher, Function(_done)).run()

    class Broken(Script):
        async def next(self, *_: Any) -> Slot | None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await worker_of(Broken(), Function(_done)).run()


async def test_the_daemons_end_cuts_a_handler_off_and_settles_nothing() -> None:
    """The next daemon hands over what is left."""
    dispatcher, begun, cut = Script(task("a")), asyncio.Event(), list[str]()

    async def handle(each: Task) -> Outcome:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cut.append(each.id)
        return Done()

    worker = worker_of(dispatcher, Function(handle))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(deadline()):
        await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    await _settle_down()
    assert cut == ["a"]
    assert dispatcher.handed_in == []
    assert running.cancelled()


class Timers:
    """The loop's timers and the clock, both moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set: list[tuple[float, Callable[[], Any]]] = []
        self.cancelled = 0

    def __call__(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        self.set.append((seconds, callback))
        return cast(asyncio.TimerHandle, self)

    def cancel(self) -> None:
        self.cancelled += 1

    def ring(self, late: float = 0.0) -> None:
        """The only one that was set, so much after its time."""
        [(seconds, callback)] = self.set
        self.set, self.now = [], self.now + seconds + late
        callback()


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", timers.call_later)
    monkeypatch.setattr(module, "monotonic", timers)
    return timers


async def _stubborn(dispatcher: Script, may_end: asyncio.Event) -> tuple[LocalWorker, list[str]]:
    cut: list[str] = []

    async def handle(each: Task) -> Outcome:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                cut.append(each.id)
        return Done()

    return worker_of(dispatcher, Function(handle, timeout=30.0)), cut


async def test_a_limit_is_found_over_in_time(timers: Timers) -> None:
    """An attempt that ignores that is reported again and again, and its claim kept."""
    dispatcher, may_end = Script(task("a")), asyncio.Event()
    worker, cut = await _stubborn(dispatcher, may_end)
    running = asyncio.create_task(worker.run())
    await _settle_down()
    assert [seconds for seconds, _ in timers.set] == [30.0]
    timers.ring(late=LATE)
    await _settle_down()
    assert cut == ["a"]
    with capture_logs() as logs:
        for _ in range(3):
            assert [seconds for seconds, _ in timers.set] == [STUCK_LOOK]
            timers.ring()
    assert [each["ignored_for"] for each in logs] == [STUCK_LOOK, 2 * STUCK_LOOK, 3 * STUCK_LOOK]
    assert dispatcher.handed_in == []
    assert cut == ["a"]
    may_end.set()
    await _settle_down()
    assert [type(each) for _, each in dispatcher.handed_in] == [Complete]
    assert timers.cancelled == 1
    dispatcher.goes_on.set()
    await running


async def test_a_limit_that_is_found_over_late_is_put_off_once(timers: Timers) -> None:
    dispatcher, may_end = Script(task("a")), asyncio.Event()
    worker, cut = await _stubborn(dispatcher, may_end)
    running = asyncio.create_task(worker.run())
    await _settle_down()
    timers.ring(late=5.0)
    await _settle_down()
    assert cut == []
    assert [seconds for seconds, _ in timers.set] == [5.0]
    timers.ring(late=5.0)
    await _settle_down()
    assert cut == ["a"]
    may_end.set()
    dispatcher.goes_on.set()
    await running
