"""attacks: what comes by HTTP without a token, beside the same sent to nobody in particular.

A daemon drains a store that is kept filled. In turn its page is attacked, and an inert sink by the
same attackers, so that their own processor time is in both. The figure is the throughput under
attack, to that before and after it.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean, median
from time import monotonic_ns

import orjson
from redis.asyncio import Redis

from groupflow.servers.ports import free_ports
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from tests.bench.bench import Bench
from tests.bench.daemons import REPOSITORY, Daemon, Setting, running, wait_for
from tests.bench.filling import BATCH, NAMESPACE, arrivals_of, store_client
from tests.bench.load import Load
from tests.bench.records import Records
from tests.bench.rows import Goal, Row

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
SETTLE = 1.0  # seconds from an attack's begin or end until the next window
ENDED = (b'"lease.ended"', b'"session.lost"')
Window = tuple[int, int]


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    for kind in TITLES:
        yield await _row(bench, kind)


async def _row(bench: Bench, kind: str) -> Row:
    seconds, rounds = float(bench.pick(60, 6)), bench.pick(3, 1)
    load = Load(10_000_000, 1_000)  # more than there will be time for
    key = f"attacks.{kind}"
    async with bench.redis() as (server, folder):
        await _fill_what_is_read(server.url)
        setting = Setting(server.url, http='listen = "127.0.0.1:0"\ntoken = "a-token-of-the-bench"')
        async with running(setting, load, folder) as daemon:
            page = await _port_of_page(daemon)
            async with _feeding(server.url, load), _sink(folder) as inert:
                windows = [await _window(folder, kind, inert, seconds / 2)]
                for _ in range(rounds):
                    windows.append(await _window(folder, kind, page, seconds))
                    windows.append(await _window(folder, kind, inert, seconds / 2))
        records = Records.read([daemon.records])
        ended = sum(daemon.log.read_bytes().count(each) for each in ENDED)
    bench.check(key, records, load, is_whole=False)
    if ended:
        bench.problems.append(f"{key}: {ended} leases ended")
    rates = _rates(records, windows)
    shares = [rates[n] / fmean((rates[n - 1], rates[n + 1])) for n in range(1, len(rates), 2)]
    share = median(shares)
    row = Row(key, f"under attack: {TITLES[kind]}", median(rates[1::2]), "tasks/s", share)
    row.goal, row.guard = Goal("≥ 90 % of without", 0.9), share
    row.beside = "the same attackers, attacking nobody"
    row.peers["nobody attacked"] = fmean(rates[::2])
    row.details = {"leases ended": ended, "worst pair": min(shares)}
    return row


def _rates(records: Records, windows: list[Window]) -> list[float]:
    """Tasks that ended, a second, in each window."""
    ends = [0] * len(windows)
    for _, _, end in records:
        for n, (first, last) in enumerate(windows):
            ends[n] += first <= end < last
    return [
        count * 1e9 / (last - first) for count, (first, last) in zip(ends, windows, strict=True)
    ]


async def _window(folder: Path, kind: str, port: int, seconds: float) -> Window:
    """Attack a port for so long."""
    async with _attackers(folder, kind, port):
        await asyncio.sleep(SETTLE)
        began = monotonic_ns()
        await asyncio.sleep(seconds)
        return began, monotonic_ns()


@asynccontextmanager
async def _attackers(folder: Path, kind: str, port: int) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "tests.bench.attackers", kind, str(port)]
    with (folder / "attackers.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=REPOSITORY, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        yield
        if process.returncode is not None:
            raise RuntimeError(f"the attackers ended: {(folder / 'attackers.log').read_text()}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _sink(folder: Path) -> AsyncIterator[int]:
    """Somebody to attack in vain; the port."""
    (port,) = free_ports(1)
    async with _attackers(folder, "sink", port):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(LOOK)
                continue
            writer.close()
            break
        yield port


async def _port_of_page(daemon: Daemon) -> int:
    def said() -> bytes:
        lines = daemon.log.read_bytes().splitlines()
        return next((line for line in lines if b'"http.listening"' in line), b"")

    await wait_for(lambda: bool(said()), daemon, 60.0, "its page")
    return int(str(orjson.loads(said())["url"]).rstrip("/").rpartition(":")[2])


@asynccontextmanager
async def _feeding(url: str, load: Load) -> AsyncIterator[None]:
    """Keep some tasks waiting, and no more, for as long as the block lasts."""

    async def feed() -> None:
        client = store_client(url)
        enqueuer, waiting, fed = Enqueuer(client), iter(arrivals_of(load)), 0
        try:
            async with Redis.from_url(url) as redis:
                while True:
                    done = int(await redis.hget(f"{{{NAMESPACE}}}:count", "done") or 0)
                    while fed - done < AHEAD:
                        await enqueuer.enqueue(list(itertools.islice(waiting, BATCH)))
                        fed += BATCH
                    await asyncio.sleep(LOOK)
        finally:
            await client.close()

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
    client = store_client(url)
    enqueuer = Enqueuer(client)
    headers = {"x": "h" * HEADER}
    try:
        for first in range(0, LETTERS, 50):
            await enqueuer.enqueue(
                [
                    Arrival(
                        f"letter-{n}", Envelope("bench", None, "1", None, headers, b"{}"), dead="no"
                    )
                    for n in range(first, first + 50)
                ]
            )
        large = Envelope("bench", None, "1", None, {}, b"x" * LARGE)
        await enqueuer.enqueue([Arrival("large", large, delay=86_400.0)])
    finally:
        await client.close()
