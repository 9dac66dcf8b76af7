"""The application of a simulated daemon: coroutines that write down their starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TypeAlias

from groupflow import Advance, App, Retry, Task
from tests.history.events import Event, Kind
from tests.simulation import clock
from tests.simulation.processes import OWNER
from tests.soak.config import BATCH

Write: TypeAlias = Callable[[Event], None]


class Unlucky(Exception):
    """What a handler raises on purpose."""


def _event(kind: Kind, task: Task, how: str = "") -> Event:
    owner = OWNER.get()
    return Event(
        kind,
        f"{task.id}#{task.stage}" if task.stage else task.id,
        clock.now(),
        group=task.group,
        tenant=task.tenant,
        n=int(task.json()["n"]),
        fence=task.fence,
        attempt=task.attempt,
        crashes=task.crashes,
        pid=owner.process.pid if owner is not None else 0,
        wall=clock.wall(),
        enqueued_at=task.enqueued_at,
        how=how,
        lost_leases=task.lost_leases,
    )


def app_of(write: Write, chance: Random) -> App:
    """An application whose handlers tell `write` what happens to them."""
    app = App()

    @contextmanager
    def noted(task: Task) -> Iterator[None]:
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

    async def pass_time() -> None:
        await asyncio.sleep(chance.uniform(0.002, 0.05))

    @app.handler("work")
    async def work(task: Task) -> None:
        with noted(task):
            await pass_time()

    @app.handler("slow")
    async def slow(task: Task) -> None:
        with noted(task):
            await asyncio.sleep(chance.uniform(0.3, 3.0))

    @app.handler("flaky")
    async def flaky(task: Task) -> None:
        with noted(task):
            await pass_time()
            if task.attempt == 1:
                raise Unlucky("once")

    @app.handler("bad")
    async def bad(task: Task) -> None:
        with noted(task):
            await pass_time()
            raise Unlucky("always")

    @app.handler("stages")
    async def stages(task: Task) -> Advance | None:
        with noted(task):
            await pass_time()
            if not task.stage:
                return Advance("second", {"from": task.fence})
            await asyncio.sleep(chance.uniform(0.0, 0.4))
            return None

    @app.batch_handler("batch", size=BATCH)
    async def batch(tasks: Sequence[Task]) -> list[Retry | None]:
        told: list[Retry | None] = []
        for task in tasks:
            try:
                with noted(task):
                    await pass_time()
                    if task.attempt == 1 and int(task.json()["n"]) % 9 == 0:
                        raise Unlucky("once")
            except Unlucky as error:
                told.append(Retry(after=0.05, reason=str(error)))
                break
            told.append(None)
        return told + [None] * (len(tasks) - len(told))

    return app
