"""Lists that are meant to cost others: large ones, and slow ones by the hundred.

What is measured: the longest script, Redis's memory, the files and the memory of the page's
process, and how long others wait for their answers meanwhile.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from groupflow.pools import filling
from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.page.world import TOKEN
from tests.pools.shop import COURIER
from tests.security.conftest import running

MIB = 1024 * 1024
MOST_MEMORY = 256 * MIB
LONGEST = 0.05  # seconds of a script
AT_MOST = 5  # times as long as the least script that writes one line: a busy machine stretches all
ANSWER_WITHIN = 10.0  # seconds for an answer to somebody else, on a machine that does much beside
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


class World:
    """A daemon and its page, on a Redis of its own."""

    POOLS = POOLS

    def __init__(self, folder: Path, rabbitmq: RabbitmqServer, redis: RedisServer) -> None:
        limits = {"max_memory": MOST_MEMORY}
        http = {"listen": "127.0.0.1:0", "token": TOKEN}
        self.rig = Rig(folder, rabbitmq, redis, http=http, redis=limits)
        with self.rig.config.open("a") as file:
            file.write(self.POOLS)
        self.daemon: Process = self.rig.start("d1")
        self.url: str = self.daemon.wait_for("http.listening")["url"].rstrip("/")
        self.http = httpx.Client(base_url=self.url, timeout=deadline(), trust_env=False)
        self.raw: Redis = self.rig.raw

    @property
    def page(self) -> Path:
        """The page's process, as the system shows it."""
        threads = Path(f"/proc/{self.daemon.pid}/task").iterdir()
        pids = [pid for each in threads for pid in (each / "children").read_text().split()]
        [found] = [Path("/proc") / pid for pid in pids if b"page" in _command(pid)]
        return found

    def files(self) -> int:
        return len([*(self.page / "fd").iterdir()])

    def resident(self) -> int:
        """The most memory (bytes) that the page's process ever had."""
        lines = (self.page / "status").read_text().splitlines()
        [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
        return int(peak) * 1024

    def used(self) -> int:
        found: Any = self.raw.info("memory")
        return int(found["used_memory"])

    def claims(self, worker: str = "olga", limit: int = 1) -> httpx.Response:
        path = f"/api/pools/others/workers/{worker}/claims"
        headers = {"authorization": f"Bearer {TOKEN}"}
        return self.http.post(path, json={"limit": limit}, headers=headers)


def _command(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitmqServer
) -> Iterator[World]:
    with running(RedisServer(tmp_path_factory.mktemp("redis-of-lists"))) as redis:
        made = World(tmp_path_factory.mktemp("lists"), rabbitmq_server, redis)
        try:
            yield made
        finally:
            made.http.close()
            made.rig.close()


@contextmanager
def watched(world: World) -> Iterator[list[float]]:
    """Ask for health, and for another pool's tasks, all the while: the seconds of each answer."""
    seconds: list[float] = []
    over, wrong = threading.Event(), list[str]()
    asks: list[Callable[[], httpx.Response]] = [partial(world.http.get, "/livez"), world.claims]

    def watch() -> None:
        while not over.is_set():
            for ask in asks:
                began = time.monotonic()
                answer = ask()
                seconds.append(time.monotonic() - began)
                if answer.status_code != 200:
                    wrong.append(answer.text)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()
    assert not wrong
    assert max(seconds) < ANSWER_WITHIN


def slowest(world: World) -> float:
    """The longest call (s) that Redis has had since its log was reset."""
    found: Any = world.raw.slowlog_get(128)
    return max((each["duration"] / 1e6 for each in found), default=0.0)


def least(world: World, size: int) -> float:
    """The longest of some scripts (s) that do nothing but write so many bytes."""
    reset_slowlog(world)
    for n in range(8):
        write = "redis.call('HSET', KEYS[1], KEYS[1], ARGV[1]) redis.call('DEL', KEYS[1]) return 1"
        world.raw.eval(write, 1, f"floor{n}", b"x" * size)
    return slowest(world)


def reset_slowlog(world: World) -> None:
    world.raw.config_set("slowlog-log-slower-than", 5000)
    world.raw.slowlog_reset()


def test_a_list_of_large_bodies(world: World, record_property: Any) -> None:
    """40 lines of 10 MiB: each is a script of its own, and messages have room when it stops."""
    line = orjson.dumps({"id": "lineNN", "body": {"x": "x" * 10 * MIB}}) + b"\n"

    def pieces() -> Iterator[bytes]:
        for n in range(40):
            yield line.replace(b"NN", b"%02d" % n, 1)

    headers = {"authorization": f"Bearer {TOKEN}", "content-length": str(40 * len(line))}
    reset_slowlog(world)
    with watched(world) as seconds:
        path = f"{world.url}/api/pools/couriers/tasks"
        answer = httpx.put(
            path, content=pieces(), headers=headers, timeout=5 * deadline(), trust_env=False
        )
        world.rig.publish([Job("innocent", None)])
        world.rig.wait_for_start("innocent")
    longest = slowest(world)
    figures = {
        "slowest script, s": longest,
        "a script that only writes a line, s": least(world, 10 * MIB),
        "slowest answer to others, s": max(seconds),
        "Redis, MiB": world.used() / MIB,
        "page, MiB": world.resident() / MIB,
    }
    record_property("figures", figures)
    print(figures)
    assert answer.status_code == 503, answer.text
    assert "redis.max_memory" in answer.json()["detail"]
    assert world.used() < MOST_MEMORY
    bound = max(LONGEST, AT_MOST * figures["a script that only writes a line, s"])
    assert longest < bound, figures
    assert world.resident() < 512 * MIB, figures
    emptied = httpx.put(
        path,
        content=b"",
        headers={"authorization": f"Bearer {TOKEN}"},
        trust_env=False,
        timeout=deadline(),
    )
    assert emptied.status_code == 200, emptied.text
    assert emptied.json()["removed"] > 0
    assert world.used() < MOST_MEMORY / 4


def test_slow_lists(world: World) -> None:
    """185 that come at a byte a second: one is let in, and cut off in time; others are served."""
    before = world.files()
    head = (
        "PUT /api/pools/couriers/tasks HTTP/1.1\r\nhost: localhost\r\n"
        f"authorization: Bearer {COURIER}\r\ncontent-length: 1000000\r\n\r\n"
    ).encode()
    address = httpx.URL(world.url)
    assert address.port is not None
    with ExitStack() as stack, watched(world):
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", address.port), deadline()))
            for _ in range(SLOW)
        ]
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
        assert world.files() < before + SLOW + 20, "no file beside each connection"
    world.rig.until(lambda: world.files() <= before + 5, "their connections are closed")
    mine = {"authorization": f"Bearer {COURIER}"}
    assert world.http.put("/api/pools/couriers/tasks", content=b"", headers=mine).status_code == 200
