"""cold: how long a task of a group that nobody has yet waits while others keep all workers busy."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import quantiles
from time import monotonic_ns
from typing import Literal

from groupflow.store.enqueue import Enqueuer
from tests.verification.bench.bench import Bench
from tests.verification.bench.filling import arrival, fill_store, store_client
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import run_groupmq
from tests.verification.bench.records import Records
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

WORKERS = 64
HANDLER_MS = 50.0
COLD, QUICK_COLD, EVERY = 40, 20, 0.1  # tasks into cold groups, and the seconds between two of them
GROUPMQ, ONE_TURN = "GroupMQ", "its one turn"
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

    def turn(waits: list[float]) -> Turn:
        twentieths = quantiles(waits, n=20)
        return Turn({row.key: twentieths[18]}, {"p50": twentieths[9], "worst": max(waits)})

    async def ours() -> Turn:
        waits, _ = await _waits(bench, load, "oldest", count)
        return turn(waits)

    async def groupmq() -> Turn:
        async with bench.redis() as (server, folder):
            return turn(await _groupmq(server.url, folder, load, count))

    await take_turns(bench, [row], {OURS: ours, GROUPMQ: groupmq})
    return row


async def _fair(bench: Bench, hot: int) -> Row:
    """With fewer workers than groups, a newcomer waits for one turn of all who are ready."""
    count = bench.pick(COLD, QUICK_COLD)
    turn = hot / WORKERS * HANDLER_MS / 1000
    load = _load(hot, count * EVERY + 3 * turn + 3)
    title = f"cold group beside {hot:,} hot ones, order fair, worst"
    row = Row(f"cold.fair.{hot}", title, "ms", Goal(f"≤ 1.1 times {ONE_TURN}", 1.1, least=False))
    row.beside, row.off = ONE_TURN, STRAIGHT

    async def ours() -> Turn:
        waits, handler = await _waits(bench, load, "fair", count)
        ideal = hot / WORKERS * handler * 1000
        return Turn({row.key: max(waits)}, beside={row.key: {ONE_TURN: ideal}})

    await take_turns(bench, [row], {OURS: ours})
    return row


async def _waits(
    bench: Bench, load: Load, order: Literal["oldest", "fair"], count: int
) -> tuple[list[float], float]:
    """Milliseconds that each cold task waited, and the seconds that a handler took."""
    async with bench.corner() as corner:
        await fill_store(corner.redis, load, order=order)
        client = store_client(corner.redis, order)
        enqueuer, added = Enqueuer(client), array("q")
        few = Load(count, 1, handler_ms=HANDLER_MS)
        try:
            async with corner.daemon(few, grouped=WORKERS, order=order) as daemon:
                await daemon.page()
                await asyncio.sleep(0.5)
                for number in range(count):
                    body = load.body_of(FIRST + number)
                    added.append(monotonic_ns())
                    await enqueuer.enqueue([arrival(FIRST + number, f"cold{number}", body)])
                    await asyncio.sleep(EVERY)
                await asyncio.sleep(3 * load.groups / WORKERS * HANDLER_MS / 1000)
        finally:
            await client.close()
        records = Records.read([daemon.records])
    # The hot groups' work is more than the run had time for.
    bench.check(f"cold.{load.groups}", records.between(0, FIRST), load, is_whole=False)
    return _waits_in(records, added), records.handler_seconds


async def _groupmq(url: str, folder: Path, load: Load, count: int) -> list[float]:
    file = folder / "added"
    facts = {
        "cold": {"count": count, "every_ms": EVERY * 1000, "first": FIRST, "added": str(file)},
        "until": load.tasks + count + 1,
    }
    records = await run_groupmq(url, load, folder, workers=WORKERS, seconds=20.0, facts=facts)
    added = array("q")
    added.frombytes(file.read_bytes())
    return _waits_in(records, added)


def _waits_in(records: Records, added: array[int]) -> list[float]:
    """One that never began within the run waited at least until its end."""
    starts, end = records.starts(), records.rows[-1][2]
    return [(starts.get(FIRST + n, end) - at) / 1e6 for n, at in enumerate(added)]
