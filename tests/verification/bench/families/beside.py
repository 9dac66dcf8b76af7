"""beside: plain tasks beside a flood of grouped ones; a second daemon on the same machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import Setting
from tests.verification.bench.draining import WITHIN, drain, loaded
from tests.verification.bench.load import Load
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

HANDLER_MS = 5.0
FLOOD = 1_000_000  # numbers of the flood begin here
ALONE, ONE = "alone", "one daemon"


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    if bench.wants("beside.plain"):
        yield await _flood(bench)
    if bench.wants("beside.second") and not bench.quick:
        yield await _second(bench)


async def _flood(bench: Bench) -> Row:
    """Both pools with handlers of 5 ms, so that it is the queue that is measured, not the loop."""
    tasks = bench.pick(6_000, 1_500)
    title = f"plain tasks of {HANDLER_MS:g} ms beside a flood of grouped ones"
    row = Row("beside.plain", title, "tasks/s", Goal("≥ 95 % of alone", 0.95), ALONE)

    async def flooded() -> Turn:
        return Turn({row.key: await _plain_rate(bench, tasks, flood=4 * tasks)})

    async def alone() -> Turn:
        return Turn({row.key: await _plain_rate(bench, tasks, flood=0)})

    await take_turns(bench, [row], {OURS: flooded, ALONE: alone})
    return row


async def _plain_rate(bench: Bench, tasks: int, *, flood: int) -> float:
    # A group of its own for each plain task, so to say.
    plain = Load(tasks, tasks, handler_ms=HANDLER_MS, app="plain")
    grouped = Load(flood, 1_000, handler_ms=HANDLER_MS)
    async with loaded(bench, Setting(""), [plain, grouped], firsts=[0, FLOOD]) as run:
        await run.resume()
        await run.daemons[0].until(WITHIN)
    bench.check("beside.plain", run.records.between(FLOOD, FLOOD + flood), grouped)
    found = run.records.between(0, tasks)
    bench.check("beside.plain", found, plain)
    return found.rate


async def _second(bench: Bench) -> Row:
    load = Load(bench.pick(20_000, 5_000), 1_000)
    row = Row("beside.second", "a second daemon on the same machine", "tasks/s", beside=ONE)

    async def two() -> Turn:
        found = await drain(bench, load, workers=16, daemons=2)
        bench.judge(row, OURS, found, load)
        return Turn({row.key: found.rate}, {"redis_calls_per_task_of_two": found.redis_calls})

    async def one() -> Turn:
        found = await drain(bench, load, workers=16)
        bench.check(row.key, found, load)
        return Turn({row.key: found.rate})

    await take_turns(bench, [row], {OURS: two, ONE: one})
    return row
