"""cold: how long a task of a group that nobody has yet waits while others keep all workers busy."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from statistics import quantiles
from time import monotonic_ns

from groupflow.store.enqueue import Enqueuer
from groupflow.store.scripts import Order
from tests.verification.bench.bench import Bench, Turn
from tests.verification.bench.filling import arrival, fill_store, store_client
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import GROUPMQ, run_peer
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Goal, Row

WORKERS = 64
HANDLER_MS = 50.0
COLD, QUICK_COLD, EVERY = 40, 20, 0.1  # tasks into cold groups, and the seconds between two of them
ONE_TURN = "its one turn"
STRAIGHT = "tasks written straight into Redis, as GroupMQ's are"
FIRST = 500_000  # the number of the first of them: above every hot one's


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    for hot in (20,) if bench.quick else (10, 20, 40):
        if bench.wants(f"cold.{hot}"):
            yield await _free(bench, hot)
    for hot in (200,) if bench.quick else (200, 2_000):
        if bench.wants(f"cold.fair.{hot}"):
            yield await _fair(bench, hot)


def _load(hot: int, seconds: float) -> Load:
    """Hot groups with work for so many seconds."""
    tasks = max(hot, min(hot, WORKERS) / (HANDLER_MS / 1000) * seconds)
    return Load(round(tasks), hot, handler_ms=HANDLER_MS)


async def _free(bench: Bench, hot: int) -> Row:
    """With workers to spare, nothing but the way through Redis is to be waited for."""
    count = bench.pick(COLD, QUICK_COLD)
    load = _load(hot, count * EVERY + 3)
    title = f"cold group beside {hot} hot ones, {WORKERS} workers, p95"
    goal = Goal("≤ 5 ms", 5.0, least=False, is_of_ratio=False)
    row = Row(f"cold.{hot}", title, "ms", goal, GROUPMQ, STRAIGHT)

    async def ours() -> Turn:
        waits, _ = await _waits(bench, row, load, "oldest", count)
        return Turn({row.key: quantiles(waits, n=20)[18]})

    async def groupmq() -> Turn:
        waits = await _groupmq(bench, load, count)
        return Turn({row.key: quantiles(waits, n=20)[18]})

    await bench.take_turns([row], {OURS: ours, GROUPMQ: groupmq})
    return row


async def _fair(bench: Bench, hot: int) -> Row:
    """With fewer workers than groups, a newcomer waits for one turn of all who are ready."""
    count = bench.pick(COLD, QUICK_COLD)
    load = _load(hot, count * EVERY + 3 * hot / WORKERS * HANDLER_MS / 1000 + 3)
    title = f"cold group beside {hot:,} hot ones, order fair, worst"
    row = Row(f"cold.fair.{hot}", title, "ms", Goal(f"≤ 1.1 times {ONE_TURN}", 1.1, least=False))
    row.beside, row.off = ONE_TURN, STRAIGHT

    async def ours() -> Turn:
        waits, handler = await _waits(bench, row, load, "fair", count)
        return Turn({row.key: max(waits)}, {row.key: {ONE_TURN: hot / WORKERS * handler * 1000}})

    await bench.take_turns([row], {OURS: ours})
    return row


async def _waits(
    bench: Bench, row: Row, load: Load, order: Order, count: int
) -> tuple[list[float], float]:
    """Milliseconds that each cold task waited, and the seconds that a handler took."""
    async with bench.corner() as corner, store_client(corner.redis, order) as client:
        await fill_store(corner.redis, load, order)
        enqueuer, added = Enqueuer(client), array("q")
        few = Load(count, 1, handler_ms=HANDLER_MS)
        async with corner.daemon(few, grouped=WORKERS, order=order) as daemon:
            await daemon.page()
            await asyncio.sleep(0.5)
            for number in range(count):
                body = load.body_of(FIRST + number)
                added.append(monotonic_ns())
                await enqueuer.enqueue([arrival(FIRST + number, f"cold{number}", body)])
                await asyncio.sleep(EVERY)
            await asyncio.sleep(3 * load.groups / WORKERS * HANDLER_MS / 1000)
        records = daemon.records
    # The hot groups' work is more than the run had time for.
    bench.judge(row, records.between(0, FIRST), load, is_whole=False)
    return _waits_in(records, added), records.handler_seconds


async def _groupmq(bench: Bench, load: Load, count: int) -> list[float]:
    async with bench.redis() as (server, folder):
        file = folder / "added"
        cold = {"count": count, "every_ms": EVERY * 1000, "first": FIRST, "added": str(file)}
        records = await run_peer(
            *(GROUPMQ, load, folder, server.url),
            workers=WORKERS, seconds=20.0, cold=cold, until=load.tasks + count + 1,
        )  # fmt: skip
        added = array("q")
        added.frombytes(file.read_bytes())
    return _waits_in(records, added)


def _waits_in(records: Records, added: array[int]) -> list[float]:
    """One that never began within the run waited at least until its end."""
    starts, end = records.starts(), records.rows[-1][2]
    return [(starts.get(FIRST + n, end) - at) / 1e6 for n, at in enumerate(added)]
