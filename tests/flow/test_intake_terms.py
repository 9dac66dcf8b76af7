"""Intake between servers that do as told: what ends a batch, a pause and a term; what is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.broker import topology
from groupflow.broker.consumer import Consumer, Delivery
from groupflow.broker.topology import Presence
from groupflow.core.errors import (
    BrokerUnavailable,
    ServerUnreachable,
    StoreFull,
    StoreUnavailable,
    TooFewReplicas,
)
from groupflow.core.measures import IntakeMeasures, Pause
from groupflow.flow import intake as module
from groupflow.flow.admission import Admission
from groupflow.flow.entrance import Batch, Entrance
from groupflow.flow.intake import BATCH_BYTES, PAUSE_LOOK, Intake, IntakeQueue
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.store.enqueue import Arrival, Enqueued
from tests.deadlines import deadline

REFUSED = ServerUnreachable("RabbitMQ", "host", "it refused the credentials")


def delivery(tag: int) -> Delivery:
    return Delivery(tag, b'{"type": "t"}', f"m{tag}", "t", {}, None)


class Queue(Consumer):
    """A consumer with these batches, whose connection ends behind the last one."""

    def __init__(self, steps: list[str], *batches: list[Delivery]) -> None:
        super().__init__("jobs", 10**9)
        self.steps, self.batches = steps, list(batches)

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        self.steps.append(f"take {most}")
        assert most_bytes == BATCH_BYTES
        if not self.batches:
            self._end("over")
            raise BrokerUnavailable("the connection has ended")
        return self.batches.pop(0)

    async def ack_through(self, delivery: Delivery) -> None:
        self.steps.append(f"ack {delivery.tag}")


class World(Entrance):
    """The entrance to the store, RabbitMQ and the clock, and an intake between them.

    Attributes:
        steps: what happened.
        errors: of the next writes.
        reasons: why intake has to wait, at each look.
        terms: what each connecting gives: an error, or the batches of a term.
        on: done at a step of that name.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__([])
        self.kind: Pause = "waiting"
        self.steps: list[str] = []
        self.errors: list[Exception] = []
        self.reasons: list[str] = []
        self.terms: list[Exception | list[list[Delivery]]] = []
        self.presence = Presence.MISSING
        self.on: dict[str, Callable[[], None]] = {}
        self.queue = Queue(self.steps)
        self.measures = IntakeMeasures()
        self.intake = self.intake_of(None)
        for where, name in ((module, "connect"), (module, "consuming"), (topology, "declare")):
            monkeypatch.setattr(where, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(topology, "presence_of", self._presence_of)
        monkeypatch.setattr(module, "Backoff", lambda: self)
        monkeypatch.setattr(module, "Consumer", lambda *_: self.queue)

    def intake_of(self, source: IntakeQueue | None) -> Intake:
        settings = Settings(rabbitmq=RabbitMQ(queue="jobs", prefetch=100))
        admission = Admission(Settings().router(), max_body=10**8, step_aside=frozenset())
        return Intake(settings, "d1", admission, self, source=source, measures=self.measures)

    def step(self, name: str) -> None:
        self.steps.append(name)
        self.on.get(name, lambda: None)()

    # The entrance:

    def batch(self, arrivals: Sequence[Arrival]) -> Batch:
        async def write() -> Enqueued:
            if self.errors:
                raise self.errors.pop(0)
            self.step(f"enqueue {len(arrivals)}")
            return Enqueued(7, [True] * len(arrivals))

        made = Batch.__new__(Batch)
        made.write = write  # type: ignore[method-assign]
        return made

    async def look(self) -> None:
        self.step("look")

    async def reason(self, queued: int) -> str:
        assert queued == 7
        return self.reasons.pop(0) if self.reasons else ""

    # The backoff:

    def next(self) -> float:
        self.step("pause")
        return 0.0

    def reset(self) -> None:
        self.step("reset")

    # RabbitMQ:

    async def _connect(self, *_: Any, **__: Any) -> Any:
        self.step("connect")
        term = self.terms.pop(0)
        if isinstance(term, Exception):
            raise term
        self.queue = Queue(self.steps, *term)
        return self

    async def close(self) -> None:
        self.step("close")

    @asynccontextmanager
    async def _consuming(self, _: Any, __: Consumer, prefetch: int) -> AsyncIterator[None]:
        self.step(f"consume {prefetch}")
        yield

    async def _presence_of(self, *_: Any) -> Presence:
        return self.presence

    async def _declare(self, *_: Any) -> None:
        self.step("declare")

    async def run(self) -> list[str]:
        """Run until there is no term left; the events that are logged."""
        last = len(self.terms) + self.steps.count("connect") + 1
        self.terms.append(BrokerUnavailable("no more"))
        was = self.on.get("pause", lambda: None)

        def stops_behind_the_last() -> None:
            was()
            if self.steps.count("connect") == last:
                self.intake.stop()

        self.on["pause"] = stops_behind_the_last
        with capture_logs() as logs:
            async with asyncio.timeout(deadline()):
                await self.intake.run()
        return [each["event"] for each in logs]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


ERRORS = [StoreUnavailable("away"), StoreFull("full"), TooFewReplicas("one"), StoreFull("full")]


async def test_a_batch_is_written_however_long_that_takes(world: World) -> None:
    """Why it isn't, is said meanwhile; nothing is acked before."""
    told: list[str] = []
    world.on["pause"] = lambda: told.append(world.measures.paused)
    world.errors = [*ERRORS]
    with capture_logs() as logs:
        await world.intake.run_once(Queue(world.steps, [delivery(1)]))
    assert told == ["store_unavailable", "store_full", "too_few_replicas", "store_full"]
    assert world.measures.paused == ""
    assert world.steps == ["take 25", *["pause"] * 4, "enqueue 1", "ack 1"]
    assert (world.measures.messages, world.measures.enqueued) == (1, 1)
    said = [each["reason"] for each in logs if each["log_level"] == "error"]
    assert said == ["Redis is out of memory"]  # once a minute at most


@pytest.mark.parametrize("error", ERRORS[:3])
async def test_a_batch_whose_deliveries_are_gone_is_given_up(
    world: World, error: Exception
) -> None:
    """They come again; to write it late would be for nothing."""
    consumer = Queue(world.steps, [delivery(1)])
    world.on["pause"] = consumer.finish
    world.errors = [error] * 3
    with pytest.raises(BrokerUnavailable):
        await world.intake.run_once(consumer)
    assert (world.steps[1:], len(world.errors)) == (["pause"], 1)


@pytest.mark.parametrize("goes", [False, True])
async def test_it_pauses_until_the_reason_is_over_or_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """The batch is acked first; each look asks the store how many wait."""
    consumer, sleeps = Queue(world.steps, [delivery(1)]), list[float]()

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        assert world.measures.paused == "waiting"
        if goes:
            consumer.finish()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    world.reasons = ["many", "many", ""]
    with capture_logs() as logs:
        await world.intake.run_once(consumer)
    assert sleeps == [PAUSE_LOOK] * (1 if goes else 2)
    assert world.steps[1:] == ["enqueue 1", "ack 1", *([] if goes else ["enqueue 0"] * 2)]
    assert world.measures.paused == ("waiting" if goes else "")
    said = [each["event"] for each in logs if each["event"].startswith("intake.")]
    assert said == ["intake.paused", *([] if goes else ["intake.resumed"])]


async def test_a_term_ends_and_the_next_one_begins(world: World) -> None:
    """A queue that was never there is declared; one that is gone is, with a word of it.

    It is ready as long as it consumes.
    """
    verdicts: list[Any] = []

    def look() -> None:
        verdicts.append((world.intake.check().verdict, world.intake.consumes))

    world.on["enqueue 1"] = world.on["pause"] = look
    world.terms = [[[delivery(1)]], [[delivery(2)]]]
    look()
    events = await world.run()
    term = ["connect", "declare", "consume 100", "look", "reset", "take 25", "enqueue 1"]
    assert world.steps == [
        *(*term, "ack 1", "take 25", "close", "pause"),
        *(*term, "ack 2", "take 25", "close", "pause"),
        *("connect", "pause"),
    ]
    assert verdicts == [("fail", False), *[("ok", True), ("fail", False)] * 2, ("fail", False)]
    assert events.count("intake.queue_gone") == 1
    assert events.index("intake.queue_gone") > events.index("intake.interrupted")
    assert events[-1] == "intake.stopped"
    assert world.measures.terms == 2


async def test_why_there_is_no_connection_is_told(world: World) -> None:
    """Wrong credentials end it from the start on; later an operator may be changing them."""
    world.terms = [BrokerUnavailable("it is away"), REFUSED]
    with pytest.raises(ServerUnreachable):
        await world.run()
    assert world.steps == ["connect", "pause", "connect"]
    told: list[str] = []
    world.on["pause"] = lambda: told.append(world.intake.check().found)
    world.steps.clear()
    world.terms = [[], REFUSED, BrokerUnavailable("it is away")]
    await world.run()
    assert "credentials" in told[1]
    assert "it is away" in told[2]


@pytest.mark.parametrize(
    ("presence", "declares", "ensures", "steps"),
    [
        (Presence.MISSING, True, False, ["declare"]),
        (Presence.THERE, True, False, []),
        # What leads to a partition may be gone while its queue is there.
        (Presence.THERE, True, True, ["ensure"]),
        (Presence.MISSING, True, True, ["declare"]),
        # A queue that another number of partitions has left is over when it is gone.
        (Presence.THERE, False, False, []),
        (Presence.MISSING, False, False, None),
    ],
)
async def test_what_is_declared(
    world: World, presence: Presence, declares: bool, ensures: bool, steps: list[str] | None
) -> None:
    async def ensure(_: Any) -> None:
        world.step("ensure")

    source = IntakeQueue(
        "jobs",
        declare=cast(Any, topology.declare) if declares else None,
        ensure=ensure if ensures else None,
    )
    world.intake, world.presence, world.terms = world.intake_of(source), presence, [[]]
    world.intake.state.set("", queue="others")
    events = await world.run()
    if steps is None:
        assert world.steps == ["connect", "close"]
        assert events == ["intake.queue_over", "intake.stopped"]
    else:
        assert world.steps[: len(steps) + 2] == ["connect", *steps, "consume 100"]


@pytest.mark.parametrize(("at", "acked"), [("enqueue 1", 1), ("look", 0)])
async def test_a_stop_ends_it_behind_the_batch_in_hand(world: World, at: str, acked: int) -> None:
    world.terms = [[[delivery(1)]]]

    def stop() -> None:
        world.intake.stop()
        world.queue.batches.clear()

    world.on[at] = stop
    await world.intake.run()
    assert world.steps.count("ack 1") == world.measures.terms == acked
    assert "close" in world.steps[-2:]
    assert world.steps.count("connect") == 1


async def test_a_queue_without_a_leader_is_a_connection_in_vain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def says_nothing(*_: Any) -> Presence:
        return await asyncio.Future()

    monkeypatch.setattr(module, "SET_UP", 0.01)
    monkeypatch.setattr(topology, "presence_of", says_nothing)
    told: list[str] = []
    world.on["pause"] = lambda: told.append(world.intake.check().found)
    world.terms = [[]]
    await world.run()
    assert "does the queue have a leader?" in told[0]
    assert "close" in world.steps


async def test_a_queue_is_handed_over_behind_the_batch_in_hand(world: World) -> None:
    """Acked, its connection closed, and in line again without a pause; if it is held at all."""
    world.intake.hand_over()
    world.terms = [[[delivery(1)]], []]

    def hands_over() -> None:
        assert not world.intake.is_active  # nothing was delivered
        world.intake.hand_over()
        world.queue.batches.clear()  # what was delivered beyond goes back to its place

    world.on["enqueue 1"] = hands_over
    events = await world.run()
    assert world.steps[5:10] == ["take 25", "enqueue 1", "ack 1", "take 25", "close"]
    assert world.steps[10] == "connect"
    assert events.count("intake.handed_over") == world.measures.handed_over == 1
