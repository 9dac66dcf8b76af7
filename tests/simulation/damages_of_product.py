"""Damages at methods of the product's classes: what a daemon does out of turn, or leaves undone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeAlias

from groupflow.broker.consumer import Consumer, Delivery
from groupflow.broker.events import EventPublisher
from groupflow.core.errors import GroupflowError, SessionReplaced, StoreUnavailable
from groupflow.core.outcome import Done
from groupflow.flow.entrance import Batch, PartitionEntrance
from groupflow.flow.exchange import Exchanger
from groupflow.flow.intakes import Intakes
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
from groupflow.upkeep.relay import Relay
from groupflow.upkeep.renew import Renewer
from tests.simulation.clock import pass_virtual
from tests.simulation.damaging import Replacements

Arrivals: TypeAlias = Sequence[Arrival]
OF_PRODUCT = Replacements()
_of = OF_PRODUCT.of
_claims, _runs = count(1), count(1)  # of one run: each is a process of its own

# Intake:


@_of(Consumer, "take")
async def acked_when_taken(sound: Any, self: Consumer, *most: int) -> list[Delivery]:
    """A message is acked before it is in Redis."""
    batch: list[Delivery] = await sound(self, *most)
    await self.ack_through(batch[-1])
    return batch


@_of(Consumer, "ack_through")
async def ack_beyond(sound: Any, self: Consumer, delivery: Delivery) -> None:
    """What came behind a batch is acked with it."""
    await sound(self, self._waiting[-1] if self._waiting else delivery)


@_of(PartitionEntrance, "enqueue")
async def unwritten_acked(sound: Any, self: PartitionEntrance, arrivals: Arrivals) -> Any:
    """A batch is acked though Redis gave no answer."""
    try:
        return await sound(self, arrivals)
    except GroupflowError:
        return Enqueued(0, [True] * len(arrivals))


@_of(Batch, "__init__")
def reversed_batch(sound: Any, self: Batch, entrances: Any, arrivals: Arrivals) -> None:
    """A batch is written in reverse order."""
    sound(self, entrances, arrivals[::-1])


@_of(Batch, "__init__")
def first_lost(sound: Any, self: Batch, entrances: Any, arrivals: Arrivals) -> None:
    """The first message of a large batch is left out."""
    sound(self, entrances, arrivals[1:] if len(arrivals) > 3 else arrivals)


@_of(Enqueuer, "enqueue")
async def uncopied(sound: Any, self: Enqueuer, *args: Any) -> Any:
    """A batch is acked before replicas have it."""
    kept, self._replica_wait = self._replica_wait, None
    try:
        return await sound(self, *args)
    finally:
        self._replica_wait = kept


@_of(ReplicaWait, "wait")
async def copied_late(_sound: Any, self: ReplicaWait, _wire: Any) -> int:
    """Replicas that didn't answer count as having a batch."""
    return self.replicas


# What is told:


@_of(EventPublisher, "_publish")
async def unordered_events(
    sound: Any, self: EventPublisher, events: Any, places: Any, *more: Any
) -> None:
    """The events of a group don't wait for each other's confirms."""
    await asyncio.gather(*(sound(self, events, [place], *more) for place in places))


@_of(Relay, "_pass")
async def told_uncopied(sound: Any, self: Relay) -> float:
    """What replicas don't have is told."""
    self._replica_wait = None
    told: float = await sound(self)
    return told


@_of(Intakes, "follow")
async def not_followed(_sound: Any, self: Intakes, following: Any, made: Any) -> None:
    """Follow-up tasks are not made."""
    made |= {id_: True for id_, _ in following}


@_of(Relay, "_tell")
async def confirmed_before(sound: Any, self: Relay, entries: Any) -> None:
    """What could not be published counts as confirmed."""
    with suppress(GroupflowError):
        await sound(self, entries)
    self._confirmed = int(entries[-1][:16])


# The lease:


@_of(Renewer, "left")
def lease_for_ever(_sound: Any, self: Renewer) -> float:
    """A daemon believes that its lease never ends."""
    return self._lease


@_of(Renewer, "_answered_at")
def lease_late(sound: Any, self: Renewer, sent: float) -> None:
    """A daemon counts its lease from half a lease late."""
    sound(self, sent + self._lease / 2)


@_of(Holding, "lease_ended")
def end_unheard(_sound: Any, *_: Any) -> None:
    """Handlers go on beyond the end of the lease."""


@_of(Holding, "session_lost")
def loss_unheard(_sound: Any, *_: Any) -> None:
    """Handlers go on beyond the loss of the session."""


@_of(Sessions, "renew")
async def failure_renews(sound: Any, self: Sessions) -> Any:
    """A renewal without an answer extends the lease."""
    try:
        return await sound(self)
    except StoreUnavailable:
        return Claimable(0, 0)


@_of(
    Sessions,
    "is_witnessed",
    unseen="a server has to forget a daemon and its claim at once: a test of the renewer sees it",
)
def unwitnessed(_sound: Any, self: Sessions) -> bool:
    """Claims are made that no other daemon would miss."""
    return True


@_of(Session, "check")
def replaced_goes_on(sound: Any, self: Session, state: bytes) -> None:
    """A daemon whose name was taken goes on."""
    with suppress(SessionReplaced):
        sound(self, state)


@_of(
    Reaper,
    "_grace_left",
    unseen="all have stopped their handlers by then: what is taken begins again either way",
)
def no_grace(_sound: Any, _self: Reaper) -> float:
    """Who was without Redis reaps at once."""
    return 0.0


@_of(StoreClient, "run_all")
async def any_server(sound: Any, self: StoreClient, calls: Any, epoch: Any = None) -> Any:
    """Claims are made at any server that leads."""
    return await sound(self, calls)


# Claims and settles:


@_of(PythonRunner, "handle")
async def told_too_soon(sound: Any, self: PythonRunner, task: Any) -> Done:
    """A task is settled before its handler has ended."""
    self.late = asyncio.ensure_future(sound(self, task))  # type: ignore[attr-defined]
    await pass_virtual(0.001)
    return Done()


@_of(PythonBatchRunner, "handle_all")
async def batch_is_done(sound: Any, self: PythonBatchRunner, tasks: Any) -> list[Done]:
    """A batch is done, though its handler says otherwise."""
    await sound(self, tasks)
    return [Done()] * len(tasks)


@_of(Slots, "turn_back")
def settled_once(sound: Any, self: Slots, exchange: Exchange) -> None:
    """A settle without an answer is forgotten."""
    for slot in exchange.settling:
        slot.finished = None
    sound(self, exchange)


@_of(Slots, "turn_back")
def unsure_is_free(sound: Any, self: Slots, exchange: Exchange) -> None:
    """A claim without an answer is forgotten."""
    sound(self, exchange)
    for slot in self.unsure:
        slot.is_unsure = False
    self.unsure.clear()


@_of(Claims, "exchange")
async def claim_dropped(sound: Any, self: Claims, *args: Any, **options: Any) -> Any:
    """A claim that was given is forgotten."""
    found = await sound(self, *args, **options)
    if next(_claims) % 7 == 0 and found.claims:
        del found.claims[-1]
    return found


@_of(LocalWorker, "_work")
async def run_twice(sound: Any, self: LocalWorker, slot: Any) -> Any:
    """A task's handler runs twice under one claim."""
    if next(_runs) % 9 == 0:
        await sound(self, slot)
    return await sound(self, slot)


@_of(Claims, "exchange")
async def settled_partly(
    sound: Any, self: Claims, settlements: Any, slots: Any, **options: Any
) -> Any:
    """Of what is settled together, only the first is."""
    return await sound(self, settlements[:1], slots, **options)


@_of(GroupRun, "next")
def run_reversed(sound: Any, self: GroupRun, done: Any) -> Any:
    """What a run has done is told in reverse order."""
    found = sound(self, done)
    self._done.reverse()
    return found


@_of(GroupRun, "next")
def run_skips(sound: Any, self: GroupRun, done: Any) -> Any:
    """A run skips a task."""
    found = sound(self, done)
    if self.rest:
        found = sound(self, found)
    return found


@_of(LocalWorker, "_handle")
async def cut_is_done(sound: Any, self: LocalWorker, *args: Any) -> Any:
    """An attempt that was cut off counts as done."""
    found = await sound(self, *args)
    return Done() if found is None else found


@_of(Sessions, "leave")
async def never_leaves(_sound: Any, _self: Sessions) -> list[Any]:
    """Who stops doesn't leave."""
    return []


@_of(
    Slots,
    "doubt",
    unseen="each slot is asked in its turn: it takes a system in which nothing comes any more",
)
def undoubted(_sound: Any, *_: Any) -> None:
    """Behind a fail-over, no daemon asks for what was settled last."""


@_of(Exchanger, "_deliver")
def turned_away(_sound: Any, *_: Any) -> None:
    """An exchange's answer wakes no worker."""
