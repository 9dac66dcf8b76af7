"""The handlers of the daemons that are measured: they sleep, or don't, and record it.

What they need to know comes by the environment, since a daemon is started as users start it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from time import monotonic_ns

from groupflow import App, Task
from tests.verification.bench.load import number_in
from tests.verification.bench.records import Recorder, looks

app = App()

_recorder = Recorder()
_add = _recorder.add
_records = Path(os.environ["BENCH_RECORDS"])
_tasks = int(os.environ["BENCH_TASKS"])
_seconds = float(os.environ["BENCH_HANDLER_MS"]) / 1000
_redis = int(os.environ["BENCH_REDIS_PID"])
# The end is told by a file: to ask Redis for it would cost what is measured.
_looks = {
    **looks(_tasks, _redis, _records.with_suffix(".clocks")),
    _tasks: _records.with_suffix(".reached").touch,
}


@app.lifespan
async def record(_app: App) -> AsyncIterator[None]:
    """Write the records when the daemon stops."""
    yield
    _recorder.write(_records)


def _note(number: int, start: int) -> None:
    _add(number, start, monotonic_ns())
    if (look := _looks.get(len(_recorder))) is not None:
        look()


@app.handler("one")
async def one(task: Task) -> None:
    """Sleep for the load's time, or do nothing."""
    start = monotonic_ns()
    if _seconds:
        await asyncio.sleep(_seconds)  # the work whose time the load says
    _note(number_in(task.body), start)


@app.batch_handler("many")
async def many(tasks: Sequence[Task]) -> None:
    """Do nothing with each of a batch, in its order."""
    for task in tasks:
        _note(number_in(task.body), monotonic_ns())
