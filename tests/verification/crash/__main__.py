"""`make crash`: any number of trials, and what they found.

    TRIALS=…   how many (default: every point once, and every pair of points, in drawn order)
    SEED=…     draws everything but the interleaving (default: a random one, printed)
    JOBS=…     trials at once (default 2; each mostly waits)
    FIRST=…    the first trial's number: with TRIALS=1, one trial again
    RULES=…    `run`, `batches`, `limits` or `debounce` where all trials' groups are to have that
               (default: a quarter each without, and with each of the first three)
    FOLDER=…   where trials that failed leave their history (default: a temporary one)

The servers are private ones, unless two arguments give the URLs of Redis and RabbitMQ. Then this
process is the fork server: it has imported everything once, and forks whoever runs trials. It and
its children that fork daemons have one thread and no event loop, so that a fork is safe and a
daemon is there in a hundredth of a second instead of half of one.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any

import httpx
import orjson

from groupflow.crashpoints import POINTS
from groupflow.servers import private_servers
from tests.verification.crash.daemons import die_with_parent
from tests.verification.crash.plans import PAIRS, numbered
from tests.verification.crash.trials import Trials

_REPORT = 30.0  # seconds between two lines of progress


def rows_in(file: Path) -> list[dict[str, Any]]:
    """A row for each trial that is over."""
    return [orjson.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """What many trials came to."""
    delivered = Counter(point for row in rows for point in row["delivered"])
    missed = Counter(point for row in rows for point in row["missed"])
    broken = Counter(each["invariant"] for row in rows for each in row["violations"])
    pairs = {pair for row in rows for pair in itertools.pairwise(row["delivered"])}
    return [
        f"{'point':<16}{'killed':>8}{'not reached':>13}",
        *(f"{name:<16}{delivered[name]:>8}{missed[name]:>13}" for name in POINTS),
        f"{'in all':<16}{delivered.total():>8}{missed.total():>13}",
        f"{len(pairs)} of {len(PAIRS)} pairs of points were killed at in a row",
        f"violations: {dict(broken) or 'none'}, in {len(rows)} trials",
    ]


def run(urls: list[str], seed: str, trials: range, jobs: int, folder: Path) -> Path:
    """Run trials, several at once; each leaves a row in the file that is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = folder / "rows.jsonl"
    asyncio.run(_warm())
    gc.collect()
    gc.freeze()
    children = [
        _fork(lambda own=trials[job::jobs]: _run_some(urls, seed, own, folder, rows))  # type: ignore[misc]
        for job in range(jobs)
    ]
    reported = time.monotonic()
    while children:
        children = [pid for pid in children if not _has_ended(pid)]
        if time.monotonic() - reported > _REPORT:
            reported = time.monotonic()
            found = rows_in(rows)
            failed = sum(bool(row["violations"]) for row in found)
            print(f"{len(found)} of {len(trials)} trials, {failed} failed", flush=True)
        time.sleep(0.05)
    return rows


async def _warm() -> None:
    """Import what httpx imports only when it is used: two thirds of what a forked daemon costs."""
    async with httpx.AsyncClient():
        pass


def _has_ended(pid: int) -> bool:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended and status:
        raise RuntimeError(f"a process that runs trials ended with status {status}")
    return bool(ended)


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent()
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run_some(urls: list[str], seed: str, own: range, folder: Path, rows: Path) -> None:
    trials = Trials(urls[0], urls[1], folder)
    file = os.open(rows, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in own:
        result = trials.run(numbered(seed, number), f"trial-{number}-{os.getpid()}")
        row = orjson.loads(orjson.dumps(result)) | {"trial": number}
        os.write(file, orjson.dumps(row) + b"\n")
    trials.close()


async def _with_servers() -> int:
    async with private_servers() as servers:
        urls = servers.redis.url, servers.rabbitmq.url
        command = (sys.executable, "-m", "tests.verification.crash", *urls)
        return await (await asyncio.create_subprocess_exec(*command)).wait()


def main() -> int:
    """Run what the environment says. Returns the exit code: 1 where a promise was broken."""
    if not sys.argv[1:]:
        return asyncio.run(_with_servers())
    told = os.environ
    seed = told.get("SEED") or str(SystemRandom().randrange(10**9))
    folder = Path(told.get("FOLDER") or tempfile.mkdtemp(prefix="groupflow-crash-"))
    first, count = int(told.get("FIRST", "0")), int(told.get("TRIALS", len(POINTS) + len(PAIRS)))
    print(f"seed {seed}, trials {first} to {first + count - 1}, histories in {folder}", flush=True)
    began, trials = time.monotonic(), range(first, first + count)
    rows = rows_in(run(sys.argv[1:], seed, trials, int(told.get("JOBS", "2")), folder))
    print(*summary(rows), f"{time.monotonic() - began:.0f} s, seed {seed}", sep="\n")
    failed = [row for row in rows if row["violations"]]
    for row in failed[:20]:
        again = f"make crash SEED={seed} FIRST={row['trial']} TRIALS=1"
        print(f"\ntrial {row['trial']}, {row['label']}; again: {again}")
        for each in row["violations"][:10]:
            print(f"  {each['invariant']}: {each['text']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
