"""The one Redis of a run, which every trial finds empty."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from groupflow.servers import RedisServer

# A script of a mutant may never end: others then hear so after two seconds (ms).
_OPTIONS = ("--appendonly", "no", "--lua-time-limit", "2000")


class Server:
    """A private Redis that writes no files, started again where a trial has left it stuck.

    Attributes:
        redis: the server, as fixtures give it to tests.
    """

    def __init__(self, folder: Path) -> None:
        self.redis = RedisServer(folder, extra=_OPTIONS)
        asyncio.run(self.redis.start())

    def clear(self) -> None:
        """Remove all that a trial has left: keys, scripts, settings."""
        client = self._client()
        try:
            client.flushall()
            client.script_flush()
            client.config_set("maxmemory", 0)
        except RedisError:  # busy with a script that has no end
            self.stop()
            asyncio.run(self.redis.start())
        finally:
            client.close()

    def refusal(self, script: str) -> str | None:
        """Why Redis can't compile a script; None where it can."""
        client = self._client()
        try:
            client.script_load(script)
        except RedisError as error:
            return str(error)
        finally:
            client.close()
        return None

    def stop(self) -> None:
        """End it, whatever it is busy with."""
        asyncio.run(self.redis.kill())

    def _client(self) -> Redis:
        return Redis.from_url(self.redis.url, socket_timeout=5.0)

    @contextmanager
    def shared(self, _: Any) -> Iterator[RedisServer]:
        """What stands in for `_running` of tests/conftest.py: this server for whoever wants one."""
        yield self.redis
