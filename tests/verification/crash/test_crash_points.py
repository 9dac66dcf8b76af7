"""Every crash point once, and some pairs: real daemons die there, and the history is sound.

`make crash` runs any number of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from groupflow import crashpoints
from groupflow.crashpoints import arm
from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.verification.crash.__main__ import rows_in
from tests.verification.crash.plans import POINTS

ROOT = Path(__file__).parents[3]
SEED = "tests"
PAIRS = 10


@pytest.fixture(scope="module")
def rows(
    redis_server: RedisServer, rabbitmq_server: RabbitmqServer, tmp_path_factory: Any
) -> Mapping[int, dict[str, Any]]:
    """What came of each trial, by its number: the points in their order, then pairs."""
    folder = tmp_path_factory.mktemp("crash")
    count = len(POINTS) + PAIRS
    environment = os.environ | {
        "SEED": SEED, "TRIALS": str(count), "JOBS": "4", "FOLDER": str(folder), "FIRST": "0"
    }  # fmt: skip
    urls = redis_server.url, rabbitmq_server.url
    command = [sys.executable, "-m", "tests.verification.crash", *urls]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * deadline(),
    )
    by_number = {row["trial"]: row for row in rows_in(folder / "rows.jsonl")}
    assert len(by_number) == count, ran.stdout + ran.stderr
    return by_number


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
def test_a_daemon_may_die_anywhere(rows: Mapping[int, dict[str, Any]], point: str) -> None:
    row = rows[POINTS.index(point)]
    assert row["violations"] == []
    assert point in row["delivered"], "the point was never reached, so this says nothing"


def test_daemons_may_die_twice(rows: Mapping[int, dict[str, Any]]) -> None:
    pairs = [rows[len(POINTS) + number] for number in range(PAIRS)]
    assert [row["violations"] for row in pairs] == [[]] * PAIRS
    assert sum(len(row["delivered"]) >= 2 for row in pairs) > PAIRS / 2


@pytest.mark.parametrize("where", ["nowhere:1", "before_ack", "before_ack:0", "before_ack:x"])
def test_a_mistaken_point_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="GROUPFLOW_CRASH_AT"):
        arm(where)
    assert not crashpoints._armed


@pytest.mark.parametrize(
    ("where", "code", "out", "said"),
    [
        ("after_ack:1,before_ack:3", -9, b"alive\n", b""),
        ("before_lunch:1", 1, b"", b"'before_lunch' is none of before_enqueue, "),
    ],
)
def test_the_variable_is_read_at_import(where: str, code: int, out: bytes, said: bytes) -> None:
    passes = "[p('before_ack', n) for n in (0, 1, 1)]; print('alive'); p('before_ack')"
    ran = subprocess.run(
        [sys.executable, "-uc", f"from groupflow.crashpoints import crash_point as p; {passes}"],
        cwd=ROOT,
        env=os.environ | {crashpoints.VARIABLE: where},
        capture_output=True,
        check=False,
        timeout=deadline(),
    )
    assert (ran.returncode, ran.stdout) == (code, out)
    assert said in ran.stderr
