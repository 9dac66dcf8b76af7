"""A serial import is the yardstick, and whatever deviates from it, or from the tasks, is found."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from groupflow.demo.rows import (
    FLIGHTS,
    PLANES,
    ImportTask,
    PlaneMissing,
    import_body,
    load_tasks,
    open_database,
)
from groupflow.demo.verdict import compare, faults_of, finishing_order, import_in_order, judge

EQUAL = {"planes": 0, "flights": 0, "weather": 0}


@pytest.fixture(scope="module")
def tasks() -> list[ImportTask]:
    return load_tasks()


@pytest.fixture
def serial(tmp_path: Path, tasks: list[ImportTask]) -> Path:
    path = tmp_path / "serial.db"
    assert import_in_order(path, tasks) == 0
    return path


def _differing(serial: Path, found: Path) -> dict[str, int]:
    words = [difference.split()[0] for difference in compare(serial, found)]
    return {table: words.count(table) for table in EQUAL}


def test_each_kind_of_difference_is_found_and_named(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    other = tmp_path / "other.db"
    import_in_order(other, tasks)
    assert compare(serial, other) == []
    with closing(sqlite3.connect(other)) as db:
        db.execute("UPDATE planes SET late_streak = 99 WHERE tailnum = 'N281JB'")
        db.execute("DELETE FROM flights WHERE tailnum = 'N281JB' AND leg = 22")
        db.execute("INSERT INTO weather (airport, hour) VALUES ('EWR', '2013-02-01T00:00:00Z')")
        db.commit()
    planes, flights, weather = compare(serial, other)
    assert planes.startswith("planes B6/N281JB is ('ERJ 190-100 IGW', '20', 22, ")
    assert ", 99, " in planes.partition("not")[0]
    assert flights.startswith("flights B6/N281JB/22 is None, not ('")
    assert weather == "weather EWR/2013-02-01T00:00:00Z is (None, None, None), not None"


def test_a_flight_before_its_aeroplane_fails_and_writes_nothing(
    tmp_path: Path, tasks: list[ImportTask]
) -> None:
    plane, flight, *_ = [task for task in tasks if task.group == "N281JB:B6"]
    assert (plane.type, flight.type) == (PLANES, FLIGHTS)
    with closing(open_database(tmp_path / "early.db")) as db:
        with pytest.raises(PlaneMissing, match="N281JB"), db:
            import_body(db, flight.type, flight.body)
        assert db.execute("SELECT count(*) FROM flights").fetchone() == (0,)


def test_flights_of_different_aeroplanes_swapped_make_none(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    by_group = sorted(tasks, key=lambda task: (task.group or "", task.number))
    other = tmp_path / "by-group.db"
    import_in_order(other, by_group)
    assert _differing(serial, other) == EQUAL


def test_without_groups_the_tables_come_out_wrong(
    serial: Path, tmp_path: Path, tasks: list[ImportTask]
) -> None:
    other = tmp_path / "ungrouped.db"
    assert import_in_order(other, finishing_order(tasks, workers=48)) > 100
    differing = _differing(serial, other)
    assert differing["planes"] > 100
    assert differing["weather"] == 0
    assert finishing_order(tasks, workers=1) == tasks


# An attempt: number, group, start, end, and in some crashes and an error.
Ran = tuple[int, str | None, float, float] | tuple[int, str | None, float, float, int, str | None]


def _log(path: Path, groups: list[str | None], attempts: list[Ran]) -> None:
    tasks = [ImportTask(n, FLIGHTS, "UA", group, b"{}") for n, group in enumerate(groups)]
    with closing(open_database(path, tasks)) as db, db:
        for number, group, started, ended, *rest in attempts:
            crashes, error = rest or (0, None)
            row = (number, group, "demo-1", crashes, started, ended, error)
            db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _faults(path: Path) -> dict[str, list[int]]:
    with closing(sqlite3.connect(path)) as db:
        checks = faults_of(db)
    return {kind: found for kinds in checks.values() for kind, found in kinds.items() if found}


LATE, EARLY = "tasks out of order", "started while another of their group ran"


@pytest.mark.parametrize(
    ("groups", "attempts", "faults"),
    [
        pytest.param(
            ["a", "b", "a", None],
            [(0, "a", 0, 1), (2, "a", 1, 2), (1, "b", 0.5, 3), (3, None, 0, 4)],
            {},
            id="side by side and back to back",
        ),
        pytest.param(["a", "a"], [(0, "a", 0, 1)], {"lost": [1]}, id="lost"),
        pytest.param(["a"], [(0, "a", 0, 1), (0, "a", 2, 3)], {"run twice": [0]}, id="twice"),
        pytest.param(
            ["a"], [(0, "a", 0, 1), (0, "a", 2, 3, 1, None)], {}, id="again after a crash"
        ),
        pytest.param(
            ["a"],
            [(0, "a", 0, 1), (0, "a", 2, 3, 1, None), (0, "a", 4, 5, 1, None)],
            {"run twice": [0]},
            id="once too often after a crash",
        ),
        pytest.param(["a"], [(0, "a", 0, 1, 0, "no")], {"failed": [0]}, id="failed"),
        pytest.param(
            ["a", "a"],
            [(1, None, 0, 2), (0, None, 1, 3)],
            {"in a wrong group": [1, 0], LATE: [0], EARLY: [0]},
            id="a group that ran without",
        ),
        pytest.param(
            ["a", "a", "b"],
            [(1, "a", 0, 1), (0, "a", 1, 2), (2, "b", 0, 1)],
            {LATE: [0]},
            id="out of order",
        ),
        pytest.param(["a", "a"], [(0, "a", 0, 2), (1, "a", 1, 3)], {EARLY: [1]}, id="overlapping"),
        pytest.param(
            ["a", "a", "a"],
            [(0, "a", 0, 9), (1, "a", 1, 2), (2, "a", 3, 4)],
            {EARLY: [1, 2]},
            id="one that outlasts several overlaps with each",
        ),
    ],
)
def test_each_fault_is_seen_and_nothing_else(
    tmp_path: Path, groups: list[str | None], attempts: list[Ran], faults: dict[str, list[int]]
) -> None:
    _log(tmp_path / "log.db", groups, attempts)
    assert _faults(tmp_path / "log.db") == faults


def test_figures(tmp_path: Path) -> None:
    attempts: list[Ran] = [(0, "a", 0, 2), (1, "b", 1, 3, 1, None), (2, "a", 2, 5), (3, None, 1, 4)]
    _log(tmp_path / "log.db", ["a", "b", "a", None], attempts)
    verdict = judge([], tmp_path / "log.db", workers=1)
    assert (verdict.seconds, verdict.crashed, verdict.peak_groups) == (5, 1, 2)
    assert verdict.equal


def test_nothing_handled(tmp_path: Path, tasks: list[ImportTask]) -> None:
    open_database(tmp_path / "log.db", tasks).close()
    verdict = judge(tasks, tmp_path / "log.db", workers=48)
    assert (verdict.seconds, verdict.crashed, verdict.peak_groups) == (0, 0, 0)
    assert len(verdict.checks["delivery"]["lost"]) == len(verdict.differences) == 3095
    assert 180 < verdict.serial_seconds < 300
    assert not verdict.equal
