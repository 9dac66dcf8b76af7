"""A late run can't overwrite what a later run wrote. Run: groupflow run --app fenced_write:app."""

import os
import sqlite3
from contextlib import closing
from typing import Any

from groupflow import App, Task

DATABASE = os.environ.get("CONTACTS", "contacts.db")
app = App()


def connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=10)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(
        "CREATE TABLE IF NOT EXISTS contact (id INTEGER PRIMARY KEY, name TEXT, fence INTEGER)"
    )
    return database


def save(database: sqlite3.Connection, row: dict[str, Any], fence: int) -> bool:
    """Insert or update a contact, unless a later run has written it. Whether it was written."""
    with database:  # one transaction
        written = database.execute(
            """
            INSERT INTO contact (id, name, fence) VALUES (:id, :name, :fence)
            ON CONFLICT (id) DO UPDATE SET name = excluded.name, fence = excluded.fence
            WHERE contact.fence <= excluded.fence
            """,
            {"id": row["id"], "name": row["name"], "fence": fence},
        )
    return written.rowcount == 1


@app.handler("update.contact")
def update_contact(task: Task) -> None:
    with closing(connect(DATABASE)) as database:
        if not save(database, task.json(), task.fence):
            task.log.warning("contact.stale")  # a later run has been here: ours doesn't count
