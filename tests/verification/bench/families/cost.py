"""cost: processor time a task, of the code as it is here beside an older commit (`BASE`).

Not part of the table: for who changes something and wants to know what it costs or saves. Both
sides lie in folders of their own, run in the same environment, and are measured by the benchmark
of now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from tests.verification.bench import source
from tests.verification.bench.bench import Bench
from tests.verification.bench.draining import drain
from tests.verification.bench.load import Load
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Row

TASKS = 30_000
_SHAPES = {  # key: workers, groups, share of one hot group
    "64": ("64 workers", 64, 1_000, 0.0),
    "16": ("16 workers", 16, 1_000, 0.0),
    "hot": ("half in one hot group, 16 workers", 16, 1_000, 0.5),
    "10": ("10 groups, 16 workers", 16, 10, 0.0),
}
_MICROSECONDS = {
    "daemon": "daemon, claim to settle",
    "redis": "Redis, claim to settle",
    "intake": "daemon and page, RabbitMQ to Redis",
    "enqueue": "Redis, enqueue",
}


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows: all of a shape come from the same turns."""
    base = source.resolve(bench.base)
    with bench.folder() as folder:
        here = source.take_from_here(folder / "here")
        there = source.take_from_history(base, folder / "there")
        for key in _SHAPES:
            if bench.wants(f"cost.{key}"):
                for row in await _shape(bench, key, here, there, f"at {base[:10]}"):
                    yield row


async def _shape(bench: Bench, key: str, here: Path, there: Path, beside: str) -> list[Row]:
    title, workers, groups, hot = _SHAPES[key]
    load = Load(TASKS, groups, hot)
    rows = [
        Row(f"cost.{key}.{name}", f"{what}, {title}, a task", "µs", beside=beside)
        for name, what in _MICROSECONDS.items()
    ]
    rows.append(Row(f"cost.{key}.rate", f"drain, {title}", "tasks/s", beside=beside))

    async def turn(code: Path) -> Turn:
        found = await drain(bench, load, workers=workers, code=code)
        bench.check(f"cost.{key}", found, load)
        figures = found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu, found.rate
        return Turn(
            {row.key: figure for row, figure in zip(rows, figures, strict=True)},
            {"redis_calls_per_task": found.redis_calls},
        )

    sides = {OURS: partial(turn, here), beside: partial(turn, there)}
    await take_turns(bench, rows, sides, rounds=bench.pairs)
    return rows
