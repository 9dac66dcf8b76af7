"""A RabbitMQ with virtual hosts that not everybody may use at any time."""

from __future__ import annotations

import json

from groupflow.servers import RabbitmqServer


class DividedRabbitmq(RabbitmqServer):
    """Its user has no rights in ``others``, and ``full`` takes no connection."""

    def prepare(self) -> None:
        """Write the configuration, with definitions."""
        super().prepare()
        file = self.folder / "definitions.json"
        user = {"name": "guest", "password": "guest", "tags": "administrator"}
        rights = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
        limit = {"component": "vhost-limits", "name": "limits", "value": {"max-connections": 0}}
        definitions = {
            "users": [user],
            "vhosts": [{"name": name} for name in ("/", "others", "full")],
            "permissions": [rights | {"vhost": name} for name in ("/", "full")],
            "global_parameters": [],
            "parameters": [limit | {"vhost": "full"}],
        }
        file.write_text(json.dumps(definitions))
        with (self.folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"load_definitions = {file}\n")
