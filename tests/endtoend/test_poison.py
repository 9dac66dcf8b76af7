"""A task that ends its daemon each time it runs: it dies alone, and everything else is done."""

from __future__ import annotations

import pytest

from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.history.events import killed

HARMLESS = 200
POISON = "poison"


def harmless(number: int) -> Job:
    """Grouped and plain ones by turns, some of them quick and some slow."""
    group = None if number % 4 == 0 else f"g{number % 13}"
    return Job(f"t{number}", group, n=number, facts={"ms": 15 * (number % 3)})


def keep_running(rig: Rig, daemons: list[Process]) -> int:
    """Start daemons anew as they die, until all tasks are over; how many have died."""
    deaths = 0

    def is_over() -> bool:
        nonlocal deaths
        for at, daemon in enumerate(daemons):
            if not daemon.is_running:
                deaths += 1
                rig.journal.write(killed(daemon.pid))
                daemons[at] = rig.spawn(daemon.name)
        return rig.is_over(len(rig.jobs))

    rig.until(is_over, "the end of all tasks, and of the poison")
    return deaths


@pytest.mark.parametrize("group", ["g7", None], ids=["grouped", "plain"])
def test_a_poison_task_dies_alone(make_rig: MakeRig, group: str | None) -> None:
    """Of 16 workers of two daemons that it runs beside, no other task becomes a dead letter."""
    rig = make_rig(workers={"plain": 8, "grouped": 8, "lease": 3600.0})
    jobs = [harmless(n) for n in range(HARMLESS)]
    jobs.insert(30, Job(POISON, group, n=30, type="abort"))
    jobs = [
        Job(job.id, job.entity, n=n, type=job.type, facts=job.facts) for n, job in enumerate(jobs)
    ]
    rig.publish(jobs)
    deaths = keep_running(rig, [rig.spawn("d1"), rig.spawn("d2")])
    assert rig.dead() == [POISON]
    assert rig.ask("task", POISON)["reason"].startswith("3 daemons died")
    assert [event.crashes for event in rig.events("start", POISON)] == [0, 1, 2]
    assert deaths == 3
    # Who ran beside it was not in quarantine.
    assert max(event.crashes for event in rig.events("start") if event.id != POISON) == 1
    rig.stop_all()
    assert rig.judge(with_faults=True) == []
