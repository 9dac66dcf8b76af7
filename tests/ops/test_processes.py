"""Signals that ask a process to end, and what systemd hears of it."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from groupflow.cli import run
from groupflow.core.errors import GroupflowError
from groupflow.ops.page import process
from groupflow.ops.signals import ECHO, Ending
from groupflow.ops.supervisor import Supervisor
from groupflow.settings.model import Http
from tests.deadlines import deadline
from tests.turns import turns, turns_until


@pytest.mark.parametrize("after", [0.0, 0.05, ECHO - 0.001, ECHO, 60.0])
def test_an_echo_changes_nothing_and_a_later_one_is_in_a_hurry(after: float) -> None:
    """Counted from the first one: echoes don't put it off."""
    calls, now = list[str](), [100.0]
    stop = partial(calls.append, "stop")
    ending = Ending(stop, lambda number: calls.append(number.name), lambda: now[0])
    for seconds in (0.0, 0.0, min(0.9, after), after):
        now[0] = 100.0 + seconds
        ending.on_signal(signal.SIGTERM)
    assert calls == ["stop", *(["SIGTERM"] if after >= ECHO else [])]


async def test_it_hears_what_the_process_is_sent() -> None:
    came = asyncio.Event()
    Ending(came.set, lambda _: None).listen([signal.SIGUSR2])
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.wait_for(came.wait(), deadline())
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)


class Unread(StringIO):
    """A stream whose reader has gone, such as `tee` by the same Ctrl-C."""

    def write(self, _: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


class Stuck:
    """A daemon with a handler that can't be stopped."""

    has_running_handlers = True

    def __init__(self, error: Exception | None) -> None:
        self.stop = self.reload = lambda: None
        self._error = error

    async def run(self) -> None:
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, GroupflowError("away"), KeyError("x")])
async def test_a_process_ends_though_no_one_reads_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Else a handler would run on, beside the one that has its task by then."""
    codes = list[int]()
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Unread())
    try:
        await run._serve(lambda: cast(Any, Stuck(error)))
        run._leave_at_once(signal.SIGINT)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert codes == [0 if error is None else 1, 130]


async def test_when_the_watchdog_is_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    state = {"stuck": 0.0, "turns": True}
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.setblocking(False)
        supervisor = Supervisor.from_environment()
        supervisor.ready()
        assert await loop.sock_recv(listener, 100) == b"READY=1"
        running = supervisor.run(lambda: state["stuck"], lambda: bool(state["turns"]))
        feeding = asyncio.create_task(running)
        for _ in range(3):
            assert await loop.sock_recv(listener, 100) == b"WATCHDOG=1"
        for trouble in ({"stuck": 60.0}, {"turns": False}):
            state.update(trouble)
            await turns()
            with suppress(BlockingIOError):
                while listener.recv(100):
                    pass
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.sock_recv(listener, 100), 0.1)
            state.update(stuck=0.0, turns=True)
            assert await loop.sock_recv(listener, 100) == b"WATCHDOG=1"
        feeding.cancel()
        supervisor.reloading()  # with the monotonic time that `Type=notify-reload` wants
        said = await loop.sock_recv(listener, 100)
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=[1-9]\d*", said)
        supervisor.stopping()
        assert await loop.sock_recv(listener, 100) == b"STOPPING=1"


def test_a_manager_that_does_not_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Leases are renewed by the loop and the thread that tell it."""
    path = str(tmp_path / "notify")

    def tell() -> None:
        for _ in range(1000):  # more than the socket holds
            Supervisor(path, 0.0)._notify("WATCHDOG=1")
        Supervisor(path, 0.0).ready()

    telling = threading.Thread(target=tell)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        with capture_logs() as heard:
            telling.start()
            telling.join(deadline(10.0))
        is_stuck = telling.is_alive()
    telling.join()
    assert not is_stuck
    assert {each["state"] for each in heard} == {"WATCHDOG=1", "READY=1"}


async def test_no_manager_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    for supervisor in (Supervisor.from_environment(), Supervisor(str(tmp_path / "gone"), 0.0)):
        supervisor.ready()
        await supervisor.run(lambda: 0.0)


async def test_a_page_is_not_silent_because_its_daemon_did_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler may block the loop for longer than a page may be silent."""
    monkeypatch.setattr(process, "_SILENCE", 0.2)
    pages = list[socket.socket]()

    def start(channel: socket.socket) -> subprocess.Popen[bytes]:
        pages.append(channel.dup())
        return subprocess.Popen(["true"])

    monkeypatch.setattr(process, "_start", start)
    page = process.PageProcess(Http(), Mock(), Mock(), asyncio.Event())
    monkeypatch.setattr(page, "tell", lambda: None)
    living = asyncio.create_task(page._live())
    await turns_until(lambda: page._channel)
    await turns(3)
    pages[0].send(b'{"alive": true}\n')
    time.sleep(0.3)  # noqa: ASYNC251  as a handler does
    await turns(9)
    pages[0].close()
    assert await living == "exit 0"
