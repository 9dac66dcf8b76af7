"""The demo's rows: as messages, in the order of publishing; and how each changes the SQLite file.

Six airlines are tenants that asked for grouping: an aeroplane of an airline is a group, since its
flights only make sense after its own row and in the order they were flown. Three weather stations
are tenants that did not: each hour stands for itself, so their tasks stay plain.

The daemons' handlers and the serial import both use `import_body`, so that the two can be compared.
"""

from __future__ import annotations

import csv
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

PLANES = "import.planes"
FLIGHTS = "import.flights"
WEATHER = "import.weather"

TENANTS = {
    "9E": "Endeavor Air",
    "AA": "American Airlines",
    "B6": "JetBlue Airways",
    "DL": "Delta Air Lines",
    "EV": "ExpressJet Airlines",
    "UA": "United Air Lines",
    "EWR": "Newark weather",
    "JFK": "Kennedy weather",
    "LGA": "LaGuardia weather",
}

_YEAR = "2013"  # of all rows

CsvRow = dict[str, str]


@dataclass(frozen=True, slots=True)
class ImportTask:
    """One row to import, as a client of the company would publish it."""

    number: int  # its place in the order of publishing, from 0; the message id ends with it
    type: str
    tenant: str  # whose row it is: an airline's or a weather station's code
    group: str | None  # the key that the configuration must give it, ``None`` for a plain task
    body: bytes  # JSON, with the row's columns as they stand in the file


def departed_at(flight: CsvRow) -> datetime:
    """When a flight really left (UTC): its scheduled hour and minute, and its delay."""
    hour = datetime.fromisoformat(flight["time_hour"])
    return hour + timedelta(minutes=int(flight["minute"]) + int(flight["dep_delay"]))


def load_tasks() -> list[ImportTask]:
    """All tasks in the order in which they are published: as things happened in January 2013.

    An aeroplane's own row comes right before its first flight, so that only the order within its
    group ensures that it is there when the flight needs it.
    """
    rows = sorted(_events(), key=lambda event: event[0])
    return [_task(number, type_, row) for number, (_, type_, row) in enumerate(rows)]


def later_tasks(tasks: Sequence[ImportTask]) -> Iterator[ImportTask]:
    """The same rows for ever, as of later years; each aeroplane is there by now."""
    for year in itertools.count(int(_YEAR) + 1):
        for task in tasks:
            if task.type != PLANES:
                later = task.body.replace(f'"{_YEAR}-'.encode(), f'"{year:04}-'.encode())
                yield replace(task, body=later)


def _events() -> Iterator[tuple[datetime, str, CsvRow]]:
    # The sort above is stable: of equal times, the first yielded stays first.
    planes = {(row["carrier"], row["tailnum"]): row for row in _read("planes.csv")}
    for flight in _read("flights.csv"):
        plane = planes.pop((flight["carrier"], flight["tailnum"]), None)
        if plane is not None:
            yield departed_at(flight), PLANES, plane
        yield departed_at(flight), FLIGHTS, flight
    for hour in _read("weather.csv"):
        yield datetime.fromisoformat(hour["time_hour"]).astimezone(UTC), WEATHER, hour


def _read(name: str) -> list[CsvRow]:
    with (Path(__file__).parent / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _task(number: int, type_: str, row: CsvRow) -> ImportTask:
    plain = type_ == WEATHER
    tenant = row["origin"] if plain else row["carrier"]
    app = "weather" if plain else "fleet"
    body = {"app_name": app, "tenant_id": tenant, "type": type_, "row": row}
    group = None if plain else f"{row['tailnum']}:{tenant}"
    return ImportTask(number, type_, tenant, group, orjson.dumps(body))


# Long enough for the other daemon's write to end on a slow disk; a write takes well under 1 ms.
_BUSY_SECONDS = 20.0

# What an airline calls late: a departure more than this many minutes behind its schedule.
_LATE_MINUTES = 15

# `leg`, `last_airport` and `late_streak` come out differently if an aeroplane's flights come in
# another order: they are what the comparison with a serial import would catch. `tasks` is what was
# published, `attempts` the handlers' log.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS planes (tenant, tailnum, model, seats, legs, miles, late_streak,
    last_airport, PRIMARY KEY (tenant, tailnum));
CREATE TABLE IF NOT EXISTS flights (tenant, tailnum, leg, flight, departed, origin, dest, delay,
    miles, PRIMARY KEY (tenant, tailnum, leg));
CREATE TABLE IF NOT EXISTS weather (airport, hour, temperature, wind_speed, visibility,
    PRIMARY KEY (airport, hour));
CREATE TABLE IF NOT EXISTS tasks (number INTEGER PRIMARY KEY, tenant, key);
CREATE TABLE IF NOT EXISTS attempts (number, key, daemon, crashes, started, ended, error);
CREATE INDEX IF NOT EXISTS attempts_of_a_task ON attempts (number);
"""

# On the right of "=" SQLite means the values from before this statement.
_FLY = """
UPDATE planes SET legs = legs + 1, miles = miles + :distance, last_airport = :dest,
    late_streak = iif(:dep_delay > :late, late_streak + 1, 0)
WHERE tenant = :carrier AND tailnum = :tailnum
"""
_LOG_LEG = """
INSERT INTO flights
SELECT tenant, tailnum, legs, :flight, :departed, :origin, :dest, :dep_delay, :distance
FROM planes WHERE tenant = :carrier AND tailnum = :tailnum
"""


class PlaneMissing(Exception):
    """A flight came before its aeroplane: the order within the group was not kept."""


def open_database(path: Path, tasks: Iterable[ImportTask] = ()) -> sqlite3.Connection:
    """Open the file, with its tables there and `tasks` noted in it as published."""
    # IMMEDIATE: a transaction waits for the write lock, and takes it, at its start. SQLite refuses
    # it later at once if the other process wrote in between.
    db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level="IMMEDIATE")
    # WAL lets the display read while both daemons write. No sync per commit: the file lives no
    # longer than the demo, and the kernel keeps a killed process's writes.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.executescript(_SCHEMA)
    with db:
        rows = ((task.number, task.tenant, task.group) for task in tasks)
        db.executemany("INSERT INTO tasks VALUES (?, ?, ?)", rows)
    return db


def import_body(db: sqlite3.Connection, type: str, body: bytes) -> None:
    """Import the row that a task's body carries; the caller commits it (`with db`).

    Raises `PlaneMissing` for a flight whose aeroplane is not there yet, `sqlite3.IntegrityError`
    for a row that is there already.
    """
    row = orjson.loads(body)["row"]
    if type == WEATHER:
        values = [row[name] for name in ("origin", "time_hour", "temp", "wind_speed", "visib")]
        db.execute("INSERT INTO weather VALUES (?, ?, ?, ?, ?)", values)
    elif type == PLANES:
        values = [row[name] for name in ("carrier", "tailnum", "model", "seats")]
        db.execute("INSERT INTO planes VALUES (?, ?, ?, ?, 0, 0, 0, NULL)", values)
    else:
        numbers = {name: int(row[name]) for name in ("dep_delay", "distance")}
        flight = row | numbers | {"late": _LATE_MINUTES, "departed": departed_at(row).isoformat()}
        if db.execute(_FLY, flight).rowcount == 0:
            raise PlaneMissing(f"flight {row['flight']}: {row['tailnum']} is not there yet")
        db.execute(_LOG_LEG, flight)
