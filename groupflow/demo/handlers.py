"""The demo's handlers: the `App` that both daemons run (`--app groupflow.demo.handlers:app`).

Each handler first waits, then writes. The wait stands in for the remote look-up that real imports
spend most of their time on (a customer's API, an address service). It is 30 to 110 ms, longer for
an aeroplane (80 to 160 ms), and depends on the row alone: without groups, flights would overtake
each other and their own aeroplane, and the tables would come out wrong.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from groupflow.core.app import App
from groupflow.core.task import Task
from groupflow.demo.database import open_database, transaction
from groupflow.demo.imports import import_body
from groupflow.demo.tasks import FLIGHTS, PLANES, WEATHER, number_of

# Where the daemons write; the demo sets it for the processes that it starts.
DATABASE_VARIABLE = "GROUPFLOW_DEMO_DB"

# Seconds: the shortest look-up of a type, and how much longer the longest one is.
_SHORTEST = {PLANES: 0.08, FLIGHTS: 0.03, WEATHER: 0.03}
_SPREAD = 0.08

app = App()


def lookup_seconds(type: str, body: bytes) -> float:
    """Seconds that the stand-in for a row's remote look-up takes: for the same row the same."""
    return _SHORTEST[type] + _SPREAD * (zlib.crc32(body) % 1000) / 1000


@app.handler(PLANES)
async def import_planes(task: Task) -> None:
    """An aeroplane: must be there before its first flight."""
    await _handle(task)


@app.handler(FLIGHTS)
async def import_flights(task: Task) -> None:
    """A flight: needs its aeroplane, and all earlier flights of it."""
    await _handle(task)


@app.handler(WEATHER)
async def import_weather(task: Task) -> None:
    """An hour of weather: needs nothing."""
    await _handle(task)


async def _handle(task: Task) -> None:
    started = time.monotonic()
    await asyncio.sleep(lookup_seconds(task.type, task.body))
    await asyncio.get_running_loop().run_in_executor(_writer(), _write, task, started)


def _write(task: Task, started: float) -> None:
    """Import the row and log the attempt, in one transaction; a failure is logged by itself."""
    db = _database()
    try:
        with transaction(db):
            import_body(db, task.type, task.body)
            _log(db, task, started)
    except Exception as error:
        _log(db, task, started, f"{type(error).__name__}: {error}")
        raise


def _log(db: sqlite3.Connection, task: Task, started: float, error: str | None = None) -> None:
    # The monotonic clock is one for all processes of a machine, and no clock adjustment can make
    # two attempts seem to overlap.
    db.execute(
        "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)",
        (number_of(task.id), task.group, os.getpid(), started, time.monotonic(), error),
    )


@cache
def _writer() -> ThreadPoolExecutor:
    # One thread: SQLite takes one writer at a time anyway, and waiting for the other daemon's write
    # must not hold up the event loop that renews the leases.
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="demo-writer")


@cache
def _database() -> sqlite3.Connection:
    return open_database(Path(os.environ[DATABASE_VARIABLE]))
