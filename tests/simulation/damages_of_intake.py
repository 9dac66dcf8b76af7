"""Damages at intake: what is acked, or written, out of turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupflow.broker.consumer import Consumer, Delivery
from groupflow.core.errors import GroupflowError
from groupflow.flow.entrance import Batch, PartitionEntrance
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.wire import ReplicaWait
from tests.simulation.damaging import Condition, Damage, Hits, Replaced

_FULL = r"call\('LLEN', TAG \.\. 'lane:' \.\. m\.group\) "


def _acked_when_taken(sound: Any, _hits: Hits) -> Any:
    async def take(self: Consumer, most: int, most_bytes: int) -> list[Delivery]:
        batch: list[Delivery] = await sound(self, most, most_bytes)
        _hits.hit()
        await self.ack_through(batch[-1])
        return batch

    return take


def _ack_beyond(sound: Any, hits: Hits) -> Any:
    async def ack_through(self: Consumer, delivery: Delivery) -> None:
        if self._waiting:
            hits.hit()
        await sound(self, self._waiting[-1] if self._waiting else delivery)

    return ack_through


def _unwritten_is_written(sound: Any, hits: Hits) -> Any:
    async def enqueue(self: PartitionEntrance, arrivals: Sequence[Arrival]) -> Enqueued:
        try:
            found: Enqueued = await sound(self, arrivals)
        except GroupflowError:
            hits.hit()
            return Enqueued(0, [True] * len(arrivals))
        return found

    return enqueue


def _reversed_batch(sound: Any, hits: Hits) -> Any:
    def __init__(  # noqa: N807
        self: Batch, entrances: Sequence[PartitionEntrance], arrivals: Sequence[Arrival]
    ) -> None:
        hits.hit()
        sound(self, entrances, arrivals[::-1])

    return __init__


def _first_of_batch_lost(sound: Any, hits: Hits) -> Any:
    def __init__(  # noqa: N807
        self: Batch, entrances: Sequence[PartitionEntrance], arrivals: Sequence[Arrival]
    ) -> None:
        hits.hit(len(arrivals) > 3)
        sound(self, entrances, arrivals[1:] if len(arrivals) > 3 else arrivals)

    return __init__


def _uncopied_is_copied(sound: Any, hits: Hits) -> Any:
    async def enqueue(self: Enqueuer, *args: Any) -> Enqueued:
        kept, self._replica_wait = self._replica_wait, None
        hits.hit(kept is not None)
        try:
            found: Enqueued = await sound(self, *args)
        finally:
            self._replica_wait = kept
        return found

    return enqueue


def _waits_for_no_copies(_sound: Any, hits: Hits) -> Any:
    async def wait(self: ReplicaWait, _wire: Any) -> int:
        hits.hit()
        return self.replicas

    return wait


OF_INTAKE: tuple[Damage, ...] = (
    Replaced(
        "acked-when-taken",
        "a message is acked before it is in Redis",
        Consumer,
        "take",
        _acked_when_taken,
    ),
    Replaced(
        "ack-beyond",
        "what came behind a batch is acked with it",
        Consumer,
        "ack_through",
        _ack_beyond,
    ),
    Replaced(
        "unwritten-acked",
        "a batch is acked though Redis gave no answer",
        PartitionEntrance,
        "enqueue",
        _unwritten_is_written,
    ),
    Replaced(
        "reversed-batch", "a batch is written in reverse order", Batch, "__init__", _reversed_batch
    ),
    Replaced(
        "first-lost",
        "the first message of a large batch is left out",
        Batch,
        "__init__",
        _first_of_batch_lost,
    ),
    Replaced(
        "uncopied",
        "a batch is acked before replicas have it",
        Enqueuer,
        "enqueue",
        _uncopied_is_copied,
    ),
    Condition(
        "full-takes-more",
        "a group that is full takes one more task in",
        ((_FULL + r">= bound", "call('LLEN', TAG .. 'lane:' .. m.group) > bound"),),
    ),
    Condition(
        "full-too-early",
        "a group refuses messages while it has room for one",
        ((_FULL + r">= bound", "call('LLEN', TAG .. 'lane:' .. m.group) + 1 >= bound"),),
    ),
    Condition(
        "full-redriven",
        "a redrive doesn't ask whether there is room in the group",
        ((r"if finds_group_full\(\) then return -3 end", ""),),
    ),
    Replaced(
        "copied-late",
        "replicas that didn't answer count as having a batch",
        ReplicaWait,
        "wait",
        _waits_for_no_copies,
    ),
)
