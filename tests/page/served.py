"""A daemon with its page, as processes: what the tests of the page, of pools and of abuse share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.endtoend.configuration import lines_of
from tests.endtoend.process import Process
from tests.endtoend.rig import APP, Rig

TOKEN = "a-token-of-the-tests-0123456789"


Tables = Sequence[tuple[str, Mapping[str, Any]]]
"""Headings of TOML tables, and what is below each."""


def toml_of(tables: Tables) -> str:
    """Tables as they stand in a file."""
    return "\n".join(line for name, table in tables for line in (name, *lines_of(table), ""))


class Served:
    """One daemon that serves a page, over a rig of its own.

    Attributes:
        rig: what the daemon stands on.
        daemon: the daemon.
        url: the page's address.
        http: a client without a token.
        raw: a plain client of Redis.
    """

    app = APP

    def __init__(
        self,
        folder: Path,
        rabbitmq: RabbitmqServer,
        redis: RedisServer,
        tables: Tables | str = (),
        /,
        **settings: Any,
    ) -> None:
        """Start it, with settings by section, and other tables behind these."""
        http = {"listen": "127.0.0.1:0", "token": TOKEN, **settings.pop("http", {})}
        self.rig = Rig(folder, rabbitmq, redis, http=http, **settings)
        self.raw: Any = self.rig.raw
        with self.rig.config.open("a") as file:
            file.write(tables if isinstance(tables, str) else toml_of(tables))
        self.start()

    def start(self) -> None:
        self.daemon: Process = self.rig.start("d1", app=self.app)
        self.url: str = self.daemon.wait_for("http.listening")["url"].rstrip("/")
        self.http = httpx.Client(base_url=self.url, timeout=deadline(), trust_env=False)

    def close(self) -> None:
        self.http.close()
        self.rig.close()


def as_(token: str) -> dict[str, str]:
    """The headers of a client that has a token."""
    return {"authorization": f"Bearer {token}"}


def page_of(daemon: Process) -> int:
    """The process of a daemon's page; 0 where it has none."""
    threads = Path(f"/proc/{daemon.pid}/task").iterdir()
    for pid in (pid for each in threads for pid in (each / "children").read_text().split()):
        if b"page" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return int(pid)
    return 0


def peak(pid: int) -> int:
    """The most memory (bytes) that a process has ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
