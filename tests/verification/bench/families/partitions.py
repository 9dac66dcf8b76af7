"""partitions: what a task costs where its namespace lies over several, on one Redis and on two.

On one Redis, what is measured is what it costs to have more of them. What they are for, more work
than one process can do, a machine of two cores that runs a daemon as well can't show; what it can
is whether two processes have more work to do, together, than one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice

from groupflow.store.partitions import partition_of
from tests.verification.bench.bench import Bench
from tests.verification.bench.draining import drain
from tests.verification.bench.load import Load
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Row

NUMBERS = (2, 4, 16)
PROCESSES, ON_PROCESSES = 2, 4  # so many partitions lie evenly on so many nodes of a cluster
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
    if bench.wants("partitions.processes"):
        title = f"{ON_PROCESSES} partitions on {PROCESSES} Redis processes"
        sides = Sides(f"{ON_PROCESSES} on 1", (ON_PROCESSES, PROCESSES), (ON_PROCESSES, 1))
        for row in await _rows(bench, "processes", title, ON_PROCESSES, spread, sides=sides):
            yield row


@dataclass(frozen=True, slots=True)
class Sides:
    """What stands beside what: so many partitions on so many processes of a cluster (0: none)."""

    beside: str
    ours: tuple[int, int]
    theirs: tuple[int, int] = (1, 0)


async def _rows(
    bench: Bench, key: str, title: str, number: int, load: Load, *, sides: Sides | None = None
) -> list[Row]:
    sides = sides or Sides("1 partition", (number, 0))
    rows = [
        Row(f"partitions.{key}.{name}", f"{what}, {title}", "µs", beside=sides.beside)
        for name, what in _MICROSECONDS.items()
    ]
    rate = f"partitions.{key}.rate"
    rows.append(Row(rate, f"drain, {title}", "tasks/s", beside=sides.beside))

    async def turn(partitions: int, processes: int) -> Turn:
        found = await drain(
            bench, load, workers=WORKERS, partitions=partitions, processes=processes
        )
        bench.check(f"partitions.{key}", found, load)
        figures = found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu, found.rate
        return Turn(
            {row.key: figure for row, figure in zip(rows, figures, strict=True)},
            {"redis_calls_per_task": found.redis_calls},
        )

    turns = {OURS: partial(turn, *sides.ours), sides.beside: partial(turn, *sides.theirs)}
    await take_turns(bench, rows, turns)
    return rows
