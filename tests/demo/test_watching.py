"""The watch ends when all is handled, and gives up with a reason when it won't be."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from groupflow.demo.rows import FLIGHTS, ImportTask
from groupflow.demo.screen import Screen
from groupflow.demo.show import DaemonDied, DemoDaemon, Import, Servers

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


async def test_no_daemon_may_end_by_itself(work: Import, tmp_path: Path) -> None:
    (tmp_path / "demo-2.log").write_text("first\nmy last word\n")
    work.daemons.append(DemoDaemon("demo-2", tmp_path, {}))
    with pytest.raises(DaemonDied, match=r"demo-2 ended.*\nfirst\nmy last word"):
        await _watch(work)


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
