"""The schedules of a daemon's configuration, as the store takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha1, sha256
from typing import Any, Literal

import orjson

from groupflow.core.limits import Debounce
from groupflow.core.timing import Timing, next_tick
from groupflow.settings.model import Settings
from groupflow.settings.planning import Planned, plan
from groupflow.store.client import Argument
from groupflow.store.clock import microseconds
from groupflow.store.enqueue import READ_WHOLE
from groupflow.store.envelope import Envelope
from groupflow.store.partitions import partition_of

TICK_HEADER = "x-tick"
"""The header of a tick with its time, which the script fills in."""
_LONGEST_TICK = len("2026-11-22T03:00:00.000000Z")
_DIGEST = 16  # hexadecimal digits
_SCOPE = 8


@dataclass(frozen=True, slots=True)
class Definition:
    """One schedule, as one configuration has it."""

    name: str
    timing: Timing
    missed: Literal["once", "skip", "all"]
    catch_up: int  # microseconds
    group: str | None  # of its ticks
    message: tuple[Argument, ...]  # what `define.lua` takes behind told and interval
    told: bytes  # what operators see of it (JSON)
    digest: str  # of all of it: the same text, the same ticks
    timing_digest: str  # of its timing

    def place(self, count: int) -> int:
        """The partition of its row, of `count`: by its ticks' group, or else by its name."""
        return partition_of(self.group, f"schedule:{self.name}", count)

    def interval(self, due: int) -> int:
        """Microseconds from a tick to the one behind it."""
        return next_tick(self.timing, due) - due


def definitions_of(settings: Settings) -> list[Definition]:
    """The schedules of a configuration.

    Raises:
        ConfigError: the ticks of one can't be routed.
    """
    aside = frozenset(rule.name for rule in settings.groups if rule.on_delay == "step-aside")
    debounces, bounds = settings.debounces(), settings.max_queued()
    return [_definition(each, aside, debounces, bounds) for each in plan(settings)]


def _definition(
    planned: Planned,
    aside: frozenset[str],
    debounces: Mapping[str, Debounce],
    bounds: Mapping[str, int],
) -> Definition:
    rule = planned.rule
    route = replace(planned.route, scope=_scope_of(rule.name))
    debounce, max_queued = debounces.get(route.rule or ""), bounds.get(route.rule or "", 0)
    timing = {"cron": rule.cron, "every": rule.every, "timezone": rule.timezone}
    told = {
        **timing,
        "type": route.type,
        "group": route.group,
        "tenant": route.tenant,
        "overlap": rule.overlap,
        "missed": rule.missed,
        "catch_up": rule.catch_up,
    }
    envelope = Envelope.of(route, {**planned.headers, TICK_HEADER: ""}, planned.body)
    packed = envelope.pack()
    is_large = len(packed) + _LONGEST_TICK > READ_WHOLE
    looked_at = b"%d" % max_queued if max_queued else b""
    if is_large or route.delay or route.pool or debounce or route.expires:
        looked_at = envelope.pack_facts(debounce, max_queued, route.expires)
    message: tuple[Argument, ...] = (
        rule.overlap,
        route.group or "",
        microseconds(route.priority),
        microseconds(route.delay),
        "aside" if route.rule in aside else "",
        packed,
        looked_at,
        envelope.scope or "",
    )
    facts = [told, route.priority, route.delay, message[4], packed.decode()]
    facts += [route.pool] if route.pool else []
    facts += [debounce.quiet, debounce.most] if debounce else []
    facts += [debounce.running] if debounce and not debounce.quiet else []
    facts += [{"max_queued": max_queued}] if max_queued else []
    facts += [{"expires": route.expires}] if route.expires else []
    digest = _digest(facts)
    return Definition(
        name=rule.name,
        timing=rule.timing(),
        missed=rule.missed,
        catch_up=microseconds(rule.catch_up),
        group=route.group,
        message=message,
        told=orjson.dumps(told),
        digest=digest,
        timing_digest=_digest(timing),
    )


def _scope_of(name: str) -> str:
    """A scope of the schedule's own: no published message takes a tick's id away."""
    # SHA-1, which scripts have too: `move_out` moves ticks to the partition of their schedule.
    return sha1(f"schedule {name}".encode(), usedforsecurity=False).hexdigest()[:_SCOPE]


def _digest(facts: Mapping[str, Any] | list[Any]) -> str:
    return sha256(orjson.dumps(facts)).hexdigest()[:_DIGEST]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A definition, and when (monotonic) its configuration was loaded."""

    definition: Definition
    at: float


def loaded_anew(
    before: Mapping[str, Loaded], definitions: list[Definition], at: float
) -> dict[str, Loaded]:
    """The definitions of a new configuration, by name; unchanged ones keep their age."""
    found = {each.name: Loaded(each, at) for each in definitions}
    for name, known in before.items():
        if name in found and found[name].definition.digest == known.definition.digest:
            found[name] = replace(found[name], at=known.at)
    return found
