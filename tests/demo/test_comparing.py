"""A serial import is the yardstick, and whatever deviates from it is found."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from groupflow.demo.compare import TableComparison, compare
from groupflow.demo.database import open_database, transaction
from groupflow.demo.imports import PlaneMissing, import_body
from groupflow.demo.serial import import_serially, total_lookup_seconds
from groupflow.demo.tasks import FLIGHTS, PLANES, ImportTask, load_tasks
from groupflow.demo.ungrouped import finishing_order, import_in_order


@pytest.fixture(scope="module")
def tasks() -> list[ImportTask]:
    return load_tasks()


@pytest.fixture
def serial(tmp_path: Path, tasks: list[ImportTask]) -> Path:
    path = tmp_path / "serial.db"
    import_serially(path, tasks)
    return path


def _differing(serial: Path, found: Path) -> dict[str, int]:
    return {table.table: table.differing for table in compare(serial, found)}


def _group(tasks: list[ImportTask], group: str) -> list[ImportTask]:
    return [task for task in tasks if task.group == group]


def test_a_serial_import_gives_a_row_per_task(serial: Path, tmp_path: Path) -> None:
    assert {table.table: table.rows for table in compare(serial, serial)} == {
        "planes": 240,
        "flights": 2141,
        "weather": 714,
    }
    with closing(sqlite3.connect(serial)) as db:
        assert db.execute("SELECT sum(legs), sum(airport_changes) FROM planes").fetchone() == (
            2141,
            196,
        )
        last = db.execute("SELECT * FROM planes WHERE tailnum = 'N281JB'").fetchone()
    assert last[:2] == ("B6", "N281JB")
    assert last[6] == 22


def test_two_serial_imports_are_equal(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    again = tmp_path / "again.db"
    import_serially(again, tasks)
    assert _differing(serial, again) == {"planes": 0, "flights": 0, "weather": 0}


def test_each_kind_of_difference_is_found_and_named(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    other = tmp_path / "other.db"
    import_serially(other, tasks)
    with closing(sqlite3.connect(other)) as db:
        db.execute("UPDATE planes SET late_streak = 99 WHERE tailnum = 'N281JB'")
        db.execute("DELETE FROM flights WHERE tailnum = 'N281JB' AND leg = 22")
        db.execute("INSERT INTO weather (airport, hour) VALUES ('EWR', '2013-02-01T00:00:00Z')")
        db.commit()
    planes, flights, weather = compare(serial, other)
    assert planes == TableComparison(
        "planes", 240, 1, ("planes B6/N281JB: late_streak is 99 instead of 0",)
    )
    assert flights == TableComparison("flights", 2141, 1, ("flights B6/N281JB/22 is missing",))
    assert weather == TableComparison(
        "weather", 714, 1, ("weather EWR/2013-02-01T00:00:00Z should not be there",)
    )


def test_a_flight_before_its_aeroplane_fails_and_writes_nothing(
    tmp_path: Path, tasks: list[ImportTask]
) -> None:
    plane, flight, *_ = _group(tasks, "N281JB:B6")
    assert (plane.type, flight.type) == (PLANES, FLIGHTS)
    with closing(open_database(tmp_path / "early.db")) as db:
        with pytest.raises(PlaneMissing, match="N281JB"), transaction(db):
            import_body(db, flight.type, flight.body)
        assert db.execute("SELECT count(*) FROM flights").fetchone() == (0,)


def test_two_flights_of_one_aeroplane_swapped_make_a_difference(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    second, third = (task.number for task in _group(tasks, "N281JB:B6")[2:4])
    swapped = list(tasks)
    swapped[second], swapped[third] = swapped[third], swapped[second]
    other = tmp_path / "swapped.db"
    import_serially(other, swapped)
    assert _differing(serial, other)["flights"] == 2


def test_flights_of_different_aeroplanes_swapped_make_none(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    by_group = sorted(tasks, key=lambda task: (task.group or "", task.number))
    other = tmp_path / "by-group.db"
    import_serially(other, by_group)
    assert _differing(serial, other) == {"planes": 0, "flights": 0, "weather": 0}


def test_an_import_twice_fails(tmp_path: Path, tasks: list[ImportTask]) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        import_serially(tmp_path / "twice.db", [tasks[0], tasks[0]])


def test_without_groups_the_tables_come_out_wrong(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    other = tmp_path / "ungrouped.db"
    assert import_in_order(other, finishing_order(tasks, workers=48)) > 100
    differing = _differing(serial, other)
    assert differing["planes"] > 100
    assert differing["weather"] == 0


def test_one_worker_finishes_in_the_order_published(tasks: list[ImportTask]) -> None:
    assert finishing_order(tasks, workers=1) == tasks


def test_the_lookups_of_a_serial_import_take_minutes(tasks: list[ImportTask]) -> None:
    assert 180 < total_lookup_seconds(tasks) < 300
