"""RabbitMQs with more than ours need: a management API; virtual hosts not for everybody."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from groupflow.servers.kinds import HASH_EXCHANGE, RabbitmqServer

MANAGEMENT = "rabbitmq_management"
"""The plugin that answers by HTTP; Debian's package carries it."""


class ManagedRabbitmq(RabbitmqServer):
    """One node that answers by HTTP too, if its plugins say so."""

    port_count: ClassVar[int] = 4

    def __init__(
        self, folder: Path, *, plugins: Sequence[str] = (HASH_EXCHANGE, MANAGEMENT)
    ) -> None:
        """See `RabbitmqServer`."""
        super().__init__(folder, plugins=plugins)

    @property
    def management(self) -> str:
        """Where its management API is."""
        return f"http://guest:guest@127.0.0.1:{self._ports[3]}"

    def prepare(self) -> None:
        """Write the configuration, with the address of the API."""
        super().prepare()
        if MANAGEMENT in self._plugins:
            with self._path("rabbitmq.conf").open("a") as file:
                file.write(
                    f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._ports[3]}\n"
                )


class DividedRabbitmq(RabbitmqServer):
    """Its user has no rights in ``others``, ``full`` takes no connection; ``reader`` only reads."""

    def prepare(self) -> None:
        """Write the configuration, with definitions."""
        super().prepare()
        file = self.folder / "definitions.json"
        user = {"name": "guest", "password": "guest", "tags": "administrator"}
        reader = {"name": "reader", "password": "guest", "tags": ""}
        rights = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
        reads = rights | {"user": "reader", "write": "^$", "vhost": "/"}
        limit = {"component": "vhost-limits", "name": "limits", "value": {"max-connections": 0}}
        definitions = {
            "users": [user, reader],
            "vhosts": [{"name": name} for name in ("/", "others", "full")],
            "permissions": [reads, *(rights | {"vhost": name} for name in ("/", "full"))],
            "global_parameters": [],
            "parameters": [limit | {"vhost": "full"}],
        }
        file.write_text(json.dumps(definitions))
        with (self.folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"load_definitions = {file}\n")
