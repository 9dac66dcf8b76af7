"""`make bench`: ours beside its peers, in rounds. `QUICK=1` is smaller, `ROWS=drain,cold` is less.

Rows of one clean commit gather in `.bench/`, run by run; `docs/benchmarks/` and the table of
`docs/performance.md` are written from them once all families are there (`WRITE=1`: of those that
are there). `ROWS=cost BASE=<commit>` sets processor time a task beside an older commit's, and
writes nothing there, nor does `ROWS=scans`, which sets scans of a table beside other loops, nor
`ROWS=pools`, what workers that pull get over HTTP. Exit 1:
something could not be measured, or broke its order.
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

from rich.console import Console

from tests.verification.bench import machine, results, tables
from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import REPOSITORY
from tests.verification.bench.families import (
    attacks,
    claims,
    cold,
    databases,
    drains,
    intake,
    latency,
    pools,
)
from tests.verification.bench.records import cost_of_a_record
from tests.verification.bench.results import Mixed, Results
from tests.verification.bench.rows import OURS, Row
from tests.verification.bench.source import Source

FAMILIES: dict[str, Callable[[Bench], AsyncIterator[Row]]] = {
    "drain": drains.drain,
    "ideal": drains.ideal,
    "intake": intake.run,
    "latency": latency.run,
    "backlog": claims.backlog,
    "tenants": claims.tenants,
    "cold": cold.run,
    "beside": drains.beside,
    "attacks": attacks.run,
    "partitions": drains.partitions,
    "schedules": latency.schedules,
}
# Of interest for who changes something, or of another kind; no rows of the table.
ON_REQUEST = {
    "batches": databases.batches,
    "cost": drains.cost,
    "scans": databases.scans,
    "pools": pools.run,
}
ALL = {**FAMILIES, **ON_REQUEST}
COMMITTED = REPOSITORY / "docs" / "benchmarks" / "results.json"
CHART = COMMITTED.with_name("chart.svg")
DOCUMENT = REPOSITORY / "docs" / "performance.md"
GATHERED = REPOSITORY / ".bench"

_console = Console(stderr=True, soft_wrap=True, highlight=False)


def main() -> int:
    """Run the suite; the exit code."""
    quick = bool(os.environ.get("QUICK"))
    rounds = int(os.environ.get("ROUNDS") or 0) or None
    chosen = [name for name in os.environ.get("ROWS", "").split(",") if name] or list(FAMILIES)
    if unknown := [name for name in chosen if name.partition(".")[0] not in ALL]:
        _console.print(f"ROWS: no {', '.join(unknown)}; there are {', '.join(ALL)}")
        return 2
    # Ended from outside, the servers still go down in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="groupflow-bench-") as folder:
        base = os.environ.get("BASE") or "HEAD"
        bench = Bench(Path(folder), quick=quick, rounds=rounds, base=base, chosen=chosen)
        found = asyncio.run(_measure(bench, chosen))
    print(tables.markdown(found))
    older = results.read(COMMITTED)
    for line in found.fallen_below(older) if older else []:
        _console.print(f"fell: {line}", markup=False)
    if not quick:
        _publish(found)
    for problem in found.problems:
        _console.print(f"problem: {problem}", markup=False)
    return 1 if found.problems else 0


async def _measure(bench: Bench, chosen: list[str]) -> Results:
    at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    found = Results(Source.here(), bench.quick, at, machine.describe(), cost_of_a_record())
    families = list(dict.fromkeys(name.partition(".")[0] for name in chosen))
    try:
        for name in families:
            await _family(bench, name, found)
    finally:
        await bench.close()
    found.families = [name for name in families if name in chosen and name in FAMILIES]
    found.problems = bench.problems
    return found


async def _family(bench: Bench, name: str, found: Results) -> None:
    """Measure a family; what goes wrong in it must not cost the others."""
    try:
        async for row in ALL[name](bench):
            if not row.of(OURS):
                bench.problems.append(f"{row.key}: not measured")
                continue
            row.commit = found.source.commit
            found.rows.append(row)
            _console.print(tables.line(row))
    except Exception as error:
        bench.problems.append(f"{name}: {type(error).__name__}: {error}")
        traceback.print_exc()


def _publish(found: Results) -> None:
    """Add the rows to those of the same commit; write the documents once all families are there."""
    found.rows = [row for row in found.rows if row.key.partition(".")[0] in FAMILIES]
    if not found.rows:
        return
    file = GATHERED / f"{found.source.commit}.json"
    try:
        older = results.read(file)
        whole = found.joined_to(older) if older else found
        whole.refuse_unless_whole_cloth()
    except Mixed as error:
        _console.print(f"docs/ is left as it was, and so is {file.name}: this would be {error}")
        return
    whole.write(file)
    missing = [name for name in FAMILIES if name not in whole.families]
    if missing and not os.environ.get("WRITE"):
        _console.print(f"docs/ is left as it was: of this commit there is no {', '.join(missing)}")
        return
    whole.write(COMMITTED)
    written = results.read(COMMITTED) or whole  # its figures are rounded
    CHART.write_text(tables.svg(written))
    tables.write_into(DOCUMENT, written)


if __name__ == "__main__":
    sys.exit(main())
