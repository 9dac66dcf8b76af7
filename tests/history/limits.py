"""Limits: no more of a group runs than may, and nothing is ready whose time hasn't come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from groupflow.store.keys import split_entry
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Hand:
    """What an operator set, where it holds; None is as configured."""

    since: int  # µs
    concurrency: int | None
    interval: float | None
    tolerance: float


@dataclass(frozen=True, slots=True)
class Held:
    """What a group is held to."""

    concurrency: int = 1
    interval: float = 0.0  # µs between two starts, 0 for any
    tolerance: float = 0.0  # µs that a start may come before its time


def rule_of(found: Snapshot, entry: bytes) -> str:
    """The rule that a task came by, as its envelope has it."""
    facts = found.facts_of(entry)
    return (facts and facts[3]) or ""


def by_hand(found: Snapshot, whose: str) -> Hand | None:
    """What an operator set for ``g`` and a group, ``t`` and a tenant's name, ``y`` and a type."""
    text = found.hashes.get("by_hand", {}).get(whose.encode())
    return None if text is None or int(text[:16]) <= found.at else hand_in(text)


def hand_in(text: bytes) -> Hand:
    """The same, of its text."""
    _, concurrency, interval, tolerance, since, *_ = text.partition(b"\n")[0].split(b" ")
    is_paced = interval != b"-"
    return Hand(
        int(since),
        None if concurrency == b"-" else int(concurrency),
        *((float(interval), float(tolerance)) if is_paced else (None, 0.0)),
    )


def under(hand: Hand | None, held: Held) -> Held:
    """A limit as configured, changed by what an operator set."""
    if hand and hand.concurrency is not None:
        held = replace(held, concurrency=hand.concurrency)
    if hand and hand.interval is not None:
        held = replace(held, interval=hand.interval, tolerance=hand.tolerance)
    return held


def held_to(found: Snapshot, group: str, entry: bytes) -> Held:
    """The limit of a group whose head this is."""
    text = found.hashes.get("limits", {}).get(b"r" + rule_of(found, entry).encode())
    held = Held()
    if text is not None:
        concurrency, interval, tolerance, *_ = text.split(b" ")
        held = Held(int(concurrency), float(interval), float(tolerance))
    return under(by_hand(found, f"g{group}"), held)


def room_in(found: Snapshot, group: str) -> int:
    """How many more tasks of a group may run; below 0 where more do than may."""
    running = [claim.entry for claim in found.checkpoints if claim.group == group]
    head = found.lanes.get(group, running)[-1:]
    most = held_to(found, group, head[0]).concurrency if head else 1
    if group in found.fields("runs"):  # what it has begun stands in the lane
        return min(0, most - len(running))
    return most - len(running)


def began_since(found: Snapshot, whose: str, started: Iterable[int]) -> bool:
    """Whether something started (µs) under what was set by hand, or nothing was."""
    hand = by_hand(found, whose)
    return hand is None or max(started, default=0) > hand.since


def cap_of(found: Snapshot, entry: bytes) -> str:
    """The pattern that limits a task; empty where none does."""
    known = found.hashes.get("caps", {})
    facts = found.facts_of(entry)
    type_ = facts[0] if facts else found.task_state_of(entry).get(b"type", b"").decode()
    if not type_ or not known:
        return ""
    patterns = {name[1:].decode() for name in known}
    matching = [each for each in patterns if _matches(each, type_)]
    return min(matching, key=lambda each: _rank(known, each), default="")


def _matches(pattern: str, type_: str) -> bool:
    is_open = pattern.endswith("*") and type_.startswith(pattern[:-1])
    return is_open or pattern == type_


def _rank(known: dict[bytes, bytes], pattern: str) -> tuple[int, int]:
    """Which holds of those that match: by hand a name, the longest pattern; else as configured."""
    told = known.get(b"c" + pattern.encode())
    return (
        (0, 2 * pattern.endswith("*") - len(pattern))
        if told is None
        else (1 + int(told.split(b" ")[0]), 0)
    )


def rule_batch(found: Snapshot, entry: bytes) -> tuple[int, int] | None:
    """How many make a batch of a task's rule, and µs for which fewer wait; none where none do."""
    text = found.hashes.get("limits", {}).get(b"b" + rule_of(found, entry).encode())
    if text is None or cap_of(found, entry):  # what has a limit of its type is claimed alone
        return None
    batch, wait = text.split(b" ")
    return int(batch), int(wait)


def gathers_until(found: Snapshot, group: str) -> int:
    """Until when (µs) a group waits for more, as its head says; 0 where it doesn't."""
    lane = found.lanes[group]
    rule = rule_batch(found, lane[-1])
    # What still stands in the line of a type's limit that has ended was ready under that.
    was_limited = group.encode() in found.hashes.get("cap_groups", {})
    if rule is None or was_limited or len(lane) >= rule[0]:
        return 0
    return split_entry(lane[-1])[0] + rule[1]


def limits_of(found: Snapshot) -> Iterator[Violation]:
    """What contradicts them."""
    yield from _holders(found)
    now = found.at
    for group in {claim.group for claim in found.checkpoints if claim.group}:
        started = (claim.since for claim in found.checkpoints if claim.group == group)
        if (room := room_in(found, group)) < 0 and began_since(found, f"g{group}", started):
            yield Violation("S4", f"of {group} run {-room} more than may")
    for group in (*found.names("ready"), *found.names("quarantined_groups")):
        if group not in found.lanes:
            continue
        if room_in(found, group) <= 0:
            yield Violation("S4", f"the group {group} is ready, and as many run as may")
        limit, member = held_to(found, group, found.lanes[group][-1]), f"g{group}".encode()
        due = found.zsets.get("rates", {}).get(member, 0.0) if limit.interval else 0.0
        if due - limit.tolerance > now:
            yield Violation("L8", f"the group {group} is ready, {due - now} µs before its rate")
        if found.zsets.get("closed", {}).get(member, 0.0) > now:
            yield Violation("L8", f"the group {group} is ready, though it is closed")
        if (until := gathers_until(found, group)) > now:
            yield Violation("L8", f"the group {group} is ready, {until - now} µs before its batch")
    for name, due in found.zsets.get("held", {}).items():
        head = found.lanes.get(name.decode(), [b""])[-1]
        if head[16:17] != b"." or not rule_batch(found, head) or due <= now:
            continue
        others = [found.zsets.get(kind, {}).get(b"g" + name, 0.0) for kind in ("closed", "rates")]
        if max(others) <= now and not gathers_until(found, name.decode()):
            yield Violation("L8", f"the group {name!r} waits, and its batch is full")


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
