"""`python -m tests.verification.bench.measures`: what counting costs a task.

First the bare cost, of a task that is enqueued, claimed, handled and settled in exchanges of 16.
Then the same work drained through exchanges and workers on a private Redis, in turn with and
without counting, as a ratio within one run. All of it is CPU time of this process, so that a busy
machine tells much the same.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import structlog

from groupflow import App, Task
from groupflow.core.measures import Histogram, IntakeMeasures, PoolMeasures, ScriptMeasures, Types
from groupflow.flow.counting import count_batch, count_exchange
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.python_handlers import PythonRunners
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.keys import Keys
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Complete, Settlement

TYPE = "import.contacts"
WORKERS = 16
TASKS = 10_000
ROUNDS = 6  # of each kind


def _bare(repeats: int = 20_000) -> float:
    """Microseconds a task for all that is counted on its way."""
    types = Types([TYPE, *(f"other.{n}" for n in range(20))])
    pool, intake, scripts = PoolMeasures(types), IntakeMeasures(), ScriptMeasures()
    task = Task(id="t", type=TYPE)
    claims = [Claim(f"w-{n}", n, b"", task, None, waited=0.012 * n) for n in range(WORKERS)]
    settled: list[Settlement] = [Complete(claim) for claim in claims]
    envelope = Envelope(TYPE, "g", "1", "r", {}, b"{}")
    arrivals = [Arrival(str(n), envelope) for n in range(WORKERS)]
    enqueued = Enqueued(0, [True] * WORKERS)
    began = process_time()
    for _ in range(repeats):
        count_batch(intake, arrivals, enqueued)
        scripts.observe("enqueue", 0.001)
        count_exchange(pool, settled, [], claims)
        scripts.observe("exchange", 0.001)
        for _ in claims:
            then = perf_counter()
            pool.types.of(TYPE).handling.observe(perf_counter() - then)
    return (process_time() - began) / repeats / WORKERS * 1e6


async def _drain(client: StoreClient, session: Session, app: App, done: Callable[[], int]) -> float:
    """Microseconds of our own CPU time a task, through exchanges and workers."""
    enqueuer = Enqueuer(client)
    before = done()
    for first in range(0, TASKS, 500):
        await enqueuer.enqueue(
            [
                Arrival(f"{before + n}", Envelope(TYPE, f"g:{n % 1000}", "1", "r", {}, b"{}"))
                for n in range(first, first + 500)
            ]
        )
    dispatcher = Dispatcher(PoolMeasures(Types([TYPE])))
    exchanger = Exchanger(dispatcher, Claims(client, session, "grouped"))
    with ThreadPoolExecutor(1) as threads:
        rules = Rules(PythonRunners(app, threads), Settings().policies(), 3)
        workers = [LocalWorker(f"grouped-{n}", dispatcher, rules) for n in range(WORKERS)]
        serving = asyncio.create_task(exchanger.run())
        running = [asyncio.create_task(each.run()) for each in workers]
        began = process_time()
        while done() < before + TASKS:
            await asyncio.sleep(0.005)
        seconds = process_time() - began
        dispatcher.stop_claiming()
        await asyncio.wait(running)
        serving.cancel()
        await asyncio.wait([serving])
    return seconds / TASKS * 1e6


def _without_counting() -> ExitStack:
    def nothing(*_: Any) -> None: ...

    stack = ExitStack()
    stack.enter_context(patch("groupflow.flow.exchange.count_exchange", nothing))
    stack.enter_context(patch.object(Histogram, "observe", nothing))
    stack.enter_context(patch.object(ScriptMeasures, "observe", nothing))
    return stack


async def main() -> None:
    """Measure, and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(f"bare: {min(_bare() for _ in range(5)):.2f} µs a task")
    app, handled = App(), 0

    @app.handler(TYPE)
    async def handle(task: Task) -> None:
        nonlocal handled
        handled += 1

    rates: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory(prefix="groupflow-bench-") as folder:
        async with RedisServer(Path(folder)) as redis:
            keys = Keys("bench")
            client = StoreClient(redis.url, keys, timeout=60.0)
            session = Session("bench")
            await Sessions(client, session, 3600.0).register({})
            await _drain(client, session, app, lambda: handled)  # warms up; not counted
            for _ in range(ROUNDS):
                rates["with"].append(await _drain(client, session, app, lambda: handled))
                with _without_counting():
                    rates["without"].append(await _drain(client, session, app, lambda: handled))
            await client.close()
    for kind, found in rates.items():
        print(f"{kind} counting: {median(found):.1f} µs a task (best {min(found):.1f})")
    pairs = [a / b for a, b in zip(rates["with"], rates["without"], strict=True)]
    print(
        f"ratio, with to without: median {median(pairs):.3f}, {min(pairs):.3f} to {max(pairs):.3f}"
    )


if __name__ == "__main__":
    asyncio.run(main())
