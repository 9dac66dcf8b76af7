"""The handlers import, log each attempt, and go wrong when nobody keeps their order."""

import asyncio
import inspect
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from groupflow import Task
from groupflow.demo import handlers
from groupflow.demo.compare import compare
from groupflow.demo.history import Attempt, judge, read_attempts
from groupflow.demo.imports import PlaneMissing
from groupflow.demo.serial import import_serially
from groupflow.demo.tasks import ImportTask, load_tasks, message_id


@pytest.fixture
def group() -> list[ImportTask]:
    """The tasks of one aeroplane, a few."""
    return [task for task in load_tasks() if task.group == "N281JB:B6"][:6]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that the handlers write to."""
    path = tmp_path / "imported.db"
    monkeypatch.setenv(handlers.DATABASE_VARIABLE, str(path))
    handlers._database.cache_clear()
    yield path
    handlers._writer().submit(lambda: handlers._database().close()).result()
    handlers._database.cache_clear()


async def _handle(each: ImportTask) -> None:
    handler = handlers.app.find(each.type)
    assert handler is not None
    task = Task(
        id=message_id("test", each.number), type=each.type, group=each.group, body=each.body
    )
    running = handler.function(task)
    assert inspect.isawaitable(running)
    await running


def _attempts(database: Path) -> list[Attempt]:
    with closing(sqlite3.connect(database)) as db:
        return read_attempts(db)


def _differing(database: Path, group: Sequence[ImportTask]) -> int:
    serial = database.with_name("serial.db")
    import_serially(serial, group)
    return sum(table.differing for table in compare(serial, database))


async def test_in_order_the_tables_are_those_of_a_serial_import(
    database: Path, group: list[ImportTask]
) -> None:
    for task in group:
        await _handle(task)
    attempts = _attempts(database)
    assert [attempt.number for attempt in attempts] == [task.number for task in group]
    assert {attempt.pid for attempt in attempts} == {os.getpid()}
    assert judge(group, attempts).faultless
    assert _differing(database, group) == 0


async def test_all_at_once_the_aeroplane_comes_too_late(
    database: Path, group: list[ImportTask]
) -> None:
    outcomes = await asyncio.gather(*map(_handle, group), return_exceptions=True)
    assert any(isinstance(outcome, PlaneMissing) for outcome in outcomes)
    verdict = judge(group, _attempts(database))
    assert verdict.failed
    assert verdict.overlapping
    assert _differing(database, group) > 0


def test_the_wait_depends_on_the_row_alone(group: list[ImportTask]) -> None:
    plane, *flights = group
    waits = [handlers.lookup_seconds(task.type, task.body) for task in flights]
    assert waits == [handlers.lookup_seconds(task.type, task.body) for task in flights]
    assert len(set(waits)) > 1
    assert all(0.03 <= wait <= 0.11 for wait in waits)
    assert 0.08 <= handlers.lookup_seconds(plane.type, plane.body) <= 0.16
