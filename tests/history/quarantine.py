"""Quarantine: tasks with crashes wait apart from the others, and a daemon runs one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import orjson

from groupflow.store.clock import MICROSECONDS
from groupflow.store.keys import split_entry
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot

FENCE_DIGITS = 16
_FOR_EVER = float("inf")  # the lease of a daemon that told none: a test's, where none runs out


def quarantined_of(found: Snapshot) -> Iterator[Violation]:
    """What contradicts that: a task in the wrong index, two in quarantine at a time."""
    yield from _indexes(found)
    for daemon in found.daemons:
        yield from _running(found, daemon)


def _indexes(found: Snapshot) -> Iterator[Violation]:
    for index, is_for_quarantined in (("ordered", False), ("quarantined_plain", True)):
        for pool, members in found.indexes(index):
            for entry in members:
                if (found.crashes_of(entry) > 0) != is_for_quarantined:
                    yield Violation("L6", f"{split_entry(entry)[1]} waits in {index}")
                if found.pool_of(entry) != pool:
                    yield Violation("S8", f"{split_entry(entry)[1]} waits in pool {pool!r}")
    for index, is_for_quarantined in (("ready", False), ("quarantined_groups", True)):
        for pool, members in found.indexes(index):
            for group in map(bytes.decode, members):
                head = found.lanes.get(group, [b""])[-1]
                if head and (found.crashes_of(head) > 0) != is_for_quarantined:
                    yield Violation("L6", f"the group {group} is in {index}")
                if head and found.pool_of(head) != pool:
                    yield Violation("S8", f"the group {group} is ready in pool {pool!r}")


def _running(found: Snapshot, daemon: str) -> Iterator[Violation]:
    """Which quarantined tasks a daemon may run at once.

    One that has crashed once is none any more when it has run for a lease: the next may begin then.
    One that has crashed twice has the mark to its end.
    """
    session = found.daemons[daemon]
    mark = session.get(b"quarantined")
    claims = [c for c in found.checkpoints if c.daemon == daemon and found.crashes_of(c.entry)]
    claims.sort(key=lambda claim: claim.fence)
    marked = int(mark[:FENCE_DIGITS]) if mark else None
    if mark and marked not in {claim.fence for claim in claims}:
        yield Violation("L6", f"{daemon} has the mark {mark!r}, and runs no such quarantined")
    lease = orjson.loads(session[b"info"]).get("lease", _FOR_EVER) * MICROSECONDS
    for one, two in pairwise(claims):
        if two.since < one.since + lease or found.crashes_of(one.entry) > 1:
            both = f"{one.fence} and {two.fence}"
            yield Violation("L6", f"{daemon} runs {both} at once, both in quarantine")
    for each in claims:
        must_be_marked = lease == _FOR_EVER or found.crashes_of(each.entry) > 1
        if must_be_marked and marked != each.fence:
            yield Violation("L6", f"{daemon} runs the quarantined {each.fence} without its mark")
