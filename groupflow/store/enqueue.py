"""enqueue: a batch of messages becomes durable, in order, as waiting tasks or dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, TypeAlias

import orjson
from redis.exceptions import RedisError

from groupflow.core.errors import StoreUnavailable, TooFewReplicas
from groupflow.core.limits import Debounce
from groupflow.store.cancelling import (
    CANCELLED_AT_ONCE,
    Cancel,
    CancelVerdict,
    Named,
    cancel_arguments,
    cancel_of,
)
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.epochs import Seen
from groupflow.store.scripts import Verb
from groupflow.store.wire import ReplicaWait, Wire

REJECTED = "rejected"  # the error of a message that died at the door, before it had a route
UNBOUNDED = 2**52  # bytes; more than there ever are
TRIES = 4  # to find an id for a large envelope, where its own is taken
DELAYED_SHARE = 0.5  # of Redis's memory that may wait for delays, at most
CARRIED = 1024 * 1024  # bytes of envelopes that one script is given; the first one may be larger
READ_WHOLE = 4096  # bytes of an envelope that a look at its task may read; see `facts.lua`


def bound_of_delays(wanted: int, *limits: int) -> int:
    """Bytes that may wait for delays: what never drains must not fill all there is.

    The limits are of Redis's memory; 0 for none.
    """
    return min([wanted, *(int(limit * DELAYED_SHARE) for limit in limits if limit)])


def no_room(delayed_memory: int) -> str:
    """The reason of a dead letter that would have waited for a delay; the bound is in bytes."""
    return (
        f"it waits for a delay, and what does so already holds {delayed_memory} bytes, as much as "
        "redis.delayed_memory lets it: redrive it when there is room"
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message on its way into the store."""

    id: str
    envelope: Envelope  # what to keep of the message
    priority: float = 0.0  # seconds by which it counts as older than it is
    delay: float = 0.0  # seconds before which it may not run
    steps_aside: bool = False  # whether its group goes on during that delay
    dead: str = ""  # the reason why it is a dead letter from the start, empty for a task
    debounce: Debounce | None = None  # how long a newer one of its group and type may replace it
    max_queued: int = 0  # how many tasks may wait in its group, 0 for any number
    # Where it is no task: the id of the task that it cancels, of the scope that its envelope has.
    cancels: str = ""
    expires: float = 0.0  # seconds within which it has to start first, 0 for any time

    def arguments(self, packed: bytes | None = None, laid_at: str = "") -> tuple[Argument, ...]:
        """The ten arguments that `enqueue.lua` takes for one message.

        Args:
            packed: its envelope, where that is made already.
            laid_at: under which id that was put right in front of the script; else it goes along.
        """
        packed = self.envelope.pack() if packed is None else packed
        is_special = (
            self.dead or self.delay or self.debounce or self.expires or self.envelope.named_pool
        )
        is_listed_apart = bool(is_special) or len(packed) > READ_WHOLE
        errors = orjson.dumps([{"error": REJECTED, "message": self.dead}]) if self.dead else b""
        facts = b"%d" % self.max_queued if self.max_queued else b""
        if is_listed_apart:
            facts = self.envelope.pack_facts(self.debounce, self.max_queued, self.expires)
        return (
            self.id,
            self.envelope.group or "",
            microseconds(self.priority),
            microseconds(self.delay),
            "aside" if self.steps_aside else "",
            self.dead,
            errors,
            f"@{len(packed)} {laid_at}" if laid_at else packed,
            facts,
            self.envelope.scope,
        )


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a batch."""

    # how many tasks wait in the store now, without those that wait for delays, whose bytes are
    # bounded, and without shards of scans that sleep
    queued: int
    taken: list[bool]  # for each message, whether it is new; False is a duplicate
    # the ids of tasks whose message's id belongs to another application or tenant, or to an old
    # dead letter; by place in the batch
    renamed: dict[int, str] = field(default_factory=dict)
    # the places in the batch of messages that became dead letters, since there was no room for what
    # waits for delays
    crowded_out: frozenset[int] = frozenset()
    superseded: int = 0  # waiting tasks that these have replaced
    # the places in the batch of messages that became dead letters, since their group was full
    full: frozenset[int] = frozenset()
    # what became of those messages that cancel tasks, by place in the batch
    cancels: dict[int, CancelVerdict] = field(default_factory=dict)
    is_outbox_full: bool = False  # whether as much waits to be told as may


def pools_of(arrivals: Sequence[Arrival]) -> set[Pool]:
    """The pools whose workers will find something in the store once these are there."""
    return {
        each.envelope.pool
        for each in arrivals
        if not (each.dead or each.delay or each.envelope.named_pool)
    }


def _joined(parts: Sequence[Enqueued]) -> Enqueued:
    """What became of a batch, from what became of its parts."""
    taken, renamed = list[bool](), dict[int, str]()
    crowded_out, full = set[int](), set[int]()
    for part in parts:
        first = len(taken)
        taken += part.taken
        renamed |= {first + place: id_ for place, id_ in part.renamed.items()}
        crowded_out |= {first + place for place in part.crowded_out}
        full |= {first + place for place in part.full}
    superseded = sum(part.superseded for part in parts)
    joined = Enqueued(
        parts[-1].queued, taken, renamed, frozenset(crowded_out), superseded, frozenset(full)
    )
    return replace(joined, is_outbox_full=parts[-1].is_outbox_full)


@dataclass(frozen=True, slots=True)
class _Unreplicated:
    """A batch that Redis has, and too few replicas have."""

    arrivals: tuple[Arrival, ...]
    enqueued: Enqueued
    wire: Wire  # that wrote it


_Part: TypeAlias = list[tuple[Arrival, bytes]]  # messages, and their envelopes as they are stored


def _parts_of(arrivals: Sequence[Arrival]) -> list[_Part]:
    """A batch in parts for one script each, by bytes: their number is bounded already."""
    parts: list[_Part] = [[]]
    size = 0
    for arrival in arrivals:
        packed = arrival.envelope.pack()
        if parts[-1] and size + len(packed) > CARRIED:
            parts.append([])
            size = 0
        parts[-1].append((arrival, packed))
        size += len(packed)
    return parts


class Enqueuer:
    """Writes batches. Running one again is safe: the second time, what was taken is a duplicate."""

    def __init__(
        self,
        client: StoreClient,
        daemon: str = "",
        *,
        dedup_window: float = 3600.0,
        replica_wait: ReplicaWait | None = None,
        seen: Seen | None = None,
    ) -> None:
        """Binds the connection, which the daemon claims through as well.

        Args:
            client: the one that the daemon claims through as well; with `replica_wait` its own.
            daemon: the daemon that writes. If there is no other, the script wakes none.
            dedup_window: seconds for which a dead letter keeps its id from other messages.
            replica_wait: how many replicas must have a batch.
            seen: notes the highest arrival.
        """
        self._replica_wait = replica_wait
        self._unreplicated: _Unreplicated | None = None
        self._seen = seen or Seen()
        self._front: tuple[Argument, ...] = (
            # On a connection of its own, no claim runs right behind it: all daemons have to be
            # woken.
            "" if replica_wait else daemon,
            microseconds(dedup_window),
            token_hex(16),  # where no store has a salt yet
        )
        self._client = client
        self._verb = Verb.ENQUEUE

    def of_follow_up_tasks(self) -> Enqueuer:
        """The same for follow-up tasks, which come into full memory too."""
        twin = copy(self)
        twin._verb = Verb.FOLLOW
        return twin

    async def enqueue(
        self,
        arrivals: Sequence[Arrival],
        delayed_memory: int = UNBOUNDED,
        ahead: Callable[[Sequence[Arrival]], object] = lambda _: None,
    ) -> Enqueued:
        """Make a batch durable, in its order, by as many scripts as its bytes need.

        A message whose delay would take more than `delayed_memory` bytes becomes a dead letter, to
        be redriven. `ahead` is told the messages of each script right before that is sent.

        Raises:
            StoreUnavailable: no answer; the batch may have been written. Try again.
            TooFewReplicas: it has been written, and may still be lost. Try again.
            StoreFull: Redis has no memory for it; its first part may have been written.
        """
        parts = list[Enqueued]()
        # In turn: no part may be written where one in front of it was not.
        for part in _parts_of(arrivals):
            ahead([arrival for arrival, _ in part])
            parts.append(await self._enqueue(part, delayed_memory))
        return parts[0] if len(parts) == 1 else _joined(parts)

    async def _enqueue(self, part: _Part, delayed_memory: int) -> Enqueued:
        """The same of a part."""
        if self._replica_wait is None or not part:
            return (await self._write(part, delayed_memory))[0]
        unreplicated, arrivals = self._unreplicated, tuple(arrival for arrival, _ in part)
        if not (unreplicated and unreplicated.wire.is_open and unreplicated.arrivals == arrivals):
            enqueued, number, wire = await self._write(part, delayed_memory)
            unreplicated = _Unreplicated(arrivals, enqueued, wire)
        else:
            number = await self._count_replicas(unreplicated.wire)
        if number < self._replica_wait.replicas:
            self._unreplicated = unreplicated
            raise self._too_few(number, self._replica_wait)
        self._unreplicated = None
        return unreplicated.enqueued

    async def cancel(self, named: Sequence[Named]) -> list[Cancel]:
        """Note that tasks are to be cancelled, by what messages call them. May be called again.

        Returns:
            What became of each.

        Raises:
            StoreUnavailable: no answer; it may have been written. Try again.
            TooFewReplicas: it has been written, and may still be lost. Try again.
        """
        found, wait = list[Cancel](), self._replica_wait
        for first in range(0, len(named), CANCELLED_AT_ONCE):
            asked = cancel_arguments(named[first : first + CANCELLED_AT_ONCE])
            rows, number, _ = await self._client.run_replicated(Verb.CANCEL_NAMED, asked, wait)
            if wait is not None and number < wait.replicas:
                raise self._too_few(number, wait)
            found += map(cancel_of, rows)
        return found

    def _too_few(self, number: int, wait: ReplicaWait) -> TooFewReplicas:
        return TooFewReplicas(
            f"Redis at {self._client.address}: {number} replicas have the batch, and "
            f"redis.replicas is {wait.replicas}"
        )

    async def _count_replicas(self, wire: Wire) -> int:
        """Wait for replicas again, with nothing written twice."""
        assert self._replica_wait is not None  # noqa: S101
        try:
            return await self._replica_wait.wait(wire)
        except RedisError:
            wire.close()  # another server may lead: the batch goes there, or is a duplicate
            return 0

    async def _write(self, part: _Part, delayed_memory: int) -> tuple[Enqueued, int, Wire]:
        """Write a part: what became of it, how many replicas have it, and by which connection."""
        is_answered = any("reply_to" in (arrival.envelope.origin or ()) for arrival, _ in part)
        arguments: list[Argument] = [*self._front, delayed_memory, no_room(delayed_memory)]
        arguments.append("replies" if is_answered else "")
        run, verb = self._client.run_replicated, self._verb
        replica_wait = self._replica_wait if part else None
        # Follow-up tasks are hardly larger, and full memory would refuse what is put in front.
        if len(part) == 1 and len(part[0][1]) > CARRIED and verb is Verb.ENQUEUE:
            [(arrival, packed)] = part
            at = arrival.id
            for _ in range(TRIES):
                told = arrival.arguments(packed, at)
                reply, number, wire = await run(
                    verb, [*arguments, *told], replica_wait, "tasks", at, packed
                )
                if not isinstance(reply[1][0], list):
                    return self._enqueued(reply), number, wire
                at = reply[1][0][0].decode()  # its id is taken: it comes under another
            raise StoreUnavailable(f"{arrival.id!r}: others took each id that was free")
        for arrival, packed in part:
            arguments.extend(arrival.arguments(packed))
        reply, number, wire = await run(verb, arguments, replica_wait)
        return self._enqueued(reply), number, wire

    def _enqueued(self, reply: list[Any]) -> Enqueued:
        queued, taken, crowded_out, newest, superseded, full, is_held = reply
        self._seen.sequence = max(self._seen.sequence, newest)
        return Enqueued(
            queued=queued,
            taken=[verdict != 0 for verdict in taken],
            renamed={n: id_.decode() for n, id_ in enumerate(taken) if isinstance(id_, bytes)},
            crowded_out=frozenset(place - 1 for place in crowded_out),
            superseded=superseded,
            full=frozenset(place - 1 for place in full),
            is_outbox_full=bool(is_held),
        )
