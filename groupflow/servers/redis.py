"""A private Redis, configured as groupflow wants it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from groupflow.servers.server import PrivateServer, ask


class RedisServer(PrivateServer):
    """``redis-server`` from PATH: durable to about a second, never evicting a key."""

    name: ClassVar[str] = "Redis"
    programs: ClassVar[Sequence[str]] = ("redis-server",)
    ready_within: ClassVar[float] = 20.0
    taken_marks: ClassVar[Sequence[str]] = ("Address already in use", "Failed listening on port")

    def __init__(
        self, folder: Path, *, extra: Sequence[str] = (), scratch: Path | None = None
    ) -> None:
        """As every `PrivateServer`; the extra arguments win over ours."""
        super().__init__(folder, scratch=scratch)
        self._extra = tuple(extra)

    @property
    def url(self) -> str:
        """Where a client connects to: database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """The program and its arguments; it has no configuration file."""
        options = {
            "--bind": "127.0.0.1",
            "--port": str(self.port),
            "--dir": str(self.folder),
            "--appendonly": "yes",
            "--appendfsync": "everysec",
            "--save": "",
            "--maxmemory-policy": "noeviction",
        }
        flat = [word for option in options.items() for word in option]
        return [self.binary(), *flat, *self._extra]

    async def answers(self, pid: int) -> bool:
        """Whether this process answers PING, its data loaded."""
        reply = await ask(self.port, b"PING\r\nINFO server\r\nQUIT\r\n")
        if reply.startswith(b"-NOAUTH"):  # `extra` sets a password: it is up
            return True
        return reply.startswith(b"+PONG") and f"process_id:{pid}\r".encode() in reply
