"""drain, ideal, partitions, cost: daemons empty a full queue, as one table of shapes.

- drain: no-op tasks, beside all peers.
- ideal: handlers that take time, against the best that any queue could do with them.
- partitions: what a task costs where its namespace lies over several. On one Redis that is what
  it costs to have more of them. What they are for, more work than one process can do, a machine of
  two cores that runs a daemon as well can't show; what it can is whether two processes have more
  work to do, together, than one.
- cost: processor time a task, of the code as it is here beside an older commit (`BASE`); for who
  changes something, and no part of the table. Both sides lie in folders of their own, run in the
  same environment, and are measured by the benchmark of now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial
from itertools import count, islice
from typing import Any

from groupflow.store.partitions import partition_of
from tests.verification.bench import source
from tests.verification.bench.bench import Bench
from tests.verification.bench.draining import drain as drained
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import (
    PeerFailed,
    private_postgres,
    run_groupmq,
    run_python,
)
from tests.verification.bench.records import Records
from tests.verification.bench.rounds import Side, Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

How = Mapping[str, Any]  # the arguments of a drain

# drain: key, title, workers, groups, share of one hot group, times GroupMQ, run
SHAPES: tuple[tuple[str, str, int, int, float, float, int], ...] = (
    ("drain.16", "drain, 1,000 groups, 16 workers", 16, 1000, 0.0, 2.0, 1),
    ("drain.64", "drain, 1,000 groups, 64 workers", 64, 1000, 0.0, 2.5, 1),
    ("drain.hot", "drain, half in one hot group, 16 workers", 16, 1000, 0.5, 1.3, 1),
    ("drain.run", "drain, half in one hot group, 16 workers, in runs", 16, 1000, 0.5, 4.0, 32),
    ("drain.10", "drain, 10 groups, 16 workers", 16, 10, 0.0, 2.0, 1),
)
SLOW_PEERS_SECONDS = 6.0  # a peer that isn't done by then is measured by what it did
GROUPMQ, IDEAL = "GroupMQ", "the ideal"

SWEEP, QUICK_SWEEP, RUN_SWEEP = (1, 2, 5, 10, 20, 100, 1_000, 10_000), (10,), (1, 2, 5, 10, 20)
SWEEP_WORKERS = 100
TURN = 3  # seconds that a turn may drain, so that few groups have few tasks
NOOPS_FROM = 50  # groups: with fewer, our rate without handler time is far above what groups allow

NUMBERS = (2, 4, 16)
PROCESSES, ON_PROCESSES = 2, 4  # so many partitions lie evenly on so many nodes of a cluster
GROUPS = 1_000
MICROSECONDS = {
    "daemon": "daemon, claim to settle",
    "redis": "Redis, claim to settle",
    "intake": "daemon and page, RabbitMQ to Redis",
    "enqueue": "Redis, enqueue",
}

COSTS = {  # key: title, workers, groups, share of one hot group
    "64": ("64 workers", 64, 1_000, 0.0),
    "16": ("16 workers", 16, 1_000, 0.0),
    "hot": ("half in one hot group, 16 workers", 16, 1_000, 0.5),
    "10": ("10 groups, 16 workers", 16, 10, 0.0),
}


async def drain(bench: Bench) -> AsyncIterator[Row]:
    """Ours and GroupMQ by turns, then the slower ones once each, beside ours as by default."""
    for key, title, workers, groups, hot, times, run in SHAPES:
        if not bench.wants(key):
            continue
        row = Row(key, title, "tasks/s", Goal(f"≥ {times:g} times {GROUPMQ}", times), GROUPMQ)
        row.off = f"run = {run}" if run > 1 else ""
        load = Load(bench.pick(20_000, 5_000), groups, hot)

        async def peer(
            name: str, row: Row = row, load: Load = load, workers: int = workers
        ) -> Turn:
            found = await PEERS[name](bench, load, workers)
            is_whole = name == GROUPMQ or len(found) >= load.tasks
            bench.judge(row, name, found, load, is_whole=is_whole)
            return Turn({row.key: found.rate})

        ours = partial(_ours, bench, row, load, {"workers": workers, "run": run})
        await take_turns(bench, [row], {OURS: ours, GROUPMQ: partial(peer, GROUPMQ)})
        for name in () if bench.quick or run > 1 else [name for name in PEERS if name != GROUPMQ]:
            try:
                row.once[name] = (await peer(name)).figures[key]
            except PeerFailed as error:
                bench.problems.append(f"{key}: {name}: {error}")
        yield row


async def _ours(bench: Bench, row: Row, load: Load, how: How) -> Turn:
    found = await drained(bench, load, **how)
    bench.judge(row, OURS, found, load)
    details = {
        "cpu_us_per_task": found.cpu,
        "redis_cpu_us_per_task": found.redis_cpu,
        "redis_calls_per_task": found.redis_calls,
        "intake_cpu_us_per_task": found.intake_cpu,
        "enqueue_redis_cpu_us_per_task": found.enqueue_cpu,
    }
    return Turn({row.key: found.rate}, details)


async def _groupmq(bench: Bench, load: Load, workers: int) -> Records:
    async with bench.redis() as (server, folder):
        return await run_groupmq(server.url, load, folder, workers=workers)


async def _source(bench: Bench, load: Load, workers: int) -> Records:
    async with bench.redis() as (server, _):
        return await _python("plain_copy", bench, load, workers, server.url)


async def _rabbitmq(bench: Bench, load: Load, workers: int) -> Records:
    return await _python("rabbitmq_alone", bench, load, workers, await bench.rabbitmq())


async def _procrastinate(bench: Bench, load: Load, workers: int) -> Records:
    async with private_postgres() as server:
        url = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
        return await _python("procrastinate_locks", bench, load, workers, url)


async def _python(name: str, bench: Bench, load: Load, workers: int, url: str) -> Records:
    with bench.folder() as folder:
        return await run_python(
            name, load, folder, workers=workers, seconds=SLOW_PEERS_SECONDS, facts={"url": url}
        )


PEERS: dict[str, Callable[[Bench, Load, int], Awaitable[Records]]] = {
    GROUPMQ: _groupmq,
    "RabbitMQ alone": _rabbitmq,
    "Procrastinate": _procrastinate,
    "the source's loop": _source,
}


async def ideal(bench: Bench) -> AsyncIterator[Row]:
    """Ours with handlers that take time and, where that may be what limits it, without."""
    most = bench.pick(10_000, 2_000)
    rows = [("ideal.5ms", "64 workers, handler of 5 ms, 1,000 groups", 64, 0.90, 1)]
    loads = [Load(bench.pick(20_000, 5_000), 1_000, handler_ms=5)]
    sweeps = [(groups, "sweep", 0.85, 1) for groups in (QUICK_SWEEP if bench.quick else SWEEP)]
    sweeps += [] if bench.quick else [(groups, "run", 0.92, 32) for groups in RUN_SWEEP]
    for groups, kind, at, run in sweeps:
        title = f"2 ms, {SWEEP_WORKERS} workers, {groups:,} groups{', in runs' * (run > 1)}"
        rows.append((f"ideal.{kind}.{groups}", title, SWEEP_WORKERS, at, run))
        loads.append(Load(min(most, groups * 400 * TURN), groups, handler_ms=2))
    for (key, title, workers, at, run), load in zip(rows, loads, strict=True):
        if bench.wants(key):
            row = Row(key, title, "tasks/s", Goal(f"≥ {at:.0%} of the ideal", at), IDEAL)
            row.off = f"run = {run}" if run > 1 else ""
            yield await _against_the_ideal(bench, row, load, workers, run)


async def _against_the_ideal(bench: Bench, row: Row, load: Load, workers: int, run: int) -> Row:
    async def ours() -> Turn:
        records = await drained(bench, load, workers=workers, run=run)
        bench.judge(row, OURS, records, load)
        seconds = records.handler_seconds
        best = min(workers, load.groups) / seconds
        return Turn(
            {row.key: records.rate}, {"handler_ms": seconds * 1000}, {row.key: {IDEAL: best}}
        )

    async def noops() -> Turn:
        nothing = Load(bench.pick(20_000, 5_000), 1_000)
        records = await drained(bench, nothing, workers=workers)
        bench.check(row.key, records, nothing)
        return Turn({row.key: records.rate}, beside={row.key: {IDEAL: records.rate}})

    sides: dict[str, Side] = {OURS: ours}
    if load.groups >= NOOPS_FROM:
        sides["ours without handler time"] = noops
    await take_turns(bench, [row], sides)
    return row


class InOnePartition(Load):
    """A load whose groups all lie in one of the most partitions."""

    def group_of(self, number: int) -> int:
        """The number of a task's group."""
        return _groups_of_one()[number % self.groups]


@cache
def _groups_of_one() -> list[int]:
    lying = (n for n in count() if partition_of(f"g{n}", "", NUMBERS[-1]) == 0)
    return list(islice(lying, GROUPS))


async def partitions(bench: Bench) -> AsyncIterator[Row]:
    """Each number of partitions beside one: all of its rows come from the same turns."""
    tasks, most, one = bench.pick(20_000, 5_000), NUMBERS[-1], {"partitions": 1}
    spread, on = Load(tasks, GROUPS), f"{ON_PROCESSES} on 1"
    four = {"partitions": ON_PROCESSES}
    numbers = [most] if bench.quick else NUMBERS
    table: list[tuple[str, str, Load, How, str, How]] = [
        (f"{n}", f"{n} partitions", spread, {"partitions": n}, "1 partition", one) for n in numbers
    ]
    title, crowded = f"{most} partitions, work in 1", InOnePartition(tasks, GROUPS)
    table.append(("one", title, crowded, {"partitions": most}, "1 partition", one))
    title = f"{ON_PROCESSES} partitions on {PROCESSES} Redis processes"
    two = four | {"processes": PROCESSES}
    table.append(("processes", title, spread, two, on, four | {"processes": 1}))
    for name, title, load, ours, beside, theirs in table:
        if bench.wants(f"partitions.{name}"):
            sides = {OURS: {"workers": 64, **ours}, beside: {"workers": 64, **theirs}}
            for row in await _compared(bench, f"partitions.{name}", title, load, sides):
                yield row


async def cost(bench: Bench) -> AsyncIterator[Row]:
    """The code of now beside older code: all rows of a shape come from the same turns."""
    base = source.resolve(bench.base)
    with bench.folder() as folder:
        here = source.take_from_here(folder / "here")
        there = source.take_from_history(base, folder / "there")
        for name, (title, workers, groups, hot) in COSTS.items():
            if bench.wants(f"cost.{name}"):
                how = {"workers": workers}
                sides = {OURS: how | {"code": here}, f"at {base[:10]}": how | {"code": there}}
                load, rounds = Load(30_000, groups, hot), bench.pairs
                rows = await _compared(bench, f"cost.{name}", title, load, sides, rounds)
                for row in rows:
                    yield row


async def _compared(  # noqa: PLR0917  a row of a table
    bench: Bench,
    key: str,
    title: str,
    load: Load,
    sides: Mapping[str, How],
    rounds: int | None = None,
) -> list[Row]:
    """Processor time a task of two ways to drain a load, and their rates."""
    beside = next(who for who in sides if who != OURS)
    rows = [
        Row(f"{key}.{name}", f"{what}, {title}", "µs", beside=beside)
        for name, what in MICROSECONDS.items()
    ]
    rows.append(Row(f"{key}.rate", f"drain, {title}", "tasks/s", beside=beside))

    async def turn(how: How) -> Turn:
        found = await drained(bench, load, **how)
        bench.check(key, found, load)
        figures = found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu, found.rate
        return Turn(
            {row.key: figure for row, figure in zip(rows, figures, strict=True)},
            {"redis_calls_per_task": found.redis_calls},
        )

    turns = {who: partial(turn, how) for who, how in sides.items()}
    await take_turns(bench, rows, turns, rounds=rounds)
    return rows
