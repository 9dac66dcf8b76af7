"""A serial import is the yardstick: each difference from it, or from the tasks, is found."""

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


@pytest.fixture(scope="module")
def tasks() -> list[ImportTask]:
    return load_tasks()


def test_each_kind_of_difference_is_found_and_named(
    tmp_path: Path, tasks: list[ImportTask]
) -> None:
    """Beside a serial import, which fails nowhere; the order of different groups makes none."""
    serial, other = tmp_path / "serial.db", tmp_path / "other.db"
    assert import_in_order(serial, tasks) == 0
    import_in_order(other, sorted(tasks, key=lambda task: (task.group or "", task.number)))
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


def test_without_groups_rows_fail_and_come_out_wrong(
    tmp_path: Path, tasks: list[ImportTask]
) -> None:
    other = tmp_path / "ungrouped.db"
    assert finishing_order(tasks, workers=1) == tasks
    assert import_in_order(other, finishing_order(tasks, workers=48)) > 100
    plane, flight, *_ = [task for task in tasks if task.group == "N281JB:B6"]
    assert plane.type == PLANES
    with closing(open_database(tmp_path / "early.db")) as db:
        with pytest.raises(PlaneMissing, match="N281JB"), db:
            import_body(db, flight.type, flight.body)
        assert db.execute("SELECT count(*) FROM flights").fetchone() == (0,)


# An attempt: number, group, start, end, and in some crashes and an error.
Ran = tuple[int, str | None, float, float] | tuple[int, str | None, float, float, int, str | None]


def _log(path: Path, groups: list[str | None], attempts: list[Ran]) -> None:
    tasks = [ImportTask(n, FLIGHTS, "UA", group, b"{}") for n, group in enumerate(groups)]
    with closing(open_database(path, tasks)) as db, db:
        for number, group, started, ended, *rest in attempts:
            crashes, error = rest or (0, None)
            row = (number, group, "demo-1", crashes, started, ended, error)
            db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)", row)


LATE, EARLY = "tasks out of order", "started while another of their group ran"


AGAIN: Ran = (0, "a", 2, 3, 1, None)  # after a crash
SEEN: list[tuple[list[str | None], list[Ran], dict[str, list[int]]]] = [
    # Side by side, and back to back.
    (["a", "b", "a", None],
     [(0, "a", 0, 1), (2, "a", 1, 2), (1, "b", 0.5, 3), (3, None, 0, 4)], {}),
    (["a", "a"], [(0, "a", 0, 1)], {"lost": [1]}),
    (["a"], [(0, "a", 0, 1), (0, "a", 2, 3)], {"run again without a crash": [0]}),
    (["a"], [(0, "a", 0, 1), AGAIN], {}),
    (["a"], [(0, "a", 0, 1), AGAIN, (0, "a", 4, 5, 1, None)], {"run again without a crash": [0]}),
    (["a"], [(0, "a", 0, 1, 0, "no")], {"failed": [0]}),
    (["a", "a"], [(1, None, 0, 2), (0, None, 1, 3)],
     {"in a wrong group": [1, 0], LATE: [0], EARLY: [0]}),
    (["a", "a", "b"], [(1, "a", 0, 1), (0, "a", 1, 2), (2, "b", 0, 1)], {LATE: [0]}),
    (["a", "a"], [(0, "a", 0, 2), (1, "a", 1, 3)], {EARLY: [1]}),
    # One that outlasts several overlaps with each.
    (["a", "a", "a"], [(0, "a", 0, 9), (1, "a", 1, 2), (2, "a", 3, 4)], {EARLY: [1, 2]}),
]  # fmt: skip


@pytest.mark.parametrize(("groups", "attempts", "faults"), SEEN)
def test_each_fault_is_seen_and_nothing_else(
    tmp_path: Path, groups: list[str | None], attempts: list[Ran], faults: dict[str, list[int]]
) -> None:
    _log(tmp_path / "log.db", groups, attempts)
    with closing(sqlite3.connect(tmp_path / "log.db")) as db:
        checks = faults_of(db)
    seen = {kind: found for kinds in checks.values() for kind, found in kinds.items() if found}
    assert seen == faults


def test_figures(tmp_path: Path, tasks: list[ImportTask]) -> None:
    attempts: list[Ran] = [(0, "a", 0, 2), (1, "b", 1, 3, 1, None), (2, "a", 2, 5), (3, None, 1, 4)]
    _log(tmp_path / "log.db", ["a", "b", "a", None], attempts)
    verdict = judge([], tmp_path / "log.db", workers=1)
    assert (verdict.seconds, verdict.crashed, verdict.peak_groups) == (5, 1, 2)
    assert verdict.equal
    open_database(tmp_path / "nothing.db", tasks).close()
    verdict = judge(tasks, tmp_path / "nothing.db", workers=48)
    assert (verdict.seconds, verdict.crashed, verdict.peak_groups) == (0, 0, 0)
    assert len(verdict.checks["delivery"]["lost"]) == len(verdict.differences) == 3095
    assert not verdict.equal
