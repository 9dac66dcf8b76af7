"""Messages of 15 MiB by the hundred, from one who may publish: what they cost Redis, and others.

Nothing here waits for a time: what is measured is Redis's own log of slow commands, the processes'
largest memory by the kernel's word, and how often another tenant's tasks have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.conftest import _running
from tests.deadlines import deadline
from tests.endtoend.process import Process
from tests.endtoend.raw import Properties, RawMessage, send_raw
from tests.endtoend.rig import Job, Rig

MIB = 2**20
LARGE, NUMBER = 15 * MIB, 110
MOST = 512 * MIB  # bytes of any of our processes
SLOW = 0.05  # seconds of a script, on a machine that has time for it
TOKEN = "a-token-of-the-tests-0123456789"
pytestmark = pytest.mark.timeout(600)  # 1.6 GiB there and back, where all cores are busy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own: its log of slow commands is of this test."""
    with _running(RedisServer(tmp_path / "redis-of-its-own")) as server:
        yield server


@pytest.fixture
def rig(tmp_path: Path, rabbitmq_server: RabbitmqServer, store: RedisServer) -> Iterator[Rig]:
    folder = tmp_path / tmp_path.name
    folder.mkdir()
    rig = Rig(
        folder,
        rabbitmq_server,
        store,
        workers={"plain": 100, "grouped": 4},
        http={"listen": "127.0.0.1:0", "token": TOKEN},
        **{"pools.couriers": {"types": ["deliver"], "lease": 60.0}},
    )
    rig.raw.config_set("slowlog-log-slower-than", 1000)
    rig.raw.config_set("slowlog-max-len", 100_000)
    rig.raw.slowlog_reset()
    yield rig
    rig.close()


def slowest_script(rig: Rig) -> float:
    """Seconds."""
    found = [
        each for each in rig.raw.slowlog_get(100_000) if each["command"].startswith(b"EVALSHA")
    ]
    return max((each["duration"] for each in found), default=0) / 1e6


def floor(rig: Rig) -> float:
    """Seconds that Redis takes here and now for a script that reads as much as one of ours may."""
    rig.raw.slowlog_reset()
    rig.raw.set("floor", b"x" * 4 * MIB)
    for _ in range(8):
        rig.raw.eval("return redis.call('GET', KEYS[1])", 1, "floor")
    found = [each for each in rig.raw.slowlog_get(100) if each["command"].startswith(b"EVAL ")]
    return max((each["duration"] for each in found), default=0) / 1e6


def largest(pid: int) -> int:
    """Bytes of memory that a process has had at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def processes_of(daemon: Process) -> list[int]:
    """A daemon's own, and its page's."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    return [daemon.pid, *map(int, children)]


def send(rig: Rig, task_type: str) -> None:
    for n in range(NUMBER):
        properties = Properties(message_id=f"large-{n}", message_type=task_type)
        head = b'{"app_name":"plain","tenant_id":666,"n":%d,"x":"' % n
        body = head + b"x" * (LARGE - len(head) - 2) + b'"}'
        send_raw(rig.rabbitmq.url, rig.queue, [RawMessage(body, properties)])


def check(rig: Rig, daemon: Process) -> None:
    slowest = slowest_script(rig)
    assert slowest < max(SLOW, 5 * floor(rig)), slowest
    sizes = [largest(pid) for pid in processes_of(daemon)]
    assert max(sizes) < MOST, sizes
    assert daemon.events("lease.ended") == []


def test_a_daemon_with_a_hundred_workers_takes_them_as_they_fit(rig: Rig) -> None:
    """All of them run, once each; and another tenant's task runs once beside them."""
    daemon = rig.start("d1")
    send(rig, "work")
    rig.publish([Job("good", "good", tenant=7)])
    rig.wait_for_end("good")
    for n in range(NUMBER):
        rig.wait_for_end(f"large-{n}")
    starts = [event.id for event in rig.journal.read() if event.kind == "start"]
    assert sorted(starts) == sorted({*starts})
    check(rig, daemon)


def test_a_worker_that_pulls_a_hundred_pages_through_them(rig: Rig) -> None:
    daemon = rig.start("d1")
    url = daemon.wait_for("http.listening")["url"].rstrip("/")
    send(rig, "deliver")
    rig.until(lambda: rig.count("taken") == NUMBER, "all of them in the pool")
    rig.publish([Job("good", "good", tenant=7)])
    seen = list[str]()
    with httpx.Client(
        base_url=f"{url}/api/pools/couriers/workers/anna",
        headers={"Authorization": f"Bearer {TOKEN}"},
        trust_env=False,
        timeout=deadline(),
    ) as api:
        while True:
            answer = api.post("/claims", json={"limit": 100}).raise_for_status()
            assert len(answer.content) < LARGE + 8 * MIB
            tasks = answer.json()["tasks"]
            if not tasks:
                break
            seen += [task["id"] for task in tasks]
            told = [{"id": t["id"], "fence": t["fence"], "outcome": "done"} for t in tasks]
            verdicts = api.post("/settlements", json=told).raise_for_status().json()
            assert {each["verdict"] for each in verdicts} == {"accepted"}
    assert sorted(seen) == sorted(f"large-{n}" for n in range(NUMBER))
    rig.wait_for_end("good")
    assert [event.id for event in rig.events("start", "good")] == ["good"]
    check(rig, daemon)
