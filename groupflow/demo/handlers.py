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
from groupflow.demo.imports import import_body, open_database
from groupflow.demo.tasks import FLIGHTS, PLANES, WEATHER

# Where the daemons write, and a daemon's name for itself: the demo sets both for its daemons.
DATABASE_VARIABLE = "GROUPFLOW_DEMO_DB"
DAEMON_VARIABLE = "GROUPFLOW_DEMO_DAEMON"

app = App()


def lookup_seconds(type: str, body: bytes) -> float:
    """Seconds that the stand-in for a row's remote look-up takes: for the same row the same."""
    return (0.08 if type == PLANES else 0.03) + 0.08 * (zlib.crc32(body) % 1000) / 1000


@app.handler(PLANES)  # must be there before its first flight
@app.handler(FLIGHTS)  # needs its aeroplane, and all earlier flights of it
@app.handler(WEATHER)  # needs nothing
async def import_row(task: Task) -> None:
    """Look a row up, then import it."""
    started = time.monotonic()
    await asyncio.sleep(lookup_seconds(task.type, task.body))
    await asyncio.get_running_loop().run_in_executor(_writer(), _write, task, started)


def _write(task: Task, started: float) -> None:
    """Import the row and log the attempt, in one transaction; a failure is logged by itself."""
    db = _database()
    try:
        with db:
            db.execute("BEGIN IMMEDIATE")  # the lock before the look
            # Its daemon may have died after this commit and before the settle. The log, written in
            # the same transaction, tells that the task was done.
            if not (task.crashes and _written(db, task)):
                import_body(db, task.type, task.body)
            _log(db, task, started)
    except Exception as error:
        with db:
            _log(db, task, started, f"{type(error).__name__}: {error}")
        raise


def _written(db: sqlite3.Connection, task: Task) -> bool:
    found = db.execute("SELECT 1 FROM attempts WHERE number = ? AND error IS NULL", [_number(task)])
    return found.fetchone() is not None


def _log(db: sqlite3.Connection, task: Task, started: float, error: str | None = None) -> None:
    # The monotonic clock is one for all processes of a machine, and no clock adjustment can make
    # two attempts seem to overlap.
    ran = (task.group, os.environ[DAEMON_VARIABLE], task.crashes, started, time.monotonic(), error)
    db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)", (_number(task), *ran))


def _number(task: Task) -> int:
    return int(task.id.rpartition("-")[2])


@cache
def _writer() -> ThreadPoolExecutor:
    # One thread: SQLite takes one writer at a time anyway, and waiting for the other daemon's write
    # must not hold up the event loop that renews the leases.
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="demo-writer")


@cache
def _database() -> sqlite3.Connection:
    return open_database(Path(os.environ[DATABASE_VARIABLE]))
