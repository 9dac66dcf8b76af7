"""Where messages would go by a configuration: of its schedules, and any that is given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from groupflow.core.errors import ConfigError, Problem, Unroutable
from groupflow.core.masking import mask_command
from groupflow.core.routing import Route, Router
from groupflow.settings.model import Settings
from groupflow.settings.rules import ScheduleRule

SCHEDULE_HEADER = "x-schedule"
"""The header of a tick that has its schedule's name."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule, with the message of its ticks and its route."""

    rule: ScheduleRule
    body: bytes
    headers: dict[str, Any]
    route: Route


def plan(settings: Settings) -> list[Planned]:
    """The schedules of a configuration, each with the message of its ticks.

    Raises:
        ConfigError: one's message can't be routed, is too large, or would drain its own drain.
    """
    router, problems, found = settings.router(), list[Problem](), list[Planned]()
    on_drained = defaultdict[str, set[str | None]](set)  # by type, the rules that have it
    for each in settings.groups:
        on_drained[each.on_drained].add(each.name)
    for n, rule in enumerate(settings.schedules):
        where = f"schedules[{n}]"
        try:
            body, headers = _message(rule, settings)
            _check_size(body, settings.rabbitmq.max_body)
            route = router.route(body, headers, type=rule.type)
        except Unroutable as error:
            remedy = f"Its ticks can't be routed ({error.reason}): correct it, or the rule."
            problems.append(Problem(where, rule.name, remedy))
        else:
            if route.rule in on_drained[rule.type]:
                remedy = (
                    f"Each of its ticks would drain its group, and lead to one more {rule.type!r}, "
                    f"the on_drained of rule {route.rule!r}: give one of them another type."
                )
                problems.append(Problem(where, rule.name, remedy))
            found.append(Planned(rule, body, headers, route))
    if problems:
        raise ConfigError(problems)
    return found


def _message(rule: ScheduleRule, settings: Settings) -> tuple[bytes, dict[str, Any]]:
    """The body and headers of its ticks, with application and tenant where routing reads them."""
    paths = settings.fields.paths()
    try:
        body: dict[str, Any] = orjson.loads(orjson.dumps(rule.body, default=str))
        headers: dict[str, Any] = {SCHEDULE_HEADER: rule.name}
        parts = (("app", rule.app, paths.app), ("tenant", rule.tenant, paths.tenant))
        for what, value, path in parts:
            if value == "":
                continue
            if path is None:
                raise Unroutable(f"it has {what}, and fields.{what} says that no message does")
            path.put(body, headers, value)
        return orjson.dumps(body), headers
    except TypeError as error:  # a number of more than 64 bits, half a character, nested too deep
        raise Unroutable(f"its body can't be written as JSON: {error}") from None


def _check_size(body: bytes, most: int) -> None:
    if len(body) > most:
        raise Unroutable(f"the body has {len(body)} bytes, over rabbitmq.max_body = {most}")


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
    expires: float | None = None  # seconds within which it has to start; None for any time
    max_queued: int | None = None  # how many tasks may wait in its group; None for any number
    reason: str | None = None


class DryRun:
    """Finds ways by one configuration."""

    def __init__(self, settings: Settings, functions: Mapping[str, str]) -> None:
        """Binds the rules, and the names of the Python handlers by their task types."""
        self._router: Router = settings.router()
        self._max_queued, self._max_body = settings.max_queued(), settings.rabbitmq.max_body
        self._handlers = {
            type_: f"exec {mask_command(rule.exec)}" if rule.exec else f"http {rule.http}"
            for type_, rule in settings.handlers.items()
        } | dict(functions)

    def find(self, body: bytes, headers: Mapping[str, Any], type: str | None) -> Way:
        """The way of one message; its parts are those of `Router.route`."""
        try:
            _check_size(body, self._max_body)
            found = self._router.route(body, headers, type=type)
        except Unroutable as error:
            return Way("dead letter", reason=error.reason)
        same = ("type", "app", "tenant", "group", "rule", "priority", "delay")
        return Way(
            "plain" if found.group is None else "grouped",
            **{name: getattr(found, name) for name in same},
            handler=self._handlers.get(found.type),
            expires=found.expires or None,
            max_queued=self._max_queued.get(found.rule or ""),
        )
