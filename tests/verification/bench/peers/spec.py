"""The argument of a Python peer, and the records that it leaves."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic_ns, process_time
from typing import Any

import uvloop

from tests.verification.bench.load import Load
from tests.verification.bench.records import Recorder


class Spec:
    """What this process has to do.

    Attributes:
        load: the tasks.
        workers: how many may run at once.
        url: its server.
        queue: where somebody else queues the tasks; empty where the peer fills its own.
        is_over: whether `finish` has written the records, so that nothing counts any more.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.load = Load(**facts["load"])
        self.workers: int = facts["workers"]
        self.url: str = facts["url"]
        self.queue: str = facts.get("queue", "")
        self._seconds: float = facts["seconds"]
        self._until: int = facts["until"]
        self._records = Path(facts["records"])
        self._recorder = Recorder()
        self._reached = asyncio.Event()
        self.is_over = False
        self._cpu = 0.0

    async def handle(self, number: int) -> None:
        """What the handler of a task does, in every peer."""
        start = monotonic_ns()
        if self.load.handler_ms:
            await asyncio.sleep(self.load.handler_ms / 1000)
        self.note(number, start)

    def note(self, number: int, start: int) -> None:
        """Record a task that ends now."""
        self._recorder.add(number, start, monotonic_ns())
        if len(self._recorder) >= self._until:
            self._reached.set()

    def begin(self) -> None:
        """All is ready; from here on processor time counts."""
        self._cpu = process_time()
        Path(f"{self._records}.begun").touch()

    async def finish(self) -> None:
        """Wait until all tasks are recorded or the time is over, and write what is there."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._reached.wait()
        except TimeoutError:
            pass
        Path(f"{self._records}.cpu").write_text(str(process_time() - self._cpu))  # noqa: ASYNC240
        self._recorder.write(self._records)
        self.is_over = True


def main(run: Callable[[Spec], Coroutine[Any, Any, None]]) -> None:
    """Run a peer with this process's argument, on uvloop as ours."""

    async def start() -> None:
        await run(Spec(json.loads(sys.argv[1])))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(start())
