"""drain, ideal, beside, partitions, cost: daemons empty a full queue.

- drain: no-op tasks, beside all peers.
- ideal: handlers that take time, against the best that any queue could do with them.
- beside: plain tasks beside a flood of grouped ones; a second daemon on the same machine.
- partitions: what a task costs where its namespace lies over several, on one Redis.
- cost: processor time a task, of the code as it is here beside an older commit (`BASE`); for who
  changes something, and no part of the table. Both sides lie in folders of their own, run in the
  same environment, and are measured by the benchmark of now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from tests.verification.bench import source
from tests.verification.bench.bench import Bench, Side, Turn
from tests.verification.bench.draining import FLOOD
from tests.verification.bench.draining import drain as drained
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import GROUPMQ, PeerFailed, private_postgres, run_peer
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
# Slower ones, which have one turn each; with what of `peers.python` that is.
SLOW_PEERS = {
    "RabbitMQ alone": "rabbitmq", "Procrastinate": "procrastinate", "the source's loop": "source"
}  # fmt: skip
SLOW_PEERS_SECONDS = 6.0  # a peer that isn't done by then is measured by what it did

IDEAL = "the ideal"
SWEEP, QUICK_SWEEP, RUN_SWEEP = (1, 2, 5, 10, 20, 100, 1_000, 10_000), (10,), (1, 2, 5, 10, 20)
SWEEP_WORKERS = 100
TURN = 3  # seconds that a turn may drain, so that few groups have few tasks
NOOPS_FROM = 50  # groups: with fewer, our rate without handler time is far above what groups allow

ALONE, ONE_DAEMON = "alone", "one daemon"
PARTITIONS = 16
MICROSECONDS = {
    "daemon": "daemon, claim to settle",
    "redis": "Redis, claim to settle",
    "intake": "daemon and page, RabbitMQ to Redis",
    "enqueue": "Redis, enqueue",
}


async def _ours(bench: Bench, row: Row, load: Load, **how: Any) -> Turn:
    found = await drained(bench, load, **how)
    bench.judge(row, found, load)
    return Turn({row.key: found.rate})


async def drain(bench: Bench) -> AsyncIterator[Row]:
    """Ours and GroupMQ by turns, then the slower ones once each, beside ours as by default."""
    for key, title, workers, groups, hot, times, run in SHAPES:
        if not bench.wants(key):
            continue
        row = Row(key, title, "tasks/s", Goal(f"≥ {times:g} times {GROUPMQ}", times), GROUPMQ)
        row.off = f"run = {run}" if run > 1 else ""
        load = Load(bench.pick(20_000, 5_000), groups, hot)
        ours = partial(_ours, bench, row, load, grouped=workers, run=run)
        peer = partial(_peer, bench, row, load, workers)
        await bench.take_turns([row], {OURS: ours, GROUPMQ: partial(peer, GROUPMQ)})
        for name in () if bench.quick or run > 1 else SLOW_PEERS:
            try:
                row.once[name] = (await peer(name)).figures[key]
            except PeerFailed as error:
                bench.problems.append(f"{key}: {name}: {error}")
        yield row


async def _peer(bench: Bench, row: Row, load: Load, workers: int, name: str) -> Turn:
    async with AsyncExitStack() as stack:
        redis, folder = await stack.enter_async_context(bench.redis())
        url = redis.url
        if name == "RabbitMQ alone":
            url = await bench.rabbitmq()
        elif name == "Procrastinate":
            port = (await stack.enter_async_context(private_postgres())).port
            url = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        seconds = 60.0 if name == GROUPMQ else SLOW_PEERS_SECONDS
        kind = SLOW_PEERS.get(name, name)
        found = await run_peer(kind, load, folder, url, workers=workers, seconds=seconds)
    is_whole = name == GROUPMQ or len(found) >= load.tasks
    bench.judge(row, found, load, who=name, is_whole=is_whole)
    return Turn({row.key: found.rate})


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
        records = await drained(bench, load, grouped=workers, run=run)
        bench.judge(row, records, load)
        best = min(workers, load.groups) / records.handler_seconds
        return Turn({row.key: records.rate}, {row.key: {IDEAL: best}})

    async def noops() -> Turn:
        nothing = Load(bench.pick(20_000, 5_000), 1_000)
        rate = (await _ours(bench, row, nothing, grouped=workers)).figures[row.key]
        return Turn({row.key: rate}, {row.key: {IDEAL: rate}})

    sides: dict[str, Side] = {OURS: ours}
    if load.groups >= NOOPS_FROM:
        sides["ours without handler time"] = noops
    await bench.take_turns([row], sides)
    return row


async def beside(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    if bench.wants("beside.plain"):
        # Handlers of 5 ms in both pools, so that it is the queue that is measured, not the loop.
        title = "plain tasks of 5 ms beside a flood of grouped ones"
        row = Row("beside.plain", title, "tasks/s", Goal("≥ 95 % of alone", 0.95), ALONE)
        tasks = bench.pick(6_000, 1_500)
        flood = Load(4 * tasks, 1_000, handler_ms=5)
        sides = {OURS: partial(_plain, bench, row, flood), ALONE: partial(_plain, bench, row)}
        await bench.take_turns([row], sides)
        yield row
    if bench.wants("beside.second") and not bench.quick:
        load = Load(20_000, 1_000)
        title = "a second daemon on the same machine"
        row = Row("beside.second", title, "tasks/s", beside=ONE_DAEMON)
        one = partial(_ours, bench, row, load)
        await bench.take_turns([row], {OURS: partial(one, daemons=2), ONE_DAEMON: one})
        yield row


async def _plain(bench: Bench, row: Row, flood: Load | None = None) -> Turn:
    # A group of its own for each plain task, so to say.
    tasks = bench.pick(6_000, 1_500)
    plain = Load(tasks, tasks, handler_ms=5, app="plain")
    records = await drained(bench, plain, flood=flood)
    if flood:
        bench.judge(row, records.between(FLOOD, FLOOD + flood.tasks), flood)
    found = records.between(0, tasks)
    bench.judge(row, found, plain)
    return Turn({row.key: found.rate})


async def partitions(bench: Bench) -> AsyncIterator[Row]:
    """Many partitions beside one."""
    key, load = f"partitions.{PARTITIONS}", Load(bench.pick(20_000, 5_000), 1_000)
    if bench.wants(key):
        many, one = ({"grouped": 64, "partitions": n} for n in (PARTITIONS, 1))
        sides = {OURS: many, "1 partition": one}
        for row in await _compared(bench, key, f"{PARTITIONS} partitions", load, sides):
            yield row


async def cost(bench: Bench) -> AsyncIterator[Row]:
    """The code of now beside older code."""
    base = source.resolve(bench.base)
    with bench.folder() as folder:
        here, there = source.take(folder / "here"), source.take(folder / "there", base)
        codes = {OURS: here, f"at {base[:10]}": there}
        for shape, title, workers, groups, hot, _, run in SHAPES:
            key = shape.replace("drain", "cost")
            if bench.wants(key) and run == 1:
                sides = {who: {"grouped": workers, "code": code} for who, code in codes.items()}
                what, load = title.removeprefix("drain, "), Load(30_000, groups, hot)
                for row in await _compared(bench, key, what, load, sides, rounds=bench.pairs):
                    yield row


async def _compared(
    bench: Bench,
    key: str,
    title: str,
    load: Load,
    sides: Mapping[str, How],
    *,
    rounds: int | None = None,
) -> list[Row]:
    """Processor time a task of two ways to drain a load, and their rates, of the same turns."""
    other = next(who for who in sides if who != OURS)
    rows = [
        Row(f"{key}.{name}", f"{what}, {title}", "µs", beside=other)
        for name, what in MICROSECONDS.items()
    ]
    rows.append(Row(f"{key}.rate", f"drain, {title}", "tasks/s", beside=other))

    async def turn(how: How) -> Turn:
        found = await drained(bench, load, **how)
        bench.judge(rows[-1], found, load)
        figures = found.cpu, found.redis_cpu, found.intake_cpu, found.enqueue_cpu, found.rate
        return Turn({row.key: figure for row, figure in zip(rows, figures, strict=True)})

    turns = {who: partial(turn, how) for who, how in sides.items()}
    await bench.take_turns(rows, turns, rounds=rounds)
    return rows
