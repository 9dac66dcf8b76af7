"""One token that pulls under names it invents, and what is left of that.

What is measured: the longest script, Redis's memory, how long workers of another pool wait for
their claims meanwhile, and how soon all that is over is gone.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from groupflow.servers import RabbitmqServer
from tests.endtoend.rig import Job
from tests.page.served import TOKEN, Served, as_, page_of, peak
from tests.pools.shop import COURIER
from tests.store.test_pullers import crowd
from tests.verification.security.slow import MIB, SlowLog, served, watched

MOST = 1000  # workers of the pool that is attacked
LEFT = 100_000  # sessions
LONGEST = 0.005  # seconds of a script
AT_MOST = 4  # times as long as the longest of some scripts of 2 ms: a busy machine stretches all
SPARED = 3  # the so-manieth of the longest scripts is judged: a busy machine halts some midway
ATTACK = 12.0  # seconds
POOLS = f"""
[pools.couriers]
types = ["deliver"]
lease = 2.0
max_workers = {MOST}
[pools.others]
types = ["else"]
lease = 2.0
[http.tokens.couriers]
token = "{COURIER}"
rights = ["pull"]
pools = ["couriers"]
"""
# 2 ms of commands, on a machine that does nothing else.
CONTROL = """
for n = 1, 3000 do redis.call('ZADD', KEYS[1], n, n) end
redis.call('DEL', KEYS[1])
return 1
"""
# Asks under a new name each time, over so many connections, and counts what it is answered.
ATTACKER = """
import asyncio, collections, itertools, sys
port, token, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
names, answers = itertools.count(), collections.Counter()
async def ask():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write((
            f"POST /api/pools/couriers/workers/invented{next(names)}/claims HTTP/1.1\\r\\n"
            f"host: localhost\\r\\nauthorization: Bearer {token}\\r\\n"
            "content-type: application/json\\r\\ncontent-length: 11\\r\\n\\r\\n"
            '{"limit":1}').encode())
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        answers[int(head.split(b" ", 2)[1])] += 1
        size = head.lower().partition(b"content-length:")[2].partition(b"\\r")[0]
        await reader.readexactly(int(size))
async def main():
    work = [asyncio.create_task(ask()) for _ in range(32)]
    await asyncio.wait(work, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for each in work:
        if each.done(): each.result()
        each.cancel()
    print(answers[200], answers[429], sum(answers.values()))
asyncio.run(main())
"""


@pytest.fixture
def world(
    tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitmqServer
) -> Iterator[Served]:
    folder, limits = tmp_path_factory.mktemp("pullers"), {"max_memory": 256 * MIB}
    with served(folder, rabbitmq_server, POOLS, redis=limits) as made:
        yield made


@pytest.fixture
def log(world: Served) -> SlowLog:
    return SlowLog(world.raw)


def sessions(world: Served) -> int:
    return int(world.raw.zcard(world.rig.keys("pool_pullers", "couriers")))


def used(world: Served) -> int:
    return int(world.raw.info("memory")["used_memory"])


class Controlled:
    """Runs the control beside a test, some times a second."""

    def __init__(self, world: Served) -> None:
        self.world, self.over = world, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.world.raw.eval(CONTROL, 1, "control")

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def judge(world: Served, log: SlowLog, figures: dict[str, float], record_property: Any) -> None:
    judged, control = log.longest("EVALSHA", SPARED), log.longest("EVAL")
    figures["longest script, ms"] = log.longest("EVALSHA") * 1000
    figures["one of the longest, ms"] = judged * 1000
    figures["longest of the control, ms"] = control * 1000
    figures["Redis, MiB"] = used(world) / MIB
    figures["page, MiB"] = peak(page_of(world.daemon)) / MIB
    record_property("figures", figures)
    print({name: round(value, 1) for name, value in figures.items()})
    assert judged < max(LONGEST, AT_MOST * control), figures


def answers_of(figures: dict[str, float], seconds: list[float]) -> None:
    figures["others' answers, median, ms"] = statistics.median(seconds) * 1000
    figures["others' answers, longest, ms"] = max(seconds) * 1000


def test_invented_names(world: Served, log: SlowLog, record_property: Any) -> None:
    """As fast as it can: so many sessions at a time, none of which outlives its lease for long."""
    before, most = used(world), list[int]()
    port = world.url.rpartition(":")[2]
    figures: dict[str, float] = {}
    with Controlled(world), watched(world) as seconds:
        attack = subprocess.Popen(
            [sys.executable, "-c", ATTACKER, port, COURIER, str(ATTACK)],
            stdout=subprocess.PIPE,
            text=True,
        )
        while attack.poll() is None:
            most.append(sessions(world))
            assert world.http.get("/api/pools", headers=as_(TOKEN)).status_code == 200
            time.sleep(0.2)
        world.rig.publish([Job("innocent", None)])
        world.rig.wait_for_start("innocent")
        at_its_end = used(world)
    opened, refused, asked = map(int, attack.communicate()[0].split())
    answers_of(figures, seconds)
    figures |= {"let in": opened, "refused": refused, "most sessions": max(most)}
    figures["Redis took, MiB"] = (at_its_end - before) / MIB
    world.rig.until(lambda: sessions(world) == 0, "all of them are gone")
    judge(world, log, figures, record_property)
    assert (attack.returncode, opened + refused) == (0, asked)
    assert max(most) <= MOST < asked
    assert opened > MOST, "leases ran out, and made room"
    assert at_its_end - before < 8 * MIB


def test_what_is_left_of_a_crowd(world: Served, log: SlowLog, record_property: Any) -> None:
    """100,000 sessions of a higher bound: looks cost what they always do, and others are served."""
    rig, figures = world.rig, dict[str, float]()
    rig.publish([Job("x", None, type="else")])
    now: Any = world.raw.time()
    ends = (now[0] + 30) * 1_000_000
    crowd(rig, (f"invented{n}" for n in range(LEFT)), ends, of="couriers")
    path = "/api/pools/others/workers/late/claims"
    late = partial(world.http.post, path, json={"limit": 1}, headers=as_(TOKEN))
    rig.until(lambda: bool(late().json()["tasks"]), "late has a task")
    log.reset()
    began = time.monotonic()
    with Controlled(world), watched(world) as seconds:
        for path in ("/api/pools", "/api/pools/couriers", "/metrics", "/api/tops", "/api/pools"):
            answer = world.http.get(path, headers=as_(TOKEN))
            assert answer.status_code == 200, answer.text
        [couriers, _] = answer.json()
        assert (couriers["known"], len(couriers["workers"])) == (LEFT, 500)
        refused = world.http.post(
            "/api/pools/couriers/workers/zoe/claims", json={"limit": 1}, headers=as_(COURIER)
        )
        assert refused.status_code == 429
        rig.until(lambda: "x" in held(world, "olga"), "what was held by one that fell silent")
        figures["handed over after, s"] = time.monotonic() - began
        rig.until(lambda: sessions(world) == 0, "all are gone")
        figures["all gone after, s"] = time.monotonic() - began
    answers_of(figures, seconds)
    judge(world, log, figures, record_property)


def held(world: Served, worker: str) -> list[str]:
    answer = world.http.get(f"/api/pools/others/workers/{worker}", headers=as_(TOKEN))
    return [each["id"] for each in answer.json()["tasks"]]
