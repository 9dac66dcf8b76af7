"""The handlers of the end-to-end tests: each writes its start and its end to the history.

What a task does stands in its body: ``ms`` to work, or a ``gate``, a file to wait for; a gate holds
only the first run of a task where ``gate_once`` is set.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupflow import App, Dead, Done, Task
from groupflow.core.outcome import Outcome
from tests.deadlines import LOOK
from tests.history.events import Journal
from tests.history.handlers import noted

app = App()
journal = Journal(Path(os.environ["HISTORY_FILE"]))


def is_held(task: Task, body: dict[str, Any]) -> bool:
    """Whether the gate that a task waits for is still shut."""
    if "gate" not in body or (body.get("gate_once") and task.crashes > 0):
        return False
    return not Path(body["gate"]).exists()


async def _until(is_so: Callable[[], bool]) -> None:
    """As long as it takes: a test that gives up ends the daemon."""
    while not is_so():
        await asyncio.sleep(LOOK)


def _stand_until_open(task: Task, body: dict[str, Any]) -> None:
    while is_held(task, body):
        if body.get("computes"):
            # Longer than Python's switch interval: a thread that gives the interpreter's lock up
            # more often, by a look at a file, and takes it again at once, keeps it from all others.
            sum(n * n for n in range(1_000_000))
        else:
            time.sleep(LOOK)  # a thread or a loop that stands, not one that waits


@app.handler("work")
async def work(task: Task) -> None:
    """Work for a while, and until the gate is open."""
    body = task.json()
    if said := body.get("progress"):
        await task.progress(*said)
    with noted(journal.write, task):
        await asyncio.sleep(body.get("ms", 0) / 1000)  # its work
        await _until(lambda: not is_held(task, body))


@app.handler("thread")
def work_in_a_thread(task: Task) -> None:
    """The same as a plain function, which no daemon can stop."""
    body = task.json()
    with noted(journal.write, task):
        _stand_until_open(task, body)


@app.handler("stubborn")
async def work_on(task: Task) -> None:
    """Ignores its cancellation until the gate is open."""
    body = task.json()
    with noted(journal.write, task):
        while is_held(task, body):
            with suppress(asyncio.CancelledError):
                await _until(lambda: not is_held(task, body))


@app.handler("block")
async def block(task: Task) -> None:
    """Blocks the daemon's loop until the gate is open, asleep or computing."""
    body = task.json()
    with noted(journal.write, task):
        _stand_until_open(task, body)


@app.handler("fail")
async def fail(task: Task) -> None:
    """Fails each time."""
    with noted(journal.write, task):
        raise ValueError("it fails on purpose")


@app.handler("quote")
async def quote(task: Task) -> None:
    """Fails, and says what it was given."""
    raise ValueError(task.body.decode())


@app.handler("scripted")
async def scripted(task: Task) -> Outcome | None:
    """Does what its body says: of the list the entry of its attempt, or the last."""
    steps = task.json().get("do", {}).get("", ["ok"])
    what, _, more = steps[min(task.attempt, len(steps)) - 1].partition(" ")
    with noted(journal.write, task):
        if what == "wait":
            await _until(lambda: not is_held(task, {"gate": more}))
    if what == "fail":
        raise ValueError(more)
    if what == "gives":
        return Done(result={"gave": more, "number": 2**60 + 1})
    return Dead(more) if what == "dead" else None


lingering = App()
lingering.handler("thread")(work_in_a_thread)


@lingering.lifespan
async def linger(_app: App) -> AsyncIterator[None]:
    """Ends as a pool does whose connections are in use: once it is told; or it can't be closed."""
    yield
    journal.path.with_name("closing").touch()
    if journal.path.with_name("broken").exists():
        raise OSError("the pool is broken on purpose")
    await _until(journal.path.with_name("closed").exists)
