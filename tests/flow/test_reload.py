"""A reload is taken over whole or not at all, and told; requests are neither lost nor doubled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core import errors
from groupflow.core.backoff import Backoff
from groupflow.core.errors import ConfigError, Problem, StoreUnavailable
from groupflow.flow.reload import Reload, Reloader, Swap
from groupflow.settings.model import Settings, Workers
from tests.deadlines import until

TOLD = ["began", "ended", "telling", "told"]


def settings(**workers: Any) -> Settings:
    return Settings(workers=Workers(**workers))


class Daemon:
    """What a daemon is to a reloader: it notes what happens, and waits where a test wants it."""

    def __init__(self) -> None:
        self.happened: list[Any] = []
        self.may_tell = asyncio.Event()
        self.may_tell.set()
        self.errors: list[Exception] = []
        self.refuses = False

    async def until(self, what: str, times: int = 1) -> None:
        await until(lambda: self.happened.count(what) >= times)

    def prepare(self, new: Settings) -> Swap:
        if self.refuses:
            raise ConfigError([Problem("a.b", "7", "no such handler")])
        self.happened.append("prepared")
        return lambda: self.happened.append(new.workers.plain)

    async def tell(self) -> None:
        self.happened.append("telling")
        await self.may_tell.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.happened.append("told")

    def reload_began(self) -> None:
        self.happened.append("began")

    def reload_ended(self) -> None:
        self.happened.append("ended")


@asynccontextmanager
async def running(reloader: Reloader) -> AsyncIterator[None]:
    task = asyncio.create_task(reloader.run())
    yield
    assert not task.done()
    task.cancel()


async def test_what_has_changed_is_put_in_place_and_told() -> None:
    daemon, new = Daemon(), settings(plain=3)
    reloader = Reloader(settings(plain=2), lambda: new, daemon)
    async with running(reloader):
        reloader.retell()  # a new session is told without a reload
        await daemon.until("told")
        assert (daemon.happened, reloader.last) == (TOLD[2:], None)
        reloader.request()
        await daemon.until("told", 2)
        assert daemon.happened[2:] == ["began", "prepared", 3, "ended", "telling", "told"]
        assert reloader.settings is new
        assert reloader.last is not None
        assert (reloader.last.number, reloader.last.verdict) == (1, "changed")
        assert [each["setting"] for each in reloader.last.changes] == ["workers.plain"]
        reloader.request()
        await daemon.until("told", 3)
        assert daemon.happened[8:] == TOLD
        assert reloader.last == Reload(2, "unchanged")


async def test_it_waits_for_no_thread_of_a_handler() -> None:
    daemon, may_end = Daemon(), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, may_end.wait)
    try:
        async with running(reloader := Reloader(settings(), settings, daemon)):
            reloader.request()
            await daemon.until("told")
    finally:
        may_end.set()


async def test_requests_during_a_reload_make_one_more_behind_it() -> None:
    daemon = Daemon()
    reloader = Reloader(settings(), settings, daemon)
    daemon.may_tell.clear()
    async with running(reloader):
        reloader.request()
        await daemon.until("telling")
        for _ in range(2):
            reloader.request()
        daemon.may_tell.set()
        await daemon.until("told", 2)
        assert daemon.happened == TOLD * 2
        reloader.retell()  # which would make a third, were there one
        await daemon.until("told", 3)
        assert daemon.happened == TOLD * 2 + TOLD[2:]


def _fails(error: Exception) -> Callable[[], Settings]:
    def load() -> Settings:
        raise error

    return load


REFUSED: list[Any] = [
    (None, "this daemon has no configuration file"),
    (_fails(ConfigError([Problem("a.b", "7", "it is wrong")])), "it is wrong"),
    (_fails(ZeroDivisionError("x")), "it can't be loaded: ZeroDivisionError('x')"),
    (lambda: settings(lease=99.0, plain=3), "workers.lease: "),
    (lambda: settings(plain=3), "no such handler"),  # the daemon can't put it in place
]


@pytest.mark.parametrize(("load", "problem"), REFUSED)
async def test_a_refusal_changes_nothing(load: Callable[[], Settings] | None, problem: str) -> None:
    daemon, old = Daemon(), settings(plain=2)
    daemon.refuses = True
    reloader = Reloader(old, load, daemon)
    with capture_logs() as logs:
        reload = await reloader.run_once()
    assert reload.verdict == "refused"
    (said,) = reload.problems
    assert problem in said
    assert reloader.settings is old
    assert daemon.happened == []
    assert logs[-1]["event"] == "config.refused"


async def test_it_is_told_until_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis may be away; a session that is lost, or a refusal, is nothing to wait for."""
    pauses = list[None]()

    def pause(_: Backoff) -> float:
        pauses.append(None)
        return 0.0

    monkeypatch.setattr(Backoff, "next", pause)
    daemon = Daemon()
    away = StoreUnavailable("away")
    daemon.errors = [away, away, errors.SessionLost("reaped"), errors.GroupflowError("no")]
    reloader = Reloader(settings(), settings, daemon)
    async with running(reloader):
        for tries in (3, 4, 5):
            reloader.retell()
            await daemon.until("telling", tries)
        await daemon.until("told")
    assert daemon.happened == ["telling"] * 5 + ["told"]
    assert len(pauses) == 2
