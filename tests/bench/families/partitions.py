"""partitions: what a task costs where its namespace lies over several, all on one Redis.

One process has all of them, so what is measured is what it costs to have more of them. What they
are for, more processes than one, a machine of two cores that runs a daemon as well can't show.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from tests.bench.bench import Bench
from tests.bench.draining import drain
from tests.bench.load import Load
from tests.bench.rounds import Turn, take_turns
from tests.bench.rows import OURS, Row

NUMBERS = (2, 4, 16)
WORKERS = 64
GROUPS = 1_000
_MICROSECONDS = {
    "daemon": "daemon, claim to settle",
    "redis": "Redis, claim to settle",
    "intake": "daemon and page, RabbitMQ to Redis",
    "enqueue": "Redis, enqueue",
}


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure each number of partitions beside one: all of its rows come from the same turns."""
    for number in NUMBERS[-1:] if bench.quick else NUMBERS:
        if bench.wants(f"partitions.{number}"):
            for row in await _number(bench, number):
                yield row


async def _number(bench: Bench, number: int) -> list[Row]:
    load, beside = Load(bench.pick(20_000, 5_000), GROUPS, 0.0), "1 partition"
    rows = [
        Row(f"partitions.{number}.{name}", f"{what}, {number} partitions", "µs", beside=beside)
        for name, what in _MICROSECONDS.items()
    ]
    rows.append(Row(f"partitions.{number}.rate", "the same, drain", "tasks/s", beside=beside))

    async def turn(partitions: int) -> Turn:
        found = await drain(bench, load, workers=WORKERS, partitions=partitions)
        bench.check(f"partitions.{number}", found, load)
        figures = found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu, found.rate
        return Turn(
            {row.key: figure for row, figure in zip(rows, figures, strict=True)},
            {"redis_calls_per_task": found.redis_calls},
        )

    await take_turns(bench, rows, {OURS: partial(turn, number), beside: partial(turn, 1)})
    return rows
