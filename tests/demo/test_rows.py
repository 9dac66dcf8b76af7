"""The rows are there, well-formed, and published in the order in which things happened."""

import json
import tomllib
from collections import Counter
from datetime import UTC, datetime

import pytest

from groupflow.demo.rows import (
    AIRLINES,
    FLIGHTS,
    PLANES,
    STATIONS,
    WEATHER,
    ImportTask,
    departed_at,
    load_tasks,
)
from groupflow.demo.show import CONFIG
from groupflow.settings.model import Settings


@pytest.fixture(scope="module")
def tasks() -> list[ImportTask]:
    return load_tasks()


def test_all_rows_become_tasks(tasks: list[ImportTask]) -> None:
    assert Counter(task.type for task in tasks) == {PLANES: 240, FLIGHTS: 2141, WEATHER: 714}
    assert [task.number for task in tasks] == list(range(len(tasks)))
    assert {task.tenant for task in tasks} == AIRLINES.keys() | STATIONS.keys()


def test_the_rows_travel_in_the_body(tasks: list[ImportTask]) -> None:
    for task in tasks:
        body = json.loads(task.body)
        assert body["tenant_id"] == task.tenant
        assert body["type"] == task.type
        assert len(body["row"]) >= 10
        assert None not in body["row"]
        assert all(isinstance(text, str) and text for text in body["row"].values())


def test_the_airlines_are_grouped_by_aeroplane_and_the_stations_are_plain(
    tasks: list[ImportTask],
) -> None:
    assert len({task.group for task in tasks if task.group}) == 240
    for task in tasks:
        row = json.loads(task.body)["row"]
        grouped = f"{row.get('tailnum')}:{task.tenant}" if task.tenant in AIRLINES else None
        assert task.group == grouped


def test_each_aeroplane_comes_before_its_flights_and_these_in_time_order(
    tasks: list[ImportTask],
) -> None:
    last: dict[str | None, datetime] = {}
    for task in tasks:
        row = json.loads(task.body)["row"]
        if task.type == PLANES:
            assert task.group not in last
            last[task.group] = datetime.min.replace(tzinfo=UTC)
        elif task.type == FLIGHTS:
            assert last[task.group] < departed_at(row)
            last[task.group] = departed_at(row)


def test_the_daemons_configuration_names_the_grouped_tenants() -> None:
    settings = Settings(**tomllib.loads(CONFIG.read_text()))
    (rule,) = settings.groups
    assert set(rule.tenants) == AIRLINES.keys()
    assert rule.key == "{row.tailnum}:{tenant_id}"
