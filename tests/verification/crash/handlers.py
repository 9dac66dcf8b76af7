"""The application of the daemons that die: its tasks do what their bodies say, and journal it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from groupflow import Advance, App, Dead, Retry, Task
from groupflow.core.outcome import Outcome
from tests.history.events import Journal, event_of
from tests.history.handlers import tell_where
from tests.verification.crash.plans import MANY, ONE, STOP_AT

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

app = App()
_journal = Journal(Path(os.environ["HISTORY_FILE"]))
_stop_at = int(os.environ[STOP_AT])
_started = 0

ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


app.lifespan(tell_where)


@app.handler(ONE)
async def handle(task: Task) -> Outcome | None:
    """Do what the body says; from the attempt on at which it is to stop, the daemon drains."""
    global _started  # noqa: PLW0603  one process, one count
    body = task.json()
    n = body["n"]
    _journal.write(event_of("start", task, n))
    how = "cut"
    try:
        _started += 1
        if _started == _stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        if 0 < _stop_at <= _started:
            await asyncio.Event().wait()  # past the drain, however long its parts take to end
        await asyncio.sleep(body["seconds"])  # what its plan gives it to do
        how = "failed"
        if body["what"] == "fail" and task.attempt == 1:
            raise RuntimeError("the first attempt fails")
        if body["what"] == "stage" and task.stage is None:
            how = "cut"  # the checker knows no stages: one may follow, as behind a hand-back
            return Advance("two", {"n": n})
        if body["what"] == "poison":
            return Dead("poison")
        if body["what"] == "stage" and task.context != {"n": n}:
            raise AssertionError(f"the context is {task.context}")
        how = "done"
    finally:
        _journal.write(event_of("end", task, n, how))
    return None


@app.batch_handler(MANY)
async def handle_all(tasks: Sequence[Task]) -> list[Outcome | None]:
    """One after another, up to the first that isn't done: as if each came alone."""
    told: list[Outcome | None] = []
    for task in tasks:
        try:
            told.append(await handle(task))
        except RuntimeError:
            told.append(Retry(reason="the first attempt fails"))
        if told[-1] is not None:
            break
    return told + [None] * (len(tasks) - len(told))
