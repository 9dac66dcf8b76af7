"""`make crash`: any number of trials, and what they found.

TRIALS=…   how many (default: every point once, and every pair of points, in drawn order)
SEED=…     draws everything but the interleaving (default: a random one, printed)
JOBS=…     trials at once (default 2; each mostly waits)
FIRST=…    the first trial's number: with TRIALS=1, one trial again
RULES=…    `run`, `batches`, `limits` or `debounce` where all trials' groups are to have that
           (default: a quarter each without, and with each of the first three)
FOLDER=…   where trials that failed leave their history (default: a temporary one)
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from typing import Any

from groupflow.crashpoints import POINTS
from groupflow.servers import private_servers
from tests.verification.crash.plans import PAIRS, numbered
from tests.verification.crash.trials import Result, Trial


def run(
    redis: Any, rabbitmq: Any, seed: str, trials: range, *, jobs: int, folder: Path
) -> dict[int, Result]:
    """Run trials, several at once; what came of each, by its number."""

    def work(number: int) -> Result:
        own = folder / f"trial-{number}-{os.getpid()}"
        result = Trial(numbered(seed, number), redis, rabbitmq, own).run()
        _tell(seed, number, result)
        return result

    with ThreadPoolExecutor(jobs) as threads:
        return dict(zip(trials, threads.map(work, trials), strict=True))


def _tell(seed: str, number: int, result: Result) -> None:
    print(f"trial {number}, {result.label}: {'broken' if result.violations else 'sound'}")
    for each in result.violations[:10]:
        print(f"  {each.invariant}: {each.text}")
    if result.violations:
        print(f"  again: make crash SEED={seed} FIRST={number} TRIALS=1", flush=True)


def summary(results: Iterable[Result]) -> list[str]:
    """What many trials came to."""
    rows = list(results)
    delivered = Counter(point for row in rows for point in row.delivered)
    missed = Counter(point for row in rows for point in row.missed)
    broken = Counter(each.invariant for row in rows for each in row.violations)
    pairs = {pair for row in rows for pair in itertools.pairwise(row.delivered)}
    return [
        f"{'point':<16}{'killed':>8}{'not reached':>13}",
        *(f"{name:<16}{delivered[name]:>8}{missed[name]:>13}" for name in POINTS),
        f"{'in all':<16}{delivered.total():>8}{missed.total():>13}",
        f"{len(pairs)} of {len(PAIRS)} pairs of points were killed at in a row",
        f"violations: {dict(broken) or 'none'}, in {len(rows)} trials",
    ]


async def main() -> int:
    """Run what the environment says. Returns the exit code: 1 where a promise was broken."""
    told = os.environ
    seed = told.get("SEED") or str(SystemRandom().randrange(10**9))
    folder = Path(told.get("FOLDER") or tempfile.mkdtemp(prefix="groupflow-crash-"))
    first, count = int(told.get("FIRST", "0")), int(told.get("TRIALS", len(POINTS) + len(PAIRS)))
    print(f"seed {seed}, trials {first} to {first + count - 1}, histories in {folder}", flush=True)
    began, trials, jobs = time.monotonic(), range(first, first + count), int(told.get("JOBS", "2"))
    async with private_servers() as servers:
        both = servers.redis, servers.rabbitmq
        results = await asyncio.to_thread(run, *both, seed, trials, jobs=jobs, folder=folder)
    print(*summary(results.values()), f"{time.monotonic() - began:.0f} s, seed {seed}", sep="\n")
    return 1 if any(each.violations for each in results.values()) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
