"""What an attack costs: Redis's log of slow commands, and how long others wait meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
from redis import Redis

from groupflow.servers import RabbitmqServer, RedisServer
from tests.page.served import TOKEN, Served, as_
from tests.security.conftest import running

MIB = 1024 * 1024
KEPT = 100_000  # entries of the log
ANSWER_WITHIN = 10.0  # seconds for an answer to somebody else, on a machine that does much beside


class SlowLog:
    """Redis's own: its calls of at least a millisecond, since the log was begun anew."""

    def __init__(self, raw: Redis) -> None:
        self._raw: Any = raw
        self._raw.config_set("slowlog-log-slower-than", 1000)
        self._raw.config_set("slowlog-max-len", KEPT)
        self.reset()

    def reset(self) -> None:
        self._raw.slowlog_reset()

    def longest(self, command: str, rank: int = 1) -> float:
        """Seconds of the longest call of a command, or of the so-manieth longest."""
        found: list[float] = [
            each["duration"] / 1e6
            for each in self._raw.slowlog_get(KEPT)
            if each["command"].startswith(command.encode() + b" ")
        ]
        return sorted([*found, *[0.0] * rank], reverse=True)[rank - 1]

    def least(self, script: str, value: bytes) -> float:
        """Seconds of the longest of some runs of a script that does what one of ours must.

        The log is begun anew.
        """
        self._raw.set("floor", value)
        self.reset()
        for _ in range(8):
            self._raw.eval(script, 1, "floor", value)
        self._raw.delete("floor")
        return self.longest("EVAL")


@contextmanager
def watched(world: Served) -> Iterator[list[float]]:
    """Ask for health, and for another pool's tasks, all the while: the seconds of each answer."""
    seconds: list[float] = []
    over, wrong = threading.Event(), list[str]()
    path, headers = "/api/pools/others/workers/olga/claims", as_(TOKEN)
    asks: list[Callable[[], httpx.Response]] = [
        partial(world.http.get, "/livez"),
        partial(world.http.post, path, json={"limit": 1}, headers=headers),
    ]

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


@contextmanager
def served(folder: Any, rabbitmq: RabbitmqServer, pools: str, **settings: Any) -> Iterator[Served]:
    """A daemon and its page, on a Redis of its own."""
    with running(RedisServer(folder / "redis")) as redis:
        (folder / folder.name).mkdir()
        made = Served(folder / folder.name, rabbitmq, redis, pools, **settings)
        try:
            yield made
        finally:
            made.close()
