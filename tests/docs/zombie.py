"""A handler that is late: its first run waits at a gate, and writes when nobody wants it to.

It blocks its thread, as a slow call of a library would: no cancellation ends it.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from groupflow import App, Task
from tests.docs.examples import load_example
from tests.history.events import Journal, event_of

example: Any = load_example("fenced_write")
app = App()
journal = Journal(Path(os.environ["HISTORY_FILE"]))


@app.handler("guarded")
def guarded(task: Task) -> None:
    """The example's own write."""
    body = _wait(task)
    with closing(example.connect(body["database"])) as database:
        is_written = example.save(database, _row(task, body), task.fence)
    journal.write(event_of("end", task, 0, "written" if is_written else "refused"))


@app.handler("unguarded")
def unguarded(task: Task) -> None:
    """The same write without its guard."""
    body = _wait(task)
    with closing(example.connect(body["database"])) as database, database:
        row = {**_row(task, body), "fence": task.fence}
        database.execute("INSERT OR REPLACE INTO contact VALUES (:id, :name, :fence)", row)
    journal.write(event_of("end", task, 0, "written"))


def _wait(task: Task) -> dict[str, Any]:
    body: dict[str, Any] = task.json()
    journal.write(event_of("start", task, 0))
    while task.crashes == 0 and not Path(body["gate"]).exists():
        time.sleep(0.005)
    return body


def _row(task: Task, body: dict[str, Any]) -> dict[str, Any]:
    return {"id": body["id"], "name": "the zombie's" if task.crashes == 0 else "the second run's"}
