"""drain: how fast a full queue of no-op tasks is emptied, beside all peers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from tests.verification.bench.bench import Bench
from tests.verification.bench.draining import drain
from tests.verification.bench.load import Load
from tests.verification.bench.peers.postgres import private_postgres
from tests.verification.bench.peers.running import PeerFailed, run_groupmq, run_python
from tests.verification.bench.records import Records
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

TASKS, QUICK_TASKS = 20_000, 5_000
SLOW_PEERS_SECONDS = 6.0  # a peer that isn't done by then is measured by what it did
GROUPMQ = "GroupMQ"
RUN = 32
_SHAPES: tuple[tuple[str, str, int, int, float, float, int], ...] = (
    ("drain.16", "drain, 1,000 groups, 16 workers", 16, 1000, 0.0, 2.0, 1),
    ("drain.64", "drain, 1,000 groups, 64 workers", 64, 1000, 0.0, 2.5, 1),
    ("drain.hot", "drain, half in one hot group, 16 workers", 16, 1000, 0.5, 1.3, 1),
    ("drain.run", "drain, half in one hot group, 16 workers, in runs", 16, 1000, 0.5, 4.0, RUN),
    ("drain.10", "drain, 10 groups, 16 workers", 16, 10, 0.0, 2.0, 1),
)

Peer = Callable[[Bench, Load, int], Awaitable[Records]]


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    tasks = bench.pick(TASKS, QUICK_TASKS)
    for key, title, workers, groups, hot, times, run_of in _SHAPES:
        if bench.wants(key):
            goal = Goal(f"≥ {times:g} times {GROUPMQ}", times)
            off = f"run = {run_of}" if run_of > 1 else ""
            row = Row(key, title, "tasks/s", goal, GROUPMQ, off)
            await _measure(bench, row, Load(tasks, groups, hot), workers, run_of)
            yield row


async def _measure(bench: Bench, row: Row, load: Load, workers: int, run_of: int) -> None:
    """Ours and GroupMQ by turns, then the slower ones once each, beside ours as by default."""

    async def ours() -> Turn:
        found = await drain(bench, load, workers=workers, run=run_of)
        bench.judge(row, OURS, found, load)
        details = {
            "cpu_us_per_task": found.cpu,
            "redis_cpu_us_per_task": found.redis_cpu,
            "redis_calls_per_task": found.redis_calls,
            "intake_cpu_us_per_task": found.intake_cpu,
            "enqueue_redis_cpu_us_per_task": found.enqueue_cpu,
        }
        return Turn({row.key: found.rate}, details)

    async def groupmq() -> Turn:
        found = await _groupmq(bench, load, workers)
        bench.judge(row, GROUPMQ, found, load)
        return Turn({row.key: found.rate})

    await take_turns(bench, [row], {OURS: ours, GROUPMQ: groupmq})
    for name in () if bench.quick or run_of > 1 else _SLOWER:
        await _once(bench, row, name, load, workers)


async def _once(bench: Bench, row: Row, name: str, load: Load, workers: int) -> None:
    try:
        records = await _SLOWER[name](bench, load, workers)
    except PeerFailed as error:
        bench.problems.append(f"{row.key}: {name}: {error}")
        return
    row.once[name] = records.rate
    bench.judge(row, name, records, load, is_whole=len(records) >= load.tasks)


async def _groupmq(bench: Bench, load: Load, workers: int) -> Records:
    async with bench.redis() as (server, folder):
        return await run_groupmq(server.url, load, folder, workers=workers)


async def _plain_copy(bench: Bench, load: Load, workers: int) -> Records:
    async with bench.redis() as (server, _):
        return await _python("plain_copy", bench, load, workers, server.url)


async def _rabbitmq(bench: Bench, load: Load, workers: int) -> Records:
    return await _python("rabbitmq_alone", bench, load, workers, await bench.rabbitmq())


async def _procrastinate(bench: Bench, load: Load, workers: int) -> Records:
    async with private_postgres() as url:
        return await _python("procrastinate_locks", bench, load, workers, url)


async def _python(name: str, bench: Bench, load: Load, workers: int, url: str) -> Records:
    with bench.folder() as folder:
        return await run_python(
            name, load, folder, workers=workers, seconds=SLOW_PEERS_SECONDS, facts={"url": url}
        )


_SLOWER: dict[str, Peer] = {
    "RabbitMQ alone": _rabbitmq,
    "Procrastinate": _procrastinate,
    "the source's loop": _plain_copy,
}
