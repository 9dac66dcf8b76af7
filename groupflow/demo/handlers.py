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
from functools import cache
from pathlib import Path

from groupflow.core.app import App
from groupflow.core.task import Task
from groupflow.demo.rows import FLIGHTS, PLANES, WEATHER, import_body, open_database

# Where the daemons write, and a daemon's name for itself: the demo sets both for its daemons.
DATABASE_VARIABLE = "GROUPFLOW_DEMO_DB"
DAEMON_VARIABLE = "GROUPFLOW_DEMO_DAEMON"

_DONE = "SELECT 1 FROM attempts WHERE number = ? AND error IS NULL"

app = App()


def lookup_seconds(type: str, body: bytes) -> float:
    """Seconds that the stand-in for a row's remote look-up takes: for the same row the same."""
    return (0.08 if type == PLANES else 0.03) + 0.08 * (zlib.crc32(body) % 1000) / 1000


@app.handler(PLANES)  # must be there before its first flight
@app.handler(FLIGHTS)  # needs its aeroplane, and all earlier flights of it
@app.handler(WEATHER)  # needs nothing
async def import_row(task: Task) -> None:
    """Look a row up, then import it and log the attempt, in one transaction of well under 1 ms.

    A failure is logged by itself.
    """
    started = time.monotonic()
    await asyncio.sleep(lookup_seconds(task.type, task.body))
    db, number = database(), int(task.id.rpartition("-")[2])
    try:
        with db:
            db.execute("BEGIN IMMEDIATE")  # the lock before the look
            # Its daemon may have died after this commit and before the settle. The log, written in
            # the same transaction, tells that the task was done.
            if not (task.crashes and db.execute(_DONE, [number]).fetchone()):
                import_body(db, task.type, task.body)
            _log(db, number, task, started)
    except Exception as failure:
        with db:
            _log(db, number, task, started, f"{type(failure).__name__}: {failure}")
        raise


def _log(
    db: sqlite3.Connection, number: int, task: Task, started: float, error: str | None = None
) -> None:
    # The monotonic clock is one for all processes of a machine, and no clock adjustment can make
    # two attempts seem to overlap.
    ran = (task.group, os.environ[DAEMON_VARIABLE], task.crashes, started, time.monotonic(), error)
    db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)", (number, *ran))


@cache
def database() -> sqlite3.Connection:
    """The file that both daemons write."""
    return open_database(Path(os.environ[DATABASE_VARIABLE]))
