"""Damages at methods of the product's classes: what a daemon does out of turn, or leaves undone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from groupflow.broker.consumer import Consumer, Delivery
from groupflow.core.errors import GroupflowError, SessionReplaced, StoreUnavailable
from groupflow.core.outcome import Done
from groupflow.flow.entrance import Batch, PartitionEntrance
from groupflow.flow.exchange import Exchanger
from groupflow.flow.python_handlers import PythonBatchRunner, PythonRunner
from groupflow.flow.slots import Exchange, GroupRun, Slots
from groupflow.flow.worker import LocalWorker
from groupflow.flow.workforce import Holding
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.sessions import Claimable, Session, Sessions
from groupflow.store.wire import ReplicaWait
from groupflow.upkeep.reap import Reaper
from groupflow.upkeep.renew import Renewer
from tests.simulation.clock import pass_virtual
from tests.simulation.damaging import Hits, Replacements

OF_PRODUCT = Replacements()
_of = OF_PRODUCT.of

# Intake:


@_of(Consumer, "take")
async def acked_when_taken(
    sound: Any, hits: Hits, self: Consumer, most: int, most_bytes: int
) -> list[Delivery]:
    """A message is acked before it is in Redis."""
    batch: list[Delivery] = await sound(self, most, most_bytes)
    hits.hit()
    await self.ack_through(batch[-1])
    return batch


@_of(Consumer, "ack_through")
async def ack_beyond(sound: Any, hits: Hits, self: Consumer, delivery: Delivery) -> None:
    """What came behind a batch is acked with it."""
    hits.hit(bool(self._waiting))
    await sound(self, self._waiting[-1] if self._waiting else delivery)


@_of(PartitionEntrance, "enqueue")
async def unwritten_acked(
    sound: Any, hits: Hits, self: PartitionEntrance, arrivals: Sequence[Arrival]
) -> Any:
    """A batch is acked though Redis gave no answer."""
    try:
        return await sound(self, arrivals)
    except GroupflowError:
        hits.hit()
        return Enqueued(0, [True] * len(arrivals))


@_of(Batch, "__init__")
def reversed_batch(
    sound: Any, hits: Hits, self: Batch, entrances: Any, arrivals: Sequence[Arrival]
) -> None:
    """A batch is written in reverse order."""
    hits.hit()
    sound(self, entrances, arrivals[::-1])


@_of(Batch, "__init__")
def first_lost(
    sound: Any, hits: Hits, self: Batch, entrances: Any, arrivals: Sequence[Arrival]
) -> None:
    """The first message of a large batch is left out."""
    hits.hit(len(arrivals) > 3)
    sound(self, entrances, arrivals[1:] if len(arrivals) > 3 else arrivals)


@_of(Enqueuer, "enqueue")
async def uncopied(sound: Any, hits: Hits, self: Enqueuer, *args: Any) -> Any:
    """A batch is acked before replicas have it."""
    kept, self._replica_wait = self._replica_wait, None
    hits.hit(kept is not None)
    try:
        return await sound(self, *args)
    finally:
        self._replica_wait = kept


@_of(ReplicaWait, "wait")
async def copied_late(_sound: Any, hits: Hits, self: ReplicaWait, _wire: Any) -> int:
    """Replicas that didn't answer count as having a batch."""
    hits.hit()
    return self.replicas


# The lease:


@_of(Renewer, "left")
def lease_for_ever(_sound: Any, hits: Hits, self: Renewer) -> float:
    """A daemon believes that its lease never ends."""
    hits.hit()
    return self._lease


@_of(Renewer, "_answered_at")
def lease_late(sound: Any, hits: Hits, self: Renewer, sent: float) -> None:
    """A daemon counts its lease from half a lease late."""
    hits.hit()
    sound(self, sent + self._lease / 2)


@_of(Holding, "lease_ended")
def end_unheard(_sound: Any, hits: Hits, *_: Any) -> None:
    """Handlers go on beyond the end of the lease."""
    hits.hit()


@_of(Holding, "session_lost")
def loss_unheard(_sound: Any, hits: Hits, *_: Any) -> None:
    """Handlers go on beyond the loss of the session."""
    hits.hit()


@_of(Sessions, "renew")
async def failure_renews(sound: Any, hits: Hits, self: Sessions) -> Any:
    """A renewal without an answer extends the lease."""
    try:
        return await sound(self)
    except StoreUnavailable:
        hits.hit()
        return Claimable(0, 0)


@_of(Sessions, "is_witnessed")
def unwitnessed(_sound: Any, hits: Hits, self: Sessions) -> bool:
    """Claims are made that no other daemon would miss."""
    hits.hit(not self._session.is_witnessed)
    return True


@_of(Session, "check")
def replaced_goes_on(sound: Any, hits: Hits, self: Session, state: bytes) -> None:
    """A daemon whose name was taken goes on."""
    try:
        sound(self, state)
    except SessionReplaced:
        hits.hit()


@_of(
    Reaper,
    "_grace_left",
    unseen="all have stopped their handlers by then: what is taken begins again either way",
)
def no_grace(_sound: Any, hits: Hits, _self: Reaper) -> float:
    """Who was without Redis reaps at once."""
    hits.hit()
    return 0.0


@_of(StoreClient, "run_all")
async def any_server(
    sound: Any, hits: Hits, self: StoreClient, calls: Any, epoch: Any = None
) -> Any:
    """Claims are made at any server that leads."""
    hits.hit(epoch is not None)
    return await sound(self, calls)


# Claims and settles:


@_of(PythonRunner, "handle")
async def told_too_soon(sound: Any, hits: Hits, self: PythonRunner, task: Any) -> Done:
    """A task is settled before its handler has ended."""
    hits.hit()
    self.late = asyncio.ensure_future(sound(self, task))  # type: ignore[attr-defined]
    await pass_virtual(0.001)
    return Done()


@_of(PythonBatchRunner, "handle_all")
async def batch_is_done(sound: Any, hits: Hits, self: PythonBatchRunner, tasks: Any) -> list[Done]:
    """A batch is done, though its handler says otherwise."""
    await sound(self, tasks)
    hits.hit()
    return [Done()] * len(tasks)


@_of(Slots, "turn_back")
def settled_once(sound: Any, hits: Hits, self: Slots, exchange: Exchange) -> None:
    """A settle without an answer is forgotten."""
    for slot in exchange.settling:
        hits.hit()
        slot.finished = None
    sound(self, exchange)


@_of(Slots, "turn_back")
def unsure_is_free(sound: Any, hits: Hits, self: Slots, exchange: Exchange) -> None:
    """A claim without an answer is forgotten."""
    sound(self, exchange)
    for slot in self.unsure:
        hits.hit()
        slot.is_unsure = False
    self.unsure.clear()


@_of(Claims, "exchange")
async def claim_dropped(sound: Any, hits: Hits, self: Claims, *args: Any, **options: Any) -> Any:
    """A claim that was given is forgotten."""
    found = await sound(self, *args, **options)
    hits.hit()
    if found.claims and hits.number % 7 == 0:
        del found.claims[-1]
    return found


@_of(LocalWorker, "_work")
async def run_twice(sound: Any, hits: Hits, self: LocalWorker, slot: Any) -> Any:
    """A task's handler runs twice under one claim."""
    hits.hit()
    if hits.number % 9 == 0:
        await sound(self, slot)
    return await sound(self, slot)


@_of(Claims, "exchange")
async def settled_partly(
    sound: Any, hits: Hits, self: Claims, settlements: Any, slots: Any, **options: Any
) -> Any:
    """Of what is settled together, only the first is."""
    hits.hit(len(settlements) > 1)
    return await sound(self, settlements[:1], slots, **options)


@_of(GroupRun, "next")
def run_reversed(sound: Any, hits: Hits, self: GroupRun, done: Any) -> Any:
    """What a run has done is told in reverse order."""
    found = sound(self, done)
    hits.hit()
    self._done.reverse()
    return found


@_of(GroupRun, "next")
def run_skips(sound: Any, hits: Hits, self: GroupRun, done: Any) -> Any:
    """A run skips a task."""
    found = sound(self, done)
    if self.rest:
        hits.hit()
        found = sound(self, found)
    return found


@_of(LocalWorker, "_handle")
async def cut_is_done(sound: Any, hits: Hits, self: LocalWorker, *args: Any) -> Any:
    """An attempt that was cut off counts as done."""
    found = await sound(self, *args)
    hits.hit(found is None)
    return Done() if found is None else found


@_of(Sessions, "leave")
async def never_leaves(_sound: Any, hits: Hits, _self: Sessions) -> list[Any]:
    """Who stops doesn't leave."""
    hits.hit()
    return []


@_of(
    Slots,
    "doubt",
    unseen="each slot is asked in its turn: it takes a system in which nothing comes any more",
)
def undoubted(_sound: Any, hits: Hits, *_: Any) -> None:
    """Behind a fail-over, no daemon asks for what was settled last."""
    hits.hit()


@_of(Exchanger, "_deliver")
def turned_away(_sound: Any, hits: Hits, *_: Any) -> None:
    """An exchange's answer wakes no worker."""
    hits.hit()
