"""The simulation itself: seeds hold, each is the same each time, a failing one is made small."""

from __future__ import annotations

import os
import sys
from typing import Any

import orjson
import pytest

from tests.programs import ran
from tests.simulation.plan import Plan, plan
from tests.simulation.shrink import shrunk

SEEDS = 40  # `make test` runs so many, always the same; CI runs `make sim` beside it
PART = 20


def simulated(*arguments: str, hash_seed: str = "0") -> tuple[str, list[dict[str, Any]]]:
    """What `make sim` prints in a process of its own, and what each seed came to."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--child", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = ran(*command, env=environment, seconds=360)
    lines = done.stdout.splitlines()
    found = [orjson.loads(line) for line in lines if line.startswith('{"seed"')]
    told = "\n".join(line for line in lines if not line.startswith('{"seed"'))
    return told + done.stderr, found


@pytest.mark.timeout(380)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, PART))
def test_seeds_hold(first: int) -> None:
    """Nothing breaks a promise, in so many lives of fleets."""
    told, found = simulated("--from", str(first), "--seeds", str(PART))
    assert told == ""
    assert [each["seed"] for each in found if not each["failed"]] == [*range(first, first + PART)]


def test_a_seed_is_the_same_run_each_time() -> None:
    """In any order of Python's sets, after any other seed."""
    _, some = simulated("--from", "11", "--seeds", "4", hash_seed="1")
    _, others = simulated("--from", "12", "--seeds", "3", hash_seed="2")
    digests = [each["digest"] for each in some]
    assert len(set(digests)) == 4
    assert digests[1:] == [each["digest"] for each in others]


@pytest.mark.parametrize(
    ("how", "told"),
    [("os.kill(os.getpid(), 11)", "ended with -11"), ("1 / 0", "ZeroDivisionError")],
)
def test_a_run_whose_process_fails_is_told(how: str, told: str) -> None:
    """It is one broken seed, and the others run."""
    program = f"""
import os
from tests.simulation import command, plan, run
run._run = lambda *_: {how}
with command.real_redis() as real:
    print([each.text for _ in range(2) for each in run.run(plan.plan(1), real).violations])
"""
    done = ran(sys.executable, "-c", program, seconds=120)
    assert done.stdout.count(told) == 2


def test_a_failing_run_is_made_as_small_as_it_can_be() -> None:
    """Only what the violation needs is left: here one fault and two messages."""
    whole = plan(5)
    needed = {whole.faults[3], whole.jobs[7], whole.jobs[40]}

    def breaks(smaller: Plan) -> bool:
        return needed <= {*smaller.faults, *smaller.jobs}

    small = shrunk(whole, breaks)
    left = {kind: small.parts(kind) for kind in Plan.PARTS if small.parts(kind)}
    assert left == {"faults": (whole.faults[3],), "jobs": (whole.jobs[7], whole.jobs[40])}
    assert shrunk(whole, breaks, tries=0) == whole
