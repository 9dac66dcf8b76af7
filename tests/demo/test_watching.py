"""The watch ends when all is handled, and gives up with a reason when it won't be."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from groupflow.demo.daemons import Daemon, DaemonDied
from groupflow.demo.database import open_database
from groupflow.demo.progress import Progress
from groupflow.demo.screen import LineScreen
from groupflow.demo.servers import Servers
from groupflow.demo.tasks import FLIGHTS, ImportTask
from groupflow.demo.watch import Limits, watch
from groupflow.servers.process import ServerProcess

TASKS = [ImportTask(n, FLIGHTS, "UA", "N1:UA", b"{}") for n in range(3)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "imported.db"
    open_database(path).close()
    return path


def _log(database: Path, *numbers: int) -> None:
    with closing(sqlite3.connect(database)) as db:
        rows = [(number, "N1:UA", 1, number, number + 1, None) for number in numbers]
        db.executemany("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)", rows)
        db.commit()


async def _publish(error: Exception | None = None) -> None:
    if error:
        raise error


async def _watch(
    database: Path,
    limits: Limits,
    daemons: list[Daemon] | None = None,
    error: Exception | None = None,
) -> str | None:
    screen = LineScreen(Console(quiet=True))
    publishing = asyncio.create_task(_publish(error))
    progress = Progress(TASKS, {})
    return await watch(
        database, progress, screen, daemons or [], publishing=publishing, limits=limits
    )


async def test_it_ends_when_all_is_handled(database: Path) -> None:
    _log(database, 0, 1)
    watching = asyncio.create_task(_watch(database, Limits()))
    await asyncio.sleep(0.2)
    assert not watching.done()
    _log(database, 2)
    assert await watching is None


async def test_it_gives_up_at_the_time_limit(database: Path) -> None:
    _log(database, 0)
    stopped = await _watch(database, Limits(total=0.2))
    assert stopped is not None
    assert "1 of 3 tasks were handled" in stopped


async def test_it_gives_up_at_a_standstill(database: Path) -> None:
    stopped = await _watch(database, Limits(standstill=0.2))
    assert stopped is not None
    assert "without progress" in stopped


async def test_it_fails_with_the_publishing(database: Path) -> None:
    with pytest.raises(ValueError, match="no broker"):
        await _watch(database, Limits(), error=ValueError("no broker"))


async def test_it_fails_with_a_daemon_and_shows_its_last_words(
    database: Path, tmp_path: Path
) -> None:
    log = tmp_path / "demo-1.log"
    script = "echo first; echo my last word; exit 1"
    process = await ServerProcess.spawn(["/bin/sh", "-c", script], log=log, environment={})
    await process.wait()
    with pytest.raises(DaemonDied, match=r"demo-1 ended.*\nfirst\nmy last word"):
        await _watch(database, Limits(), [Daemon("demo-1", process, log)])


def test_the_daemons_see_nothing_of_the_users_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROUPFLOW_WORKERS__GROUPED", "1")
    monkeypatch.setenv("GROUPFLOW_REDIS__URL", "redis://elsewhere/")
    mine = Servers("amqp://here/", "redis://here/", "name").environment(Path("demo.db"))
    assert mine["GROUPFLOW_REDIS__URL"] == "redis://here/"
    assert mine["GROUPFLOW_DEMO_DB"] == "demo.db"
    assert "GROUPFLOW_WORKERS__GROUPED" not in mine
    assert "PATH" in mine
