"""Where a message would go and which handler would run it, without sending it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groupflow.core.errors import Unroutable
from groupflow.core.masking import mask_command
from groupflow.core.routing import Router
from groupflow.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Way:
    """Where a message would go; where it can't, why it would be a dead letter."""

    queue: Literal["plain", "grouped", "dead letter"]
    type: str | None = None
    app: str | None = None
    tenant: str | None = None
    group: str | None = None
    rule: str | None = None
    handler: str | None = None
    priority: float | None = None
    delay: float | None = None
    max_queued: int | None = None  # how many tasks may wait in its group; None for any number
    reason: str | None = None


class DryRun:
    """Finds ways by one configuration."""

    def __init__(self, settings: Settings, functions: Mapping[str, str]) -> None:
        """Binds the rules, and the names of the Python handlers by their task types."""
        self._router: Router = settings.router()
        self._max_queued = settings.max_queued()
        self._handlers = {
            type_: f"exec {mask_command(rule.exec)}" if rule.exec else f"http {rule.http}"
            for type_, rule in settings.handlers.items()
        } | dict(functions)

    def find(self, body: bytes, headers: Mapping[str, Any], type: str | None) -> Way:
        """The way of one message; its parts are those of `Router.route`."""
        try:
            found = self._router.route(body, headers, type=type)
        except Unroutable as error:
            return Way("dead letter", reason=error.reason)
        return Way(
            "plain" if found.group is None else "grouped",
            type=found.type,
            app=found.app,
            tenant=found.tenant,
            group=found.group,
            rule=found.rule,
            handler=self._handlers.get(found.type),
            priority=found.priority,
            delay=found.delay,
            max_queued=self._max_queued.get(found.rule or ""),
        )
