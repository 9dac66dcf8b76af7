"""The handlers of a soak: each writes down when it starts and how it ends, and little else.

A stage after the first is written down as a task of its own, ``id#stage``, so that the checker sees
each stage run for a reason and in its group's order.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from groupflow import Advance, App, Retry, Task
from tests.history.configuration import BATCH, BLOCKED_PAST, BLOCKED_WITHIN
from tests.history.events import Event, Journal, Kind, event_of

JOURNAL = "SOAK_JOURNAL"

_journal = Journal(Path(os.environ.get(JOURNAL, os.devnull)))

app = App()


@app.lifespan
async def lifespan(app: App) -> AsyncIterator[None]:
    """Tell on SIGUSR1, on stderr, where every task of the daemon stands."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=sys.stderr)
        sys.stderr.flush()

    loop.add_signal_handler(signal.SIGUSR1, tell)
    yield


class Unlucky(Exception):
    """What a handler raises on purpose."""


def _block(seconds: float) -> None:
    """Sleep, thread and all. (Under libfaketime 0.9.10 `time.sleep` fails: its clock_nanosleep.)"""
    threading.Event().wait(seconds)


def _event(kind: Kind, task: Task, how: str = "") -> Event:
    event = event_of(kind, task, n=int(task.json().get("n", 0)), how=how)
    return replace(event, id=f"{task.id}#{task.stage}") if task.stage else event


@contextmanager
def _noted(task: Task) -> Iterator[None]:
    _journal.write(_event("start", task))
    how = "done"
    try:
        yield
    except asyncio.CancelledError:
        how = "cut"
        raise
    except BaseException:
        how = "failed"
        raise
    finally:
        _journal.write(_event("end", task, how))


async def _pass_time() -> None:
    await asyncio.sleep(random.uniform(0.002, 0.012))


@app.handler("work")
async def work(task: Task) -> None:
    """Take a few milliseconds."""
    with _noted(task):
        await _pass_time()


@app.handler("slow")
async def slow(task: Task) -> None:
    """Take long enough to be met by a fault."""
    with _noted(task):
        await asyncio.sleep(random.uniform(0.1, 0.6))


@app.handler("thread")
def in_thread(task: Task) -> None:
    """Take a few milliseconds in a thread, where nobody can cancel it."""
    with _noted(task):
        _block(random.uniform(0.002, 0.012))


@app.handler("flaky")
async def flaky(task: Task) -> None:
    """Raise at the first attempt."""
    with _noted(task):
        await _pass_time()
        if task.attempt == 1:
            raise Unlucky("once")


@app.handler("bad")
async def bad(task: Task) -> None:
    """Raise always."""
    with _noted(task):
        await _pass_time()
        raise Unlucky("always")


@app.batch_handler("batch", size=BATCH)
async def batch(tasks: Sequence[Task]) -> list[Retry | None]:
    """Take a few milliseconds for each, and let one in nine wait for another attempt."""
    told: list[Retry | None] = []
    for task in tasks:
        try:
            with _noted(task):
                await _pass_time()
                if task.attempt == 1 and int(task.json()["n"]) % 9 == 0:
                    raise Unlucky("once")
        except Unlucky as error:
            told.append(Retry(after=0.05, reason=str(error)))
            break
        told.append(None)
    return told + [None] * (len(tasks) - len(told))


@app.handler("stages")
async def stages(task: Task) -> Advance | None:
    """Go through two stages."""
    with _noted(task):
        await _pass_time()
        return None if task.stage else Advance("second", {"from": task.fence})


@app.handler("block")
@app.handler("block-past")
async def block(task: Task) -> None:
    """Block the daemon's event loop past its lease, once: within `max_block`, or past it."""
    with _noted(task):
        if task.crashes == 0:
            _block(BLOCKED_WITHIN if task.type == "block" else BLOCKED_PAST)
