"""The yardstick: the same rows imported strictly one after another, by the same code."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from groupflow.demo.database import open_database, transaction
from groupflow.demo.handlers import lookup_seconds
from groupflow.demo.imports import import_body
from groupflow.demo.tasks import ImportTask


def import_serially(path: Path, tasks: Iterable[ImportTask]) -> float:
    """Import all tasks in the given order into a fresh file, without the waiting.

    Returns:
        The seconds it took.
    """
    began = time.monotonic()
    db = open_database(path)
    try:
        for task in tasks:
            with transaction(db):
                import_body(db, task.type, task.body)
    finally:
        db.close()
    return time.monotonic() - began


def total_lookup_seconds(tasks: Iterable[ImportTask]) -> float:
    """How long the look-ups take if each one waits for the one before.

    Taken from the rows, not measured in the daemons: there, a busy machine would make each wait a
    little longer, and the serial import would look slower than it is.
    """
    return sum(lookup_seconds(task.type, task.body) for task in tasks)
