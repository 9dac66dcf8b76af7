"""`python -m tests.verification.soak`: one soak, from a seed to a verdict."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupflow.broker import topology
from tests.broker.wires import connected, told_in, waiting_in
from tests.history.configuration import QUEUE, TOLD
from tests.history.invariants import Violation
from tests.history.judge import (
    Verdict,
    judge_events,
    lost_by_rabbitmq,
    lost_in,
    resumed_in,
    tracebacks,
)
from tests.history.outbox import out_of_order, untold
from tests.history.snapshot import Snapshot, read
from tests.verification.builds import HEAD, build_of
from tests.verification.pacing import pause
from tests.verification.soak import nemesis as nemeses
from tests.verification.soak.world import World, amqp, world

INVARIANTS = {
    "S1": "every confirmed publish, or what replaced it, ends done or dead",
    "S2": "acked only once the store has it",
    "S3": "one accepted settle a claim, fences rise",
    "S4": "order within a group, one at a time",
    "S5": "no run without a reason",
    "S6": "one message id, one task",
    "S7": "the totals add up",
    "S8": "no group waits without a reason",
    "S9": "nothing runs as another's",
    "S12": "superseded only by what came after it",
    "S13": "expired only without having started",
    "S14": "each end is told, a group's in order",
    "L2": "nothing is stuck",
    "L5": "a stop ends in time",
    "L6": "no daemon ends by itself",
    "L7": "nothing is left behind",
}
DAEMONS = 3
DRAINED_WITHIN = 60.0  # seconds after the last fault, or after the last task that ended


@dataclass(slots=True)
class Result:
    """One soak.

    Attributes:
        verdict: of the judge.
        faults: how many happened, by kind.
        skipped: how many did not, by kind.
        seconds: it took.
        folder: with seed, faults, history and logs.
        void: why there are violations that say nothing of groupflow; empty where they do.
    """

    verdict: Verdict
    faults: Counter[str]
    skipped: Counter[str]
    seconds: float
    folder: Path
    void: str = ""


async def soak(
    folder: Path, *, seed: int, faults: int, clustered: bool = False, **how: Any
) -> Result:
    """Run one soak.

    Args:
        folder: where everything is written.
        seed: of faults and workload.
        faults: how many.
        clustered: whether there are a Redis Cluster of six nodes and a RabbitmqCluster of three.
        how: `rate` and `builds`, of `world`.
    """
    began = time.monotonic()
    kinds = nemeses.CLUSTER_FAULTS if clustered else nemeses.FAULTS
    async with world(folder, seed=seed, daemons=DAEMONS, clustered=clustered, **how) as whole:
        nemesis = nemeses.Nemesis(whole, folder / "faults.jsonl")
        publishing = asyncio.create_task(whole.workload.run())
        watching = asyncio.gather(nemeses.watch(whole), nemeses.watch_leaders(whole))
        await pause(1.0)
        await nemesis.run(nemeses.plan(seed, faults, DAEMONS, kinds))
        verdict = await _end(whole, publishing, watching)
    verdict.figures["changes of who leads a partition"] = whole.changes_of_leaders
    stops = nemesis.done.count("SIGTERM")
    verdict.checked.update({"L5": stops + DAEMONS, "L6": len(nemesis.done)})
    done, skipped, took = nemesis.done, nemesis.skipped, time.monotonic() - began
    void = lost_by_rabbitmq([node.log for node in whole.nodes]) if verdict.violations else ""
    return Result(verdict, Counter(done), Counter(skipped), took, folder, void)


async def _end(whole: World, publishing: asyncio.Task[None], watching: Any) -> Verdict:
    """Let everything come to rest, and judge it."""
    whole.workload.stop()
    stuck = ""
    try:
        async with asyncio.timeout(DRAINED_WITHIN):
            await publishing
    except TimeoutError:
        stuck = "the publisher got no confirms any more"
    stuck = stuck or await nemeses.wait_until_drained(whole, DRAINED_WITHIN)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    for slot in whole.slots:
        took = await slot.terminate()
        if took > 10.0:
            whole.broken.append(f"L5: {slot.name} took {took:.1f} s to leave an idle store")
    # At once: what `promote` forgets would seem left behind a minute later.
    verdict, found = await asyncio.to_thread(_judge, whole, await _left_in_queue(whole))
    told = await told_in(amqp(whole.nodes), TOLD)
    if whole.tells:
        verdict.violations += [*untold(found, told), *out_of_order(told)]
    verdict.checked["S14"] = len({(event["id"], event["seq"]) for event in told})
    broken = [Violation(*text.split(": ", 1)) for text in whole.broken]
    verdict.violations += [*broken, *tracebacks([slot.log for slot in whole.slots])]
    if stuck:
        verdict.violations.append(Violation("L2", stuck))
    verdict.figures["publishes made again"] = whole.workload.repeated
    return verdict


def _judge(whole: World, left_in_queue: int) -> tuple[Verdict, list[Snapshot]]:
    """Judge a drained store, whose daemons have left, and the history that led to it."""
    logs = [slot.log for slot in whole.slots]
    with closing(whole.client()) as raw:
        facts = whole.journal.read(), raw, whole.partitions, left_in_queue
        verdict = judge_events(*facts, resumed=resumed_in(logs), lost=lost_in(logs))
        return verdict, [read(raw, keys) for keys in whole.partitions]


async def _left_in_queue(whole: World) -> int:
    async with connected(amqp(whole.nodes)) as connection:
        presence = await topology.presence_of(connection, QUEUE)
    is_missing = presence is topology.Presence.MISSING
    return 0 if is_missing else await waiting_in(amqp(whole.nodes), QUEUE)


def show(result: Result, command: str) -> str:
    """The report, as it is printed."""
    verdict, broken = result.verdict, result.verdict.by_invariant()
    lines = [f"{'':4} {'':45} {'checked':>8} {'violations':>11}"]
    lines += [
        f"{name:4} {text:45} {verdict.checked[name]:8} {broken[name]:11}"
        for name, text in INVARIANTS.items()
    ]
    lines += ["", *(f"{count:8} {name}" for name, count in verdict.figures.items())]
    lines += ["", f"{result.faults.total():8} faults in {result.seconds:.0f} s"]
    lines += [f"{count:8}   {name}" for name, count in sorted(result.faults.items())]
    lines += [f"{count:8}   {name} (skipped)" for name, count in sorted(result.skipped.items())]
    if result.void:
        lines += ["", f"void: RabbitMQ came back with {result.void}; what follows is its own"]
    if verdict.violations:
        lines += ["", *(f"  {violation}" for violation in verdict.violations[:40])]
        lines += ["", f"{len(verdict.violations)} violations; again with:  {command}"]
        lines += [f"history, faults and logs: {result.folder}"]
    else:
        lines += ["", "no violation"]
    return "\n".join(lines)


def main() -> None:
    """Parse, run, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.verification.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of all chance (default: the clock)")
    parser.add_argument("--faults", type=int, default=100, help="how many")
    parser.add_argument("--rate", type=float, default=80.0, help="messages a second")
    clustered, between = (
        "on clusters of both servers, whose nodes may die",
        "upgrade and roll back, ",
    )
    parser.add_argument("--clustered", action="store_true", help=clustered)
    parser.add_argument(
        "--between", metavar="COMMIT", help=f"{between}between this commit and HEAD"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where all is written, and kept")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(time.time()) % 1_000_000
    folder = options.folder or Path(tempfile.mkdtemp(prefix=f"groupflow-soak-{seed}-"))
    folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # broken connections are the point
    print(f"seed {seed}, folder {folder}", flush=True)
    # Ended from outside, no servers, daemons and mounts are left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    asked = {"faults": options.faults, "rate": options.rate, "clustered": options.clustered}
    if options.between:
        asked["builds"] = [build_of(each, folder) for each in (options.between, HEAD)]
    result = asyncio.run(soak(folder, seed=seed, **asked))
    command = f"python -m tests.verification.soak --seed {seed} --faults {options.faults}"
    command += f" --rate {options.rate}{' --clustered' * options.clustered}"
    command += f" --between {options.between}" if options.between else ""
    print(show(result, command), flush=True)
    if not result.verdict.violations and options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit((2 if result.void else 1) if result.verdict.violations else 0)


if __name__ == "__main__":
    main()
