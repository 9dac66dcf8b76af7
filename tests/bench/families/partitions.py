"""partitions: what a task costs where its namespace lies over several, all on one Redis.

One process has all of them, so what is measured is what it costs to have more of them. What they
are for, more processes than one, a machine of two cores that runs a daemon as well can't show.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache, partial
from itertools import count, islice

from groupflow.store.partitions import partition_of
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


class InOnePartition(Load):
    """A load whose groups all lie in one of the most partitions."""

    def group_of(self, number: int) -> int:
        """The number of a task's group."""
        return _groups_of_one()[number % self.groups]


@cache
def _groups_of_one() -> list[int]:
    lying = (n for n in count() if partition_of(f"g{n}", "", NUMBERS[-1]) == 0)
    return list(islice(lying, GROUPS))


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure each number of partitions beside one: all of its rows come from the same turns."""
    tasks, most = bench.pick(20_000, 5_000), NUMBERS[-1]
    spread = Load(tasks, GROUPS, 0.0)
    for number in [most] if bench.quick else NUMBERS:
        if bench.wants(f"partitions.{number}"):
            for row in await _rows(bench, str(number), f"{number} partitions", number, spread):
                yield row
    if bench.wants("partitions.one"):
        title = f"{most} partitions, work in 1"
        for row in await _rows(bench, "one", title, most, InOnePartition(tasks, GROUPS)):
            yield row


async def _rows(bench: Bench, key: str, title: str, number: int, load: Load) -> list[Row]:
    beside = "1 partition"
    rows = [
        Row(f"partitions.{key}.{name}", f"{what}, {title}", "µs", beside=beside)
        for name, what in _MICROSECONDS.items()
    ]
    rows.append(Row(f"partitions.{key}.rate", f"drain, {title}", "tasks/s", beside=beside))

    async def turn(partitions: int) -> Turn:
        found = await drain(bench, load, workers=WORKERS, partitions=partitions)
        bench.check(f"partitions.{key}", found, load)
        figures = found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu, found.rate
        return Turn(
            {row.key: figure for row, figure in zip(rows, figures, strict=True)},
            {"redis_calls_per_task": found.redis_calls},
        )

    await take_turns(bench, rows, {OURS: partial(turn, number), beside: partial(turn, 1)})
    return rows
