"""attacks: what comes by HTTP without a token, beside the same sent to nobody in particular.

A daemon drains a store that is kept filled. In turn its page is attacked, and an inert sink by the
same attackers, so that their own processor time is in both. The figure is the throughput under
attack, to that beside it.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic

from redis.asyncio import Redis

from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.verification.bench.bench import Bench, Turn
from tests.verification.bench.daemons import REPOSITORY
from tests.verification.bench.filling import (
    BATCH,
    NAMESPACE,
    arrivals_of,
    enqueue_all,
    store_client,
)
from tests.verification.bench.load import Load
from tests.verification.bench.rows import OURS, Goal, Row

TITLES = {
    "chunks": "30 connections with bodies of one-byte chunks",
    "silence": "600 silent connections",
    "reads": "8 readers of 1,100 dead letters and a 15 MiB task",
    "streams": "120 event streams",
}
LETTERS, HEADER = 1_100, 12_000  # dead letters, and bytes of the header of each
LARGE = 15 * 1024 * 1024  # bytes of a task's body
AHEAD = 20_000  # tasks that wait
LOOK = 0.05  # seconds between two looks at how many do
SECONDS, QUICK_SECONDS = 60, 3  # of a turn under attack
SINK_SECONDS = 20  # of one beside it, at most: nothing builds up in those
QUICK = ("chunks", "reads")
SETTLE = 1.0  # seconds from an attack's begin until it counts
ENDED = (b'"lease.ended"', b'"session.lost"')
SINK = "nobody attacked"


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    for kind in QUICK if bench.quick else TITLES:
        if bench.wants(f"attacks.{kind}"):
            yield await _row(bench, kind)


async def _row(bench: Bench, kind: str) -> Row:
    seconds = float(bench.pick(SECONDS, QUICK_SECONDS))
    load = Load(10_000_000, 1_000)  # more than there will be time for
    key = f"attacks.{kind}"
    row = Row(key, f"under attack: {TITLES[kind]}", "tasks/s", Goal("≥ 90 % of without", 0.9), SINK)
    row.off = "a token; tasks written straight into Redis"
    async with bench.corner() as corner, Redis.from_url(corner.redis) as redis:
        await _fill_what_is_read(corner.redis)
        http = 'listen = "127.0.0.1:0"\ntoken = "a-token-of-the-bench"'
        async with (
            corner.daemon(load, http=http) as daemon,
            _feeding(corner.redis, load),
            _sink(corner.folder) as inert,
        ):
            page = await daemon.page()

            async def attacked(port: int, time: float) -> Turn:
                return Turn({key: await _rate(redis, corner.folder, kind, port, time)})

            sides = {
                OURS: partial(attacked, page, seconds),
                SINK: partial(attacked, inert, min(seconds, SINK_SECONDS)),
            }
            await bench.take_turns([row], sides)
        records = daemon.records
        ended = sum(daemon.log.read_bytes().count(each) for each in ENDED)
    bench.judge(row, records, load, is_whole=False)
    if ended:
        bench.problems.append(f"{key}: {ended} leases ended")
    return row


async def _rate(redis: Redis, folder: Path, kind: str, port: int, seconds: float) -> float:
    """Tasks done a second while a port is attacked for so long."""
    async with _attackers(folder, kind, port):
        await asyncio.sleep(SETTLE)
        began, done = monotonic(), await _done(redis)
        await asyncio.sleep(seconds)
        return (await _done(redis) - done) / (monotonic() - began)


async def _done(redis: Redis) -> int:
    return int(await redis.hget(f"{{{NAMESPACE}}}:count", "done") or 0)


@asynccontextmanager
async def _attackers(
    folder: Path, kind: str, port: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "tests.verification.bench.attackers", kind, str(port)]
    with (folder / "attackers.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        yield process
        if process.returncode is not None:
            raise RuntimeError(f"the attackers ended: {(folder / 'attackers.log').read_text()}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _sink(folder: Path) -> AsyncIterator[int]:
    """Somebody to attack in vain; the port."""
    async with _attackers(folder, "sink", 0) as process:
        assert process.stdout is not None
        yield int(await process.stdout.readline())


@asynccontextmanager
async def _feeding(url: str, load: Load) -> AsyncIterator[None]:
    """Keep some tasks waiting, and no more, for as long as the block lasts."""

    async def feed() -> None:
        waiting, fed = iter(arrivals_of(load)), 0
        async with store_client(url) as client, Redis.from_url(url) as redis:
            while True:
                done = await _done(redis)
                while fed - done < AHEAD:
                    await enqueue_all(client, itertools.islice(waiting, BATCH))
                    fed += BATCH
                await asyncio.sleep(LOOK)

    task = asyncio.create_task(feed())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _fill_what_is_read(url: str) -> None:
    """Dead letters with large headers, and one very large task that isn't due."""
    letter = Envelope("bench", None, "1", None, {"x": "h" * HEADER}, b"{}")
    large = Envelope("bench", None, "1", None, {}, b"x" * LARGE)
    letters = (Arrival(f"letter-{n}", letter, dead="no") for n in range(LETTERS))
    async with store_client(url) as client:
        await enqueue_all(client, letters, 50)
        await enqueue_all(client, [Arrival("large", large, delay=86_400.0)])
