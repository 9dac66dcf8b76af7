"""Handlers that write down when they start and how they end, and do little else.

A stage after the first is written down as a task of its own, ``id#stage``, so that the checker sees
each stage run for a reason and in its group's order.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TypeAlias

from groupflow import Advance, App, Retry, Task
from tests.history.configuration import BATCH
from tests.history.events import Event, Kind, event_of

Write: TypeAlias = Callable[[Event], None]
Span: TypeAlias = tuple[float, float]  # seconds, from and to


class Unlucky(Exception):
    """What a handler raises on purpose."""


def _event(kind: Kind, task: Task, how: str = "") -> Event:
    event = event_of(kind, task, n=int(task.json().get("n", 0)), how=how)
    return replace(event, id=f"{task.id}#{task.stage}") if task.stage else event


@contextmanager
def noted(write: Write, task: Task) -> Iterator[None]:
    """Write down an attempt's start and end."""
    write(_event("start", task))
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
        write(_event("end", task, how))


async def tell_where(_: App) -> AsyncIterator[None]:
    """A lifespan: at SIGUSR1 the daemon writes on stderr where each of its coroutines waits."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=sys.stderr)
        sys.stderr.flush()

    loop.add_signal_handler(signal.SIGUSR1, tell)
    yield


def app_of(write: Write, chance: Random, *, quick: Span, slow: Span) -> App:
    """An application of handlers of each kind, which take so long."""
    app = App()

    async def pass_time(span: Span = quick) -> None:
        # A handler's work takes time: real in a soak, virtual in a simulation.
        await asyncio.sleep(chance.uniform(*span))

    @app.handler("work")
    async def work(task: Task) -> None:
        with noted(write, task):
            await pass_time()

    @app.handler("slow")
    async def take_long(task: Task) -> None:
        with noted(write, task):
            await pass_time(slow)

    @app.handler("stages")
    async def stages(task: Task) -> Advance | None:
        with noted(write, task):
            await pass_time()
            if not task.stage:
                return Advance("second", {"from": task.fence})
            await pass_time((0.0, 0.4))
            return None

    @app.handler("flaky")
    async def flaky(task: Task) -> None:
        with noted(write, task):
            await pass_time()
            if task.attempt == 1:
                raise Unlucky("once")

    @app.handler("bad")
    async def bad(task: Task) -> None:
        with noted(write, task):
            await pass_time()
            raise Unlucky("always")

    @app.batch_handler("batch", size=BATCH)
    async def batch(tasks: Sequence[Task]) -> list[Retry | None]:
        told: list[Retry | None] = []
        for task in tasks:
            try:
                with noted(write, task):
                    await pass_time()
                    if task.attempt == 1 and int(task.json()["n"]) % 9 == 0:
                        raise Unlucky("once")
            except Unlucky as error:
                told.append(Retry(after=0.05, reason=str(error)))
                break
            told.append(None)
        return told + [None] * (len(tasks) - len(told))

    return app
