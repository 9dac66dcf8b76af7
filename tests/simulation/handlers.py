"""The application of a simulated daemon: coroutines that write down their starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from groupflow import Advance, App, Retry, Scan, Task
from tests.history.configuration import BATCH
from tests.history.events import Event, Kind
from tests.simulation import clock
from tests.simulation.processes import OWNER

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


@dataclass(frozen=True, slots=True)
class Noting:
    """How handlers tell what happens to them, and pass time."""

    write: Write
    chance: Random

    @contextmanager
    def noted(self, task: Task) -> Iterator[None]:
        """Write down an attempt's start and end."""
        self.write(_event("start", task))
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
            self.write(_event("end", task, how))

    async def pass_time(self) -> None:
        """Take some milliseconds."""
        await asyncio.sleep(self.chance.uniform(0.002, 0.05))


def app_of(write: Write, chance: Random, scans: Sequence[Scan] = ()) -> App:
    """An application whose handlers tell `write` what happens to them."""
    app, noting = App(), Noting(write, chance)
    _register_quick(app, noting)
    _register_failing(app, noting)
    for scan in scans:
        app.include(scan)
    return app


def _register_quick(app: App, noting: Noting) -> None:
    noted, pass_time = noting.noted, noting.pass_time

    @app.handler("work")
    async def work(task: Task) -> None:
        with noted(task):
            await pass_time()

    @app.handler("slow")
    async def slow(task: Task) -> None:
        with noted(task):
            await asyncio.sleep(noting.chance.uniform(0.3, 3.0))

    @app.handler("stages")
    async def stages(task: Task) -> Advance | None:
        with noted(task):
            await pass_time()
            if not task.stage:
                return Advance("second", {"from": task.fence})
            await asyncio.sleep(noting.chance.uniform(0.0, 0.4))
            return None


def _register_failing(app: App, noting: Noting) -> None:
    noted, pass_time = noting.noted, noting.pass_time

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

    @app.handler("group-later")
    async def group_later(task: Task) -> Retry | None:
        with noted(task):
            await pass_time()
            return Retry(after=0.3, scope="group") if task.attempt == 1 else None

    @app.handler("tenant-later")
    async def tenant_later(task: Task) -> Retry | None:
        with noted(task):
            await pass_time()
            return Retry(after=0.3, scope="tenant") if task.attempt == 1 else None

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
