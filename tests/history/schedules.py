"""What the auditor says of schedules: a row and its due time, and runs that were."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot

RUNS = 20
NOT_DUE = 8_000_000_000_000_000
_MESSAGE = ("told", "interval", "overlap", "group", "priority", "delay", "envelope", "scope")


def schedules_of(found: Snapshot) -> Iterator[Violation]:
    """Every way in which schedules contradict themselves, or what became of their ticks."""
    due = {name.decode(): int(at) for name, at in found.zsets.get("schedules", {}).items()}
    for name in due.keys() ^ found.schedules.keys():
        yield Violation("T1", f"the schedule {name} has a row or a due time, not both")
    for name, row in found.schedules.items():
        if b"gone" in row:
            if due.get(name) != NOT_DUE:
                yield Violation("T1", f"the schedule {name} lies elsewhere, and is due here")
            continue
        for field in _MESSAGE:
            if field.encode() not in row:
                yield Violation("T2", f"the schedule {name} has no {field} for its ticks")
        if due.get(name, NOT_DUE) <= int(row[b"decided"]) and b"runs" in row:
            yield Violation("T1", f"the schedule {name} is due for a tick that was decided")
        yield from _runs(found, name, row)


def _runs(found: Snapshot, name: str, row: dict[bytes, bytes]) -> Iterator[Violation]:
    runs = orjson.loads(row.get(b"runs", b"[]"))
    ids = [run[1] for run in runs]
    if len(set(ids)) != len(ids):
        yield Violation("T1", f"the schedule {name} has made a tick twice: {ids}")
    ticks = [run[0] for run in runs if run[2] == "tick"]
    if ticks != sorted(ticks, reverse=True):
        yield Violation("T1", f"the runs of {name} are out of order: {ticks}")
    if len(runs) > RUNS:
        yield Violation("L7", f"the schedule {name} remembers {len(runs)} runs")
    if len(runs) < RUNS and int(row.get(b"ticks", 0)) != len(runs):
        yield Violation("T1", f"{name} has made {row.get(b'ticks')!r} ticks, and knows {len(runs)}")
    for _tick, id_, _kind, outcome, _at in runs:
        if outcome in ("done", "dropped") and id_ in found.tasks:
            yield Violation("T2", f"{id_} is told to be {outcome}, and isn't over")
