"""`make bench`: ours beside its peers, in rounds; with `QUICK=1` smaller, with `ROWS=drain` less.

`BASE=<commit>` sets that commit's code beside it, in the same turns. A run of all rows of a clean
commit is written into `docs/`; each run lies in `.bench/latest.json`. Exit 1: something could not
be measured, or broke its order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.verification.bench import drains, latency, machine
from tests.verification.bench.bench import Bench
from tests.verification.bench.machine import REPOSITORY
from tests.verification.bench.records import cost_of_a_record
from tests.verification.bench.rows import OURS, Results, Row

STEPS: dict[str, Callable[[Bench], Awaitable[list[Row]]]] = {
    **{shape.key: partial(drains.measure, shape) for shape in drains.SHAPES},
    latency.KEY: latency.measure,
}
COMMITTED = REPOSITORY / "docs" / "benchmarks" / "results.json"
DOCUMENT = REPOSITORY / "docs" / "performance.md"
LATEST = REPOSITORY / ".bench" / "latest.json"

_console = Console(stderr=True, soft_wrap=True, highlight=False)


def main() -> int:
    """Run the suite; the exit code."""
    asked = [name for name in os.environ.get("ROWS", "").split(",") if name]
    of = {each: [key for key in STEPS if f"{key}.".startswith(f"{each}.")] for each in asked}
    if unknown := [each for each, keys in of.items() if not keys]:
        _console.print(f"ROWS: no {', '.join(unknown)}; there are {', '.join(STEPS)}")
        return 2
    chosen = list(dict.fromkeys(key for keys in of.values() for key in keys)) or list(STEPS)
    # Ended from outside, the servers still go down in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    is_clean = not machine.is_dirty()
    with tempfile.TemporaryDirectory(prefix="groupflow-bench-") as name:
        folder, codes = Path(name), {OURS: REPOSITORY}
        if base := os.environ.get("BASE"):
            base = machine.resolve(base)
            # Both sides lie in folders of their own, and are measured by the benchmark of now.
            there = machine.take(folder / "there", base)
            codes = {OURS: machine.copy(folder / "here"), f"at {base[:8]}": there}
        quick, rounds = bool(os.environ.get("QUICK")), int(os.environ.get("ROUNDS") or 0)
        bench = Bench(folder, codes, quick=quick, rounds=rounds)
        found = asyncio.run(_measure(bench, chosen))
    print(found.markdown())
    found.write(LATEST)
    if len(chosen) == len(STEPS) and is_clean and not quick:
        found.write(COMMITTED)
        found.write_into(DOCUMENT)
    else:
        _console.print("docs/ is left as it was: it takes all rows of a clean commit")
    return 1 if found.problems else 0


async def _measure(bench: Bench, chosen: list[str]) -> Results:
    at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    cost = float(f"{cost_of_a_record():.4g}")
    found = Results(machine.resolve("HEAD"), bench.quick, at, machine.describe(), cost)
    found.problems = bench.problems
    try:
        for key in chosen:
            try:
                measured = await STEPS[key](bench)
            except Exception as error:  # must not cost the other rows
                bench.problems.append(f"{key}: {type(error).__name__}: {error}")
                traceback.print_exc()
                continue
            for row in measured:
                if row.of(OURS):
                    found.rows.append(row)
                    _console.print(" | ".join(row.cells), markup=False)
    finally:
        await bench.close()
    for problem in found.problems:
        _console.print(f"problem: {problem}", markup=False)
    return found


if __name__ == "__main__":
    sys.exit(main())
