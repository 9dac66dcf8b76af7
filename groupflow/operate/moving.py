"""Moves tasks from one partition to another: read, written elsewhere, removed.

Each step is a script that may run again. So a move that a kill or an outage cuts short is done
again from its beginning: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from groupflow.core.errors import GroupflowError, TooFewReplicas
from groupflow.operate.scripts import OperatorVerb
from groupflow.settings.model import Redis
from groupflow.store.client import Argument, StoreClient
from groupflow.store.partitions import partition_of
from groupflow.store.wire import ReplicaWait

MOST = 200  # tasks a script
ROOM = 4 * 1024 * 1024  # bytes after which a script reads no more tasks


class DaemonsRun(GroupflowError):
    """A namespace can't be moved while daemons run."""

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(sorted(names))
        super().__init__(
            f"daemons run, and a namespace is moved while none does: stop {shown}. "
            "Of one that died, wait until its lease is over."
        )


@dataclass(frozen=True, slots=True)
class Movable:
    """A task, a dead letter or anything else that may be moved."""

    id: str  # the task's, empty for what is none
    group: str  # its group, empty for none
    name: str  # the id that decides where it lies, without a group
    entry: bytes
    packed: bytes  # all of it


def replica_wait_of(redis: Redis) -> ReplicaWait | None:
    """How many replicas must have what is moved; ``None`` where none are waited for."""
    return ReplicaWait(redis.replicas, redis.timeout / 2) if redis.replicas else None


async def move_out(
    source: StoreClient, where: str, name: str = "", *, passed: int | str = 0
) -> tuple[list[Movable], str]:
    """Read some of what lies in a place.

    Args:
        source: its partition.
        where: the place, by its name in `move_out.lua`.
        name: the group, the pool, or the dead letter's id.
        passed: how many stay, and are passed over; or the cursor.

    Returns:
        The rows, and the cursor of the next ones, ``0`` at the end; empty for an ordered place.

    Raises:
        DaemonsRun: daemons or pullers have leases in that partition.
        StoreUnavailable: no answer.
    """
    rows, cursor = unless_daemons_run(
        await source.run(OperatorVerb.MOVE_OUT, where, name, passed, MOST, ROOM)
    )
    return [
        Movable(id_.decode(), group.decode(), origin.decode(), entry, packed)
        for id_, group, origin, entry, packed in rows
    ], cursor.decode()


async def move_in(
    target: StoreClient,
    source: StoreClient,
    rows: Sequence[Movable],
    gone: Sequence[str] = (),
    replica_wait: ReplicaWait | None = None,
) -> list[str]:
    """Write rows to their new partition; rows that were written before are passed over.

    Args:
        target: their new partition.
        source: the partition where they lie.
        rows: what to write.
        gone: ids that were written before and lie in `source` no more.
        replica_wait: how many replicas must have them.

    Returns:
        The ids that they have now: an id that another task has there is replaced.

    Raises:
        DaemonsRun: daemons or pullers have leases in the target.
        OtherLayout: the namespace was moved meanwhile, or is being moved; nothing was written.
        StoreFull: there is no memory for them; nothing was written.
        StoreUnavailable: no answer; or too few replicas have them.
    """
    packed = [row.packed for row in rows]
    written: list[Argument] = [source.keys.tag, uuid4().hex, len(gone), *gone, *packed]
    reply = await _run(target, OperatorVerb.MOVE_IN, written, replica_wait)
    return [id_.decode() for id_ in unless_daemons_run(reply)[0]]


async def move_done(
    source: StoreClient,
    where: str,
    rows: Sequence[Movable],
    replica_wait: ReplicaWait | None = None,
) -> int:
    """Remove rows that were written elsewhere; how many were still there."""
    pairs = [part for row in rows for part in (row.group, row.entry)]
    removed = (where, uuid4().hex, *pairs)
    return int(await _run(source, OperatorVerb.MOVE_DONE, removed, replica_wait))


async def _run(
    client: StoreClient,
    verb: OperatorVerb,
    arguments: Sequence[Argument],
    replica_wait: ReplicaWait | None,
) -> Any:
    if replica_wait is None:
        return await client.run(verb, *arguments)
    reply, number, _ = await client.run_replicated(verb, arguments, replica_wait)
    if number < replica_wait.replicas:
        raise TooFewReplicas(
            f"Redis at {client.address}: {number} replicas have what was moved, and "
            f"redis.replicas is {replica_wait.replicas}"
        )
    return reply


def unless_daemons_run(reply: Sequence[Any]) -> Sequence[Any]:
    """What a script answers behind whether it may move anything.

    Raises:
        DaemonsRun: it may not.
    """
    is_free, *found = reply
    if not is_free:
        raise DaemonsRun([name.decode() for name in found[0]])
    return found


async def move_letter(
    source: StoreClient, target: StoreClient, id_: str, replica_wait: ReplicaWait | None = None
) -> str | None:
    """Take a dead letter to another partition, while daemons run.

    Args:
        source: its partition.
        target: its future one.
        id_: its id.
        replica_wait: how many replicas must have it, before it leaves the source.

    Returns:
        Its id there; ``None`` if another process redrove or dropped it meanwhile.

    Raises:
        StoreUnavailable: no answer, or too few replicas have it; it may lie in both, until this is
            done again.
        OtherLayout: the namespace was moved meanwhile, or is being moved.
    """
    rows, _ = await move_out(source, "letter", id_)
    if not rows:
        return None
    (there,) = await move_in(target, source, rows, replica_wait=replica_wait)
    removed = await move_done(source, "letter", rows, replica_wait)
    await move_in(target, source, [], gone=[id_])
    if removed:
        return there
    (row,) = rows
    entry = row.entry[: -len(id_.encode())] + there.encode()
    await move_done(target, "dead", [Movable(there, row.group, row.name, entry, b"")])
    return None


class Mover:
    """Moves all that doesn't belong into one partition to the partitions where it belongs."""

    def __init__(
        self,
        source: StoreClient,
        targets: Sequence[StoreClient],
        replica_wait: ReplicaWait | None = None,
    ) -> None:
        """Moves nothing yet.

        Args:
            source: the partition.
            targets: the future partitions, in order; the source may be one of them.
            replica_wait: how many replicas must have what has moved, before it leaves the source.
        """
        self._replica_wait = replica_wait
        self._source = source
        self._targets = targets
        # By target, since the last write there.
        self._gone: dict[int, list[str]] = defaultdict(list)

    def leaves(self, group: str | None, name: str = "") -> int | None:
        """The partition to which a group or an id belongs; ``None`` if it stays."""
        place = partition_of(group, name, len(self._targets))
        return None if self._targets[place].keys == self._source.keys else place

    async def move(self, where: str, name: str = "") -> int:
        """Move what lies in a place and doesn't belong here; returns how many."""
        moved = stay = 0
        cursor, is_last = "", False
        while not is_last:
            rows, cursor = await move_out(self._source, where, name, passed=cursor or stay)
            is_last = cursor == "0" if cursor else not rows
            leaving: dict[int, list[Movable]] = defaultdict(list)
            for row in rows:
                place = self.leaves(row.group or None, row.name)
                if where == "by_hand" and not row.group:
                    await self._tell_all(row)
                elif place is not None:
                    leaving[place].append(row)
            stay += len(rows) - sum(map(len, leaving.values()))
            for place, some in leaving.items():
                target = self._targets[place]
                gone = self._gone.pop(place, ())
                await move_in(target, self._source, some, gone, self._replica_wait)
                moved += await move_done(self._source, where, some, self._replica_wait)
                self._gone[place] = [row.id for row in some if row.id]
        return moved

    async def _tell_all(self, row: Movable) -> None:
        """Limits of tenants hold everywhere."""
        for target in self._targets:
            if target.keys != self._source.keys:
                await move_in(target, self._source, [row], replica_wait=self._replica_wait)
