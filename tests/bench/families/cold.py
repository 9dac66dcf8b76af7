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
from tests.bench.bench import Bench
from tests.bench.daemons import Setting, running
from tests.bench.filling import arrival, fill_store, store_client
from tests.bench.load import Load
from tests.bench.peers.running import PeerFailed, run_groupmq
from tests.bench.records import Records
from tests.bench.rows import Goal, Row

WORKERS = 64
HANDLER_MS = 50.0
COLD, EVERY = 40, 0.1  # tasks into cold groups, and the seconds between two of them
FIRST = 500_000  # the number of the first of them: above every hot one's


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    for hot in (20,) if bench.quick else (10, 20, 40):
        yield await _free(bench, hot)
    for hot in (200,) if bench.quick else (200, 2_000):
        yield await _fair(bench, hot)


def _load(hot: int, seconds: float) -> Load:
    """Hot groups with work for so many seconds."""
    tasks = max(hot, min(hot, WORKERS) / (HANDLER_MS / 1000) * seconds)
    return Load(round(tasks), hot, handler_ms=HANDLER_MS)


async def _free(bench: Bench, hot: int) -> Row:
    """With workers to spare, nothing but the way through Redis is to be waited for."""
    count = bench.pick(COLD, 20)
    load = _load(hot, count * EVERY + 3)
    waits, _ = await _waits(bench, load, "oldest", count)
    p95 = quantiles(waits, n=20)[18]
    row = Row(
        f"cold.{hot}", f"cold group beside {hot} hot ones, {WORKERS} workers, p95", p95, "ms", p95
    )
    row.goal, row.guard = Goal("≤ 5 ms", 5.0, least=False), 1 / p95
    row.details = {"p50": quantiles(waits, n=20)[9], "worst": max(waits)}
    try:
        async with bench.redis() as (server, folder):
            row.peers["GroupMQ"] = quantiles(await _groupmq(server.url, folder, load, count), n=20)[
                18
            ]
    except PeerFailed as error:
        bench.problems.append(f"{row.key}: GroupMQ: {error}")
    return row


async def _fair(bench: Bench, hot: int) -> Row:
    """With fewer workers than groups, a newcomer waits for one turn of all who are ready."""
    count = bench.pick(COLD, 20)
    turn = hot / WORKERS * HANDLER_MS / 1000
    load = _load(hot, count * EVERY + 3 * turn + 3)
    waits, handler = await _waits(bench, load, "fair", count)
    turn = hot / WORKERS * handler * 1000
    share = max(waits) / turn
    row = Row(f"fair.{hot}", f"cold group beside {hot:,} hot ones, order fair, worst",
              max(waits), "ms", share)  # fmt: skip
    row.goal, row.beside = Goal("≤ 1.1 times its one turn", 1.1, least=False), "its one turn"
    row.peers["its one turn"], row.guard = turn, 1 / share
    return row


async def _waits(
    bench: Bench, load: Load, order: Literal["oldest", "fair"], count: int
) -> tuple[list[float], float]:
    """Milliseconds that each cold task waited, and the seconds that a handler took."""
    async with bench.redis() as (server, folder):
        await fill_store(server.url, load, order=order)
        client = store_client(server.url, order)
        enqueuer, added = Enqueuer(client), []
        try:
            setting = Setting(server.url, grouped=WORKERS, order=order)
            async with running(setting, Load(count, 1, handler_ms=HANDLER_MS), folder) as daemon:
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
    starts = records.starts()
    # One that never began within the run waited at least until its end.
    end = records.rows[-1][2]
    waits = [(starts.get(FIRST + n, end) - added[n]) / 1e6 for n in range(count)]
    return waits, records.handler_seconds


async def _groupmq(url: str, folder: Path, load: Load, count: int) -> list[float]:
    file = folder / "added"
    facts = {
        "cold": {"count": count, "every_ms": EVERY * 1000, "first": FIRST, "added": str(file)},
        "until": load.tasks + count + 1,
    }
    records = await run_groupmq(url, load, folder, workers=WORKERS, seconds=20.0, facts=facts)
    return _waits_in(records, file, count)


def _waits_in(records: Records, file: Path, count: int) -> list[float]:
    added = array("q")
    added.frombytes(file.read_bytes())
    starts, end = records.starts(), records.rows[-1][2]
    return [(starts.get(FIRST + n, end) - added[n]) / 1e6 for n in range(count)]
