"""What is held for long is counted to the byte; a body that left Redis is nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from groupflow.store.keys import split_entry
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot

DELAY_COSTS = 768  # bytes that a delayed task counts beside its envelope; see held_bytes.lua
LETTER_COSTS = 1360  # the same of a dead letter, beside that and its texts
_CARRIED = (b"stage", b"context", b"errors", b"corrections")
_TEXTS = (b"group", b"type", b"tenant", b"reason", b"kind", *_CARRIED)


def bytes_held(found: Snapshot) -> Iterator[Violation]:
    """What waits for a delay, and what dead letters hold, is counted to the byte."""
    waiting = {split_entry(entry)[1] for _, _, entry in found.waiting}
    for total, rightly in (("delayed_bytes", waiting), ("dead_bytes", set(found.names("dead")))):
        name, lives = total.encode(), found.lives.items()
        noted = {id_: int(known[name]) for id_, known in lives if name in known}
        if found.count(total) != sum(noted.values()):
            yield Violation("L7", f"{total} says {found.count(total)}, the lives {noted}")
        for id_, size in noted.items():
            beside = DELAY_COSTS
            if total == "dead_bytes":
                texts = sum(len(found.lives[id_].get(text, b"")) for text in _TEXTS)
                beside = LETTER_COSTS + 4 * len(id_.encode()) + texts
            if id_ not in rightly or size != len(found.tasks.get(id_, b"")) + beside:
                yield Violation("L7", f"{id_} counts {size} among the {total}, and should not")
    yield from _late(found)
    yield from _carried(found)
    here = {id_ for id_, task_state in found.lives.items() if b"dead_bytes" in task_state}
    listed, staying = set(found.names("bodies")), set(found.names("staying"))
    for id_ in (here ^ (listed | staying)) | (listed & staying):
        yield Violation("L7", f"the body of {id_} is counted or listed, not both, or listed twice")
    for id_, task_state in found.lives.items():
        if (b"offset" in task_state) != (b"archived_as" in task_state):
            yield Violation("S1", f"{id_} knows half of the place of its body")
        if b"offset" in task_state and (id_ in here or id_ not in found.names("dead")):
            yield Violation("S1", f"the body of {id_} is in RabbitMQ, and it is no letter for that")


def _late(found: Snapshot) -> Iterator[Violation]:
    """What counts as waiting for a delay is listed with its end, and says whose delay that is."""
    until = {id_.decode(): round(last) for id_, last in found.zsets.get("late", {}).items()}
    counted = {id_ for id_, known in found.lives.items() if b"delayed_bytes" in known}
    for id_ in until.keys() ^ counted:
        yield Violation("L7", f"{id_} is counted or listed as late, not both")
    for id_, last in until.items():
        task_state = found.lives.get(id_, {})
        whose = task_state.get(b"late_for", b"").decode()
        own = int(task_state.get(b"due", 0))
        ends = {until[whose], int(found.lives[whose].get(b"due", 0))} if whose in until else {last}
        if whose == id_:
            ends = {own}
        if not whose or last not in ends or last < own:
            yield Violation("L7", f"{id_} waits for {whose} until {last}, which ends at {ends}")


def _carried(found: Snapshot) -> Iterator[Violation]:
    """What tasks have of stages and failed attempts is counted to the byte, and by tenant."""
    dead, every, by_tenant = set(found.names("dead")), 0, Counter[bytes]()
    for id_, task_state in found.lives.items():
        noted, rightly = int(task_state.get(b"carried_bytes", 0)), 0
        if id_ not in dead and id_ in found.tasks:
            rightly = sum(len(task_state.get(text, b"")) for text in _CARRIED)
        if noted != rightly or (b"carried_bytes" in task_state) != (b"carried_for" in task_state):
            yield Violation("L7", f"{id_} counts {noted} that it carries, and carries {rightly}")
        every += rightly
        by_tenant[task_state.get(b"carried_for", b"")] += rightly
    if found.count("carried_bytes") != every:
        yield Violation("L7", f"carried_bytes says {found.count('carried_bytes')}, not {every}")
    kept = {whose: int(size) for whose, size in found.hashes.get("carried", {}).items()}
    if kept != {whose: size for whose, size in by_tenant.items() if size}:
        yield Violation("L7", f"tenants are said to carry {kept}, and carry {dict(by_tenant)}")
