"""A worker's attempt: its time limit, handlers that won't be stopped, and what is settled then."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from groupflow import App, Done, Task
from groupflow.core.outcome import Outcome
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.handling import Failed
from groupflow.flow.python_handlers import PythonRunner, PythonRunners
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.settings.model import RetryDefaults, Settings
from groupflow.settings.rules import GroupRule
from groupflow.store import settlements
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.settlements import Bury, Complete, Release, Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, Daemon


class WatchedClaims(Claims):
    """The store's own claims; what it accepted as settled is kept in passing."""

    def __init__(self, daemon: Daemon, pool: Pool) -> None:
        super().__init__(daemon.bench.client, daemon.session, pool)
        self.settled: list[Settlement] = []
        self.changed = asyncio.Condition()

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        answer = await super().exchange(settlements, slots)
        async with self.changed:
            self.settled += [each for each in settlements if each not in answer.refused]
            self.changed.notify_all()
        return answer

    async def until_settled(self, *ids: str) -> list[Settlement]:
        """Wait until these tasks, and no others, are settled."""
        async with asyncio.timeout(deadline()), self.changed:
            await self.changed.wait_for(lambda: len(self.settled) >= len(ids))
        assert sorted(each.claim.task.id for each in self.settled) == sorted(ids)
        return self.settled


@dataclass
class Running:
    """Workers at their work."""

    daemon: Daemon
    claims: WatchedClaims
    workers: list[LocalWorker]


@asynccontextmanager
async def working(
    bench: Bench,
    app: App,
    *tasks: Arrival,
    count: int = 1,
    max_attempts: int = 3,
    max_crashes: int = 3,
    parks: bool = False,
    holds: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Running]:
    """Workers on these tasks, ended when the block is."""
    await bench.enqueue(*tasks)
    daemon = await bench.daemon()
    rule = GroupRule(name="crm", key="{k}", on_dead="park" if parks else "skip")
    settings = Settings(retry=RetryDefaults(max_attempts=max_attempts, interval=-1), groups=(rule,))
    claims = WatchedClaims(daemon, "grouped" if tasks[0].envelope.group else "plain")
    with ThreadPoolExecutor(count) as threads:
        dispatcher = Dispatcher()
        exchanger = Exchanger(dispatcher, claims, holds)
        rules = Rules(PythonRunners(app, threads), settings.policies(), max_crashes)
        workers = [LocalWorker(f"w-{n}", dispatcher, rules) for n in range(count)]
        running = [asyncio.create_task(each.run()) for each in workers]
        serving = asyncio.create_task(exchanger.run())
        try:
            yield Running(daemon, claims, workers)
        finally:
            for each in (*running, serving):
                each.cancel()
            await asyncio.wait([*running, serving])


def named(id_: str, type_: str = "t", group: str | None = None) -> Arrival:
    rule = "crm" if group else None
    return Arrival(id_, Envelope(type_, group, "42", rule, {}, orjson.dumps({"id": id_})))


class Gate:
    """Says that a handler has come this far, and holds it there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()


async def within(event: asyncio.Event) -> None:
    async with asyncio.timeout(deadline()):
        await event.wait()


def only(settled: Sequence[Settlement], id_: str) -> Settlement:
    [found] = [each for each in settled if each.claim.task.id == id_]
    return found


async def test_an_attempt_is_not_begun_without_the_lease(bench: Bench) -> None:
    """It ended between the claim and the beginning, as where another handler blocked the loop."""
    app, ran, lease = App(), list[str](), {"holds": True}

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        lease["holds"] = False

    tasks = [named(f"t{n}", group=f"g{n}") for n in range(4)]
    async with (
        working(bench, app, *tasks, count=4, holds=lambda: lease["holds"]) as pool,
        asyncio.timeout(deadline()),
        pool.claims.changed,
    ):
        await pool.claims.changed.wait_for(
            lambda: {type(each) for each in pool.claims.settled} == {Complete, Release}
        )
    assert len(ran) == 1


async def test_each_claim_is_settled_once_and_the_worker_goes_on(bench: Bench) -> None:
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        if task.id == "b":
            raise ValueError("no such row")

    async with working(bench, app, named("a"), named("b"), named("c")) as pool:
        settled = await pool.claims.until_settled("a", "b", "c")
    assert [type(each) for each in settled] == [Complete, settlements.Retry, Complete]


async def test_a_runner_that_raises_ends_its_attempt_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It promises not to; what a library raises through it must not end the daemon."""
    app, handle = App(), PythonRunner.handle

    @app.handler("t")
    async def nothing(task: Task) -> None:
        pass

    async def handle_or_raise(runner: PythonRunner, task: Task) -> Outcome | Failed:
        if task.id == "b":
            raise ssl.SSLError(1, "alert certificate required")
        return await handle(runner, task)

    monkeypatch.setattr(PythonRunner, "handle", handle_or_raise)
    async with working(bench, app, named("a"), named("b"), named("c")) as pool:
        settled = await pool.claims.until_settled("a", "b", "c")
    retry = only(settled, "b")
    assert isinstance(retry, settlements.Retry)
    assert retry.errors[-1]["error"] == "SSLError"
    assert {type(only(settled, id_)) for id_ in ("a", "c")} == {Complete}


async def test_past_its_time_a_handler_is_cancelled_and_the_attempt_has_failed(
    bench: Bench,
) -> None:
    app, cut = App(), asyncio.Event()

    @app.handler("t", timeout=0.01)
    async def handle(task: Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    async with working(bench, app, named("a")) as pool:
        [retry] = await pool.claims.until_settled("a")
    assert cut.is_set()
    assert isinstance(retry, settlements.Retry)
    assert (retry.after, retry.errors[-1]["error"]) == (1, "TimeoutError")
    assert retry.errors[-1]["message"] == "it ran over its 0.01 s"


async def test_a_time_that_another_handler_blocked_is_not_counted(bench: Bench) -> None:
    """The loop stood past the limit: the attempt beside has as much time more."""
    app, waits, turns = App(), asyncio.Event(), asyncio.Event()

    @app.handler("t", timeout=0.3)
    async def wait(task: Task) -> None:
        waits.set()
        await turns.wait()
        await asyncio.sleep(0.01)

    @app.handler("block")
    async def block(task: Task) -> None:
        await waits.wait()
        time.sleep(0.8)  # noqa: ASYNC251
        turns.set()

    async with working(bench, app, named("a"), named("b", "block"), count=2) as pool:
        settled = await pool.claims.until_settled("a", "b")
    assert isinstance(only(settled, "a"), Complete)


async def test_the_last_attempt_over_its_time_is_a_dead_letter(bench: Bench) -> None:
    app = App()

    @app.handler("t", timeout=0.01)
    async def handle(task: Task) -> None:
        await asyncio.Event().wait()

    last = named("a", group="contact:42")
    async with working(bench, app, last, max_attempts=1, parks=True) as pool:
        [bury] = await pool.claims.until_settled("a")
    assert isinstance(bury, Bury)
    assert bury.reason == "TimeoutError: it ran over its 0.01 s"
    assert bury.park


async def test_a_handler_that_ignores_cancellation_keeps_its_claim_while_others_go_on(
    bench: Bench,
) -> None:
    app, gate = App(), Gate()

    @app.handler("stubborn", timeout=0.01)
    async def stubborn(task: Task) -> Done:
        while not gate.opened.is_set():
            try:
                await gate.opened.wait()
            except asyncio.CancelledError:
                gate.reached.set()
        return Done()

    @app.handler("t")
    async def handle(task: Task) -> None: ...

    others = [named(f"o-{n}") for n in range(20)]
    async with working(bench, app, named("s", "stubborn"), *others, count=2) as pool:
        await within(gate.reached)
        settled = await pool.claims.until_settled(*(each.id for each in others))
        assert all(isinstance(each, Complete) for each in settled)
        assert [worker.is_busy for worker in pool.workers].count(True) == 1
        gate.opened.set()
        settled = await pool.claims.until_settled("s", *(each.id for each in others))
        # It ended by itself after all, and says how.
        assert isinstance(only(settled, "s"), Complete)


async def test_a_thread_that_hangs_keeps_its_claim_while_others_go_on(bench: Bench) -> None:
    app, may_end, has_begun = App(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.handler("hangs", timeout=0.01)
    def hangs(task: Task) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(deadline())
        raise ValueError("woke up")

    @app.handler("t")
    def handle(task: Task) -> None: ...

    others = [named(f"o-{n}") for n in range(20)]
    async with working(bench, app, named("h", "hangs"), *others, count=2) as pool:
        try:
            await within(has_begun)
            await pool.claims.until_settled(*(each.id for each in others))
        finally:
            may_end.set()
        settled = await pool.claims.until_settled("h", *(each.id for each in others))
    retry = only(settled, "h")
    assert isinstance(retry, settlements.Retry)
    assert retry.errors[-1]["error"] == "ValueError"


async def test_a_handler_handed_back_goes_back_unfinished(bench: Bench) -> None:
    app, gate = App(), Gate()

    @app.handler("t")
    async def handle(task: Task) -> None:
        gate.reached.set()
        await gate.opened.wait()

    async with working(bench, app, named("a")) as pool:
        await within(gate.reached)
        pool.workers[0].hand_back()
        [release] = await pool.claims.until_settled("a")
    assert isinstance(release, Release)


async def test_nothing_is_written_for_a_claim_that_is_lost(bench: Bench) -> None:
    """Its attempt ends, and the task runs again under another fence, one crash richer."""
    app, gate, ran = App(), Gate(), []

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append((task.id, task.crashes))
        gate.reached.set()
        await gate.opened.wait()

    async with working(bench, app, named("a"), named("b")) as pool:
        await within(gate.reached)
        await pool.daemon.register()  # a new session: what was held under the old one is handed on
        gate.opened.set()  # the attempt could end well now, were it not lost
        pool.workers[0].lose()
        settled = await pool.claims.until_settled("a", "b")
    assert [type(each) for each in settled] == [Complete, Complete]
    assert ran == [("a", 0), ("a", 1), ("b", 0)]


async def test_a_task_without_a_handler_or_that_kills_all_daemons_is_a_dead_letter(
    bench: Bench,
) -> None:
    app, ran = App(), []

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)

    await bench.enqueue(named("b"))
    crasher = await bench.daemon("crasher")
    bench.with_faults = True
    for _ in range(2):
        await crasher.claim_one("plain")
        await crasher.register()
    tasks = [named("a", "unknown"), named("c"), named("d", "")]
    async with working(bench, app, *tasks, max_crashes=2) as pool:
        settled = await pool.claims.until_settled("a", "b", "c", "d")
    reasons = {each.claim.task.id: each.reason for each in settled if isinstance(each, Bury)}
    assert reasons == {
        "a": "no handler for type 'unknown'",
        "b": "2 daemons died while they ran it",
        "d": "no handler for type ''",
    }
    assert ran == ["c"]


def misbehaving() -> list[Callable[[Task], Any]]:
    def exits(task: Task) -> None:
        raise SystemExit

    def answers_nonsense(task: Task) -> Any:
        return 42

    def names_a_file(task: Task) -> None:
        raise FileNotFoundError(2, "No such file", b"\xff".decode("utf-8", "surrogateescape"))

    def cancels_itself(task: Task) -> None:
        raise asyncio.CancelledError

    return [exits, answers_nonsense, names_a_file, cancels_itself]


async def test_no_handler_ends_its_worker(bench: Bench) -> None:
    app, tasks = App(), []
    for n, function in enumerate(misbehaving()):

        async def coroutine(task: Task, function: Callable[[Task], Any] = function) -> Any:
            return function(task)

        app.handler(f"plain-{n}")(function)
        app.handler(f"async-{n}")(coroutine)
        tasks += [named(f"p-{n}", f"plain-{n}"), named(f"a-{n}", f"async-{n}")]
    app.handler("t")(lambda _task: None)
    async with working(bench, app, *tasks, named("last")) as pool:
        settled = await pool.claims.until_settled("last", *(each.id for each in tasks))
        assert isinstance(settled[-1], Complete)
        assert len([each for each in settled if isinstance(each, (Bury, settlements.Retry))]) == 8
