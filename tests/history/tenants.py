"""Tenants: who counts for one runs, and of each no more than its best is where claims look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tests.history.invariants import Violation
from tests.history.limits import Hand, Held, began_since, by_hand, under
from tests.history.snapshot import Snapshot

NO_END = 9e15  # until when a tenant at its cap stands
_INDEX = {"g": "ready", "G": "quarantined_groups", "p": "ordered", "P": "quarantined_plain"}


def held_to(found: Snapshot, tenant: str) -> Held:
    """The limit of a tenant (its scope and its name)."""
    known, name = found.hashes.get("limits", {}), tenant[8:].encode()
    text = known.get(b"t" + name, known.get(b"t")) if name else None
    held = Held(0)
    if text is not None:
        concurrency, _weight, interval, tolerance, *_ = text.split(b" ")
        held = Held(int(concurrency), float(interval), float(tolerance))
    hand = by_hand(found, f"t{tenant[8:]}") if name else None
    return held if hand is None else under(share_of(found, hand), held)


def share_of(found: Snapshot, hand: Hand) -> Hand:
    """Of what was set for all partitions, that of this one."""
    parts = int(found.hashes.get("partitions", {}).get(b"number", 1))
    most = hand.concurrency and max(1, hand.concurrency // parts)
    interval = None if hand.interval is None else hand.interval * parts
    return replace(hand, concurrency=most, interval=interval)


def may_start(found: Snapshot, tenant: str) -> bool | None:
    """Whether something of a tenant may start; `None` where that changed a moment ago."""
    limit = held_to(found, tenant)
    charged = found.hashes.get("charged", {})
    running = sum(each.decode() == tenant for each in charged.values())
    if limit.concurrency and running >= limit.concurrency:
        return False
    member = f"t{tenant}".encode()
    due = found.zsets.get("closed", {}).get(member, 0.0)
    if limit.interval:
        due = max(due, found.zsets.get("rates", {}).get(member, 0.0) - limit.tolerance)
    if due > found.at:
        return False
    return True if due == 0.0 else None


def tenants_of(found: Snapshot) -> Iterator[Violation]:
    """What contradicts that."""
    yield from _charges(found)
    yield from _places(found)
    turns = {name.decode(): member for name, member in found.hashes.get("turns", {}).items()}
    for place, member in turns.items():
        if member not in found.waits.get(place, {}):
            yield Violation("S8", f"{member!r} has the turn of {place}, and doesn't wait there")
        if member not in found.zsets.get(_INDEX[place[0]], {}):
            yield Violation("S8", f"{member!r} has the turn of {place}, and no claim sees it")
    standing = {tenant.decode(): due for tenant, due in found.zsets.get("standing", {}).items()}
    for place in found.waits:
        tenant = place[1:]
        may = may_start(found, tenant)
        is_due = standing.get(tenant, NO_END) <= found.at  # a promote gives it its turn
        if place not in turns and may and not is_due:
            yield Violation("S8", f"something of {place} may start, and has no turn")
        if place in turns and may is False:
            yield Violation("S4", f"{turns[place]!r} has a turn, and its tenant may start nothing")
        if place not in turns and tenant not in standing:
            yield Violation("S8", f"what waits in {place} waits for nothing")
    for tenant in standing:
        if not any(place[1:] == tenant for place in found.waits):
            yield Violation("L7", f"nothing of {tenant} waits, and it is said to stand")
        until = found.zsets["standing"][tenant.encode()]
        if until == NO_END and may_start(found, tenant) is not False:
            yield Violation("S8", f"{tenant} may start something, and waits for an end")


def _charges(found: Snapshot) -> Iterator[Violation]:
    """Who counts for a tenant is who runs of it, and no more than may."""
    charged = {int(fence): of.decode() for fence, of in found.hashes.get("charged", {}).items()}
    counted = {f"{len(of.encode()):04d}{of}{fence:016d}".encode() for fence, of in charged.items()}
    if counted != set(found.zsets.get("charges", {})):
        yield Violation("S8", "what is counted by tenant is not what is charged")
    running = {claim.fence for claim in found.checkpoints}
    for fence in charged.keys() - running:
        yield Violation("S8", f"{fence} counts for {charged[fence]}, and runs no more")
    runs = found.hashes.get("runs", {})  # what goes on in one began before its last task did
    begun = [claim for claim in found.checkpoints if (claim.group or "").encode() not in runs]
    for tenant, number in Counter(charged.values()).items():
        most = held_to(found, tenant).concurrency
        started = (claim.since for claim in begun if charged.get(claim.fence) == tenant)
        if most and number > most and began_since(found, f"t{tenant[8:]}", started):
            yield Violation("S4", f"of tenant {tenant} run {number - most} more than may")


def _places(found: Snapshot) -> Iterator[Violation]:
    """What waits for a turn is in one place, its own tenant's, and otherwise in none."""
    waiting = found.hashes.get("waiting_groups", {})
    known = {group.decode(): place.decode() for group, place in waiting.items()}
    if known != {group: place for place, group in found.lined_up()}:
        yield Violation("S4", "the groups that wait for turns are not where they are said to be")
    turns = set(found.hashes.get("turns", {}).values())
    for group, waits_in in known.items():
        indexes = [i for i in ("ready", "quarantined_groups") if group in found.names(i)]
        if indexes and group.encode() not in turns:
            yield Violation("S4", f"the group {group} is in {indexes[0]} out of turn")
        entry = found.lanes.get(group, [b""])[-1]
        if entry and found.pool_of(entry):
            yield Violation("S9", f"the group {group} is a pool's, and waits in {waits_in}")
        if entry and (whose := _tenant_of(found, entry)) != waits_in[1:]:
            yield Violation("S9", f"the group {group} of {whose} waits in {waits_in}")
    for place, members in found.waits.items():
        for entry in members if place[0] in "pP" else ():
            if found.pool_of(entry):
                yield Violation("S9", f"{entry!r} is a pool's, and waits in {place}")
            if (whose := _tenant_of(found, entry)) != place[1:]:
                yield Violation("S9", f"{entry!r} of {whose} waits in {place}")


def _tenant_of(found: Snapshot, entry: bytes) -> str:
    facts = found.facts_of(entry)
    return f"{facts[5] or '-' * 8}{facts[2] or ''}" if facts else "-" * 8
