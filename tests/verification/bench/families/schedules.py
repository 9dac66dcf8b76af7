"""schedules: how long after its time a tick's handler starts.

Redis, daemon and this process have one machine's clocks: wall time and CLOCK_MONOTONIC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from statistics import quantiles
from time import monotonic_ns, time_ns

from tests.verification.bench.bench import Bench
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

EVERY = 0.2  # seconds
TICKS, QUICK_TICKS = 100, 25
WARM = 5  # ticks before those that count
SCHEDULE = f'[[schedules]]\nname = "often"\nevery = {EVERY}\ntype = "tick"\n'


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    if bench.wants("schedules.lateness"):
        yield await _lateness(bench)


async def _lateness(bench: Bench) -> Row:
    goal = Goal("≤ 20 ms", 20.0, least=False, is_of_ratio=False)
    row = Row("schedules.lateness", "tick → handler starts, p50", "ms", goal)
    ticks = bench.pick(TICKS, QUICK_TICKS)

    async def ours() -> Turn:
        waits = await _waits(bench, ticks)
        hundredths = quantiles(waits, n=100)
        details = {"p99": hundredths[98], "worst": max(waits)}
        return Turn({row.key: hundredths[49]}, details)

    await take_turns(bench, [row], {OURS: ours})
    return row


async def _waits(bench: Bench, ticks: int) -> list[float]:
    """Milliseconds from each tick's time to the start of its handler, but for the first ones."""
    ahead = time_ns() - monotonic_ns()
    async with bench.corner() as corner:
        async with corner.daemon(Load(WARM + ticks, 1), schedules=SCHEDULE) as daemon:
            await daemon.page()
            await daemon.until(WARM + ticks * EVERY * 3 + 30.0, what="its ticks")
        starts = Records.read([daemon.records]).starts()
    dues = sorted(starts)[WARM:]
    return [(starts[due] + ahead - due * 10**8) / 1e6 for due in dues]
