"""pools: what workers that pull get through one page's process, over HTTP.

Fifty workers claim up to twenty tasks and settle them, again and again, on a connection each, as
fast as they are answered: how many tasks a second that is, and how many a second of the answering
process's time. How long a claim takes where they ask for half of it. What two thousand workers
cost that wait where nothing comes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Any

import orjson

from tests.verification.bench.attackers import port_in
from tests.verification.bench.bench import Bench, Turn
from tests.verification.bench.daemons import REPOSITORY
from tests.verification.bench.records import cpu_of
from tests.verification.bench.rows import OURS, Goal, Row, Unit

WORKERS, LIMIT = 50, 20
TASKS, QUICK_TASKS = 60_000, 20_000
PACED = 2_500  # tasks a second while latency is measured
WAITING, QUICK_WAITING = 2_000, 500  # workers
WATCHED = 20.0  # seconds for which they wait
TOKEN = "a-token-of-the-bench"
CONFIG = """\
[redis]
url = "{redis}"
namespace = "bench"
[http]
listen = "127.0.0.1:0"
token = "{token}"
[log]
format = "json"
[pools.couriers]
types = ["deliver"]
"""


def _row(key: str, title: str, unit: Unit, words: str, at: float, *, least: bool = True) -> Row:
    return Row(f"pools.{key}", title, unit, Goal(words, at, least, is_of_ratio=False))


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    waiting = bench.pick(WAITING, QUICK_WAITING)
    work = [
        _row("work.rate", "tasks, 50 workers by HTTP", "tasks/s", "≥ 5,000", 5000.0),
        _row("work.core", "the same, a second of its core", "tasks/s", "≥ 5,000", 5000.0),
        _row("work.claim", f"claim at {PACED:,} tasks/s, p99", "ms", "≤ 20 ms", 20.0, least=False),
    ]
    title = f"of a core, {waiting:,} workers that wait"
    wait = [_row("wait", title, "%", "≤ 5 %", 5.0, least=False)]
    sides = {"pools.work": partial(_work, bench), "pools.wait": partial(_wait, bench, waiting)}
    for (key, turn), rows in zip(sides.items(), (work, wait), strict=True):
        if bench.wants(key):
            await bench.take_turns(rows, {OURS: turn})
            for row in rows:
                yield row


async def _work(bench: Bench) -> Turn:
    tasks = bench.pick(TASKS, QUICK_TASKS)
    async with bench.redis() as (server, folder), _page(server.url, folder) as (port, pid):
        lines = tasks + tasks // 4 + WORKERS * LIMIT
        assert (await _ask(port, "PUT", "/tasks", _lines(lines)))["added"] == lines
        began, spent = monotonic(), cpu_of(pid)
        done = await _drain(port, tasks, [])
        seconds, core = monotonic() - began, cpu_of(pid) - spent
        waits: list[float] = []
        await _drain(port, tasks // 4, waits, pace=WORKERS * LIMIT / PACED)
    figures = {
        "pools.work.rate": done / seconds,
        "pools.work.core": done / core,
        "pools.work.claim": quantiles(waits, n=100)[98] * 1000,
    }
    return Turn(figures)


async def _wait(bench: Bench, number: int) -> Turn:
    async with bench.redis() as (server, folder), _page(server.url, folder) as (port, pid):
        connections = [await _Connection.open(port) for _ in range(number)]
        packed = orjson.dumps({"limit": LIMIT, "wait": 60})
        waiting = [
            asyncio.ensure_future(each.call("POST", f"/workers/w{n}/claims", packed))
            for n, each in enumerate(connections)
        ]
        while int((await _ask(port, "GET", ""))["known"]) < number:
            await asyncio.sleep(0.1)
        began, spent = monotonic(), cpu_of(pid)
        await asyncio.sleep(WATCHED)
        share = 100 * (cpu_of(pid) - spent) / (monotonic() - began)
        assert not any(each.done() for each in waiting)
        for each, connection in zip(waiting, connections, strict=True):
            each.cancel()
            connection.close()
        await asyncio.gather(*waiting, return_exceptions=True)
    return Turn({"pools.wait": share})


@asynccontextmanager
async def _page(redis: str, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """A page's process alone: its port, and its process."""
    config, log = folder / "pools.toml", folder / "page.log"
    config.write_text(CONFIG.format(redis=redis, token=TOKEN))
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "groupflow", "page", "--config", str(config)),
            cwd=REPOSITORY,
            stderr=file,
        )

    try:
        while (port := port_in(log)) is None:
            await asyncio.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        await process.wait()


class _Connection:
    """The least that speaks HTTP: what is measured is the other side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def call(self, method: str, path: str, body: bytes) -> Any:
        head = (
            f"{method} /api/pools/couriers{path} HTTP/1.1\r\nhost: localhost\r\n"
            f"authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        assert b" 200 " in answered[:20], answer
        return orjson.loads(answer)

    def close(self) -> None:
        self._writer.close()


def _lines(number: int) -> bytes:
    row = {"priority": 0, "body": {"street": "x" * 100}}
    return b"\n".join(orjson.dumps({"id": f"task-{n:07}", **row}) for n in range(number))


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[_Connection]:
    connection = await _Connection.open(port)
    try:
        yield connection
    finally:
        connection.close()


async def _ask(port: int, method: str, path: str, body: bytes = b"") -> Any:
    async with _connected(port) as connection:
        return await connection.call(method, path, body)


async def _drain(port: int, tasks: int, waits: list[float], pace: float = 0.0) -> int:
    """Work so many tasks off; seconds from claim to claim of a worker are `pace`, if given."""
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        worker, due = f"/workers/w{number}", monotonic() + number * pace / WORKERS
        async with _connected(port) as connection:
            while done < tasks:
                await asyncio.sleep(max(0.0, due - monotonic()))
                due += pace
                began = monotonic()
                given = await connection.call("POST", f"{worker}/claims", b'{"limit":%d}' % LIMIT)
                waits.append(monotonic() - began)
                if not given["tasks"]:
                    break
                said = [
                    {"id": task["id"], "fence": task["fence"], "outcome": "done"}
                    for task in given["tasks"]
                ]
                await connection.call("POST", f"{worker}/settlements", orjson.dumps(said))
                done += len(said)

    await asyncio.gather(*map(work, range(WORKERS)))
    return done
