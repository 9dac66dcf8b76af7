"""What is around an intake: queues of given batches, and a store, a broker and a clock as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from groupflow.broker import topology
from groupflow.broker.consumer import Consumer, Delivery
from groupflow.broker.topology import Presence
from groupflow.core.errors import BrokerUnavailable
from groupflow.core.measures import IntakeMeasures
from groupflow.flow import intake as module
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import Backpressure
from groupflow.flow.entrance import Entrance, PartitionEntrance
from groupflow.flow.intake import Intake
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from tests.deadlines import deadline


def delivery(tag: int, size: int = 0) -> Delivery:
    body = b'{"type": "t", "g": 1, "x": "' + b"y" * size + b'"}'
    return Delivery(tag, body, f"m{tag}", "t", {}, None)


class Queue(Consumer):
    """A consumer with these batches, whose connection ends behind the last one."""

    def __init__(self, steps: list[str], *batches: list[Delivery]) -> None:
        super().__init__("jobs", 10**9)
        self._steps, self._batches = steps, list(batches)
        self.asked: list[tuple[int, int]] = []

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        self.asked.append((most, most_bytes))
        if not self._batches:
            self._end("over")
            raise BrokerUnavailable("the connection has ended")
        return self._batches.pop(0)

    async def ack_through(self, delivery: Delivery) -> None:
        self._steps.append(f"ack {delivery.tag}")


class World(Enqueuer, Backpressure):
    """The store, its backpressure, RabbitMQ and the clock, and an intake between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.store_errors: list[Exception] = []
        self.reasons: list[str] = []
        self.kind = ""
        self.queued = 7
        self.batches: list[list[Arrival]] = []
        self.measures = IntakeMeasures()
        # What each connecting gives: an error, or the batches of a term.
        self.terms: list[Exception | list[list[Delivery]]] = []
        self.presence = Presence.MISSING
        self.on_pause: Callable[[], None] = lambda: None
        self.queue = Queue(self.steps)
        rules = Settings(groups=(GroupRule(key="{g}"),)).router()
        section = RabbitMQ(queue="jobs", prefetch=100)
        self.intake = Intake(
            Settings(rabbitmq=section),
            "d1",
            Admission(rules, max_body=10**8, step_aside=frozenset()),
            Entrance(
                [
                    PartitionEntrance(
                        self, self, lambda pools: self.steps.append(f"wake {sorted(pools)}")
                    )
                ]
            ),
            measures=self.measures,
        )
        world = self

        class Noted:
            def next(self) -> float:
                world.steps.append("pause")
                world.on_pause()
                return 0.0

            def reset(self) -> None:
                world.steps.append("reset")

        @asynccontextmanager
        async def consuming(_: Any, consumer: Consumer, prefetch: int) -> AsyncIterator[None]:
            world.steps.append(f"consume {prefetch}")
            yield

        async def connect(*_: Any, **__: Any) -> Any:
            world.steps.append("connect")
            term = world.terms.pop(0)
            if isinstance(term, Exception):
                raise term
            world.queue = Queue(world.steps, *term)
            return world

        async def presence_of(*_: Any) -> Presence:
            return world.presence

        async def declare(*_: Any) -> None:
            world.steps.append("declare")

        monkeypatch.setattr(module, "Backoff", Noted)
        monkeypatch.setattr(module, "connect", connect)
        monkeypatch.setattr(module, "consuming", consuming)
        monkeypatch.setattr(topology, "presence_of", presence_of)
        monkeypatch.setattr(topology, "declare", declare)
        monkeypatch.setattr(module, "Consumer", lambda *_: world.queue)

    async def close(self) -> None:
        self.steps.append("close")

    async def enqueue(self, arrivals: Sequence[Arrival], delayed_memory: int = 0) -> Enqueued:
        if self.store_errors:
            raise self.store_errors.pop(0)
        self.steps.append(f"enqueue {len(arrivals)}")
        self.batches.append(list(arrivals))
        return Enqueued(self.queued, [True] * len(arrivals))

    async def reason(self, queued: int, size: int = 0) -> str:
        reason = self.reasons.pop(0) if self.reasons else ""
        self.kind = "waiting" if reason else ""
        return reason

    def wrote(self, size: int) -> None:
        pass

    async def look(self) -> None:
        self.steps.append("look")

    @property
    def delayed_memory(self) -> int:
        return 100

    async def run_terms(self) -> None:
        """Run until there is no term left."""
        self.terms.append(BrokerUnavailable("no more"))
        last = len(self.terms)

        def stops_behind_the_last() -> None:
            if self.steps.count("connect") == last:
                self.intake.stop()

        self.on_pause = stops_behind_the_last
        async with asyncio.timeout(deadline()):
            await self.intake.run()
