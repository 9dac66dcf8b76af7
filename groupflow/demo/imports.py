"""The imports themselves: what one row does to the tables. Order matters in two of the three.

The daemons' handlers and the serial import both call these, so that the two can be compared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import orjson

from groupflow.demo.tasks import FLIGHTS, PLANES, WEATHER, Row, departed_at

# What an airline calls late: a departure more than this many minutes behind its schedule.
LATE_MINUTES = 15


class PlaneMissing(Exception):
    """A flight came before its aeroplane: the order within the group was not kept."""


def import_plane(db: sqlite3.Connection, tenant: str, row: Row) -> None:
    """Insert an aeroplane.

    Raises:
        sqlite3.IntegrityError: it is there already.
    """
    db.execute(
        "INSERT INTO planes (tenant, tailnum, built, manufacturer, model, seats)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            tenant,
            row["tailnum"],
            _known(row["year"]),
            row["manufacturer"],
            row["model"],
            int(row["seats"]),
        ),
    )


def import_flight(db: sqlite3.Connection, tenant: str, row: Row) -> None:
    """Bring an aeroplane's row up to date with a flight, and insert the flight as its next leg.

    Raises:
        PlaneMissing: the aeroplane is not there yet.
    """
    values = {
        "tenant": tenant,
        "tailnum": row["tailnum"],
        "flight": int(row["flight"]),
        "departed": departed_at(row).isoformat(),
        "origin": row["origin"],
        "dest": row["dest"],
        "delay": int(row["dep_delay"]),
        "minutes": int(row["air_time"]),
        "miles": int(row["distance"]),
        "late": int(row["dep_delay"]) > LATE_MINUTES,
    }
    updated = db.execute(
        # On the right of "=" SQLite means the values from before this statement.
        "UPDATE planes SET legs = legs + 1, miles = miles + :miles, minutes = minutes + :minutes,"
        " airport_changes = airport_changes + (last_origin IS NOT NULL AND last_origin != :origin),"
        " late_streak = iif(:late, late_streak + 1, 0),"
        " longest_late_streak = max(longest_late_streak, iif(:late, late_streak + 1, 0)),"
        " last_origin = :origin, last_airport = :dest, last_departed = :departed"
        " WHERE tenant = :tenant AND tailnum = :tailnum",
        values,
    )
    if updated.rowcount == 0:
        raise PlaneMissing(f"flight {row['flight']}: {tenant}'s {row['tailnum']} is not there yet")
    db.execute(
        "INSERT INTO flights SELECT tenant, tailnum, legs, :flight, :departed, :origin, :dest,"
        " :delay, :minutes, :miles FROM planes WHERE tenant = :tenant AND tailnum = :tailnum",
        values,
    )


def import_weather(db: sqlite3.Connection, tenant: str, row: Row) -> None:
    """Insert an hour of an airport's weather; the hours may come in any order.

    Raises:
        sqlite3.IntegrityError: that hour is there already.
    """
    columns = ("temp", "humid", "wind_speed", "pressure", "visib")
    db.execute(
        "INSERT INTO weather VALUES (?, ?, ?, ?, ?, ?, ?)",
        (tenant, row["time_hour"], *(_known(row[column]) for column in columns)),
    )


def _known(text: str) -> float | None:
    return None if text == "NA" else float(text)


_IMPORTS: dict[str, Callable[[sqlite3.Connection, str, Row], None]] = {
    PLANES: import_plane,
    FLIGHTS: import_flight,
    WEATHER: import_weather,
}


def import_body(db: sqlite3.Connection, type: str, body: bytes) -> None:
    """Import the row that a task's body carries; whoever calls has opened a transaction.

    Raises:
        PlaneMissing: a flight whose aeroplane is not there yet.
        sqlite3.IntegrityError: the row is there already.
    """
    parsed = orjson.loads(body)
    _IMPORTS[type](db, parsed["tenant_id"], parsed["row"])
