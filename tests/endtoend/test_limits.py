"""Limits of groups, with real daemons: kept over all of them, after crashes and by a reload."""

from __future__ import annotations

import signal
import time

import orjson

from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig


def hot(rig: Rig, number: int, gate: str = "gate", **facts: object) -> list[Job]:
    """Tasks of one group that wait for a gate."""
    held = {"gate": str(rig.gate(gate)), **facts}
    return [Job(f"{gate}{n}", "hot", n=n, facts=held) for n in range(number)]


def running(rig: Rig) -> int:
    """How many attempts have begun and not ended."""
    return len(rig.events("start")) - len(rig.events("end"))


def test_so_many_at_once_over_all_daemons(make_rig: MakeRig) -> None:
    """Three of five, whoever runs them; a kill gives back what it held."""
    rig = make_rig(rule={"concurrency": 3}, workers={"grouped": 2})
    daemons = rig.start_all("d1", "d2", "d3")
    rig.publish(hot(rig, 5, gate_once=True))
    rig.until(lambda: running(rig) == 3, "three to run")
    told = orjson.loads(rig.call("why", "hot:42", "--config", str(rig.config), "--json").stdout)
    assert (told["state"], told["running"], told["concurrency"]) == ("running", 3, 3)
    holder = next(each for each in daemons if each.pid == rig.events("start")[0].pid)
    rig.kill(holder)
    rig.start(holder.name)
    rig.gate().touch()
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_a_reload_lets_more_run_and_then_fewer(make_rig: MakeRig) -> None:
    rig = make_rig(workers={"grouped": 8})
    daemon = rig.start("d1")
    rig.publish(hot(rig, 6))
    rig.wait_for_start("gate0")
    rig.configure(rule={"concurrency": 4}, workers={"grouped": 8})
    daemon.send(signal.SIGHUP)
    rig.until(lambda: running(rig) == 4, "four to run")
    rig.configure(workers={"grouped": 8})
    daemon.send(signal.SIGHUP)
    daemon.wait_for("config.reloaded", 2)
    rig.gate().touch()
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []


def test_starts_are_no_more_than_the_rate(make_rig: MakeRig) -> None:
    """Two daemons share it; another group doesn't wait for it, nor does a plain task."""
    rig = make_rig(rule={"concurrency": 5, "rate": "20/s burst 2"})
    rig.start_all("d1", "d2")
    began = time.monotonic()
    rig.publish([Job(f"t{n}", "hot", n=n) for n in range(12)])
    rig.publish([Job("other", "cool"), Job("plain")])
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
    last = max(event.at for event in rig.events("start") if event.group == "hot:42")
    assert last - began >= 10 / 20


def test_tenants_run_so_many_over_all_daemons(make_rig: MakeRig) -> None:
    """Grouped and plain ones alike, in whatever groups; and one has its own limit."""
    rig = make_rig(
        tenants={"concurrency": 2},
        workers={"grouped": 4, "plain": 4, "order": "tenants"},
        **{"tenants.7": {"concurrency": 1}},
    )
    rig.start_all("d1", "d2")
    gate = {"gate": str(rig.gate())}
    jobs = [
        Job(f"{tenant}.{n}", f"g{n}" if n % 2 else None, tenant, n, facts=gate)
        for tenant in (1, 2, 7)
        for n in range(8)
    ]
    rig.publish(jobs)
    # A plain task is its application's, so a tenant of both has two limits.
    rig.until(lambda: running(rig) == 2 * (2 + 2 + 1), "as many as may to run")
    told = orjson.loads(rig.call("status", "--config", str(rig.config), "--json").stdout)
    assert told["tenants"]["standing"] == 6
    rig.gate().touch()
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
    most = {"1": 2, "2": 2, "7": 1}
    for tenant, limit in most.items():
        for is_plain in (True, False):
            assert overlap(rig, tenant, is_plain=is_plain) <= limit


def overlap(rig: Rig, tenant: str, *, is_plain: bool) -> int:
    """The most attempts of a tenant's that ran at once."""
    now = most = 0
    for event in sorted(rig.events(), key=lambda each: each.at):
        if event.kind not in ("start", "end") or event.tenant != tenant:
            continue
        if (event.group is None) == is_plain:
            now += 1 if event.kind == "start" else -1
            most = max(most, now)
    return most
