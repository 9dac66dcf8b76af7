"""beside: plain tasks beside a flood of grouped ones; a second daemon on the same machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from statistics import median

from tests.bench.bench import Bench
from tests.bench.daemons import Setting, running
from tests.bench.draining import WITHIN, drain
from tests.bench.filling import fill_store
from tests.bench.load import Load
from tests.bench.records import Records
from tests.bench.rows import Goal, Row

PLAIN, GROUPED = 8, 16  # workers, as by default
HANDLER_MS = 5.0
FLOOD = 1_000_000  # numbers of the flood begin here


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    yield await _flood(bench)
    yield await _second(bench)


async def _flood(bench: Bench) -> Row:
    """Both pools with handlers of 5 ms, so that it is the queue that is measured, not the loop."""
    tasks = bench.pick(6_000, 1_500)
    alone, beside = [], []
    for _ in range(bench.pick(3, 1)):
        alone.append(await _plain_rate(bench, tasks, flood=0))
        beside.append(await _plain_rate(bench, tasks, flood=4 * tasks))
    share = median(beside) / median(alone)
    title = f"plain tasks of {HANDLER_MS:g} ms beside a flood of grouped ones"
    row = Row("beside.plain", title, median(beside), "tasks/s", share)
    row.goal, row.beside, row.guard = Goal("≥ 95 % of alone", 0.95), "alone", share
    row.peers["alone"] = median(alone)
    return row


async def _plain_rate(bench: Bench, tasks: int, *, flood: int) -> float:
    plain = Load(tasks, 1, handler_ms=HANDLER_MS)
    async with bench.redis() as (server, folder):
        if flood:
            await fill_store(server.url, Load(flood, 1_000), first=FLOOD)
        await fill_store(server.url, plain, plain=True)
        setting = Setting(server.url, grouped=GROUPED, plain=PLAIN)
        whole = Load(tasks + flood, 1, handler_ms=HANDLER_MS)
        async with running(setting, whole, folder) as daemon:
            await daemon.until(WITHIN)
        records = Records.read([daemon.records])
    grouped = records.between(FLOOD, FLOOD + flood)
    bench.check("beside.plain", grouped, Load(flood, 1_000))
    found = records.between(0, tasks)
    bench.check("beside.plain", found, Load(tasks, tasks))  # plain: a group of its own, so to say
    return found.rate


async def _second(bench: Bench) -> Row:
    load = Load(bench.pick(20_000, 5_000), 1_000)
    with bench.folder() as folder:
        one = await drain(folder, load, workers=16)
    bench.check("beside.second", one, load)
    with bench.folder() as folder:
        two = await drain(folder, load, workers=16, daemons=2)
    share = two.rate / one.rate
    row = Row("beside.second", "a second daemon on the same machine", two.rate, "tasks/s", share)
    row.beside, row.guard = "one daemon", share
    row.peers["one daemon"] = one.rate
    row.details = {
        "redis_calls_per_task": one.redis_calls / load.tasks,
        "redis_calls_per_task_of_two": two.redis_calls / load.tasks,
    }
    bench.judge(row, "groupflow", two, load)
    return row
