"""What is around one exchanger: a store that answers as told, and a dispatcher without workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from typing import Any

from groupflow.core.task import Task
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.slots import Slot
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Settlement


class Store(Claims):
    """Answers as the test says: by default each slot gets a claim, as long as there are some."""

    def __init__(self) -> None:
        self.pool = "plain"
        self.left = 10**6
        self.calls: list[tuple[list[str], list[str]]] = []
        self.errors: dict[int, Exception] = {}
        self.refuse: set[str] = set()
        self.crashes = 0
        self.beside_quarantined = False
        self.heard = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @property
    def extended(self) -> float:
        return self.heard

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        self.calls.append(([each.claim.slot for each in settlements], list(slots)))
        number = len(self.calls)
        self.called.set()
        await self.may_answer.wait()
        self.meanwhile()
        if number in self.errors:
            raise self.errors[number]
        given = list(slots)[: self.left]
        self.left -= len(given)
        return ExchangeReply(
            [each for each in settlements if each.claim.slot in self.refuse],
            [self.claim(slot) for slot in given],
            self.beside_quarantined,
        )

    def claim(self, slot: str) -> Claim:
        task = Task(f"of {slot}", "t", crashes=self.crashes)
        return Claim(slot, 1, b"", task, None)


class Lobby(Dispatcher):
    """With as many workers as the test says, none of which takes anything by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.delivered: list[Slot] = []
        self.short: list[bool] = []

    @property
    def workers(self) -> int:
        return self.count

    def deliver(self, slots: Sequence[Slot]) -> None:
        self.delivered += slots

    def answered(self, *, is_short: bool) -> None:
        self.short.append(is_short)

    def withdraw(self, of: Any, groups: Set[str] | None = None) -> list[Slot]:
        found, self.delivered = self.delivered, []
        return found


class World:
    def __init__(self) -> None:
        self.dispatcher, self.store, self.lease = Lobby(), Store(), True
        self.exchanger = Exchanger(self.dispatcher, self.store, lambda: self.lease)
        self.prefetch = self.exchanger.prefetch
        self.running: asyncio.Task[None] | None = None

    async def run_once(self, workers: int | None = None) -> list[Slot]:
        """An exchange; the slots that it delivered."""
        self.dispatcher.count = self.dispatcher.count if workers is None else workers
        before = len(self.dispatcher.delivered)
        self.exchanger._stir.clear()
        await self.exchanger.run_once()
        return self.dispatcher.delivered[before:]

    def end(self, *slots: Slot) -> None:
        for slot in slots:
            self.exchanger.end(slot, Complete(slot.held))

    @property
    def is_stirred(self) -> bool:
        return self.exchanger._stir.is_set()

    async def start(self) -> None:
        self.running = asyncio.create_task(self.exchanger.run())
        await self.settle_down()

    async def settle_down(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)


def names(slots: Sequence[Slot]) -> list[str]:
    return [slot.name for slot in slots]
