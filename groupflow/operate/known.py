"""Whether anything is known of a group, a tenant or a type that an operator names.

A name that never was is mostly a mistake in it. Nothing keeps a list of all names, so each is
sought where it would be, by bounded looks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from groupflow.core.errors import StoreUnavailable
from groupflow.core.limits import Limited
from groupflow.operate.dead import DeadLetters, Filter
from groupflow.operate.ended import KEPT, ended_lately
from groupflow.operate.groups import Groups
from groupflow.operate.listing import ListedState, TaskFilter, is_of_type, search_tasks
from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.operate.types import read_types
from groupflow.settings.model import Settings

_LIVING: tuple[ListedState, ...] = ("queued", "running", "delayed")
_DAY = 24  # hours
_NOWHERE: dict[Limited, str] = {
    "type": "no daemon has a handler of it, none came in the last day, and the configuration "
    "doesn't name it",
    "tenant": "no task of it was found, and the configuration doesn't name it",
    "group": "no task of it waits, runs or is dead, and it has none of the "
    f"last {KEPT:,} that ended; `groupflow route` tells the group of a message",
}


async def doubt(namespace: Namespace, settings: Settings, kind: Limited, name: str) -> str:
    """That nothing is known of a name, in words; empty where something is, or a partition is away.

    Pauses and limits by hand don't count: they may have the same mistake in them.
    """
    with suppress(StoreUnavailable):
        is_known = _is_configured(settings, kind, name) or await _is_known(namespace, kind, name)
        if not is_known and not namespace.away:
            return f"nothing is known of {kind} {name}: {_NOWHERE[kind]}"
    return ""


def _is_configured(settings: Settings, kind: Limited, name: str) -> bool:
    if kind == "type":
        return name in settings.types or any(is_of_type(each, name) for each in settings.handlers)
    rules = {tenant for rule in settings.groups for tenant in rule.tenants}
    return kind == "tenant" and name in rules | settings.tenants.named.keys()


async def _is_known(namespace: Namespace, kind: Limited, name: str) -> bool:
    if kind == "group":
        why = await Groups(namespace).why(name)
        lives = why.queued or why.running or why.aside or why.behind
        return bool(lives or await ended_lately(namespace, name, 1)) or await _died(
            namespace, group=name
        )
    if kind == "tenant":
        return await _lives(namespace, tenant=name) or await _died(namespace, tenant=name)
    found = await read_types(namespace, _DAY)
    if any(is_of_type(each.type, name) for each in found.types):
        return True
    answers = await namespace.ask_all(lambda client: client.run(OperatorVerb.TYPES, name))
    told = [named(each) for each in answers.all]
    if any(each["knowing"] and not each["missing"] for each in told):
        return True
    return await _lives(namespace, type=name) or await _died(namespace, type=name)


async def _lives(namespace: Namespace, **wanted: Any) -> bool:
    for state in _LIVING:
        if (await search_tasks(namespace, state, TaskFilter(**wanted), limit=1)).tasks:
            return True
    return False


async def _died(namespace: Namespace, **wanted: Any) -> bool:
    return bool((await DeadLetters(namespace).page(Filter(**wanted), limit=1)).letters)
