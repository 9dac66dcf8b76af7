"""Moves tasks from one partition to another: read, written elsewhere, removed.

Each step is a script that may run again. So a move that a kill or an outage cuts short is done
again from its beginning: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from groupflow.core.errors import GroupflowError
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.partitions import partition_of

Place: TypeAlias = Literal[
    "plain",
    "ordered",
    "suspect_plain",
    "delayed",
    "dead",
    "letter",
    "lane",
    "hold",
    "pool_ordered",
    "pool_suspect_plain",
]
"""Where in a partition: lists of tasks; one dead letter; a group's lane, and what holds it; the
plain tasks of a pool."""

MOST = 200  # tasks a script
ROOM = 4 * 1024 * 1024  # bytes after which a script reads no more tasks
_ENDED = 500  # entries of the history a script


class DaemonsRun(GroupflowError):
    """A namespace can't be moved while daemons run."""

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(sorted(names))
        super().__init__(
            f"daemons run, and a namespace is moved while none does: stop {shown}. "
            "Of one that died, wait until its lease is over."
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A task, a dead letter or a hold that may be moved."""

    id: str  # the task's, empty for a hold
    group: str  # its group, empty for none
    name: str  # the id that decides where it lies, without a group
    element: bytes
    packed: bytes  # all of it

    def place(self, count: int) -> int:
        """The partition in which it is to lie, of so many."""
        return partition_of(self.group or None, self.name, count)


async def move_out(
    source: StoreClient, where: Place, name: str = "", *, passed: int = 0
) -> list[Row]:
    """Read some of what lies in a place.

    Args:
        source: its partition.
        where: the place.
        name: the group, the pool, or the dead letter's id.
        passed: how many stay, and are passed over.

    Raises:
        DaemonsRun: daemons or pullers have leases in that partition.
        StoreUnavailable: no answer.
    """
    reply = await source.run(OperatorVerb.MOVE_OUT, where, name, passed, MOST, ROOM)
    return [
        Row(id_.decode(), group.decode(), origin.decode(), element, packed)
        for id_, group, origin, element, packed in _unless_daemons_run(reply)
    ]


async def move_in(
    target: StoreClient, source: StoreClient, rows: Sequence[Row], gone: Sequence[str] = ()
) -> list[str]:
    """Write rows to their new partition; rows that were written before are passed over.

    Args:
        target: their new partition.
        source: the partition where they lie.
        rows: what to write.
        gone: ids that were written before and lie in `source` no more.

    Returns:
        The ids that they have now: an id that another task has there is replaced.

    Raises:
        DaemonsRun: daemons or pullers have leases in the target.
        StoreFull: there is no memory for them; nothing was written.
        StoreUnavailable: no answer.
    """
    packed = [row.packed for row in rows]
    reply = await target.run(
        OperatorVerb.MOVE_IN, source.keys.tag, uuid4().hex, len(gone), *gone, *packed
    )
    return [id_.decode() for id_ in _unless_daemons_run(reply)]


async def move_done(source: StoreClient, where: Place, rows: Sequence[Row]) -> int:
    """Remove rows that were written elsewhere; how many were still there."""
    pairs = [part for row in rows for part in (row.group, row.element)]
    return int(await source.run(OperatorVerb.MOVE_DONE, where, *pairs))


def _unless_daemons_run(reply: Sequence[Any]) -> list[Any]:
    is_free, found = reply
    if not is_free:
        raise DaemonsRun([name.decode() for name in found])
    return [*found]


async def move_letter(source: StoreClient, target: StoreClient, id_: str) -> str | None:
    """Take a dead letter to another partition, while daemons run.

    Returns:
        Its id there; ``None`` if another process redrove or dropped it meanwhile.

    Raises:
        StoreUnavailable: no answer; it may lie in both, until this is done again.
    """
    rows = await move_out(source, "letter", id_)
    if not rows:
        return None
    (there,) = await move_in(target, source, rows)
    removed = await move_done(source, "dead", rows)
    await move_in(target, source, [], gone=[id_])
    if removed:
        return there
    (row,) = rows
    element = row.element[: -len(id_.encode())] + there.encode()
    await move_done(target, "dead", [Row(there, row.group, row.name, element, b"")])
    return None


class Mover:
    """Moves all that doesn't belong into one partition to the partitions where it belongs."""

    def __init__(self, source: StoreClient, targets: Sequence[StoreClient]) -> None:
        """Moves nothing yet.

        Args:
            source: the partition.
            targets: the future partitions, in order; the source may be one of them.
        """
        self._source = source
        self._targets = targets
        self._gone: dict[int, list[str]] = defaultdict(
            list
        )  # by target, since the last write there

    def leaves(self, group: str | None, name: str = "") -> int | None:
        """The partition to which a group or an id belongs; ``None`` if it stays."""
        place = partition_of(group, name, len(self._targets))
        return None if self._targets[place].keys == self._source.keys else place

    async def move(self, where: Place, name: str = "") -> int:
        """Move what lies in a place and doesn't belong here; returns how many."""
        stay = moved = 0
        while rows := await move_out(self._source, where, name, passed=stay):
            leaving: dict[int, list[Row]] = defaultdict(list)
            for row in rows:
                place = self.leaves(row.group or None, row.name)
                if place is None:
                    stay += 1
                else:
                    leaving[place].append(row)
            for place, some in leaving.items():
                target = self._targets[place]
                await move_in(target, self._source, some, self._gone.pop(place, ()))
                moved += await move_done(self._source, where, some)
                self._gone[place] = [row.id for row in some if row.id]
        return moved

    async def move_schedules(self) -> None:
        """Move schedules to the partitions of their ticks."""
        verb = OperatorVerb.MOVE_SCHEDULES
        done: list[str] = []
        for name, group, packed in await self._source.run(verb, "out"):
            place = self.leaves(group.decode() or None, f"schedule:{name.decode()}")
            if packed and place is not None:
                await self._targets[place].run(verb, "in", packed)
            if place is not None or not packed:
                done.append(name.decode())
        await self._source.run(verb, "done", *done)

    async def move_limits(self) -> None:
        """Move limits by hand with their groups; those of tenants hold everywhere."""
        verb = OperatorVerb.MOVE_LIMITS
        flat = await self._source.run(verb, "out")
        done: list[bytes] = []
        for whose, text in zip(flat[::2], flat[1::2], strict=True):
            if whose.startswith(b"g"):
                place = self.leaves(whose[1:].decode())
                targets = [] if place is None else [self._targets[place]]
                done += [whose] if targets else []
            else:
                targets = [each for each in self._targets if each.keys != self._source.keys]
            for target in targets:
                await target.run(verb, "in", whose, text)
        if done:
            await self._source.run(verb, "done", *done)

    async def move_history(self, segment: Literal["new", "old"]) -> int:
        """Move a segment of the history; returns how many entries."""
        cursor, moved = b"0", 0
        verb = OperatorVerb.MOVE_HISTORY
        while True:
            cursor, rows = await self._source.run(verb, "out", segment, cursor, _ENDED)
            leaving: dict[int, list[Sequence[bytes]]] = defaultdict(list)
            for id_, group, name, scope, line in rows:
                place = self.leaves(group.decode() or None, name.decode())
                if place is not None:
                    leaving[place].append((id_, scope, line))
            for place, some in leaving.items():
                entries = [part for row in some for part in row]
                await self._targets[place].run(verb, "in", segment, uuid4().hex, *entries)
                await self._source.run(verb, "done", segment, *(row[0] for row in some))
                moved += len(some)
            if cursor == b"0":
                return moved
