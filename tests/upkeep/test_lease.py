"""The lease and its thread: when it ends, who is told of it where, what blocked loops do to it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import SessionReplaced
from groupflow.core.measures import UpkeepMeasures
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Claimable, Session, Sessions, start
from groupflow.upkeep import renew
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.lease import LeaseThread, LoopListener, PartitionLease
from groupflow.upkeep.renew import BLOCKED, Renewer
from tests.deadlines import deadline
from tests.store.bench import Bench

LEASE = 600.0  # never over by itself
INFO = {"pid": 1, "host": "h", "workers": 2, "lease": LEASE}


class Listening:
    """A listener that writes down what it is told, and in which thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.heard: list[str] = []
        self.threads: set[int] = set()
        self.number_when_lost = ""
        self.opened = asyncio.Event()

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        self.threads.add(threading.get_ident())

    def lease_ended(self) -> None:
        self._hear("lease ended")

    def session_lost(self) -> None:
        self.number_when_lost = self._session.number
        self._hear("session lost")

    def session_opened(self) -> None:
        self._hear("session opened")
        self.opened.set()

    def session_continued(self) -> None:
        self._hear("session continued")

    def claimable(self, plain: int, groups: int) -> None:
        self._hear("claimable")


class Alone(Listening):
    """The same for a renewer without a thread; the test may look when the session is lost."""

    when_lost: Callable[[], None] = staticmethod(lambda: None)

    async def session_lost(self) -> None:  # type: ignore[override]
        super().session_lost()
        self.when_lost()


def lease_end(bench: Bench) -> float:
    """The end of d1's lease in the store."""
    found: Any = bench.raw.zscore(bench.keys("daemons"), "d1")
    return float(found)


class TestRenewer:
    async def test_no_caller_waits_beyond_its_end_for_an_answer(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last try begins shortly before the end; then the handlers have to be told at once."""
        lease, waits = 2.0, list[tuple[float, float]]()
        timeout, sleep = asyncio.timeout, asyncio.sleep

        class Silent(Sessions):
            async def renew(self) -> Claimable:
                return await asyncio.Future()

        def noted_timeout(delay: float) -> asyncio.Timeout:
            if not listener.heard:
                waits.append((delay, renewer.left))
            return timeout(delay)

        async def noted_sleep(delay: float) -> None:
            if not listener.heard:
                waits.append((delay, renewer.left))
            await sleep(delay)

        session = Session("d1")
        listener = Alone(session)
        renewer = Renewer(Silent(bench.client, session, LEASE), listener, lease, lambda: INFO)
        await renewer.open()
        monkeypatch.setattr(asyncio, "timeout", noted_timeout)
        monkeypatch.setattr(asyncio, "sleep", noted_sleep)
        running = asyncio.create_task(renewer.run())
        until = monotonic() + deadline()
        while not listener.heard:
            assert monotonic() < until
            await sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        assert listener.heard == ["lease ended"]
        before_its_end = [(delay, left) for delay, left in waits if left > 0]
        assert len(before_its_end) > 1
        # What is left is read a moment after the wait was chosen.
        assert all(delay < left + lease / 10 for delay, left in before_its_end)
        assert all(delay == 0 for delay, left in waits if left <= 0)

    async def test_the_lease_counts_from_the_sending(self, bench: Bench) -> None:
        """An answer may be late; other daemons count from when the store had the renewal."""
        has_run, may_answer = asyncio.Event(), asyncio.Event()

        class Late(Sessions):
            async def renew(self) -> Claimable:
                found = await super().renew()
                has_run.set()
                await may_answer.wait()
                return found

        session = Session("d1")
        renewer = Renewer(Late(bench.client, session, LEASE), Alone(session), LEASE, lambda: INFO)
        await renewer.open()
        renewing = asyncio.create_task(renewer.run_once())
        async with asyncio.timeout(deadline()):
            await has_run.wait()
        ran = monotonic()
        await asyncio.sleep(0.05)
        may_answer.set()
        await renewing
        now = monotonic()
        assert now + renewer.left < ran + LEASE

    async def test_a_daemon_that_may_not_renew_loses_its_lease(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Then it is told, once; and it renews again as soon as it may."""
        session, may, passed = Session("d1"), {"renew": False}, [0.0]
        monkeypatch.setattr(renew, "monotonic", lambda: monotonic() + passed[0])
        alone = Alone(session)
        sessions = Sessions(bench.client, session, LEASE)
        renewer = Renewer(sessions, alone, LEASE, lambda: INFO, may_renew=lambda: may["renew"])
        await renewer.open()
        held = lease_end(bench)
        with capture_logs() as logs:
            await renewer.run_once()
            assert renewer.holds_lease
            passed[0] = LEASE
            assert not renewer.holds_lease
            for _ in range(2):
                await renewer.run_once()
        assert lease_end(bench) == held
        assert alone.heard == ["lease ended"]
        assert [(each["event"], each["reason"]) for each in logs] == [("lease.ended", BLOCKED)]
        may["renew"] = True
        await renewer.run_once()
        assert lease_end(bench) > held
        assert alone.heard == ["lease ended", "claimable"]

    async def test_nothing_is_begun_in_a_session_that_is_lost(self, bench: Bench) -> None:
        """By our own clock its lease would run on: a name that was reaped may be back at once."""
        session, held = Session("d1"), list[bool]()

        alone = Alone(session)
        alone.when_lost = lambda: held.append(renewer.holds_lease)
        renewer = Renewer(Sessions(bench.client, session, LEASE), alone, LEASE, lambda: INFO)
        await renewer.open()
        bench.expire("d1")
        other = await bench.daemon("d2")
        await other.sessions.reap()
        await other.sessions.renew()
        assert renewer.holds_lease
        await renewer.run_once()
        assert held == [False]
        assert not renewer.holds_lease, "no daemon would miss it yet"
        for _ in range(2):
            await other.sessions.renew()
        await renewer.run_once()
        assert renewer.holds_lease


class _Loop:
    """A loop whose last turn the test sets."""

    def __init__(self) -> None:
        self.at = inf

    def stands_for(self, seconds: float) -> None:
        self.at = monotonic() - seconds


@pytest.fixture
async def watched() -> tuple[_Loop, BlockWatch, UpkeepMeasures]:
    """A loop, its watch with a lease of 8 s and a bound of 60 s, and what it counts."""
    loop, measures = _Loop(), UpkeepMeasures()
    names = {"task": "a1", "type": "t"}
    watch = BlockWatch(
        lambda: loop.at, lambda _: names, lease=8.0, max_block=60.0, measures=measures
    )
    watch.begin()
    return loop, watch, measures


Watched = tuple[_Loop, BlockWatch, UpkeepMeasures]


class TestBlockWatch:
    def test_a_loop_that_has_not_begun_is_none_that_stands(self, watched: Watched) -> None:
        _, watch, measures = watched
        assert watch.look()
        assert watch.look()
        assert watch.is_within
        assert measures.loop_blocks == 0

    def test_a_block_is_reported_once_and_its_end(self, watched: Watched) -> None:
        loop, watch, measures = watched
        loop.stands_for(9.0)
        with capture_logs() as logs:
            for _ in range(3):
                assert watch.look()
            loop.stands_for(0.1)
            for _ in range(2):
                assert watch.look()
        assert [each["event"] for each in logs] == ["loop.blocked", "loop.unblocked"]
        blocked = logs[0]
        assert (blocked["log_level"], blocked["task"], blocked["type"]) == ("warning", "a1", "t")
        assert blocked["blocked_for"] >= 9.0
        assert blocked["at"]
        assert measures.loop_blocks == 1

    def test_one_that_lasts_too_long_is_given_up(self, watched: Watched) -> None:
        loop, watch, measures = watched
        loop.stands_for(60.1)
        with capture_logs() as logs:
            for _ in range(3):
                assert not watch.look()
            assert not watch.is_within
            loop.stands_for(0.0)
            assert watch.look()
        events = [(each["event"], each["log_level"]) for each in logs]
        assert events[:2] == [("loop.blocked", "warning"), ("loop.given_up", "error")]
        assert "others take its tasks over" in logs[1]["remedy"]
        assert (measures.loop_blocks, measures.loop_given_up) == (1, 1)

    def test_a_process_that_was_frozen_is_not_blocked(self, watched: Watched) -> None:
        """We look before its loop has had time to turn; by the next look it has."""
        loop, watch, measures = watched
        loop.stands_for(1.0)
        assert watch.look()
        loop.stands_for(100.0)
        with capture_logs() as logs:
            assert not watch.look()
            loop.stands_for(0.0)
            assert watch.look()
        assert logs == []
        assert measures.loop_blocks == 0


def lease_thread(
    bench: Bench, url: str, listening: Listening, session: Session, lease: float = LEASE
) -> LeaseThread:
    """The thread of a daemon d1 whose loop always turns."""
    client = StoreClient(url, bench.keys)
    sessions = Sessions(client, session, LEASE)
    watch = BlockWatch(
        monotonic, lambda _: {}, lease=LEASE, max_block=LEASE, measures=UpkeepMeasures()
    )
    listener = LoopListener(listening)
    renewer = Renewer(sessions, listener, lease, lambda: INFO)
    return LeaseThread(watch, [PartitionLease(client, session, listener, renewer)])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(deadline()):
        while not condition():
            await asyncio.sleep(0.01)


class TestLeaseThread:
    async def test_it_renews_while_the_loop_is_blocked(
        self, bench: Bench, redis_server: RedisServer
    ) -> None:
        session = Session("d1")
        listening = Listening(session)
        thread = lease_thread(bench, redis_server.url, listening, session, lease=1.0)
        async with thread.running():
            assert thread.watch._loop is asyncio.get_running_loop()
            await thread.open()
            held = lease_end(bench)
            renewing = asyncio.create_task(thread.carry(thread.renewers[0].run()))
            await asyncio.sleep(0)
            end = monotonic() + deadline()
            while lease_end(bench) <= held:  # blocks: nothing else here turns
                assert monotonic() < end
                time.sleep(0.01)  # noqa: ASYNC251
            assert listening.heard == []
            [lives] = [each for each in threading.enumerate() if each.name == "groupflow-lease"]
            assert lives.daemon  # else one that hangs would keep the process
            await until(lambda: "claimable" in listening.heard)
            renewing.cancel()
        assert listening.threads == {threading.get_ident()}

    async def test_no_session_is_opened_before_the_last_one_is_dropped(
        self, bench: Bench, redis_server: RedisServer
    ) -> None:
        """The claims of the old one would take the new one's number for theirs."""
        session = Session("d1")
        listening = Listening(session)
        thread = lease_thread(bench, redis_server.url, listening, session, lease=0.2)
        async with thread.running():
            await thread.open()
            first = session.number
            bench.expire("d1")
            other = await bench.daemon("d2")
            await other.sessions.reap()
            renewing = asyncio.create_task(thread.carry(thread.renewers[0].run()))
            await asyncio.sleep(0)
            # Time enough to open another one, for a thread that doesn't wait.
            time.sleep(0.5)  # noqa: ASYNC251
            async with asyncio.timeout(deadline()):
                while not listening.opened.is_set():
                    await other.sessions.renew()
                    await asyncio.sleep(0.01)
            assert listening.number_when_lost == first != session.number
            heard = [each for each in listening.heard if each.startswith("session")]
            assert heard == ["session lost", "session opened"]
            renewing.cancel()

    async def test_its_errors_end_those_that_wait_for_it(
        self, bench: Bench, redis_server: RedisServer
    ) -> None:
        session = Session("d1")
        thread = lease_thread(bench, redis_server.url, Listening(session), session, lease=0.2)
        async with thread.running():
            await thread.open()
            other = Session("d1")
            other.process = await start([bench.client])
            await Sessions(bench.client, other, LEASE).register(INFO)
            async with asyncio.timeout(deadline()):
                with pytest.raises(SessionReplaced):
                    await thread.carry(thread.renewers[0].run())

    async def test_it_ends_during_each_wait(self, bench: Bench, redis_server: RedisServer) -> None:
        session = Session("d1")
        thread = lease_thread(bench, redis_server.url, Listening(session), session)
        async with thread.running():
            await thread.open()
            waiting = asyncio.create_task(thread.carry(asyncio.sleep(3600)))
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not [each for each in threading.enumerate() if each.name == "groupflow-lease"]
