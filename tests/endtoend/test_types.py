"""Limits of types, seen from outside: what runs at once and how often it starts, whatever dies."""

from __future__ import annotations

import time

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig

MOST, RATE = 4, 20  # at once; starts a second


def most_at_once(rig: Rig, partition: int) -> int:
    """How many tasks of type ``work`` ran at once in a partition."""
    running, most = set[tuple[str, int]](), 0
    for event in sorted(rig.events(), key=lambda each: each.at):
        if event.kind == "killed":
            running = {each for each in running if each[1] != event.pid}
        elif rig.partition_of(event) == partition and rig.jobs[event.id].type == "work":
            change = {"start": running.add, "end": running.discard}.get(event.kind)
            change and change((event.id, event.pid))
        most = max(most, len(running))
    return most


@pytest.mark.parametrize("partitions", [1, 2])
def test_never_more_of_a_type_than_its_limit(make_rig: MakeRig, partitions: int) -> None:
    """Both daemons are killed while all the room is taken; grouped and plain tasks count alike."""
    limits = {"types.work": {"concurrency": MOST}, "types.thread": {"rate": f"{RATE}/s"}}
    rig = make_rig(
        workers={"lease": short_lease()},
        redis={"partitions": partitions},
        rabbitmq={"partitions": partitions},
        **limits,
    )
    first, second = rig.start_all("d1", "d2")
    held, begun = {"gate": str(rig.gate()), "gate_once": True}, time.monotonic()
    rig.publish(
        [
            *(Job(f"h{n}", f"h{n}" if n % 2 else None, facts=held) for n in range(16)),
            *(Job(f"{group}{n}", group) for n in range(10) for group in "abc"),
            *(Job(f"t{n}", "tu"[n % 3] if n % 3 < 2 else None, type="thread") for n in range(40)),
        ]
    )
    share = MOST // partitions

    def is_full() -> bool:
        return all(most_at_once(rig, n) >= share for n in range(partitions))

    rig.until(is_full, "all the room to be taken")
    rig.kill(first)
    rig.wait_for_end("t15")
    rig.kill(second)
    rig.start_all("d3", "d4")
    rig.gate().touch()
    rig.end(with_faults=True)
    for n in range(partitions):
        assert most_at_once(rig, n) == share
        starts = [each for each in rig.events("start") if rig.partition_of(each) == n]
        paced = sorted(each.at - begun for each in starts if rig.jobs[each.id].type == "thread")
        assert [at for i, at in enumerate(paced) if at < i * partitions / RATE] == []
