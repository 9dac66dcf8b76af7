"""`make bench`: ours beside its peers, in one run. `QUICK=1` is smaller, `ROWS=drain,cold` is less.

The whole suite writes `docs/benchmarks/` and the table of `docs/performance.md`; the quick one
changes nothing there and says what has fallen since. Exit 1: something could not be measured, or
broke its order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from rich.console import Console

from tests.bench import chart, machine, results, tables
from tests.bench.bench import Bench
from tests.bench.daemons import REPOSITORY
from tests.bench.families import attacks, backlog, beside, cold, drain, ideal, intake, latency
from tests.bench.records import cost_of_a_record
from tests.bench.results import Results
from tests.bench.rows import MUCH_STOLEN, STOLEN, Row

FAMILIES: dict[str, Callable[[Bench], AsyncIterator[Row]]] = {
    "drain": drain.run,
    "ideal": ideal.run,
    "intake": intake.run,
    "latency": latency.run,
    "backlog": backlog.run,
    "cold": cold.run,
    "beside": beside.run,
    "attacks": attacks.run,
}
COMMITTED = REPOSITORY / "docs" / "benchmarks" / "results.json"
CHART = COMMITTED.with_name("chart.svg")
DOCUMENT = REPOSITORY / "docs" / "performance.md"
LATEST = REPOSITORY / ".bench" / "latest.json"

_console = Console(stderr=True)


def main() -> int:
    """Run the suite; the exit code."""
    quick = bool(os.environ.get("QUICK"))
    chosen = [name for name in os.environ.get("ROWS", "").split(",") if name] or list(FAMILIES)
    if unknown := [name for name in chosen if name not in FAMILIES]:
        _console.print(f"ROWS: no {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
        return 2
    # Ended from outside, the servers still go down in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    found = asyncio.run(_measure(quick, chosen))
    tables.print_table(found)
    found.write(LATEST)
    older = results.read(COMMITTED)
    for line in found.fallen_below(older) if older else []:
        _console.print(f"fell: {line}", soft_wrap=True)
    for row in found.rows:
        if row.stolen > MUCH_STOLEN:
            _console.print(f"the host took {row.stolen:.0%} meanwhile: {row.title}")
    if not quick:
        whole = found.merged_into(older) if older and len(chosen) < len(FAMILIES) else found
        whole.write(COMMITTED)
        CHART.write_text(chart.svg(whole))
        tables.write_into(DOCUMENT, whole)
    for problem in found.problems:
        _console.print(f"problem: {problem}", markup=False)
    return 1 if found.problems else 0


async def _measure(quick: bool, chosen: list[str]) -> Results:
    began, stolen = monotonic(), machine.Stolen()
    at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    found = Results(quick, at, machine.describe(), cost_of_a_record())
    with tempfile.TemporaryDirectory(prefix="groupflow-bench-") as folder:
        bench = Bench(Path(folder), quick=quick)
        try:
            for name in chosen:
                await _family(bench, name, found)
        finally:
            await bench.close()
    found.problems = bench.problems
    found.seconds = monotonic() - began
    found.machine[STOLEN] = f"{stolen.share():.1%}"
    return found


async def _family(bench: Bench, name: str, found: Results) -> None:
    """Measure a family; what goes wrong in it must not cost the others."""
    stolen = machine.Stolen()
    try:
        async for row in FAMILIES[name](bench):
            row.details[STOLEN] = round(stolen.share(), 3)
            found.rows.append(row)
            met = {True: "met", False: "missed", None: ""}[row.is_met]
            _console.print(f"{row.title}: {tables.figure(row.ours)} {row.unit} {met}")
    except Exception as error:
        bench.problems.append(f"{name}: {type(error).__name__}: {error}")
        if os.environ.get("DEBUG"):
            traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
