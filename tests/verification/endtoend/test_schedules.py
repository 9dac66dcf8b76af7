"""Schedules on real daemons: kills at any point, clocks that are wrong, reloads, deaths, verbs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from groupflow.crashpoints import VARIABLE
from groupflow.servers import RedisServer
from tests.deadlines import short_lease
from tests.endtoend.configuration import lines_of
from tests.endtoend.conftest import MakeRig, rigs
from tests.endtoend.process import Process
from tests.endtoend.rig import Rig
from tests.history.auditor import audit
from tests.verification.clock import Clock

# In place of RabbitMQ: ticks need none, nor do daemons with ``--only workers``.
NO_BROKER: Any = SimpleNamespace(url="amqp://guest:guest@127.0.0.1:1/")
WORKERS = ("--only", "workers")
EVERY: dict[str, Any] = {"name": "often", "every": 0.25, "missed": "all"}
SHIFTS = {"slow": -5.0, "right": 0.0, "fast": 5.0}
"""Seconds by which each daemon's clock is wrong, by its name."""
KILLS = int(os.environ.get("KILLS") or 3)  # `make ticks` has more


def with_schedules(rig: Rig, *rules: dict[str, Any]) -> None:
    """Put schedules into a rig's configuration, in place of those that it had."""
    before = rig.config.read_text().partition("[[schedules]]")[0]
    rig.config.write_text(before + "".join(map(_toml, rules)))


def _toml(rule: dict[str, Any]) -> str:
    facts = {"type": "work", **rule}
    body = ", ".join(lines_of(facts.pop("body", {})))
    return "\n".join(["[[schedules]]", *lines_of(facts), f"body = {{{body}}}", ""])


def ticks_made(rig: Rig, name: str) -> int:
    """How many ticks of a schedule there were, as `groupflow schedules --json` shows it."""
    (schedule,) = [each for each in rig.ask("schedules") if each["name"] == name]
    return int(schedule["ticks_total"])


def ticks_of(rig: Rig, name: str) -> list[str]:
    """The ids of its ticks that ran, each once, in order."""
    front = f"schedule:{name}:"
    found = {each.id for each in rig.events("start") if each.id.startswith(front)}
    return sorted(found, key=moment_of)


def moment_of(id_: str) -> float:
    """The time in a tick's id."""
    return datetime.fromisoformat(id_.split(":", 2)[2]).timestamp()


@pytest.fixture
def make_rig(tmp_path: Path, redis_server: RedisServer) -> Iterator[MakeRig]:
    """Make a rig without RabbitMQ."""
    with rigs(tmp_path, NO_BROKER, redis_server) as make:
        yield make


def end(rig: Rig) -> None:
    """Let no more ticks come, and what there is end; all that were to be made were.

    Each from the first to the last, each one task, and none run twice without a crash.
    """
    rig.ask("schedules", "pause", "often")
    made = ticks_made(rig, "often")
    rig.until(lambda: rig.is_over(made), f"the end of {made} ticks")
    rig.stop_all()
    assert [each for keys in rig.partitions for each in audit(rig.raw, keys)] == []
    ids = ticks_of(rig, "often")
    numbers = [round(moment_of(id_) / EVERY["every"]) for id_ in ids]
    assert numbers == [*range(numbers[0], numbers[-1] + 1)]
    assert len(ids) == made == rig.count("done") + len(rig.dead())
    for id_ in ids:
        runs = [(event.attempt, event.crashes) for event in rig.events("start", id_)]
        assert len(set(runs)) == len(runs), f"{id_} ran twice without a crash"


def spawn_wrong(rig: Rig, name: str) -> Process:
    """A daemon whose clock is wrong."""
    clock = Clock(rig.folder / f"{name}.clock")
    assert clock.can_be_set, "libfaketime is missing: make servers installs it"
    clock.set(SHIFTS[name])
    return rig.spawn(name, *WORKERS, variables=clock.environment)


def wait_for_ticks(rig: Rig, more: int) -> None:
    """Wait until so many more than now have run."""
    wanted = len(ticks_of(rig, "often")) + more
    rig.until(lambda: len(ticks_of(rig, "often")) >= wanted, f"{wanted} ticks")


def test_daemons_with_wrong_clocks_that_are_killed(make_rig: MakeRig) -> None:
    """They differ by ten seconds, and are killed at random: each tick once."""
    rig, random = make_rig(workers={"lease": 10.0}), Random(KILLS)
    with_schedules(rig, {**EVERY, "body": {"ms": 5}})
    daemons = {name: spawn_wrong(rig, name) for name in SHIFTS}
    wait_for_ticks(rig, 1)
    for _ in range(KILLS):
        name = random.choice([*SHIFTS])
        wait_for_ticks(rig, random.randint(0, 2))
        rig.kill(daemons[name])
        daemons[name] = spawn_wrong(rig, name)
    wait_for_ticks(rig, 1)
    for daemon in daemons.values():
        daemon.wait_for("daemon.started")
    end(rig)


@pytest.mark.parametrize("point", ["before_tick", "after_tick"])
def test_a_daemon_may_die_at_a_tick(make_rig: MakeRig, point: str) -> None:
    """The next one makes what is due, and nothing that is made already."""
    rig = make_rig(workers={"lease": short_lease(4.0)})
    with_schedules(rig, EVERY)
    assert rig.spawn("d1", *WORKERS, variables={VARIABLE: f"{point}:3"}).wait() == -signal.SIGKILL
    rig.start("d2", *WORKERS)
    rig.until(lambda: len(ticks_of(rig, "often")) > 4, "some ticks")
    end(rig)


def test_a_reload_takes_schedules_over(make_rig: MakeRig) -> None:
    rig = make_rig()
    with_schedules(rig, {**EVERY, "body": {"n": 1}})
    daemon = rig.start("d1", *WORKERS)
    rig.until(lambda: any(e.n == 1 for e in rig.events("start")), "the first")
    with_schedules(rig, {**EVERY, "body": {"n": 2}}, {"name": "new", "every": 0.25})
    daemon.send(signal.SIGHUP)
    daemon.wait_for("config.reloaded")
    rig.until(lambda: any(e.n == 2 for e in rig.events("start")), "one of the new body")
    rig.until(lambda: bool(ticks_of(rig, "new")), "one of the new schedule")
    rig.ask("schedules", "pause", "new")
    rig.ask("schedules", "pause", "often")
    found = [ticks_made(rig, name) for name in ("new", "often")]
    rig.until(lambda: rig.is_over(sum(found)), "the end of all")
    rig.stop_all()
    often = [event for event in rig.events("start") if event.id.startswith("schedule:often")]
    bodies = [event.n for event in sorted(often, key=lambda event: moment_of(event.id))]
    assert bodies == sorted(bodies)
    assert daemon.events("schedule.changed")[0]["schedule"] == "often"
