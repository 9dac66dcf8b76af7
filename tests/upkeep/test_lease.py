"""The thread of the leases: it renews while the loop is blocked, and tells of sessions in order."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from errno import EMFILE
from time import monotonic
from typing import Any

import pytest

from groupflow.core.errors import NameTaken, SessionReplaced
from groupflow.core.measures import UpkeepMeasures
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Claimable, Elder, HandedOver, Session, Sessions, start
from groupflow.upkeep import elder
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.lease import LeaseThread, LoopListener, PartitionLease
from groupflow.upkeep.renew import Renewer
from tests.deadlines import deadline, until
from tests.store.bench import Bench
from tests.turns import turns
from tests.upkeep.heard import Heard

LEASE = 600.0  # never over by itself
INFO = {"pid": 1, "host": "h", "workers": 2, "lease": LEASE}


class Told(Sessions):
    """Sessions that tell another thread of each renewal and registration that has run."""

    def __init__(self, client: StoreClient, session: Session) -> None:
        super().__init__(client, session, LEASE)
        self.renewed, self.registered = threading.Event(), threading.Event()

    async def renew(self) -> Claimable:
        found = await super().renew()
        self.renewed.set()
        return found

    async def register(self, info: dict[str, object]) -> list[HandedOver]:
        found = await super().register(info)
        self.registered.set()
        return found


class Listening(Heard):
    """Notes in which thread it is told, and which session was lost."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.threads: set[int] = set()
        self.number_when_lost = ""

    def hear(self, what: Any) -> None:
        super().hear(what)
        self.threads.add(threading.get_ident())
        if what == "lost":
            self.number_when_lost = self._session.number


class Lease:
    """The thread of a daemon d1 whose loop always turns."""

    def __init__(self, bench: Bench, url: str, lease: float = LEASE) -> None:
        self.bench, self.session = bench, Session("d1")
        self.listening = Listening(self.session)
        client = StoreClient(url, bench.keys)
        self.sessions = Told(client, self.session)
        how: Any = {"lease": LEASE, "max_block": LEASE, "measures": UpkeepMeasures()}
        watch = BlockWatch(monotonic, lambda _: {}, **how)
        listener = LoopListener(self.listening)
        renewer = Renewer(self.sessions, listener, lease, lambda: INFO)
        self.thread = LeaseThread(watch, [PartitionLease(client, self.session, listener, renewer)])

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[asyncio.Task[None]]:
        """The thread renews an open session."""
        async with self.thread.running():
            await self.thread.open()
            self.sessions.registered.clear()
            renewing = asyncio.create_task(self.thread.carry(self.thread.renewers[0].run()))
            await turns()
            yield renewing
            renewing.cancel()


async def test_it_renews_while_the_loop_is_blocked(bench: Bench, redis_server: RedisServer) -> None:
    lease = Lease(bench, redis_server.url, lease=1.0)
    async with lease.renewing(), asyncio.timeout(deadline()):
        assert lease.thread.watch._loop is asyncio.get_running_loop()
        assert lease.sessions.renewed.wait(deadline())  # blocks: nothing else here turns
        assert lease.listening.all == []
        [lives] = [each for each in threading.enumerate() if each.name == "groupflow-lease"]
        assert lives.daemon  # else one that hangs would keep the process
        await until(lambda: lease.listening.all)  # what may be claimed
    assert lease.listening.threads == {threading.get_ident()}
    assert not [each for each in threading.enumerate() if each.name == "groupflow-lease"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_has_no_loop_is_not_waited_for(
    bench: Bench, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise OSError(EMFILE, "Too many open files")

    lease = Lease(bench, redis_server.url)
    monkeypatch.setattr(asyncio, "run", run)
    async with asyncio.timeout(deadline()):
        with pytest.raises(OSError, match="Too many"):
            await lease.thread.running().__aenter__()


async def test_the_last_session_is_dropped_first(bench: Bench, redis_server: RedisServer) -> None:
    """The claims of the old one would take the new one's number for theirs."""
    lease = Lease(bench, redis_server.url, lease=0.2)
    other = await bench.daemon("d2")
    async with lease.renewing(), asyncio.timeout(deadline()):
        first = lease.session.number
        bench.expire("d1")
        await other.sessions.reap()
        # Time enough to open another one, for a thread that doesn't wait for this loop.
        assert not lease.sessions.registered.wait(0.5)
        while "opened" not in lease.listening.all:
            await other.sessions.renew()  # who renews beside it is who would miss it
        assert lease.listening.number_when_lost == first != lease.session.number
    heard = [each for each in lease.listening.all if each in ("lost", "opened")]
    assert heard == ["lost", "opened"]


async def test_its_errors_end_what_waits_for_it(bench: Bench, redis_server: RedisServer) -> None:
    async with Lease(bench, redis_server.url, lease=0.2).renewing() as renewing:
        other = Session("d1")
        other.process, _ = await start("d1", [bench.client])
        await Sessions(bench.client, other, LEASE).register(INFO)
        async with asyncio.timeout(deadline()):
            with pytest.raises(SessionReplaced):
                await renewing


async def test_it_ends_during_each_wait(bench: Bench, redis_server: RedisServer) -> None:
    lease = Lease(bench, redis_server.url)
    async with lease.thread.running():
        waiting = asyncio.create_task(lease.thread.carry(asyncio.Event().wait()))
        await turns()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process beside this one, which ends with its stdin."""
    monkeypatch.setattr(elder, "SILENT", 0.4)
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-3) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def died(child: subprocess.Popen[bytes]) -> None:
    """Its parent has not waited for its end."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


async def test_a_partition_may_tell_late_of_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Elder({"process": "elsewhere/1/2"}, 7, 9.0, elder.SILENT)
    told: list[dict[int, Elder]] = [{0: dead}, {0: dead, 1: dead}, {0: dead, 1: dead}]

    async def start(*_: object) -> tuple[str, dict[int, Elder]]:
        return f"born {len(told)}", told.pop(0)

    monkeypatch.setattr(elder, "start", start)
    assert await elder.come("d1", []) == "born 1"


HERE = elder.this_process().partition("/")[0]
ELDERS: dict[str, tuple[str, str, type[Exception] | None, bool]] = {
    # what the elder tells of itself, what becomes of it, how the newcomer ends, whether it waits
    "it lives here": ("child", "", NameTaken, False),
    "it is dead": ("child", "ends", None, False),
    "its parent has not waited for its end": ("child", "dies", None, False),
    "its pid is another's": ("child", "is another", None, False),
    "it ran in this process": ("own", "", None, False),
    "it is elsewhere and renews": ("far", "renews", NameTaken, True),
    "it is elsewhere and silent": ("far", "", None, True),
    "it is elsewhere and leaves": ("far", "leaves", None, True),
    "it is elsewhere, another comes": ("far", "is replaced", NameTaken, True),
    "it is elsewhere and was silent for long": ("far", "was silent", None, False),
    "its lease is over": ("child", "is late", None, False),
    "it does not tell what it is": ("old", "renews", NameTaken, True),
}


@pytest.mark.parametrize("case", ELDERS.values(), ids=ELDERS)
async def test_a_newcomer_gives_way_to_one_of_its_name_that_lives(
    case: tuple[str, str, type[Exception] | None, bool],
    bench: Bench,
    child: subprocess.Popen[bytes],
) -> None:
    whose, fate, error, waits = case
    infos: dict[str, dict[str, Any]] = {
        "child": {
            "pid": child.pid,
            "process": f"{HERE}/{child.pid}/{elder._began(str(child.pid))}",
        },
        "own": {"pid": os.getpid(), "process": elder.this_process()},
        "far": {"pid": os.getpid(), "process": f"elsewhere/{os.getpid()}/{elder._began('self')}"},
        "old": {"pid": child.pid},
    }
    info = {**infos[whose], "host": "h"}
    if fate == "is another":
        info["process"] = f"{HERE}/{child.pid}/1"
    first = Session("d1")
    first.process, _ = await start("d1", [bench.client])
    sessions = Sessions(bench.client, first, LEASE)
    await sessions.register(info)
    if fate in ("ends", "dies"):
        died(child)
    if fate == "ends":
        await asyncio.to_thread(child.wait)
    if fate == "is late":
        bench.expire("d1")
    if fate == "was silent":
        await asyncio.sleep(elder.SILENT)
    coming = asyncio.create_task(elder.come("d1", [bench.client]))
    if waits:
        await asyncio.sleep(elder.SILENT / 2)
        assert not coming.done()
    if fate == "renews":
        await sessions.renew()
    if fate == "leaves":
        await sessions.leave()
    if fate == "is replaced":
        other = Session("d1")
        other.process, _ = await start("d1", [bench.client])
        await Sessions(bench.client, other, LEASE).register(info)
    if error is None:
        assert await coming > first.process
    else:
        with pytest.raises(error, match=f"'d1' runs already, pid {info['pid']} on h: stop that"):
            await coming
