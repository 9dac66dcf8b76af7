"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from groupflow.ops.supervisor import Supervisor


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    listener.setblocking(False)
    return listener


async def test_the_watchdog_is_fed_only_while_loop_and_claims_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    stuck, turns = [0.0], [True]
    loop = asyncio.get_running_loop()
    with listening(path) as listener:
        supervisor = Supervisor.from_environment()
        supervisor.ready()
        assert await loop.sock_recv(listener, 100) == b"READY=1"
        feeding = asyncio.create_task(supervisor.run(lambda: stuck[0], lambda: turns[0]))
        for _ in range(3):
            assert await loop.sock_recv(listener, 100) == b"WATCHDOG=1"
        for is_stuck, does_turn in ((60.0, True), (0.0, False)):
            stuck[0], turns[0] = is_stuck, does_turn
            await asyncio.sleep(0)
            while True:
                try:
                    listener.recv(100)
                except BlockingIOError:
                    break
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.sock_recv(listener, 100), 0.1)
            stuck[0], turns[0] = 0.0, True
            assert await loop.sock_recv(listener, 100) == b"WATCHDOG=1"
        feeding.cancel()
        supervisor.stopping()
        assert await loop.sock_recv(listener, 100) == b"STOPPING=1"


async def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    supervisor = Supervisor.from_environment()
    supervisor.ready()
    await supervisor.run(lambda: 0.0)


async def test_a_manager_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    Supervisor(str(tmp_path / "nobody"), 0.0).ready()


async def test_a_reload_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the monotonic time that ``Type=notify-reload`` wants."""
    path = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    loop = asyncio.get_running_loop()
    with listening(path) as listener:
        supervisor = Supervisor.from_environment()
        supervisor.reloading()
        first, second = (await loop.sock_recv(listener, 100)).split(b"\n")
        assert first == b"RELOADING=1"
        name, _, value = second.partition(b"=")
        assert name == b"MONOTONIC_USEC"
        assert int(value) > 0
