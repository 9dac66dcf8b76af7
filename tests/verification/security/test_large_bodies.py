"""Messages of 15 MiB by the hundred, from one who may publish: what they cost Redis, and others.

Nothing here waits for a time: what is measured is Redis's own log of slow commands, the processes'
largest memory by the kernel's word, and how often another tenant's tasks have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from groupflow.servers import RabbitmqServer
from tests.endtoend.raw import Properties, RawMessage, send_raw
from tests.endtoend.rig import Job, Rig
from tests.page.served import TOKEN, Served, as_, page_of, peak
from tests.pools.shop import ids, said
from tests.verification.security.slow import MIB, SlowLog, served

LARGE, NUMBER = 15 * MIB, 110
MOST = 512 * MIB  # bytes of any of our processes
SLOW = 0.05  # seconds of a script, on a machine that has time for it
pytestmark = pytest.mark.timeout(600)  # 1.6 GiB there and back, where all cores are busy


POOLS = """
[pools.couriers]
types = ["deliver"]
lease = 60.0
"""


@pytest.fixture
def world(tmp_path: Path, rabbitmq_server: RabbitmqServer) -> Iterator[Served]:
    workers = {"plain": 100, "grouped": 4}
    with served(tmp_path, rabbitmq_server, POOLS, workers=workers) as made:
        yield made


@pytest.fixture
def log(world: Served) -> SlowLog:
    return SlowLog(world.raw)


def send(rig: Rig, task_type: str) -> None:
    for n in range(NUMBER):
        properties = Properties(message_id=f"large-{n}", message_type=task_type)
        head = b'{"app_name":"plain","tenant_id":666,"n":%d,"x":"' % n
        body = head + b"x" * (LARGE - len(head) - 2) + b'"}'
        send_raw(rig.rabbitmq.url, rig.queue, [RawMessage(body, properties)])


def check(world: Served, log: SlowLog) -> None:
    """A script of ours takes about as long as one that reads as much as it may."""
    slowest = log.longest("EVALSHA")
    floor = log.least("return redis.call('GET', KEYS[1])", b"x" * 4 * MIB)
    assert slowest < max(SLOW, 5 * floor), slowest
    sizes = [peak(pid) for pid in (world.daemon.pid, page_of(world.daemon))]
    assert max(sizes) < MOST, sizes
    assert world.daemon.events("lease.ended") == []


def test_a_daemon_with_a_hundred_workers_takes_them_as_they_fit(
    world: Served, log: SlowLog
) -> None:
    """All of them run, once each; and another tenant's task runs once beside them."""
    rig = world.rig
    send(rig, "work")
    rig.publish([Job("good", "good", tenant=7)])
    rig.wait_for_end("good")
    for n in range(NUMBER):
        rig.wait_for_end(f"large-{n}")
    starts = [event.id for event in rig.journal.read() if event.kind == "start"]
    assert sorted(starts) == sorted({*starts})
    check(world, log)


def test_a_worker_that_pulls_a_hundred_pages_through_them(world: Served, log: SlowLog) -> None:
    rig = world.rig
    send(rig, "deliver")
    rig.until(lambda: rig.count("taken") == NUMBER, "all of them in the pool")
    rig.publish([Job("good", "good", tenant=7)])
    seen = list[str]()

    def call(name: str, body: Any) -> httpx.Response:
        path = f"/api/pools/couriers/workers/anna/{name}"
        return world.http.post(path, json=body, headers=as_(TOKEN)).raise_for_status()

    while True:
        answer = call("claims", {"limit": 100})
        assert len(answer.content) < LARGE + 8 * MIB
        tasks = answer.json()["tasks"]
        if not tasks:
            break
        seen += ids(tasks)
        verdicts = call("settlements", [said(task) for task in tasks]).json()
        assert {each["verdict"] for each in verdicts} == {"accepted"}
    assert sorted(seen) == sorted(f"large-{n}" for n in range(NUMBER))
    rig.wait_for_end("good")
    assert [event.id for event in rig.events("start", "good")] == ["good"]
    check(world, log)
