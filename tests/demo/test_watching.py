"""The watch ends when all is handled, and gives up with a reason when it won't be."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupflow.demo.rows import FLIGHTS, ImportTask
from groupflow.demo.screen import Screen
from groupflow.demo.show import DaemonDied, DemoDaemon, Import, Servers
from groupflow.servers.process import ServerProcess

TASKS = [ImportTask(n, FLIGHTS, "UA", "N1:UA", b"{}") for n in range(3)]


@pytest.fixture
def work(tmp_path: Path) -> Import:
    return Import(TASKS, tmp_path / "imported.db")


def _log(work: Import, *numbers: int) -> None:
    with closing(sqlite3.connect(work.database)) as db:
        rows = [(number, number, number + 1) for number in numbers]
        db.executemany("INSERT INTO attempts VALUES (?, 'N1:UA', 'demo-1', 0, ?, ?, NULL)", rows)
        db.commit()


async def _nothing() -> None:
    """All is published."""


async def _watch(work: Import, standstill: float = 30.0) -> str:
    publishing = asyncio.create_task(_nothing())
    return await work.watch(Screen(Console(quiet=True)), publishing, standstill)


async def test_it_gives_up_at_a_standstill(work: Import) -> None:
    _log(work, 0)
    stopped = await _watch(work, 0.2)
    assert stopped == "Gave up after 0.2 s without progress: 1 of 3 tasks were handled."


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[ServerProcess]:
    """The processes of daemons, which are shells that speak and, from the second on, end."""
    processes: list[ServerProcess] = []
    spawn = ServerProcess.spawn

    async def fake(command: Sequence[str], **options: Any) -> ServerProcess:
        ending = "exit 1" if processes else "sleep 600"
        shell = f"echo first; echo my last word; {ending}"
        processes.append(await spawn(["/bin/sh", "-c", shell], **options))
        return processes[-1]

    monkeypatch.setattr(ServerProcess, "spawn", fake)
    return processes


async def test_half_way_a_daemon_is_killed_and_started_again_and_may_not_end_by_itself(
    work: Import, tmp_path: Path, spawned: list[ServerProcess]
) -> None:
    daemon = DemoDaemon("demo-2", tmp_path, {})
    await daemon.start()
    work.daemons.append(daemon)
    watching = asyncio.create_task(_watch(work))
    _log(work, 0, 1)
    with pytest.raises(DaemonDied, match=r"demo-2 ended.*\n(first\nmy last word\n?)+"):
        await watching
    await daemon.stop()
    assert work.killed == "demo-2"
    assert [process.alive for process in spawned] == [False, False]


def test_the_daemons_see_nothing_of_the_users_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROUPFLOW_WORKERS__GROUPED", "1")
    monkeypatch.setenv("GROUPFLOW_REDIS__URL", "redis://elsewhere/")
    mine = Servers("amqp://here/", "redis://here/", "name").environment()
    assert mine["GROUPFLOW_REDIS__URL"] == "redis://here/"
    assert mine["GROUPFLOW_RABBITMQ__QUEUE"] == mine["GROUPFLOW_REDIS__NAMESPACE"] == "name"
    assert "GROUPFLOW_WORKERS__GROUPED" not in mine
    assert "PATH" in mine
