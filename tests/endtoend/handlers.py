"""The handlers of the end-to-end tests: each writes its start and its end to the history.

What a task does stands in its body: ``ms`` to work, or a ``gate``, a file to wait for; a gate holds
only the first run of a task where ``gate_once`` is set.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from groupflow import Advance, App, Dead, Retry, Task
from groupflow.core.outcome import Outcome
from tests.history.events import Journal, event_of

LOOK = 0.005  # seconds between two looks at a gate

app = App()
journal = Journal(Path(os.environ["HISTORY_FILE"]))


def _gate_of(task: Task, body: dict[str, Any]) -> Path | None:
    gate = body.get("gate")
    if gate is None or (body.get("gate_once") and task.crashes > 0):
        return None
    return Path(gate)


async def _until_open(gate: Path) -> None:
    while not gate.exists():  # noqa: ASYNC240  on this machine: no wait
        await asyncio.sleep(LOOK)


@app.handler("work")
async def work(task: Task) -> None:
    """Work for a while, or until the gate is open."""
    body = task.json()
    n = body.get("n", 0)
    journal.write(event_of("start", task, n))
    gate = _gate_of(task, body)
    try:
        if gate is None:
            await asyncio.sleep(body.get("ms", 0) / 1000)
        else:
            await _until_open(gate)
    except asyncio.CancelledError:
        journal.write(event_of("end", task, n, "cut"))
        raise
    journal.write(event_of("end", task, n, "done"))


@app.handler("thread")
def work_in_a_thread(task: Task) -> None:
    """The same as a plain function, which nobody can stop."""
    body = task.json()
    n = body.get("n", 0)
    journal.write(event_of("start", task, n))
    gate = _gate_of(task, body)
    while gate is not None and not gate.exists():
        time.sleep(LOOK)
    journal.write(event_of("end", task, n, "done"))


@app.handler("stubborn")
async def work_on(task: Task) -> None:
    """Ignores its cancellation until the gate is open."""
    body = task.json()
    journal.write(event_of("start", task, body.get("n", 0)))
    gate = _gate_of(task, body)
    while gate is not None and not gate.exists():
        try:
            await asyncio.sleep(LOOK)
        except asyncio.CancelledError:
            continue
    journal.write(event_of("end", task, body.get("n", 0), "done"))


@app.handler("block")
async def block(task: Task) -> None:
    """Blocks the daemon's loop until the gate is open, asleep or computing."""
    body = task.json()
    journal.write(event_of("start", task, body.get("n", 0)))
    gate = _gate_of(task, body)
    while gate is not None and not gate.exists():
        if body.get("computes"):
            sum(n * n for n in range(100_000))
        else:
            time.sleep(LOOK)  # noqa: ASYNC251  the mistake that is meant
    journal.write(event_of("end", task, body.get("n", 0), "done"))


@app.handler("fail")
async def fail(task: Task) -> None:
    """Fails, whatever comes."""
    n = task.json().get("n", 0)
    journal.write(event_of("start", task, n))
    journal.write(event_of("end", task, n, "failed"))
    raise ValueError("it fails on purpose")


@app.handler("quote")
async def quote(task: Task) -> None:
    """Fails, and says what it was given."""
    raise ValueError(task.body.decode())


@app.handler("scripted")
async def scripted(task: Task) -> Outcome | None:
    """Does what its body says: of the list of its stage the entry of its attempt, or the last."""
    steps = task.json().get("do", {}).get(task.stage or "", ["ok"])
    what, _, more = steps[min(task.attempt, len(steps)) - 1].partition(" ")
    told = orjson.dumps([task.stage, task.context]).decode()
    journal.write(event_of("start", task, how=told))
    if what == "wait":
        await _until_open(Path(more))
    journal.write(event_of("end", task, how="done"))
    match what:
        case "fail":
            raise ValueError(more)
        case "retry":
            return Retry(after=float(more), reason="busy")
        case "dead":
            return Dead(more)
        case "advance":
            return Advance(more, {"came from": task.stage})
    return None


@app.handler("exit")
async def leave(task: Task) -> None:
    """Thinks that it is a script."""
    n = task.json().get("n", 0)
    journal.write(event_of("start", task, n))
    journal.write(event_of("end", task, n, "failed"))
    sys.exit(3)


@app.handler("abort")
async def abort(task: Task) -> None:
    """Ends its daemon as a fault in a native library does."""
    journal.write(event_of("start", task, task.json().get("n", 0)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # nobody wants to look at what it leaves
    os.abort()


lingering = App()
lingering.handler("thread")(work_in_a_thread)


@lingering.lifespan
async def linger(_app: App) -> AsyncIterator[None]:
    """Ends as a pool does whose connections are in use: once it is told; or it can't be closed."""
    yield
    journal.path.with_name("closing").touch()
    if journal.path.with_name("broken").exists():
        raise OSError("the pool is broken on purpose")
    await _until_open(journal.path.with_name("closed"))


empty = App()
