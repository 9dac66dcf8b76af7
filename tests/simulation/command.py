"""`make sim`: runs seeds, on all cores, and shows a failing one as small as it can be made."""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.simulation import clock
from tests.simulation.children import in_children
from tests.simulation.coverage import CELLS, Table, count, empty_cells
from tests.simulation.plan import Plan, plan
from tests.simulation.redis_side import RealRedis
from tests.simulation.run import Outcome, run
from tests.simulation.shrink import shrunk

SHOWN = 10  # violations of a run
ENOUGH = 1000  # runs, in which processes have died in nearly every way that matters
PLENTY = 10_000  # runs, in which they have in every one
RARE = 0.01  # of these ways, which may be missing in fewer runs than that
TOGETHER = 500  # runs that one process sees to, at most
_IS_READY = b"ready to accept connections at"
_KEEPS_NOTHING = (
    *("--save", "", "--appendonly", "no"),
    *("--latency-tracking", "no", "--slowlog-log-slower-than", "-1"),
)


def main() -> int:
    """Run what the command line asks for; the exit code is 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    told = parser.add_argument
    told("--seeds", type=int, default=1000, help="how many")
    told("--from", dest="first", type=int, default=1, help="the first of them")
    told("--seed", type=int, help="this one alone, with its story")
    told("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    told("--daemons", type=int, help="as many in each run; else the seed decides")
    told("--faults", type=int, default=8, help="of each run")
    told("--tasks", type=int, default=60, help="of each run")
    told("--minutes", type=float, default=0.15, help="virtual, in which faults come")
    told("--story", action="store_true", help="tell what happens")
    told("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.seed is not None:
        return _run_here(asked, [asked.seed])
    seeds = range(asked.first, asked.first + asked.seeds)
    return _run_here(asked, seeds) if asked.child else _run_in_children(asked, seeds)


# In one process:


def _run_here(asked: Namespace, seeds: Sequence[int]) -> int:
    """Run seeds in this process; a line of JSON a seed, behind what is told of it."""
    failed = 0
    gc.freeze()
    with real_redis() as real:
        for seed in seeds:
            began = _processor()
            drawn = plan(
                seed,
                daemons=asked.daemons,
                tasks=asked.tasks,
                faults=asked.faults,
                seconds=asked.minutes * 60,
            )
            outcome = run(drawn, real)
            if outcome.violations and asked.seed is None:
                outcome = _smallest(outcome, real)
            if outcome.violations or asked.story or asked.seed is not None:
                print(_told(outcome))
            failed += bool(outcome.violations)
            line = {
                "seed": seed,
                "failed": bool(outcome.violations),
                "digest": outcome.digest,
                "processor": _processor() - began,
                "virtual": outcome.seconds,
                "died_at": outcome.died_at,
                "cells": [[*cell, number] for cell, number in count(outcome.deaths).items()],
                **outcome.figures,
            }
            print(orjson.dumps(line).decode(), flush=True)
    return int(failed > 0)


def _processor() -> float:
    """Seconds of processor that this process and those of its runs have taken."""
    runs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + runs.ru_utime + runs.ru_stime


def _smallest(outcome: Outcome, real: RealRedis) -> Outcome:
    """The same violation with as little as possible around it."""
    wanted = outcome.violations[0].invariant

    def breaks(smaller: Plan) -> bool:
        return any(each.invariant == wanted for each in run(smaller, real).violations)

    return run(shrunk(outcome.plan, breaks), real)


def _told(outcome: Outcome) -> str:
    plan = outcome.plan
    parts = ", ".join(f"{len(plan.parts(kind))} {kind}" for kind in plan.PARTS)
    lines = [
        f"seed {plan.seed}: {parts}, {plan.daemons} daemons, {plan.partitions} partitions, "
        f"replicas {plan.replicas}, order {plan.order}",
        *outcome.story,
        *(f"  {each}" for each in outcome.violations[:SHOWN]),
    ]
    return "\n".join(lines)


@contextmanager
def real_redis() -> Iterator[RealRedis]:
    """A private Redis on a Unix socket, which keeps nothing."""
    with real_server() as path:
        yield RealRedis(path)


@contextmanager
def real_server() -> Iterator[str]:
    """The same, and the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="simulation-") as folder:
        path = Path(folder, "redis.sock")
        command = ["redis-server", "--port", "0", "--unixsocket", str(path), *_KEEPS_NOTHING]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                told = (line for line in server.stdout or () if _IS_READY in line)
                if next(told, None) is None:
                    raise SystemExit(f"{command[0]} ended before it was ready")
                yield str(path)
            finally:
                server.terminate()


# In many:


def _run_in_children(asked: Namespace, seeds: range) -> int:
    """Run seeds in processes of their own, some at a time; say what came of all of them."""
    began = clock.real()
    part = min(TOGETHER, -(-len(seeds) // asked.jobs))
    waiting = deque(seeds[at : at + part] for at in range(0, len(seeds), part))
    found: list[dict[str, Any]] = []
    broken = 0

    def share(some: range) -> list[str]:
        return [*sys.argv[1:], f"--from={some.start}", f"--seeds={len(some)}"]

    for _, (code, lines) in in_children("tests.simulation", waiting, share, asked.jobs):
        found += [orjson.loads(line) for line in lines if line.startswith('{"seed"')]
        if text := [line for line in lines if not line.startswith('{"seed"')]:
            print("\n".join(text), flush=True)
        broken += code not in (0, 1)
    failed = sorted(int(line["seed"]) for line in found if line["failed"])
    _sum_up(found, clock.real() - began, asked.jobs)
    blind = _blind_spots(found, asked)
    if failed:
        print(f"broken promises in {len(failed)} seeds: {', '.join(map(str, failed[:50]))}")
        print("one of them again, whole: make sim SEED=" + str(failed[0]))
    if broken or len(found) != len(seeds):
        print(f"{len(seeds) - len(found)} seeds were not run: {broken} processes failed")
        return 1
    return int(bool(failed or blind))


def _blind_spots(found: list[dict[str, Any]], asked: Namespace) -> list[tuple[str, str]]:
    """What of all that matters no process has died in, in runs that are enough for it."""
    table: Table = Counter()
    for line in found:
        table.update({(row, column): number for row, column, number in line["cells"]})
    empty = empty_cells(table)
    print(f"processes died in {len(CELLS) - len(empty)} of the {len(CELLS)} ways that matter")
    if len(found) < ENOUGH or asked.daemons is not None:
        return []
    for row, column in empty:
        print(f"never: {row}, {column}")
    return empty if len(found) >= PLENTY or len(empty) > RARE * len(CELLS) else []


def _sum_up(found: list[dict[str, Any]], took: float, jobs: int) -> None:
    def total(name: str) -> float:
        return sum(float(line.get(name, 0)) for line in found)

    processor = total("processor") / max(1, len(found))
    print(
        f"{len(found)} seeds in {took:.0f} s: {len(found) / took:.1f} a second, "
        f"{processor:.3f} s of processor for each, in {jobs} processes"
    )
    print(
        f"{total('tasks'):,.0f} tasks, {total('attempts'):,.0f} attempts, "
        f"{total('faults'):,.0f} faults, {total('deaths'):,.0f} deaths of processes, "
        f"{total('virtual') / 3600:,.0f} hours of virtual time"
    )
