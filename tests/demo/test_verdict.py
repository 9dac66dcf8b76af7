"""What the demo finds and shows. A serial import is the yardstick: each difference is found."""

import asyncio
import io
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupflow.core.task import Task
from groupflow.demo import handlers, rows
from groupflow.demo.rows import FLIGHTS, ImportTask, load_tasks, open_database
from groupflow.demo.screen import Screen, print_summary, read_state
from groupflow.demo.show import DaemonDied, DemoDaemon, Import, Servers
from groupflow.demo.verdict import (
    DemoFindings,
    compare,
    faults_of,
    finishing_order,
    import_in_order,
    judge,
)


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
    assert plane.type == rows.PLANES
    with closing(open_database(tmp_path / "early.db")) as db:
        with pytest.raises(rows.PlaneMissing, match="N281JB"), db:
            rows.import_body(db, flight.type, flight.body)
        assert db.execute("SELECT count(*) FROM flights").fetchone() == (0,)


async def test_a_look_for_a_dead_daemons_row_is_under_the_lock(
    tmp_path: Path, tasks: list[ImportTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that row could still be written behind the look, and there would be two."""
    seen, row = list[str](), tasks[0]

    def look(statement: str) -> None:
        if statement.startswith("SELECT"):
            try:
                other.execute("BEGIN IMMEDIATE").connection.rollback()
            except sqlite3.OperationalError as error:
                seen.append(str(error))

    path = tmp_path / "one.db"
    with closing(open_database(path)) as db, closing(sqlite3.connect(path, timeout=0.0)) as other:
        db.set_trace_callback(look)
        monkeypatch.setattr(handlers, "database", lambda: db)
        monkeypatch.setenv(handlers.DAEMON_VARIABLE, "d2")
        await handlers.import_row(Task(f"row-{row.number}", row.type, body=row.body, crashes=1))
    assert seen == ["database is locked"]


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


# What is shown: the live picture, the summary, and why the watch gives up.


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    options: Any = {"highlight": False, "soft_wrap": True, "width": 100, "height": 40}
    return Console(file=text, force_terminal=terminal, **options), text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_last_picture_stays(tmp_path: Path, terminal: bool) -> None:
    """Of a part that has run, and some that failed; without a terminal it is a line."""
    console, text = _console(terminal=terminal)
    screen, tasks = Screen(console), load_tasks()
    with closing(open_database(tmp_path / "imported.db", tasks)) as db:
        attempts = [
            (task.number, task.group, f"demo-{1 + n % 2}", n / 10, (n + 1) / 10)
            for n, task in enumerate(tasks[:1010])
        ]
        attempts.append((tasks[1].number, tasks[1].group, "demo-1", 101, 101))  # once more
        db.executemany("INSERT INTO attempts VALUES (?, ?, ?, 0, ?, ?, NULL)", attempts)
        state = read_state(db, now=101.0)
    assert (state.handled, state.total, state.failed, state.elapsed) == (1010, 3095, 0, 101)
    assert state.daemons == {"demo-1": 506, "demo-2": 504}
    assert state.rate == pytest.approx(10, abs=1)
    with screen.open():
        screen.show(state._replace(failed=3), 3095, "[red]demo-2 killed[/]")
    shown = text.getvalue()
    for words in ("1,010", "3,095", "demo-2", "504", "3 FAILED", "demo-2 killed"):
        assert words in shown
    assert ("JetBlue Airways" in shown, "\x1b" in shown) == (terminal, terminal)


DELIVERED = {"lost": list[int](), "run again without a crash": [], "failed": []}
FIGURES: Any = {"seconds": 300, "crashed": 26, "peak_groups": 32, "serial_seconds": 3000}
FIGURES |= {"ungrouped_failed": 226, "ungrouped_wrong": 2268}
GOOD = DemoFindings(
    checks={"order": {"tasks out of order": []}, "delivery": DELIVERED},
    **{**FIGURES, "errors": [], "rows": {"planes": 240, "flights": 2141}, "differences": []},
)


def test_the_summary_names_what_went_wrong() -> None:
    """Any fault is a failure, as is an end before its time."""
    assert GOOD.equal
    assert not replace(GOOD, differences=["x"]).equal
    assert not replace(GOOD, checks={"order": {"tasks out of order": [1]}}).equal
    delivery = {"lost": [3094], "run again without a crash": [0, 1, 2, 3, 4, 5], "failed": [7]}
    wrong = replace(GOOD, errors=["KeyError: [2]"], differences=["planes UA/N1 is [1], not [2]"])
    wrong = replace(wrong, checks=GOOD.checks | {"delivery": delivery})
    console, text = _console(terminal=False)
    print_summary(console, wrong, "demo-2", "Gave up.")
    lines = [
        *("lost: task 3094\n", "run again without a crash: task 0, 1, 2, 3, 4\n", "KeyError: [2]"),
        "planes UA/N1 is [1], not [2]",
    ]
    for words in (
        *("Gave up.", "1 differ", "NOT equal", *(f"      {line}" for line in lines)),
        "✗ delivery  1 lost, 6 run again without a crash, 1 failed",
    ):
        assert words in text.getvalue()
    print_summary(console, GOOD, "demo-2", "Gave up.")
    assert text.getvalue().count("NOT equal") == 2


TASKS = [ImportTask(n, FLIGHTS, "UA", "N1:UA", b"{}") for n in range(3)]


@pytest.fixture
def work(tmp_path: Path) -> Import:
    return Import(TASKS, tmp_path / "imported.db")


def _note_attempts(work: Import, *numbers: int) -> None:
    with closing(sqlite3.connect(work.database)) as db:
        rows = [(number, number, number + 1) for number in numbers]
        db.executemany("INSERT INTO attempts VALUES (?, 'N1:UA', 'demo-1', 0, ?, ?, NULL)", rows)
        db.commit()


async def _nothing() -> None:
    """All is published."""


async def _watch(work: Import, standstill: float = 30.0) -> str:
    publishing = asyncio.create_task(_nothing())
    return await work.watch(Screen(Console(quiet=True)), publishing, standstill)


async def test_it_gives_up_at_a_standstill(work: Import) -> None:
    _note_attempts(work, 0)
    stopped = await _watch(work, 0.2)
    assert stopped == "Gave up after 0.2 s without progress: 1 of 3 tasks were handled."


async def test_no_daemon_may_end_by_itself(work: Import, tmp_path: Path) -> None:
    (tmp_path / "demo-2.log").write_text("first\nmy last word\n")
    work.daemons.append(DemoDaemon("demo-2", tmp_path, {}))
    with pytest.raises(DaemonDied, match=r"demo-2 ended.*\nfirst\nmy last word"):
        await _watch(work)


def test_the_daemons_see_nothing_of_the_users_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPFLOW_WORKERS__GROUPED", "1")
    monkeypatch.setenv("GROUPFLOW_REDIS__URL", "redis://elsewhere/")
    mine = Servers("amqp://here/", "redis://here/", "name").environment()
    assert mine["GROUPFLOW_REDIS__URL"] == "redis://here/"
    assert mine["GROUPFLOW_RABBITMQ__QUEUE"] == mine["GROUPFLOW_REDIS__NAMESPACE"] == "name"
    assert "GROUPFLOW_WORKERS__GROUPED" not in mine
    assert "PATH" in mine
