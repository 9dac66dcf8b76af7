"""Tasks that wait since no living daemon knows their type are found by it, and no others."""

from __future__ import annotations

from collections.abc import Iterator

from groupflow.store.keys import split_entry
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot, facts_in


def unknown_of(found: Snapshot) -> Iterator[Violation]:
    """A task stands under its own type, waits, and has a clock; only sessions announce types."""
    waiting = {split_entry(entry)[1] for _, _, entry in found.waiting}
    noted = {
        (id_, task_state[b"unknown"].decode())
        for id_, task_state in found.lives.items()
        if b"unknown" in task_state
    }
    listed = {(id_.decode(), type_) for type_, ids in found.unknown_tasks.items() for id_ in ids}
    for id_, type_ in noted ^ listed:
        where = "its task state" if (id_, type_) in noted else "the list of its type"
        yield Violation("S8", f"only {where} says that {id_} waits, as nobody knows {type_!r}")
    for id_, type_ in listed:
        if id_ not in waiting:
            yield Violation("S8", f"{id_} waits for a daemon that knows {type_!r}, and nowhere")
        elif facts_in(found.tasks[id_])[0] != type_:
            yield Violation("S9", f"{id_} waits for a daemon that knows {type_!r}: not its type")
    for type_ in found.unknown_tasks.keys() - set(found.names("unknown")):
        yield Violation("S8", f"tasks wait since nobody knows {type_!r}, and no clock runs")
    for daemon in (found.types.keys() | found.progress.keys()) - found.leased:
        yield Violation("S8", f"{daemon} has told its types, or progress, and has no session")
