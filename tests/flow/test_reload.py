"""A reload is taken over whole or not at all, and told; requests are neither lost nor doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core.backoff import Backoff
from groupflow.core.errors import (
    ConfigError,
    GroupflowError,
    Problem,
    SessionLost,
    StoreUnavailable,
)
from groupflow.flow.reload import Reload, Reloader, Swap
from groupflow.settings.model import Settings, Workers
from tests.deadlines import deadline


def settings(**workers: Any) -> Settings:
    return Settings(workers=Workers(**workers))


class Daemon:
    """What a daemon is to a reloader: it notes what happens, and waits where a test wants it."""

    def __init__(self) -> None:
        self.happened: list[Any] = []
        self.told = asyncio.Event()
        self.may_tell = asyncio.Event()
        self.may_tell.set()
        self.errors: list[Exception] = []

    def prepare(self, new: Settings) -> Swap:
        self.happened.append("prepared")
        return lambda: self.happened.append(new.workers.plain)

    async def tell(self) -> None:
        self.happened.append("telling")
        await self.may_tell.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.happened.append("told")
        self.told.set()

    def reload_began(self) -> None:
        self.happened.append("began")

    def reload_ended(self) -> None:
        self.happened.append("ended")


@contextmanager
def running(reloader: Reloader) -> Iterator[asyncio.Task[None]]:
    task = asyncio.create_task(reloader.run())
    try:
        yield task
    finally:
        task.cancel()


async def _settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _told(daemon: Daemon) -> None:
    async with asyncio.timeout(deadline()):
        await daemon.told.wait()
    daemon.told.clear()
    await _settle_down()


async def test_what_has_changed_is_put_in_place_and_told() -> None:
    daemon, new = Daemon(), settings(plain=3)
    reloader = Reloader(settings(plain=2), lambda: new, daemon)
    with running(reloader):
        await _settle_down()
        assert daemon.happened == []
        reloader.request()
        await _told(daemon)
        assert daemon.happened == ["began", "prepared", 3, "ended", "telling", "told"]
        assert reloader.settings is new
        assert reloader.last is not None
        assert (reloader.last.number, reloader.last.verdict) == (1, "changed")
        assert [each["setting"] for each in reloader.last.changes] == ["workers.plain"]
        reloader.request()
        await _told(daemon)
        assert daemon.happened[6:] == ["began", "ended", "telling", "told"]
        assert reloader.last == Reload(2, "unchanged")


async def test_a_new_session_is_told_without_a_reload() -> None:
    daemon = Daemon()
    reloader = Reloader(settings(), settings, daemon)
    with running(reloader):
        reloader.retell()
        await _told(daemon)
        assert daemon.happened == ["telling", "told"]
        assert reloader.last is None


async def test_a_request_under_way_makes_one_more_behind_it() -> None:
    daemon = Daemon()
    reloader = Reloader(settings(), settings, daemon)
    daemon.may_tell.clear()
    with running(reloader):
        reloader.request()
        async with asyncio.timeout(deadline()):
            while "telling" not in daemon.happened:
                await asyncio.sleep(0)
        reloader.request()
        reloader.request()
        daemon.may_tell.set()
        while reloader.last is None or reloader.last.number < 2:
            await _told(daemon)
        await _settle_down()
        assert daemon.happened == ["began", "ended", "telling", "told"] * 2


def _fails(error: Exception) -> Callable[[], Settings]:
    def load() -> Settings:
        raise error

    return load


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        (None, "this daemon has no configuration file"),
        (_fails(ConfigError([Problem("a.b", "7", "it is wrong")])), "it is wrong"),
        (_fails(ZeroDivisionError("x")), "it can't be loaded: ZeroDivisionError('x')"),
        (lambda: settings(lease=99.0, plain=3), "workers.lease: "),
    ],
)
async def test_what_is_refused_changes_nothing(
    load: Callable[[], Settings] | None, problem: str
) -> None:
    daemon, old = Daemon(), settings(plain=2)
    reloader = Reloader(old, load, daemon)
    with capture_logs() as logs:
        reload = await reloader.run_once()
    assert reload.verdict == "refused"
    assert problem in reload.problems[0]
    assert len(reload.problems) == 1
    assert reloader.settings is old
    assert daemon.happened == []
    assert logs[-1]["event"] == "config.refused"


async def test_what_cannot_be_put_in_place_changes_nothing() -> None:
    daemon, old = Daemon(), settings(plain=2)

    def prepare(_: Settings) -> Swap:
        raise ConfigError([Problem("a.b", "7", "no such handler")])

    daemon.prepare = prepare  # type: ignore[method-assign, assignment]
    reloader = Reloader(old, lambda: settings(plain=3), daemon)
    assert (await reloader.run_once()).verdict == "refused"
    assert reloader.settings is old


async def test_it_is_told_until_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis may be away; a session that is lost, or a refusal, is nothing to wait for."""
    pauses: list[str] = []

    def pause(_: Backoff) -> float:
        pauses.append("pause")
        return 0.0

    monkeypatch.setattr(Backoff, "next", pause)
    daemon = Daemon()
    daemon.errors = [
        StoreUnavailable("away"),
        StoreUnavailable("away"),
        SessionLost("reaped"),
        GroupflowError("no"),
    ]
    reloader = Reloader(settings(), settings, daemon)
    with running(reloader) as task:
        for left in (1, 0):
            reloader.retell()
            async with asyncio.timeout(deadline()):
                while len(daemon.errors) > left:
                    await asyncio.sleep(0)
            await _settle_down()
            assert not task.done()
        assert daemon.happened == ["telling"] * 4
        assert len(pauses) == 2
        reloader.retell()
        await _told(daemon)
