"""ideal: handlers that take time, against the best that any queue could do with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.verification.bench.bench import Bench
from tests.verification.bench.draining import drain
from tests.verification.bench.load import Load
from tests.verification.bench.rounds import Side, Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

SWEEP = (1, 2, 5, 10, 20, 100, 1_000, 10_000)
QUICK_SWEEP = (10,)
RUN_SWEEP, RUN = (1, 2, 5, 10, 20), 32
SWEEP_WORKERS = 100
TURN = 3  # seconds that a turn may drain, so that few groups have few tasks
NOOPS_FROM = 50  # groups: with fewer, our rate without handler time is far above what groups allow
IDEAL = "the ideal"


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    load = Load(bench.pick(20_000, 5_000), 1_000, handler_ms=5)
    title = "64 workers, handler of 5 ms, 1,000 groups"
    if bench.wants("ideal.5ms"):
        yield await _row(bench, "ideal.5ms", title, load, workers=64, at=0.90)
    for groups in QUICK_SWEEP if bench.quick else SWEEP:
        most = bench.pick(10_000, 2_000)
        load = Load(min(most, groups * 400 * TURN), groups, handler_ms=2)
        key, title = f"ideal.sweep.{groups}", f"2 ms, {SWEEP_WORKERS} workers, {groups:,} groups"
        if bench.wants(key):
            yield await _row(bench, key, title, load, workers=SWEEP_WORKERS, at=0.85)
    for groups in () if bench.quick else RUN_SWEEP:
        load = Load(min(10_000, groups * 400 * TURN), groups, handler_ms=2)
        key, title = (
            f"ideal.run.{groups}",
            f"2 ms, {SWEEP_WORKERS} workers, {groups:,} groups, in runs",
        )
        if bench.wants(key):
            yield await _row(bench, key, title, load, workers=SWEEP_WORKERS, at=0.92, run_of=RUN)


async def _row(
    bench: Bench, key: str, title: str, load: Load, *, workers: int, at: float, run_of: int = 1
) -> Row:
    """Ours with handlers that take time and, where that may be what limits it, without."""
    off = f"run = {run_of}" if run_of > 1 else ""
    row = Row(key, title, "tasks/s", Goal(f"≥ {at:.0%} of the ideal", at), IDEAL, off)

    async def ours() -> Turn:
        records = await drain(bench, load, workers=workers, run=run_of)
        bench.judge(row, OURS, records, load)
        seconds = records.handler_seconds
        ideal = min(workers, load.groups) / seconds
        return Turn({key: records.rate}, {"handler_ms": seconds * 1000}, {key: {IDEAL: ideal}})

    async def noops() -> Turn:
        nothing = Load(bench.pick(20_000, 5_000), 1_000)
        records = await drain(bench, nothing, workers=workers)
        bench.check(key, records, nothing)
        return Turn({key: records.rate}, beside={key: {IDEAL: records.rate}})

    sides: dict[str, Side] = {OURS: ours}
    if load.groups >= NOOPS_FROM:
        sides["ours without handler time"] = noops
    await take_turns(bench, [row], sides)
    return row
