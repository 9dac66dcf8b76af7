"""ideal: handlers that take time, against the best that any queue could do with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.bench.bench import Bench
from tests.bench.draining import drain
from tests.bench.load import Load
from tests.bench.records import Records
from tests.bench.rows import Goal, Row

SWEEP = (1, 2, 5, 10, 20, 100, 1_000, 10_000)
QUICK_SWEEP = (10, 1_000)
SWEEP_WORKERS = 100


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    noop = await _drain(bench, Load(bench.pick(20_000, 5_000), 1_000), 64)
    load = Load(bench.pick(20_000, 5_000), 1_000, handler_ms=5)
    title = "64 workers, handler of 5 ms, 1,000 groups"
    yield await _row(bench, "ideal.5ms", title, load, workers=64, noop=noop.rate, at=0.90)
    noop = await _drain(bench, Load(bench.pick(20_000, 5_000), 1_000), SWEEP_WORKERS)
    for groups in QUICK_SWEEP if bench.quick else SWEEP:
        load = Load(bench.pick(10_000, 2_000), groups, handler_ms=2)
        title = f"2 ms, {SWEEP_WORKERS} workers, {groups:,} groups"
        yield await _row(
            bench,
            f"ideal.sweep.{groups}",
            title,
            load,
            workers=SWEEP_WORKERS,
            noop=noop.rate,
            at=0.85,
        )


async def _drain(bench: Bench, load: Load, workers: int) -> Records:
    with bench.folder() as folder:
        records = await drain(folder, load, workers=workers)
    bench.check(f"ideal, {workers} workers", records, load)
    return records


async def _row(
    bench: Bench, key: str, title: str, load: Load, *, workers: int, noop: float, at: float
) -> Row:
    records = await _drain(bench, load, workers)
    seconds = records.handler_seconds
    ideal = min(workers / seconds, load.groups / seconds, noop)
    share = records.rate / ideal
    goal = Goal(f"≥ {at:.0%} of the ideal", at)
    row = Row(key, title, records.rate, "tasks/s", share, goal, "the ideal")
    row.peers["the ideal"] = ideal
    row.details = {"handler_ms": seconds * 1000, "noop_rate": noop}
    row.guard = share
    return row
