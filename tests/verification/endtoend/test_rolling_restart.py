"""Daemons of the previous code and of this one share a namespace: as an upgrade goes, and back."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from groupflow.cli.exits import Exit
from groupflow.store.layout import FORMAT
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import REPOSITORY, Process, groupflow
from tests.endtoend.rig import Job, Rig
from tests.endtoend.streams import streaming
from tests.programs import ran
from tests.verification.builds import PREVIOUS, build_of

# How many tasks come at once, in turn: workers are idle and groups run their last task at one time,
# and all have much to do at another. The next ones come when fewer than the least are left.
BURSTS = (20, 10, 10, 150)

# So many tasks must a daemon handle before the next step.
SHARE = 100

# One try more, soon: what one version has delayed the other may have to promote.
SETTINGS = {"retry": {"max_attempts": 2, "interval": -1}}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous code, in an environment of its own."""
    return build_of(PREVIOUS, tmp_path_factory.mktemp("previous"))


def _job(n: int) -> Job:
    """Plain tasks and groups, large ones and some that fail."""
    if n % 97 == 0:
        return Job(f"t{n}", f"bad{n}", n=n, type="fail")
    facts = {"ms": 20, "filler": "x" * (20_000 if n % 11 == 0 else 0)}
    entity = f"g{Random(n).randrange(20)}"
    return Job(f"t{n}", None if n % 5 == 0 else entity, n=n, facts=facts)


def _handled(rig: Rig, process: Process) -> int:
    return sum(event.pid == process.pid for event in rig.events("end"))


def _wait_for_work(rig: Rig, *processes: Process) -> None:
    """Wait until each has handled its share from now on."""
    before = [_handled(rig, process) for process in processes]
    for process, seen in zip(processes, before, strict=True):
        rig.until(
            lambda process=process, seen=seen: _handled(rig, process) >= seen + SHARE,  # type: ignore[misc]
            f"{SHARE} tasks more of {process.name}",
        )


def test_the_previous_code_runs_from_its_own_folder(rig: Rig, previous: Path) -> None:
    """Else the tests below would compare this code with itself."""
    script = "import groupflow, tests.history.events as events; print(groupflow.__file__)"
    for build in (previous, REPOSITORY):
        python, *_ = groupflow(build=build)
        said = ran(
            python, "-c", script, folder=build, env={**rig.environment(), "PYTHONPATH": str(build)}
        )
        assert Path(said.stdout.strip()).is_relative_to(build)


def test_another_format_is_refused_in_words(rig: Rig, previous: Path) -> None:
    """By a daemon of either code, which changes nothing there."""
    noted = {"number": "1", "format": str(FORMAT + 1)}
    rig.raw.hset(rig.keys("partitions"), mapping=noted)
    refused = f"format {FORMAT + 1}, and this groupflow has format {FORMAT}: run the version that"
    for build in (previous, REPOSITORY):
        daemon = rig.spawn("d1", build=build)
        assert daemon.wait() == Exit.CONFIG, daemon.tail()
        assert refused in daemon.tail()
    assert rig.raw.keys(rig.keys("*")) == [rig.keys("partitions").encode()]


@pytest.mark.timeout(300)
def test_a_rolling_restart_and_a_rollback(make_rig: MakeRig, previous: Path) -> None:
    """Two daemons, one after the other to the new code and, under the same load, back again."""
    rig = make_rig(**SETTINGS)
    names = ("d1", "d2")
    daemons = {name: rig.spawn(name, build=previous) for name in names}
    with streaming(rig, _job, BURSTS, most=min(BURSTS)):
        _wait_for_work(rig, *daemons.values())
        for build in (REPOSITORY, previous):
            for name in names:
                assert daemons[name].stop() == Exit.FINE, daemons[name].tail()
                daemons[name] = rig.spawn(name, build=build)
                _wait_for_work(rig, *daemons.values())
    rig.end(with_faults=False)
    assert sorted(rig.dead()) == sorted(job.id for job in rig.jobs.values() if job.type == "fail")


@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "rollback"])
@pytest.mark.parametrize(("successor", "lease"), [("d1", 60.0), ("d2", 0.0)])
def test_each_takes_over_what_a_killed_one_of_the_other_held(
    make_rig: MakeRig, previous: Path, *, upgrade: bool, successor: str, lease: float
) -> None:
    """Started again under its name at once, or as another when the lease is over."""
    before, after = (previous, REPOSITORY) if upgrade else (REPOSITORY, previous)
    rig = make_rig(**SETTINGS, workers={"lease": lease or short_lease()})
    killed = rig.spawn("d1", build=before)
    held = {"gate": str(rig.gate()), "gate_once": True}
    first = [Job("a0", "a", facts=held), Job("b0", "b", facts=held), Job("p0", facts=held)]
    rig.publish([*first, *(Job(f"{group}{n}", group, n=n) for n in (1, 2) for group in "ab")])
    rig.wait_for_starts(*(job.id for job in first))
    rig.kill(killed)
    heir = rig.spawn(successor, build=after)
    rig.wait_for_all()
    taken = heir.events("task.resumed" if successor == "d1" else "task.taken_over")
    assert {event["task"] for event in taken} == {job.id for job in first}
    rig.end(with_faults=True)
