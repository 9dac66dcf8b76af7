"""The messages that a configuration's schedules make, and where they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from groupflow.core.errors import ConfigError, Problem, Unroutable
from groupflow.core.routing import Route
from groupflow.settings.model import Settings
from groupflow.settings.schedules import ScheduleRule

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
        ConfigError: one's message can't be routed, or is too large.
    """
    router, problems, found = settings.router(), [], []
    for n, rule in enumerate(settings.schedules):
        where = f"schedules[{n}]"
        try:
            body, headers = _message(rule, settings)
            if len(body) > settings.rabbitmq.max_body:
                raise Unroutable("its body is over rabbitmq.max_body")
            route = router.route(body, headers, type=rule.type)
        except Unroutable as error:
            remedy = f"Its ticks can't be routed ({error.reason}): correct it, or the rule."
            problems.append(Problem(where, rule.name, remedy))
        else:
            found.append(Planned(rule, body, headers, route))
    if problems:
        raise ConfigError(problems)
    return found


def _message(rule: ScheduleRule, settings: Settings) -> tuple[bytes, dict[str, Any]]:
    """The body and headers of its ticks, with application and tenant where routing reads them."""
    paths = settings.fields.paths()
    try:
        body: dict[str, Any] = orjson.loads(orjson.dumps(rule.body, default=str))
    except TypeError as error:  # a number of more than 64 bits, half a character, nested too deep
        raise Unroutable(f"its body can't be written as JSON: {error}") from None
    headers: dict[str, Any] = {SCHEDULE_HEADER: rule.name}
    for what, value, path in (("app", rule.app, paths.app), ("tenant", rule.tenant, paths.tenant)):
        if value == "":
            continue
        if path is None:
            raise Unroutable(f"it has {what}, and fields.{what} says that no message does")
        path.put(body, headers, value)
    return orjson.dumps(body), headers
