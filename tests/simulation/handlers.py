"""The application of a simulated daemon: coroutines that write down their starts and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from groupflow import App, Retry, Scan, Task
from tests.history import handlers
from tests.history.events import Event
from tests.history.handlers import Write, noted
from tests.simulation.clock import pass_virtual
from tests.simulation.processes import OWNER

QUICK, SLOW = (0.002, 0.05), (0.3, 3.0)  # seconds


def app_of(write: Write, chance: Random, scans: Sequence[Scan] = ()) -> App:
    """An application whose handlers tell `write` what happens to them, and in which process."""

    def tell(event: Event) -> None:
        owner = OWNER.get()
        write(replace(event, pid=owner.process.pid if owner is not None else 0))

    app = handlers.app_of(tell, chance, quick=QUICK, slow=SLOW)

    @app.handler("group-later")
    async def group_later(task: Task) -> Retry | None:
        with noted(tell, task):
            await pass_virtual(chance.uniform(*QUICK))
            return Retry(after=0.3, scope="group") if task.attempt == 1 else None

    @app.handler("tenant-later")
    async def tenant_later(task: Task) -> Retry | None:
        with noted(tell, task):
            await pass_virtual(chance.uniform(*QUICK))
            return Retry(after=0.3, scope="tenant") if task.attempt == 1 else None

    for scan in scans:
        app.include(scan)
    return app
