"""Limits: no more of a group runs than may, and nothing is ready whose time hasn't come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from redis import Redis

from groupflow.store.clock import MICROSECONDS
from groupflow.store.keys import split_element
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Held:
    """What a group is held to."""

    concurrency: int = 1
    interval: float = 0.0  # µs between two starts, 0 for any
    tolerance: float = 0.0  # µs that a start may come before its time


def now_of(raw: Redis) -> int:
    """The server's clock (µs)."""
    now: Any = raw.time()
    return int(now[0]) * MICROSECONDS + int(now[1])


def rule_of(found: Snapshot, element: bytes) -> str:
    """The rule that a task came by, as its envelope has it."""
    packed = found.tasks.get(split_element(element)[1])
    return "" if packed is None else orjson.loads(packed.partition(b"\n")[0])[3] or ""


def held_to(found: Snapshot, element: bytes) -> Held:
    """The limit of a group whose head this is."""
    text = found.hashes.get("limits", {}).get(b"r" + rule_of(found, element).encode())
    if text is None:
        return Held()
    concurrency, interval, tolerance, *_ = text.split(b" ")
    return Held(int(concurrency), float(interval), float(tolerance))


def room_in(found: Snapshot, group: str) -> int:
    """How many more tasks of a group may run; below 0 where more do than may."""
    running = [claim.element for claim in found.checkpoints if claim.group == group]
    head = found.lanes.get(group, running)[-1:]
    return (held_to(found, head[0]).concurrency if head else 1) - len(running)


def limits_of(found: Snapshot, now: int) -> Iterator[Violation]:
    """What contradicts them."""
    yield from _holders(found)
    for group in {claim.group for claim in found.checkpoints if claim.group}:
        if (room := room_in(found, group)) < 0:
            yield Violation("S4", f"of {group} run {-room} more than may")
    for group in (*found.names("ready"), *found.names("suspect_groups")):
        if group not in found.lanes:
            continue
        if room_in(found, group) <= 0:
            yield Violation("S4", f"the group {group} is ready, and as many run as may")
        limit, member = held_to(found, found.lanes[group][-1]), f"g{group}".encode()
        due = found.zsets.get("rates", {}).get(member, 0.0) if limit.interval else 0.0
        if due - limit.tolerance > now:
            yield Violation("L8", f"the group {group} is ready, {due - now} µs before its rate")
        if found.zsets.get("closed", {}).get(member, 0.0) > now:
            yield Violation("L8", f"the group {group} is ready, though it is closed")


def _holders(found: Snapshot) -> Iterator[Violation]:
    """Who is counted as running in a group is who runs, claim for claim."""
    owners = {
        (claim.group, f"{claim.fence:016d} {claim.daemon} {claim.worker}".encode())
        for claim in found.checkpoints
    }
    for group, members in found.sharing.items():
        for member in members:
            if (group, member) not in owners:
                yield Violation("S8", f"{member!r} is counted in {group}, and runs nothing of it")
            if found.locks.get(group) == member:
                yield Violation("S4", f"{member!r} is counted in {group}, and has locked it")
