"""The demo's SQLite file: its tables, and a transaction that two processes can fight over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Long enough for the other daemon's write to end on a slow disk; a write takes well under 1 ms.
BUSY_SECONDS = 20.0

# `leg`, `last_*`, `airport_changes` and the streaks come out differently if an aeroplane's flights
# are imported in another order: they are what the comparison with a serial import would catch.
SCHEMA = """
CREATE TABLE IF NOT EXISTS planes (
    tenant TEXT NOT NULL, tailnum TEXT NOT NULL, built INTEGER, manufacturer TEXT, model TEXT,
    seats INTEGER, legs INTEGER NOT NULL DEFAULT 0, miles INTEGER NOT NULL DEFAULT 0,
    minutes INTEGER NOT NULL DEFAULT 0, last_origin TEXT, last_airport TEXT, last_departed TEXT,
    airport_changes INTEGER NOT NULL DEFAULT 0, late_streak INTEGER NOT NULL DEFAULT 0,
    longest_late_streak INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, tailnum)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flights (
    tenant TEXT NOT NULL, tailnum TEXT NOT NULL, leg INTEGER NOT NULL, flight INTEGER,
    departed TEXT, origin TEXT, dest TEXT, delay INTEGER, minutes INTEGER, miles INTEGER,
    PRIMARY KEY (tenant, tailnum, leg)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS weather (
    airport TEXT NOT NULL, hour TEXT NOT NULL, temperature REAL, humidity REAL, wind_speed REAL,
    pressure REAL, visibility REAL,
    PRIMARY KEY (airport, hour)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
    number INTEGER NOT NULL, task_group TEXT, pid INTEGER NOT NULL,
    started REAL NOT NULL, ended REAL NOT NULL, error TEXT
);
"""

# Each table that is compared, with its key columns.
TABLES = {
    "planes": ("tenant", "tailnum"),
    "flights": ("tenant", "tailnum", "leg"),
    "weather": ("airport", "hour"),
}


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file, with its tables there.

    The connection commits each statement by itself unless inside `transaction`.
    """
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    # WAL lets the progress display read while both daemons write; without a sync per commit, since
    # the file lives no longer than the demo.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.executescript(SCHEMA)
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what is written inside as a whole, or nothing of it if it raises."""
    # IMMEDIATE: the write lock is taken (and waited for) at the start; a transaction that reads
    # first and asks for it later is refused at once if the other process wrote in between.
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
