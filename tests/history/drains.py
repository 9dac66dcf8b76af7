"""What ended of groups whose rules want to be told that they are drained, as it lies in Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import orjson

from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot

ENDS = ("done", "dead", "cancelled", "expired", "superseded", "dropped")


def drains_of(found: Snapshot) -> Iterator[Violation]:
    """What stands aside is counted by group; what ended of a group is told once it is drained."""
    aside = Counter(group for where, group, _ in found.waiting if where == "delayed" and group)
    told = {name.decode(): int(n) for name, n in found.hashes.get("aside", {}).items()}
    if aside != told:
        yield Violation("S14", f"{dict(aside)} tasks stand aside, and {told} are counted")
    wanted = found.hashes.get("limits", {})
    busy = {*found.lanes, *found.locks, *found.sharing, *aside, *found.fields("parked")}
    for name, packed in found.hashes.get("drains", {}).items():
        group, ends = name.decode(), orjson.loads(packed)
        if group not in busy and b"d" + ends["rule"].encode() in wanted:
            yield Violation("S14", f"the group {group} is drained, and no task tells so: {ends}")
        if not ends.keys() & {*ENDS}:
            yield Violation("S14", f"nothing has ended of {group}: {ends}")
        if ends["first"] > ends["last"]:
            yield Violation("S14", f"the first of {group} ended behind the last: {ends}")
