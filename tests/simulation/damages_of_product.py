"""Damages at methods of the product's classes: what a daemon does out of turn, or leaves undone."""

from __future__ import annotations

import asyncio
from typing import Any

from groupflow.core.errors import SessionReplaced, StoreUnavailable
from groupflow.core.outcome import Done
from groupflow.flow.exchange import Exchanger
from groupflow.flow.python_handlers import PythonBatchRunner, PythonRunner
from groupflow.flow.slots import Exchange, GroupRun, Slots
from groupflow.flow.worker import LocalWorker
from groupflow.flow.workforce import Holding
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Session, Sessions
from groupflow.upkeep.reap import Reaper
from groupflow.upkeep.renew import Renewer
from tests.simulation.damaging import Damage, Hits, Replaced

# The lease:


def _for_ever(_sound: Any, hits: Hits) -> Any:
    @property  # type: ignore[misc]
    def left(self: Renewer) -> float:
        hits.hit()
        return self._lease

    return left


def _lease_begins_late(sound: Any, hits: Hits) -> Any:
    def _answered_at(self: Renewer, sent: float) -> None:
        hits.hit()
        sound(self, sent + self._lease / 2)

    return _answered_at


def _nothing(_sound: Any, hits: Hits) -> Any:
    def nothing(*_: Any) -> None:
        hits.hit()

    return nothing


def _begun_unwitnessed(_sound: Any, hits: Hits) -> Any:
    def check(self: Sessions) -> bool:
        hits.hit(not self._session.is_witnessed)
        return True

    return property(check)


def _replaced_goes_on(sound: Any, hits: Hits) -> Any:
    def check(self: Session, state: bytes) -> None:
        try:
            sound(self, state)
        except SessionReplaced:
            hits.hit()

    return check


def _reaps_at_once(_sound: Any, hits: Hits) -> Any:
    def _grace_left(_: Reaper) -> float:
        hits.hit()
        return 0.0

    return _grace_left


def _any_server(sound: Any, hits: Hits) -> Any:
    async def run_all(self: StoreClient, calls: Any, epoch: Any = None) -> list[Any]:
        hits.hit(epoch is not None)
        found: list[Any] = await sound(self, calls)
        return found

    return run_all


# Claims and settles:


def _told_too_soon(sound: Any, hits: Hits) -> Any:
    async def handle(self: PythonRunner, task: Any) -> Any:
        hits.hit()
        self.late = asyncio.ensure_future(sound(self, task))  # type: ignore[attr-defined]
        await asyncio.sleep(0.001)
        return Done()

    return handle


def _batch_is_done(sound: Any, hits: Hits) -> Any:
    async def handle_all(self: PythonBatchRunner, tasks: Any) -> Any:
        await sound(self, tasks)
        hits.hit()
        return [Done()] * len(tasks)

    return handle_all


def _settles_once(sound: Any, hits: Hits) -> Any:
    def turn_back(self: Slots, exchange: Exchange) -> None:
        for slot in exchange.settling:
            hits.hit()
            slot.finished = None
        sound(self, exchange)

    return turn_back


def _unsure_is_free(sound: Any, hits: Hits) -> Any:
    def turn_back(self: Slots, exchange: Exchange) -> None:
        sound(self, exchange)
        for slot in self.unsure:
            hits.hit()
            slot.is_unsure = False
        self.unsure.clear()

    return turn_back


def _answer_lost(sound: Any, hits: Hits) -> Any:
    async def exchange(self: Claims, *args: Any, **options: Any) -> Any:
        found = await sound(self, *args, **options)
        hits.hit()
        if found.claims and hits.number % 7 == 0:
            del found.claims[-1]
        return found

    return exchange


def _claim_doubled(sound: Any, hits: Hits) -> Any:
    async def _work(self: LocalWorker, slot: Any) -> Any:
        hits.hit()
        if hits.number % 9 == 0:
            await sound(self, slot)
        return await sound(self, slot)

    return _work


def _told_as_done(sound: Any, hits: Hits) -> Any:
    async def exchange(self: Claims, settlements: Any, slots: Any, **options: Any) -> Any:
        hits.hit(len(settlements) > 1)
        return await sound(self, settlements[:1], slots, **options)

    return exchange


def _run_out_of_order(sound: Any, hits: Hits) -> Any:
    def next_(self: GroupRun, done: Any) -> Any:
        found = sound(self, done)
        hits.hit()
        self._done.reverse()
        return found

    return next_


def _run_skips(sound: Any, hits: Hits) -> Any:
    def next_(self: GroupRun, done: Any) -> Any:
        found = sound(self, done)
        if self.rest:
            hits.hit()
            found = sound(self, found)
        return found

    return next_


def _hand_back_is_done(sound: Any, hits: Hits) -> Any:
    async def _handle(self: LocalWorker, *args: Any) -> Any:
        found = await sound(self, *args)
        if found is None:
            hits.hit()
            return Done()
        return found

    return _handle


def _left_behind(sound: Any, hits: Hits) -> Any:
    async def leave(_: Sessions) -> Any:
        hits.hit()
        return []

    return leave


def _renewed_by_failure(sound: Any, hits: Hits) -> Any:
    async def renew(self: Sessions) -> Any:
        try:
            return await sound(self)
        except StoreUnavailable:
            hits.hit()
            from groupflow.store.sessions import Claimable

            return Claimable(0, 0)

    return renew


OF_PRODUCT: tuple[Damage, ...] = (
    Replaced(
        "lease-for-ever", "a daemon believes that its lease never ends", Renewer, "left", _for_ever
    ),
    Replaced(
        "lease-late",
        "a daemon counts its lease from half a lease late",
        Renewer,
        "_answered_at",
        _lease_begins_late,
    ),
    Replaced(
        "end-unheard",
        "handlers go on beyond the end of the lease",
        Holding,
        "lease_ended",
        _nothing,
    ),
    Replaced(
        "loss-unheard",
        "handlers go on beyond the loss of the session",
        Holding,
        "session_lost",
        _nothing,
    ),
    Replaced(
        "failure-renews",
        "a renewal without an answer extends the lease",
        Sessions,
        "renew",
        _renewed_by_failure,
    ),
    Replaced(
        "unwitnessed",
        "claims are made that no other daemon would miss",
        Sessions,
        "is_witnessed",
        _begun_unwitnessed,
    ),
    Replaced(
        "replaced-goes-on",
        "a daemon whose name was taken goes on",
        Session,
        "check",
        _replaced_goes_on,
    ),
    Replaced(
        "no-grace",
        "who was without Redis reaps at once",
        Reaper,
        "_grace_left",
        _reaps_at_once,
        unseen="all have stopped their handlers by then: what is taken begins anew either way",
    ),
    Replaced(
        "any-server",
        "claims are made at whichever server leads",
        StoreClient,
        "run_all",
        _any_server,
    ),
    Replaced(
        "told-too-soon",
        "a task is settled before its handler has ended",
        PythonRunner,
        "handle",
        _told_too_soon,
    ),
    Replaced(
        "batch-is-done",
        "a batch is done, whatever its handler says",
        PythonBatchRunner,
        "handle_all",
        _batch_is_done,
    ),
    Replaced(
        "settled-once", "a settle without an answer is forgotten", Slots, "turn_back", _settles_once
    ),
    Replaced(
        "unsure-is-free",
        "a claim without an answer is forgotten",
        Slots,
        "turn_back",
        _unsure_is_free,
    ),
    Replaced(
        "claim-dropped", "a claim that was given is forgotten", Claims, "exchange", _answer_lost
    ),
    Replaced(
        "run-twice",
        "a task's handler runs twice under one claim",
        LocalWorker,
        "_work",
        _claim_doubled,
    ),
    Replaced(
        "settled-partly",
        "of what is settled together, only the first is",
        Claims,
        "exchange",
        _told_as_done,
    ),
    Replaced(
        "run-reversed",
        "what a run has done is told in reverse order",
        GroupRun,
        "next",
        _run_out_of_order,
    ),
    Replaced("run-skips", "a run skips a task", GroupRun, "next", _run_skips),
    Replaced(
        "cut-is-done",
        "an attempt that was cut off counts as done",
        LocalWorker,
        "_handle",
        _hand_back_is_done,
    ),
    Replaced("never-leaves", "who stops doesn't leave", Sessions, "leave", _left_behind),
    Replaced(
        "undoubted",
        "behind a fail-over, nobody asks for what was settled last",
        Slots,
        "doubt",
        _nothing,
        unseen="each slot is asked in its turn: it takes a system in which nothing comes any more",
    ),
    Replaced("turned-away", "an exchange's answer wakes nobody", Exchanger, "_deliver", _nothing),
)
