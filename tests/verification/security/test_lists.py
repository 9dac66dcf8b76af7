"""Lists that are meant to cost others: large ones, and slow ones by the hundred.

What is measured: the longest script, Redis's memory, the files and the memory of the page's
process, and how long others wait for their answers meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from groupflow.pools import filling
from groupflow.servers import RabbitmqServer
from tests.deadlines import deadline
from tests.endtoend.rig import Job
from tests.page.raw import connected
from tests.page.served import TOKEN, Served, as_, page_of, peak
from tests.pools.shop import COURIER
from tests.verification.security.slow import ANSWER_WITHIN, MIB, SlowLog, served, watched

MOST_MEMORY = 256 * MIB
LONGEST = 0.05  # seconds of a script
AT_MOST = 5  # times as long as the least script that writes one line: a busy machine stretches all
SLOW = 185  # connections
POOLS = f"""
[pools.couriers]
types = ["deliver"]
[pools.others]
types = ["else"]
[http.tokens.couriers]
token = "{COURIER}"
rights = ["pull", "fill"]
"""


WRITE = (
    "redis.call('HSET', KEYS[1]..'h', KEYS[1], ARGV[1]) redis.call('DEL', KEYS[1]..'h') return 1"
)


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitmqServer
) -> Iterator[Served]:
    folder, limits = tmp_path_factory.mktemp("lists"), {"max_memory": MOST_MEMORY}
    with served(folder, rabbitmq_server, POOLS, redis=limits) as made:
        yield made


def used(world: Served) -> int:
    return int(world.raw.info("memory")["used_memory"])


def files(world: Served) -> int:
    return len([*Path(f"/proc/{page_of(world.daemon)}/fd").iterdir()])


def test_a_list_of_large_bodies(world: Served, record_property: Any) -> None:
    """40 lines of 10 MiB: each is a script of its own, and messages have room when it stops."""
    line = orjson.dumps({"id": "lineNN", "body": {"x": "x" * 10 * MIB}}) + b"\n"

    def pieces() -> Iterator[bytes]:
        for n in range(40):
            yield line.replace(b"NN", b"%02d" % n, 1)

    headers = {**as_(TOKEN), "content-length": str(40 * len(line))}
    log = SlowLog(world.raw)
    with watched(world) as seconds:
        path = f"{world.url}/api/pools/couriers/tasks"
        answer = httpx.put(
            path, content=pieces(), headers=headers, timeout=5 * deadline(), trust_env=False
        )
        world.rig.publish([Job("innocent", None)])
        world.rig.wait_for_start("innocent")
    longest, before = log.longest("EVALSHA"), used(world)
    page = peak(page_of(world.daemon))
    figures = {
        "slowest script, s": longest,
        "a script that only writes a line, s": log.least(WRITE, b"x" * 10 * MIB),
        "slowest answer to others, s": max(seconds),
        "Redis, MiB": before / MIB,
        "page, MiB": page / MIB,
    }
    record_property("figures", figures)
    print(figures)
    assert answer.status_code == 503, answer.text
    assert "redis.max_memory" in answer.json()["detail"]
    assert before < MOST_MEMORY
    bound = max(LONGEST, AT_MOST * figures["a script that only writes a line, s"])
    assert longest < bound, figures
    assert page < 512 * MIB, figures
    emptied = world.http.put("/api/pools/couriers/tasks", content=b"", headers=as_(TOKEN))
    assert emptied.status_code == 200, emptied.text
    assert emptied.json()["removed"] > 0
    assert used(world) < MOST_MEMORY / 4


def test_slow_lists(world: Served) -> None:
    """185 that come at a byte a second: one is let in, and cut off in time; others are served."""
    before = files(world)
    head = (
        "PUT /api/pools/couriers/tasks HTTP/1.1\r\nhost: localhost\r\n"
        f"authorization: Bearer {COURIER}\r\ncontent-length: 1000000\r\n\r\n"
    ).encode()
    with ExitStack() as stack, watched(world):
        sockets = [stack.enter_context(connected(world.url)) for _ in range(SLOW)]
        for each in sockets:
            each.sendall(head + b'{"id": "')
        statuses: list[int] = []
        drip = threading.Event()

        def dripping() -> None:
            while not drip.wait(1.0):
                for each in sockets:
                    with suppress(OSError):
                        each.sendall(b"x")

        thread = threading.Thread(target=dripping)
        thread.start()
        began = time.monotonic()
        try:
            for each in sockets:
                statuses.append(int(each.makefile("rb").readline().split()[1]))
        finally:
            drip.set()
            thread.join()
        assert time.monotonic() - began < filling.GRACE + 6 * ANSWER_WITHIN
        assert sorted(set(statuses)) == [408, 429], statuses
        assert statuses.count(408) == 1
        assert files(world) < before + SLOW + 20, "no file beside each connection"
    world.rig.until(lambda: files(world) <= before + 5, "their connections are closed")
    mine = as_(COURIER)
    assert world.http.put("/api/pools/couriers/tasks", content=b"", headers=mine).status_code == 200
