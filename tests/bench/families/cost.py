"""cost: processor time a task, of the code as it is here beside an older commit (`BASE`).

Not part of the table: for who changes something and wants to know what it costs or saves. Both
sides lie in folders of their own, run in the same environment, and are measured by the benchmark
of now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from tests.bench import source
from tests.bench.bench import Bench
from tests.bench.draining import drain
from tests.bench.load import Load
from tests.bench.rounds import Turn, take_turns
from tests.bench.rows import OURS, Row

TASKS, WORKERS, GROUPS = 30_000, 64, 1_000
TITLES = {
    "daemon": "daemon, claim to settle",
    "redis": "Redis, claim to settle",
    "intake": "daemon and page, RabbitMQ to Redis",
    "enqueue": "Redis, enqueue",
}


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows: all of them come from the same turns."""
    base = source.resolve(bench.base)
    load = Load(TASKS, GROUPS)
    short = f"at {base[:10]}"
    rows = [
        Row(f"cost.{name}", f"{title}, {WORKERS} workers, a task", "µs", beside=short)
        for name, title in TITLES.items()
    ]

    async def turn(code: Path) -> Turn:
        found = await drain(bench, load, workers=WORKERS, code=code)
        for row in rows:
            bench.check(row.key, found, load)
        figures = (found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu)
        return Turn(
            {row.key: figure for row, figure in zip(rows, figures, strict=True)},
            {"tasks_per_second": found.rate, "redis_calls_per_task": found.redis_calls},
        )

    with bench.folder() as folder:
        here = source.take_from_here(folder / "here")
        there = source.take_from_history(base, folder / "there")
        sides = {OURS: partial(turn, here), short: partial(turn, there)}
        await take_turns(bench, rows, sides, rounds=bench.pairs)
    for row in rows:
        yield row
