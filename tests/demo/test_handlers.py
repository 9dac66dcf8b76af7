"""The handlers import, log each attempt, and find what was imported before."""

import inspect
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from groupflow import Task
from groupflow.demo import handlers
from groupflow.demo.rows import ImportTask, load_tasks, open_database
from groupflow.demo.verdict import compare, faults_of, import_in_order


@pytest.fixture
def group() -> list[ImportTask]:
    """The tasks of one aeroplane, a few."""
    return [task for task in load_tasks() if task.group == "N281JB:B6"][:6]


@pytest.fixture
def database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: list[ImportTask]
) -> Iterator[Path]:
    """The file that the handlers write to."""
    path = tmp_path / "imported.db"
    open_database(path, group).close()
    monkeypatch.setenv(handlers.DATABASE_VARIABLE, str(path))
    monkeypatch.setenv(handlers.DAEMON_VARIABLE, "demo-1")
    handlers.database.cache_clear()
    yield path
    handlers.database().close()
    handlers.database.cache_clear()


async def _handle(each: ImportTask, crashes: int = 0) -> None:
    handler = handlers.app.find(each.type)
    assert handler is not None
    task = Task(f"test-{each.number}", each.type, each.group, each.body, crashes=crashes)
    running = handler.function(task)
    assert inspect.isawaitable(running)
    await running


def _kinds(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as db:
        checks = faults_of(db)
    return {kind for kinds in checks.values() for kind, found in kinds.items() if found}


async def test_what_a_dead_daemon_had_written_is_not_written_again(
    database: Path, group: list[ImportTask]
) -> None:
    for task in group:
        await _handle(task)
        await _handle(task, crashes=1)
    assert _kinds(database) == set()
    serial = database.with_name("serial.db")
    import_in_order(serial, group)
    assert compare(serial, database) == []


async def test_what_runs_again_without_a_crash_fails(
    database: Path, group: list[ImportTask]
) -> None:
    await _handle(group[0])
    with pytest.raises(sqlite3.IntegrityError):
        await _handle(group[0])
    assert _kinds(database) >= {"failed", "run twice"}


def test_the_wait_depends_on_the_row_alone(group: list[ImportTask]) -> None:
    plane, *flights = group
    waits = [handlers.lookup_seconds(task.type, task.body) for task in flights]
    assert waits == [handlers.lookup_seconds(task.type, task.body) for task in flights]
    assert len(set(waits)) > 1
    assert all(0.03 <= wait <= 0.11 for wait in waits)
    assert 0.08 <= handlers.lookup_seconds(plane.type, plane.body) <= 0.16
