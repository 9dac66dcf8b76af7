"""The fork server: it has imported everything once, and forks whoever runs trials.

It and its children that fork daemons have one thread and no event loop, so that a fork is safe and
a daemon is there in a hundredth of a second instead of half of one.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import orjson

from groupflow.crashpoints import POINTS
from tests.verification.crash.daemons import die_with_parent
from tests.verification.crash.plans import PAIRS, Plan, numbered
from tests.verification.crash.trials import Trials

_REPORT = 30.0  # seconds between two lines of progress


@dataclass(slots=True)
class Summary:
    """What many trials came to."""

    trials: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    failures: list[tuple[int, str, list[str]]] = field(default_factory=list)

    def add(self, row: dict[str, object]) -> None:
        """Count one trial's row."""
        delivered, missed = list(map(str, row["delivered"])), list(map(str, row["missed"]))  # type: ignore[call-overload]
        violations = [f"{each['invariant']}: {each['text']}" for each in row["violations"]]  # type: ignore[attr-defined]
        self.trials += 1
        self.delivered.update(delivered)
        self.missed.update(missed)
        self.pairs.update(itertools.pairwise(delivered))
        self.broken.update({text.partition(":")[0] for text in violations})
        if violations:
            self.failures.append((int(str(row["trial"])), str(row["label"]), violations))

    def lines(self) -> list[str]:
        """The report."""
        kills = self.delivered.total()
        lines = [f"{'point':<16}{'killed':>8}{'not reached':>13}"]
        lines += [f"{name:<16}{self.delivered[name]:>8}{self.missed[name]:>13}" for name in POINTS]
        lines.append(f"{'in all':<16}{kills:>8}{self.missed.total():>13}")
        lines.append(f"{len(self.pairs)} of {len(PAIRS)} pairs of points were killed at in a row")
        lines.append(f"violations: {dict(self.broken) or 'none'}, in {self.trials} trials")
        return lines


def run(
    *, urls: tuple[str, str], plans: Callable[[int], Plan], trials: range, jobs: int, folder: Path
) -> Path:
    """Run trials, several at once; each leaves a row in the file that is returned.

    Args:
        urls: Redis's and RabbitMQ's.
        plans: the plan of a trial's number.
        trials: the numbers.
        jobs: how many at once.
        folder: for the rows, and for the histories of trials that failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = folder / "rows.jsonl"
    asyncio.run(_warm())
    gc.collect()
    gc.freeze()
    children = [
        _fork(lambda own=trials[job::jobs]: _run_some(urls, plans, own, folder, rows))  # type: ignore[misc]
        for job in range(jobs)
    ]
    reported = time.monotonic()
    while children:
        children = [pid for pid in children if not _has_ended(pid)]
        if time.monotonic() - reported > _REPORT:
            reported = time.monotonic()
            summary = summarise(rows)
            print(
                f"{summary.trials} of {len(trials)} trials, {summary.delivered.total()} kills, "
                f"{len(summary.failures)} failed",
                flush=True,
            )
        time.sleep(0.05)
    return rows


def summarise(rows: Path) -> Summary:
    """Count the rows that there are."""
    summary = Summary()
    for line in rows.read_bytes().splitlines() if rows.exists() else []:
        summary.add(orjson.loads(line))
    return summary


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


def _run_some(
    urls: tuple[str, str], plans: Callable[[int], Plan], own: range, folder: Path, rows: Path
) -> None:
    trials = Trials(*urls, folder)
    file = os.open(rows, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in own:
        result = trials.run(plans(number), f"trial-{number}-{os.getpid()}")
        row = orjson.loads(orjson.dumps(result)) | {"trial": number}
        os.write(file, orjson.dumps(row) + b"\n")
    trials.close()


def main() -> int:
    """Run what the environment says; see `tests.verification.crash.__main__`."""
    environment = os.environ
    seed, folder = environment["SEED"], Path(environment["FOLDER"])
    first = int(environment.get("FIRST", "0"))
    count = int(environment.get("TRIALS", str(len(POINTS) + len(PAIRS))))
    print(f"seed {seed}, trials {first} to {first + count - 1}, histories in {folder}", flush=True)
    began = time.monotonic()
    rows = run(
        urls=(sys.argv[1], sys.argv[2]),
        plans=lambda number: numbered(seed, number),
        trials=range(first, first + count),
        jobs=int(environment.get("JOBS", "2")),
        folder=folder,
    )
    summary = summarise(rows)
    print("\n".join(summary.lines()))
    print(f"{time.monotonic() - began:.0f} s, seed {seed}")
    for number, label, violations in summary.failures[:20]:
        print(f"\ntrial {number}, {label}; again: make crash SEED={seed} FIRST={number} TRIALS=1")
        print("\n".join(f"  {text}" for text in violations[:10]))
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
