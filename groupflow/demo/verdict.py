"""Compares the daemons' import with a serial one, and the handlers' log with the tasks."""

from __future__ import annotations

import heapq
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from groupflow.demo.handlers import lookup_seconds
from groupflow.demo.rows import ImportTask, PlaneMissing, import_body, open_database

# Each compared table, with how many of its columns, from the left, are its key.
_KEY_WIDTHS = {"planes": 2, "flights": 3, "weather": 2}

# The attempts at tasks that *should* be in a group, each with the earlier starts of its group.
_BEHIND = """
SELECT number FROM (
    SELECT number, started, max(number) OVER earlier AS highest, max(ended) OVER earlier AS latest
    FROM attempts JOIN tasks USING (number) WHERE tasks.key IS NOT NULL
    WINDOW earlier AS (
        PARTITION BY tasks.key ORDER BY started ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
"""

# The checks, each with its kinds of faults, and a query for the tasks that have them.
_CHECKS = {
    "order": {
        "tasks out of order": f"{_BEHIND} WHERE number < highest",
        "started while another of their group ran": f"{_BEHIND} WHERE started < latest",
    },
    "delivery": {
        "lost": "SELECT number FROM tasks WHERE number NOT IN (SELECT number FROM attempts)",
        # A task may run once more for each death of its daemon; never without.
        "run again without a crash": "SELECT number FROM attempts GROUP BY number"
        " HAVING count(*) > 1 + max(crashes)",
        "failed": "SELECT number FROM attempts WHERE error IS NOT NULL",
        "in a wrong group": "SELECT number FROM attempts LEFT JOIN tasks USING (number)"
        " WHERE attempts.key IS NOT tasks.key",
    },
}

# Of a group, one task runs at a time: so running grouped tasks count running groups.
_FIGURES = """
SELECT (SELECT coalesce(max(ended) - min(started), 0) FROM attempts),
    (SELECT count(DISTINCT number) FROM attempts WHERE crashes > 0),
    (SELECT coalesce(max(running), 0) FROM (
        SELECT sum(change) OVER (ORDER BY at, change ROWS UNBOUNDED PRECEDING) AS running FROM (
            SELECT started AS at, 1 AS change FROM attempts WHERE key IS NOT NULL
            UNION ALL SELECT ended, -1 FROM attempts WHERE key IS NOT NULL)))
"""


@dataclass(frozen=True, slots=True)
class DemoFindings:
    """The demo's findings."""

    checks: dict[str, dict[str, list[int]]]  # by check and kind of fault: the tasks that have it
    errors: list[str]  # what the handlers raised, in that order
    rows: dict[str, int]  # how many the serial import wrote into each table
    differences: list[str]  # the daemons' rows that differ from those, in words
    seconds: float  # from the first start to the last end
    crashed: int  # tasks that ran again since their daemon had died
    peak_groups: int  # the largest number of groups that ran at the same moment
    serial_seconds: float  # how long the serial import takes
    ungrouped_failed: int  # imports that fail without groups
    ungrouped_wrong: int  # rows that come out wrong without groups

    @property
    def equal(self) -> bool:
        faults = any(found for kinds in self.checks.values() for found in kinds.values())
        return not (self.differences or faults)


def judge(tasks: Sequence[ImportTask], imported: Path, workers: int) -> DemoFindings:
    """Judge the import of `tasks`, by its tables and the handlers' log.

    Also replays it without groups, for as many workers as the daemons had in all.
    """
    serial, ungrouped = (imported.with_name(name) for name in ("serial.db", "ungrouped.db"))
    began = time.monotonic()
    import_in_order(serial, tasks)
    # The look-ups' time comes from the rows, and isn't measured in the daemons: a busy machine
    # makes each wait a little longer there, and the serial import would look slower than it is.
    waits = sum(lookup_seconds(task.type, task.body) for task in tasks)
    serial_seconds = time.monotonic() - began + waits
    with closing(sqlite3.connect(imported)) as db:
        seconds, crashed, peak_groups = db.execute(_FIGURES).fetchone()
        raised = db.execute("SELECT error FROM attempts WHERE error IS NOT NULL ORDER BY rowid")
        return DemoFindings(
            checks=faults_of(db),
            errors=[error for (error,) in raised],
            rows={table: len(rows) for table, rows in _tables(serial).items()},
            differences=compare(serial, imported),
            seconds=seconds,
            crashed=crashed,
            peak_groups=peak_groups,
            serial_seconds=serial_seconds,
            ungrouped_failed=import_in_order(ungrouped, finishing_order(tasks, workers)),
            ungrouped_wrong=len(compare(serial, ungrouped)),
        )


def faults_of(db: sqlite3.Connection) -> dict[str, dict[str, list[int]]]:
    """For each check, the numbers of the tasks that have each kind of fault, by the log."""
    return {
        check: {kind: [n for (n,) in db.execute(query)] for kind, query in kinds.items()}
        for check, kinds in _CHECKS.items()
    }


def compare(serial: Path, imported: Path) -> list[str]:
    """Compare all tables row by row; the differences from the first file, in words."""
    right, found = _tables(serial), _tables(imported)
    return [
        f"{table} {'/'.join(map(str, key))} is {found[table].get(key)}, not {rows.get(key)}"
        for table, rows in right.items()
        for key in sorted(rows.keys() | found[table].keys())
        if rows.get(key) != found[table].get(key)
    ]


def _tables(path: Path) -> dict[str, dict[tuple[object, ...], tuple[object, ...]]]:
    """The rows of each table that is compared, by their keys."""
    with closing(sqlite3.connect(path)) as db:
        return {
            table: {row[:width]: row[width:] for row in db.execute(f"SELECT * FROM {table}")}  # noqa: S608
            for table, width in _KEY_WIDTHS.items()
        }


def finishing_order(tasks: Sequence[ImportTask], workers: int) -> list[ImportTask]:
    """The order in which look-ups end if each free worker takes the next task."""
    free_at = [0.0] * workers
    ends = []
    for task in tasks:
        end = heapq.heappop(free_at) + lookup_seconds(task.type, task.body)
        heapq.heappush(free_at, end)
        ends.append((end, task.number, task))
    return [task for _, _, task in sorted(ends, key=lambda end: end[:2])]


def import_in_order(path: Path, tasks: Iterable[ImportTask]) -> int:
    """Import tasks one after another into a fresh file, without the waiting.

    Returns how many failed; none fails in the order published.
    """
    failed = 0
    with closing(open_database(path)) as db:
        for task in tasks:
            try:
                with db:
                    import_body(db, task.type, task.body)
            except (PlaneMissing, sqlite3.IntegrityError):
                failed += 1
    return failed
