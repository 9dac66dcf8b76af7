"""What the page's process knows of the daemon that started it, and works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import SecretStr

from groupflow.operate.namespace import Namespace
from groupflow.ops.health import Health
from groupflow.settings.model import Settings
from groupflow.settings.urls import SecretUrl

_NEEDED = ("redis", "rabbitmq", "http")  # sections whose secrets the page's process needs


@dataclass(frozen=True, slots=True)
class Facts:
    """What its page knows of a daemon."""

    daemon: str  # its name
    settings: Settings  # its current configuration
    functions: dict[str, str]  # its Python handlers' names, by task type

    def packed(self) -> dict[str, Any]:
        """The facts as a JSON value, for the private channel alone.

        It has the secrets that the page needs: to reach Redis, RabbitMQ (where bodies of dead
        letters may lie), and to know the token. Handlers' secrets stay with the daemon: the page,
        which strangers reach by HTTP, has no use for them.
        """
        settings = self.settings.model_dump(mode="json")
        for section in _NEEDED:
            values = getattr(self.settings, section).model_dump()
            settings[section] = orjson.loads(orjson.dumps(values, default=_revealed))
        return {"daemon": self.daemon, "settings": settings, "functions": self.functions}

    @classmethod
    def unpacked(cls, message: dict[str, Any]) -> Facts:
        """The facts that the other process packed."""
        settings = Settings(**message["settings"])
        return cls(message["daemon"], settings, message["functions"])


@dataclass(slots=True)
class PageContext:
    facts: Facts  # what is known of the daemon; a reload puts others in their place
    namespace: Namespace  # on connections of the page's own
    health: Health  # answers for health and metrics


def _revealed(value: Any) -> Any:
    """What JSON can carry in place of a secret, or of a set."""
    return value.get_secret_value() if isinstance(value, SecretStr | SecretUrl) else list(value)
