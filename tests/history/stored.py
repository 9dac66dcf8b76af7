"""What a store holds when it stands still, read once, its partitions taken as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from groupflow.store.keys import SEQUENCE_DIGITS, Keys, split_entry
from groupflow.store.partitions import partition_of
from tests.history.auditor import audit_of, leftovers_of
from tests.history.debouncing import superseded_of
from tests.history.events import Event, State
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot, read


class Stored:
    """All partitions of a namespace, each at one instant."""

    def __init__(self, raw: Any, partitions: Sequence[Keys]) -> None:
        self._found = [(keys, read(raw, keys)) for keys in partitions]

    @property
    def states(self) -> dict[str, State]:
        """Where each task is that the store knows."""
        return {id_: state for _, found in self._found for id_, state in _states_of(found)}

    @property
    def superseded(self) -> dict[str, str]:
        """By each task that a newer one replaced, which one."""
        return {id_: by for _, found in self._found for id_, by in superseded_of(found).items()}

    def count(self, name: str) -> int:
        """One of the store's own totals."""
        return sum(found.count(name) for _, found in self._found)

    def contradictions(self) -> list[Violation]:
        """What the auditor says of each partition."""
        return [violation for _, found in self._found for violation in audit_of(found)]

    def leftovers(self) -> list[Violation]:
        """What has no right to be there when all tasks are over."""
        left = [key for keys, found in self._found for key in leftovers_of(found, keys)]
        return [Violation("L7", f"left behind: {key}") for key in left]


def _states_of(found: Snapshot) -> Iterable[tuple[str, State]]:
    for id_, line in found.finished.items():
        how = orjson.loads(line[SEQUENCE_DIGITS:])[0]
        if how != "moved":  # it is another partition's
            yield id_, how if how in ("done", "expired", "superseded") else "dropped"
    for id_ in found.names("dead"):
        yield id_, "dead"
    for claim in found.checkpoints:
        yield split_entry(claim.entry)[1], "running"
    for _place, _group, entry in found.waiting:
        yield split_entry(entry)[1], "waiting"


def with_unique_fence(event: Event, partitions: int) -> Event:
    """The same, its fence unique among all partitions: each has fences of its own."""
    id_ = event.task.partition("~")[0]  # a derived id lies where its message's does
    place = partition_of(event.group, id_, partitions)
    return replace(event, fence=event.fence * partitions + place)
