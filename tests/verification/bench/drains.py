"""Daemons empty a full queue, beside GroupMQ, beside older code, and beside the ideal.

The tasks come through RabbitMQ, the daemon is as settings have it by default, with its page, and
stands paused until all of them wait: nothing is still starting when the clock does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from redis.asyncio import Redis

from groupflow.store.partitions import keys_of
from tests.broker.wires import bind
from tests.verification.bench.bench import Bench, Figures, Side, fill_queue
from tests.verification.bench.daemons import NAMESPACE, WITHIN, Daemon
from tests.verification.bench.load import Load
from tests.verification.bench.peers import GROUPMQ, run_peer
from tests.verification.bench.records import Records, cpu_of, read_clocks
from tests.verification.bench.rows import OURS, Row

IDEAL = "the ideal"  # the lower of workers ÷ handler time and groups ÷ handler time
ONE_PARTITION = "one partition"
UNTOLD = "nothing told"
LOOK_AT_TOTALS = 0.1  # seconds between two looks at a total
COSTS = {
    "daemon": ("daemon, claim to settle", "µs"),
    "redis": ("Redis, claim to settle", "µs"),
    "intake": ("daemon and page, RabbitMQ to Redis", "µs"),
    "enqueue": ("Redis, enqueue", "µs"),
    "memory": ("Redis memory above the body", "bytes"),
    "whole": ("daemon, page and Redis, RabbitMQ to the last event", "µs"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A load, and how it is drained.

    Attributes:
        key: of its row.
        title: of its row.
        load: the tasks.
        workers: of a daemon, or of the peer.
        beside: what it is set beside.
        least: how many times that is the goal, if there is one.
        costs: which of `COSTS` have a row of their own.
        facts: what else is said in its configuration.
    """

    key: str
    title: str
    load: Load
    workers: int
    beside: str = GROUPMQ
    least: float | None = None
    costs: tuple[str, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)


def _ideal(groups: int, tasks: int, run: int, least: float) -> Shape:
    kind, load = ("run" if run > 1 else "strict"), Load(tasks, groups, handler_ms=2)
    title = f"2 ms, 100 workers, groups: {groups}{f', `run = {run}`' * (run > 1)}"
    return Shape(f"ideal.{kind}.{groups}", title, load, 100, IDEAL, least, facts={"run": run})


_EVEN, _HOT, _RUN = Load(100_000, 1_000), Load(100_000, 1_000, hot=0.5), {"run": 32}
_BATCHES, _SLEEPING = Load(100_000, 100, type="many"), Load(100_000, 1_000, handler_ms=5)
_HALF, _CLAIM = "half in one hot group, 16 workers", ("daemon", "redis")
_PATH, _MANY, _TOLD = (*_CLAIM, "intake", "enqueue"), {"partitions": 16}, {"told": 1}
_WIDE = "1,000 groups, 64 workers, 16 partitions"
_EACH_TOLD = "1,000 groups, 16 workers, each end told"
SHAPES = (
    Shape("drain.16", "1,000 groups, 16 workers", _EVEN, 16, least=2.5, costs=(*_PATH, "memory")),
    Shape("drain.64", "1,000 groups, 64 workers", _EVEN, 64, least=2.5, costs=_CLAIM),
    Shape("drain.hot", _HALF, _HOT, 16, least=1.6),
    Shape("drain.run", f"{_HALF}, `run = 32`", _HOT, 16, least=10.0, facts=_RUN),
    Shape("drain.10", "10 groups, 16 workers", Load(60_000, 10), 16, least=3.8),
    Shape("drain.1", "one group, 16 workers", Load(60_000, 1), 16, least=1.5, costs=_CLAIM),
    Shape("drain.batch", "batches of 100, 100 groups", _BATCHES, 16, facts={"batch": 100}),
    Shape("ideal.5ms", "5 ms, 64 workers, 1,000 groups", _SLEEPING, 64, IDEAL, 0.94),
    _ideal(10, 10_000, 1, 0.85),
    _ideal(1, 1_200, 32, 0.98),
    _ideal(5, 6_000, 32, 0.98),
    _ideal(20, 10_000, 32, 0.98),
    Shape("told.16", _EACH_TOLD, _EVEN, 16, UNTOLD, costs=("whole",), facts=_TOLD),
    Shape("partitions.16", _WIDE, _EVEN, 64, ONE_PARTITION, costs=_PATH, facts=_MANY),
)


async def measure(shape: Shape, bench: Bench) -> list[Row]:
    """The row of a shape's rate, and those of what a task costs, of the same turns."""
    if bench.quick:
        shape = replace(shape, load=replace(shape.load, tasks=shape.load.tasks // 4))
    rows = [Row(shape.key, shape.title, "tasks/s", shape.beside, shape.least)]
    rows += [
        Row(f"{shape.key}.{name}", f"{COSTS[name][0]}, {shape.title}", COSTS[name][1])
        for name in shape.costs
    ]
    sides: dict[str, Side] = {
        who: partial(_ours, bench, shape, rows, code, who) for who, code in bench.codes.items()
    }
    if shape.beside == GROUPMQ:
        sides[GROUPMQ] = partial(_groupmq, bench, shape, rows[0])
    elif shape.beside in (ONE_PARTITION, UNTOLD):
        plain = replace(shape, facts={})
        sides[shape.beside] = partial(_ours, bench, plain, rows, bench.codes[OURS], shape.beside)
    await bench.take_turns(rows, sides)
    return rows


async def _ours(bench: Bench, shape: Shape, rows: list[Row], code: Path, who: str) -> Figures:
    records, costs = await _drain(bench, shape, code)
    bench.judge(rows[0], records, shape.load, who)
    found = {row.key: {who: costs[row.key.rpartition(".")[2]]} for row in rows[1:]}
    found[shape.key] = {who: records.rate}
    if shape.beside == IDEAL and who == OURS:
        busy = min(shape.workers, shape.load.groups)
        found[shape.key][IDEAL] = busy / records.handler_seconds
    return found


async def _groupmq(bench: Bench, shape: Shape, row: Row) -> Figures:
    async with bench.corner() as corner:
        records = await run_peer(
            GROUPMQ, shape.load, corner.folder, corner.redis.url, workers=shape.workers
        )
    bench.judge(row, records, shape.load, GROUPMQ)
    return {shape.key: {GROUPMQ: records.rate}}


async def _drain(bench: Bench, shape: Shape, code: Path) -> tuple[Records, dict[str, float]]:
    """Let a daemon take a load in and drain it: what it recorded, and what a task cost.

    Raises:
        RunFailed: the daemon died, or did not get to the end.
    """
    load, facts = shape.load, {"grouped": shape.workers, **shape.facts}
    async with bench.corner() as corner, Redis.from_url(corner.redis.url) as redis:
        async with corner.daemon(load, code, **facts) as daemon:
            await daemon.ask("pause", "--all")
            if facts.get("told"):
                await bind(corner.rabbitmq, f"{corner.queue}.told")
            memory, cpu, redis_cpu = await _memory(redis), daemon.cpu, cpu_of(corner.redis.pid)
            before = cpu + redis_cpu
            await fill_queue(corner.rabbitmq, corner.queue, load)
            await _until_taken(redis, daemon, load.tasks, facts.get("partitions", 1))
            memory, cpu = await _memory(redis) - memory, daemon.cpu - cpu
            redis_cpu = cpu_of(corner.redis.pid) - redis_cpu
            await daemon.ask("resume", "--all")
            await daemon.until_done()
            await _until_told(redis, daemon)
            whole = daemon.cpu + cpu_of(corner.redis.pid) - before
        own, of_redis = read_clocks(daemon.file.with_suffix(".clocks"), load.tasks)
        seconds = {"intake": cpu, "enqueue": redis_cpu, "whole": whole}
        costs = {name: each / load.tasks * 1e6 for name, each in seconds.items()}
        costs |= {"daemon": own, "redis": of_redis, "memory": memory / load.tasks - load.body}
        return daemon.records, costs


async def _memory(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory"])


async def _until_told(redis: Redis, daemon: Daemon) -> None:
    async def is_told() -> bool:
        return not await redis.exists(keys_of(NAMESPACE, 1)[0]("outbox"))

    await daemon.until(is_told, WITHIN, "the last event", LOOK_AT_TOTALS)


async def _until_taken(redis: Redis, daemon: Daemon, tasks: int, partitions: int) -> None:
    keys = [each("count") for each in keys_of(NAMESPACE, partitions)]

    async def are_there() -> bool:
        found = [await redis.hget(key, "taken") for key in keys]  # one after another: politely
        return sum(int(each or 0) for each in found) >= tasks

    await daemon.until(are_there, WITHIN, f"{tasks} tasks to be taken in", LOOK_AT_TOTALS)
