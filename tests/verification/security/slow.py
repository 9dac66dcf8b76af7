"""What an attack costs: a Redis of its own, whose log of slow commands tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupflow.servers import RabbitmqServer, RedisServer
from tests.page.served import Served
from tests.running import running

MIB = 1024 * 1024


@contextmanager
def served(folder: Path, rabbitmq: RabbitmqServer, pools: str, **settings: Any) -> Iterator[Served]:
    """A daemon and its page, on a Redis that logs calls of at least a millisecond."""
    with running(RedisServer(folder / "redis")) as redis:
        (folder / folder.name).mkdir()
        made = Served(folder / folder.name, rabbitmq, redis, pools, **settings)
        made.raw.config_set("slowlog-log-slower-than", 1000)
        made.raw.config_set("slowlog-max-len", 100_000)
        try:
            yield made
        finally:
            made.close()


def longest(raw: Any, command: bytes, but: int = 0) -> float:
    """Seconds of the longest call of a command, as far as Redis has logged.

    Some are passed over (`but`): where all cores are busy, any call may have waited for one.
    """
    logged = raw.slowlog_get(100_000)
    calls = [each["duration"] for each in logged if each["command"].startswith(command + b" ")]
    return max(sorted(calls)[: len(calls) - but], default=0) / 1e6
