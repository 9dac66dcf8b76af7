"""Limits of types: who counts for one runs, none is exceeded, and what waits for one waits once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.history.invariants import Violation
from tests.history.limits import Held, began_since, cap_of, hand_in, under
from tests.history.snapshot import Snapshot
from tests.history.tenants import share_of

NO_END = 9e15  # until when a pattern at its limit stands
_INDEX = {"g": "ready", "G": "quarantined_groups", "p": "ordered", "P": "quarantined_plain"}


def held_to(found: Snapshot, cap: str) -> Held:
    """The limit of a pattern."""
    known = found.hashes.get("caps", {})
    told, by_hand = known.get(b"c" + cap.encode()), known.get(b"h" + cap.encode())
    held = Held(0)
    if told is not None:
        _, concurrency, interval, tolerance, *_ = told.split(b" ")
        held = Held(int(concurrency), float(interval), float(tolerance))
    return held if by_hand is None else under(share_of(found, hand_in(by_hand)), held)


def may_start(found: Snapshot, cap: str) -> bool | None:
    """Whether something of a pattern may start; `None` where that changed a moment ago."""
    limit, charged = held_to(found, cap), found.hashes.get("cap_charged", {})
    running = sum(each.decode() == cap for each in charged.values())
    if limit.concurrency and running >= limit.concurrency:
        return False
    due = found.zsets.get("rates", {}).get(f"y{cap}".encode(), 0.0) - limit.tolerance
    if limit.interval and due > found.at:
        return False
    return True if not limit.interval or due <= 0 else None


def types_of(found: Snapshot) -> Iterator[Violation]:
    """What contradicts that."""
    yield from _charges(found)
    yield from _lines(found)
    yield from _turns(found)


def _charges(found: Snapshot) -> Iterator[Violation]:
    """Who counts for a pattern is who runs of it, and no more than may."""
    told = found.hashes.get("cap_charged", {})
    charged = {int(fence): cap.decode() for fence, cap in told.items()}
    running = {claim.fence: cap_of(found, claim.entry) for claim in found.checkpoints}
    wanted = {fence: cap for fence, cap in running.items() if cap}
    if charged != wanted:
        yield Violation("S8", f"types are charged {charged}, and run {wanted}")
    counted = {f"{len(c.encode()):04d}{c}{fence:016d}".encode() for fence, c in charged.items()}
    if counted != set(found.zsets.get("cap_charges", {})):
        yield Violation("S8", "what is counted by type is not what is charged")
    runs = found.hashes.get("runs", {})  # what goes on in one began before its last task did
    begun = [claim for claim in found.checkpoints if claim.group.encode() not in runs]
    for cap, number in Counter(charged.values()).items():
        most = held_to(found, cap).concurrency
        started = (claim.since for claim in begun if charged.get(claim.fence) == cap)
        if most and number > most and began_since(found, f"y{cap}", started):
            yield Violation("S4", f"of type {cap} run {number - most} more than may")


def _lines(found: Snapshot) -> Iterator[Violation]:
    """What waits in a line is of its pattern, is known to, and stands nowhere else."""
    known: dict[str, dict[bytes, str]] = defaultdict(dict)
    for kind in ("cap_groups", "cap_tasks"):
        known[kind] = {each: at.decode() for each, at in found.hashes.get(kind, {}).items()}
    lines: dict[str, dict[bytes, str]] = {"cap_groups": {}, "cap_tasks": {}}
    for place, members in found.cap_waits.items():
        kind = "cap_groups" if place[0] in "gG" else "cap_tasks"
        lines[kind] |= dict.fromkeys(members, place)
    if lines != known:
        yield Violation("S4", f"what waits for types is not where it is said to be: {known}")
    fronts = {f"{len(c.encode()):04d}{c}{front}".encode() for front, c in _parted(found)}
    if fronts != set(found.zsets.get("cap_lines", {})):
        yield Violation("S8", "the lines of types are not those that there are")
    turns = set(found.hashes.get("cap_turns", {}).items())
    for place, members in found.cap_waits.items():
        pool, cap = place[1:].split("/", 1)
        for member in members:
            entry = found.lanes.get(member.decode(), [b""])[-1] if place[0] in "gG" else member
            is_seen = (place.encode(), member) in turns
            # It has none where its limit was ended meanwhile. A claim asks for the current one.
            is_other = cap_of(found, entry) not in (cap, "")
            if is_other and not is_seen and place not in found.names("cap_reviews"):
                yield Violation("S9", f"{member!r} waits in {place}, and is of another type")
            if found.pool_of(entry) != pool:
                yield Violation("S9", f"{member!r} waits in {place}, and is of another pool")
            others = {*found.waiting_for_turns(), *_claimable(found, place)}
            if member in others and not is_seen:
                yield Violation("S4", f"{member!r} waits in {place}, and elsewhere out of turn")


def _parted(found: Snapshot) -> Iterator[tuple[str, str]]:
    """Of each line its kind and pool, and its pattern."""
    for place in found.cap_waits:
        front, cap = place.split("/", 1)
        yield front, cap


def _claimable(found: Snapshot, place: str) -> dict[bytes, float]:
    """What stands where claims look, of the kind of a line."""
    return dict(found.indexes(_INDEX[place[0]])).get(place[1:].split("/", 1)[0], {})


def _turns(found: Snapshot) -> Iterator[Violation]:
    """Where something may start, the best of each line stands where claims look."""
    turns = {name.decode(): member for name, member in found.hashes.get("cap_turns", {}).items()}
    standing = {cap.decode(): due for cap, due in found.zsets.get("cap_standing", {}).items()}
    for place, member in turns.items():
        if member not in found.cap_waits.get(place, {}):
            yield Violation("S8", f"{member!r} has the turn of {place}, and doesn't wait there")
        if member not in _claimable(found, place):
            yield Violation("S8", f"{member!r} has the turn of {place}, and no claim sees it")
    for place in found.cap_waits:
        cap = place.split("/", 1)[1]
        may, is_due = may_start(found, cap), standing.get(cap, NO_END) <= found.at
        if place not in turns and may and not is_due:
            yield Violation("S8", f"something of {place} may start, and has no turn")
        if place in turns and may is False:
            yield Violation("S4", f"{turns[place]!r} has a turn, and its type may start nothing")
        if place not in turns and cap not in standing:
            yield Violation("S8", f"what waits in {place} waits for nothing")
    for cap, until in standing.items():
        waits = any(place.split("/", 1)[1] == cap for place in found.cap_waits)
        if not waits and until > found.at:  # else `promote` is to look at it
            yield Violation("L7", f"nothing of {cap} waits, and it is said to stand")
        if until == NO_END and may_start(found, cap) is not False:
            yield Violation("S8", f"type {cap} may start something, and waits for an end")
