"""The demo's data: real rows from `data/`, as the messages that it publishes, in order.

Six airlines are tenants that asked for grouping: an aeroplane of an airline is a group, since its
flights only make sense after its own row and in the order they were flown. Three weather stations
are tenants that did not: each hour stands for itself, so their tasks stay plain.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

PLANES = "import.planes"
FLIGHTS = "import.flights"
WEATHER = "import.weather"

AIRLINES = {
    "9E": "Endeavor Air",
    "AA": "American Airlines",
    "B6": "JetBlue Airways",
    "DL": "Delta Air Lines",
    "EV": "ExpressJet Airlines",
    "UA": "United Air Lines",
}
STATIONS = {"EWR": "Newark weather", "JFK": "Kennedy weather", "LGA": "LaGuardia weather"}

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class ImportTask:
    """One row to import, as a client of the company would publish it."""

    number: int  # its place in the order of publishing, from 0; the message id ends with it
    type: str
    tenant: str  # whose row it is: an airline's or a weather station's code
    group: str | None  # the key that the configuration must give it, ``None`` for a plain task
    body: bytes  # JSON, with the row's columns as they stand in the file


def departed_at(flight: Row) -> datetime:
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


def _events() -> Iterator[tuple[datetime, str, Row]]:
    # The sort above is stable: of equal times, the first yielded stays first.
    planes = {(row["carrier"], row["tailnum"]): row for row in _read("planes.csv")}
    for flight in _read("flights.csv"):
        plane = planes.pop((flight["carrier"], flight["tailnum"]), None)
        if plane is not None:
            yield departed_at(flight), PLANES, plane
        yield departed_at(flight), FLIGHTS, flight
    for hour in _read("weather.csv"):
        yield datetime.fromisoformat(hour["time_hour"]).astimezone(UTC), WEATHER, hour


def _read(name: str) -> list[Row]:
    with (Path(__file__).parent / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _task(number: int, type_: str, row: Row) -> ImportTask:
    plain = type_ == WEATHER
    tenant = row["origin"] if plain else row["carrier"]
    app = "weather" if plain else "fleet"
    body = {"app_name": app, "tenant_id": tenant, "type": type_, "row": row}
    group = None if plain else f"{row['tailnum']}:{tenant}"
    return ImportTask(number, type_, tenant, group, orjson.dumps(body))
