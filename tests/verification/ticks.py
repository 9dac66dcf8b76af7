"""`make ticks`: three daemons whose clocks differ by ten seconds, killed at random: each tick once.

By itself it runs for a minute on servers of its own, at one tick a second.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from groupflow.servers import RedisServer
from tests.endtoend.process import Process
from tests.endtoend.rig import Rig
from tests.endtoend.ticking import (
    NO_BROKER,
    WORKERS,
    judge_ticks,
    shown,
    ticks_of,
    verb,
    with_schedules,
)
from tests.running import running
from tests.verification.clock import Clock

SHIFTS = {"slow": -5.0, "right": 0.0, "fast": 5.0}
"""Seconds by which each daemon's clock is wrong, by its name."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    ticks: int
    kills: int
    missed: int  # made up later than a minute
    wrong: list[str]


class ClockRig(Rig):
    """A rig each of whose daemons has a clock of its own."""

    def start_wrong(self, name: str) -> Process:
        """Start a daemon whose clock is wrong."""
        clock = Clock(self.folder / f"{name}.clock")
        assert clock.can_be_set, "libfaketime is missing: make servers installs it"
        clock.set(SHIFTS[name])
        plain = self.environment()
        self.environment = lambda: plain | clock.environment  # type: ignore[method-assign]
        try:
            return self.spawn(name, *WORKERS)
        finally:
            del self.environment


def try_clocks(
    folder: Path,
    store: RedisServer,
    *,
    kills: int = 10**9,
    seconds: float = 3600.0,
    every: float = 1.0,
    seed: int = 0,
) -> Found:
    """Let them make ticks until so many were killed, or for so long; and judge.

    Args:
        folder: for logs and the configuration.
        store: the store.
        kills: how many daemons to kill at most.
        seconds: after which no more is killed.
        every: seconds from tick to tick.
        seed: of who is killed, and when.
    """
    random, done = Random(seed), 0
    rig = ClockRig(folder, NO_BROKER, store, workers={"lease": 10.0})
    try:
        with_schedules(rig, {"name": "often", "every": every, "missed": "all", "body": {"ms": 5}})
        daemons = {name: rig.start_wrong(name) for name in SHIFTS}
        rig.until(lambda: bool(ticks_of(rig, "often")), "the first tick")
        until = time.monotonic() + seconds
        while done < kills and time.monotonic() < until:
            name = random.choice([*SHIFTS])
            before, more = len(ticks_of(rig, "often")), random.randint(0, 2)
            rig.until(lambda: len(ticks_of(rig, "often")) >= before + more, "more ticks")  # noqa: B023
            rig.kill(daemons[name])
            daemons[name] = rig.start_wrong(name)
            done += 1
        before = len(ticks_of(rig, "often"))
        rig.until(lambda: len(ticks_of(rig, "often")) > before, "a tick behind the last kill")
        verb(rig, "pause", "often")
        found = shown(rig, "often")
        rig.until(lambda: rig.is_over(found["ticks_total"]), "the end of all")
        for daemon in daemons.values():
            daemon.wait_for("daemon.started")
        rig.stop_all()
        wrong = judge_ticks(rig, "often", every)
        return Found(len(ticks_of(rig, "often")), done, found["missed_total"], wrong)
    finally:
        rig.close()


def main() -> None:
    """Run it for a minute, or as told, and say what came of it; exit 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("redis", "rig"):
            (folder / each).mkdir()
        with running(RedisServer(folder / "redis")) as store:
            found = try_clocks(folder / "rig", store, seconds=chosen.seconds, seed=chosen.seed)
    print(
        f"seed {chosen.seed}: {found.ticks} ticks in a row, {found.kills} kills, "
        f"{found.missed} ticks made up later than a minute, {len(found.wrong)} wrong"
    )
    for each in found.wrong:
        print(each)
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
