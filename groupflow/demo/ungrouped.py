"""What would come out without groups: the counter-example that shows why order matters."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from groupflow.demo.database import open_database, transaction
from groupflow.demo.handlers import lookup_seconds
from groupflow.demo.imports import PlaneMissing, import_body
from groupflow.demo.tasks import ImportTask


def finishing_order(tasks: Sequence[ImportTask], workers: int) -> list[ImportTask]:
    """The order in which look-ups end if each free worker simply takes the next task.

    Args:
        tasks: in the order published.
        workers: how many there are in all.
    """
    free_at = [0.0] * workers
    ends = []
    for task in tasks:
        end = heapq.heappop(free_at) + lookup_seconds(task.type, task.body)
        heapq.heappush(free_at, end)
        ends.append((end, task.number, task))
    return [task for _, _, task in sorted(ends, key=lambda end: end[:2])]


def import_in_order(path: Path, tasks: Sequence[ImportTask]) -> int:
    """Import tasks in the order given, going on after each failure.

    Returns:
        How many failed.
    """
    failed = 0
    db = open_database(path)
    try:
        for task in tasks:
            try:
                with transaction(db):
                    import_body(db, task.type, task.body)
            except (PlaneMissing, sqlite3.IntegrityError):
                failed += 1
    finally:
        db.close()
    return failed
