"""Every crash point once, and some pairs: real daemons die there, and the history is sound.

`make crash` runs any number of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from groupflow import crashpoints
from groupflow.crashpoints import arm
from tests.programs import ran
from tests.verification.crash.__main__ import run
from tests.verification.crash.plans import POINTS
from tests.verification.crash.trials import Result

ROOT = Path(__file__).parents[3]
SEED = "tests"
PAIRS = 10


@pytest.fixture(scope="module")
def results(redis_server: Any, rabbitmq_server: Any, tmp_path_factory: Any) -> Mapping[int, Result]:
    """What came of each trial, by its number: the points in their order, then pairs."""
    trials, folder = range(len(POINTS) + PAIRS), tmp_path_factory.mktemp("crash")
    return run(redis_server, rabbitmq_server, SEED, trials, jobs=4, folder=folder)


@pytest.mark.timeout(900)  # all trials, where other things run
@pytest.mark.parametrize("point", POINTS)
def test_a_daemon_may_die_anywhere(results: Mapping[int, Result], point: str) -> None:
    result = results[POINTS.index(point)]
    assert result.violations == []
    assert point in result.delivered, "the point was never reached, so this says nothing"


def test_daemons_may_die_twice(results: Mapping[int, Result]) -> None:
    pairs = [results[len(POINTS) + number] for number in range(PAIRS)]
    assert [pair.violations for pair in pairs] == [[]] * PAIRS
    assert sum(len(pair.delivered) >= 2 for pair in pairs) > PAIRS / 2


@pytest.mark.parametrize("where", ["nowhere:1", "before_ack", "before_ack:0", "before_ack:x"])
def test_a_mistaken_point_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="GROUPFLOW_CRASH_AT"):
        arm(where)
    assert not crashpoints._armed


READ = [
    ("after_ack:1,before_ack:3", -9, "alive\n", ""),
    ("before_lunch:1", 1, "", "'before_lunch' is none of before_enqueue, "),
]


@pytest.mark.parametrize(("where", "code", "out", "said"), READ)
def test_the_variable_is_read_at_import(where: str, code: int, out: str, said: str) -> None:
    passes = "[p('before_ack', n) for n in (0, 1, 1)]; print('alive'); p('before_ack')"
    program = f"from groupflow.crashpoints import crash_point as p; {passes}"
    variables = os.environ | {crashpoints.VARIABLE: where}
    ended = ran(sys.executable, "-uc", program, folder=ROOT, env=variables)
    assert (ended.returncode, ended.stdout) == (code, out)
    assert said in ended.stderr
