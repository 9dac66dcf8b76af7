"""What is held for long is counted to the byte; a body that left Redis is nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from groupflow.store.keys import split_element
from tests.history.invariants import Violation

if TYPE_CHECKING:
    from tests.history.auditor import Snapshot


def bytes_held(found: Snapshot) -> Iterator[Violation]:
    """What waits for a delay, and what dead letters hold, is counted to the byte."""
    waiting = {split_element(element)[1] for _, _, element in found.waiting()}
    for total, rightly in (("delayed_bytes", waiting), ("dead_bytes", set(found.names("dead")))):
        noted = {
            id_: int(life[total.encode()])
            for id_, life in found.lives.items()
            if total.encode() in life
        }
        if found.count(total) != sum(noted.values()):
            yield Violation("L7", f"{total} says {found.count(total)}, the lives {noted}")
        for id_, size in noted.items():
            if id_ not in rightly or size != len(found.tasks.get(id_, b"")):
                yield Violation("L7", f"{id_} counts {size} among the {total}, and should not")
    here = {id_ for id_, life in found.lives.items() if b"dead_bytes" in life}
    for id_ in here ^ set(found.names("bodies")):
        yield Violation("L7", f"the body of {id_} is counted or listed, not both")
    for id_, life in found.lives.items():
        if (b"offset" in life) != (b"archived_as" in life):
            yield Violation("S1", f"{id_} knows half of the place of its body")
        if b"offset" in life and (id_ in here or id_ not in found.names("dead")):
            yield Violation("S1", f"the body of {id_} is in RabbitMQ, and it is no letter for that")
