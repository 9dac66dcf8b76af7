r"""Groups that are seen once and never again: a million of them must leave nothing behind.

`make test` runs a few; all of them:

    GROUPFLOW_ONE_SHOT_GROUPS=1000000 make test \
        TESTS=tests/store/test_one_shot_groups.py ARGS="--timeout 0 -s -n 0"
"""

from __future__ import annotations

import os

from groupflow.store.enqueue import Enqueuer
from groupflow.store.history import rotate_history
from groupflow.store.settlements import Complete, Settlement
from tests.store.bench import Bench, arrival

GROUPS = int(os.environ.get("GROUPFLOW_ONE_SHOT_GROUPS", "5000"))
BATCH = 500
BODY = len(arrival("0" * 36).envelope.body)


async def _fill(bench: Bench) -> None:
    enqueuer = Enqueuer(bench.client)
    for first in range(0, GROUPS, BATCH):
        numbers = range(first, min(first + BATCH, GROUPS))
        await enqueuer.enqueue([arrival(f"{n:036d}", f"entity:{n}") for n in numbers])


async def _drain(bench: Bench) -> int:
    daemon = await bench.daemon()
    workers = [f"grouped-{n}" for n in range(BATCH)]
    finished: list[Settlement] = []
    done = 0
    while True:
        _, claims = await daemon.exchange("grouped", finished, workers)
        if not claims:
            await daemon.sessions.leave()
            return done
        finished = [Complete(claim) for claim in claims]
        done += len(claims)
        await daemon.sessions.renew()  # a million take longer than the lease


async def test_one_shot_groups_leave_nothing(bench: Bench) -> None:
    """Once drained there is no key of a group or a task, and once rolled no word of them."""
    await rotate_history(bench.client, keep=0, size=1)
    before = bench.used_memory()
    await _fill(bench)
    full = bench.used_memory()
    assert await _drain(bench) == GROUPS
    assert bench.judge_drained() == []
    remembered = bench.used_memory()
    # Two rolls without a window to keep: the history of all that has ended is forgotten.
    assert await rotate_history(bench.client, keep=0, size=1)
    assert await rotate_history(bench.client, keep=0, size=1)
    left = {name.split(b"}:")[1] for name in bench.raw.scan_iter(bench.keys("*"), 1000)}
    assert left == {b"count", b"epoch", b"fence", b"segments"}
    print(
        f"{GROUPS:,} groups of one task; bytes a task above its body: waiting"
        f" {(full - before) / GROUPS - BODY:.0f}, remembered once done"
        f" {(remembered - before) / GROUPS:.0f}"
    )
