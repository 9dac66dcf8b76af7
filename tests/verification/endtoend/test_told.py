"""Ends of tasks are told, and follow-up tasks run, seen from outside while everything dies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupflow.servers import RabbitmqServer
from tests.broker.wires import bind, told_in
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig, rigs
from tests.endtoend.rig import Job
from tests.running import run, running

TASKS = 400


@pytest.fixture
def make_rig(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, redis_server: Any
) -> Iterator[MakeRig]:
    """Make rigs on a RabbitMQ of this test's own, which it restarts."""
    rabbitmq = RabbitmqServer(tmp_path_factory.mktemp("rabbitmq-told"))
    with running(rabbitmq), rigs(tmp_path, rabbitmq, redis_server) as make:
        yield make


@pytest.mark.parametrize("partitions", [1, 3])
def test_ends_are_told_whatever_dies(make_rig: MakeRig, partitions: int) -> None:
    """All of 400 tasks and their follow-ups, once or more; first copies in order in each group."""
    told, answers = f"told.{partitions}", f"answers.{partitions}"
    rig = make_rig(
        workers={"lease": short_lease()},
        redis={"partitions": partitions},
        events={"exchange": told, "replies": ["answers.*"]},
    )
    run(bind(rig.rabbitmq.url, told, told, answers))
    daemons = rig.start_all("d1", "d2")
    jobs = [
        Job(f"a{n}", f"g{n % 7}" if n % 4 else None, n=n, type="asked", reply_to=answers)
        for n in range(TASKS)
    ]
    rig.publish(jobs[: TASKS // 2])
    rig.until(lambda: rig.count("done") > TASKS // 8, "some to be done")
    rig.kill(daemons[0])
    rig.start("d3")
    run(rig.rabbitmq.stop())
    run(rig.rabbitmq.start())
    rig.publish(jobs[TASKS // 2 :])
    rig.until(lambda: rig.count("done") > TASKS, "more to be done")
    rig.kill(daemons[1])
    rig.start("d4")
    rig.wait_for_all(2 * TASKS)
    rig.until(lambda: not any(rig.raw.llen(keys("outbox")) for keys in rig.partitions), "the relay")
    rig.stop_all()
    assert rig.judge(with_faults=True) == []

    events = run(told_in(rig.rabbitmq.url, told))
    wanted = {job.id for job in jobs} | {f"{job.id}/then/1" for job in jobs}
    assert {event["id"] for _, event in events} == wanted
    first = dict[str, dict[str, Any]]()
    for key, event in events:
        assert key == f"done.{'crm' if event['group'] else 'plain'}.42.{event['type']}"
        assert first.setdefault(event["id"], event) == event  # a copy says the same
    order = defaultdict[str, list[int]](list)
    for event in first.values():
        if event["group"]:
            order[event["group"]].append(event["result"]["n"])
    assert all(each == sorted(each) for each in order.values())
    replies = [event for _, event in run(told_in(rig.rabbitmq.url, answers))]
    assert {reply["asked"] for reply in replies} == {f"c-{job.id}" for job in jobs}
    assert all(first[reply["id"]] == reply for reply in replies)
