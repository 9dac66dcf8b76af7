"""Intake without servers: what it acks and when, what ends a term, what begins the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.broker import topology
from groupflow.broker.topology import Presence
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable, StoreFull, StoreUnavailable
from groupflow.flow import intake as module
from groupflow.flow.intake import BATCH, BATCH_BYTES, PAUSE_LOOK, TURN_BYTES, IntakeQueue
from groupflow.settings.model import RabbitMQ
from groupflow.store.enqueue import Arrival, Enqueued
from tests.deadlines import deadline
from tests.flow.terms import Queue, World, delivery


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_a_batch_is_acked_behind_its_writing(world: World) -> None:
    """As a whole, and workers are called before."""
    consumer = Queue(world.steps, [delivery(1), delivery(2)])
    await world.intake.run_once(consumer)
    assert world.steps == ["wake ['grouped']", "enqueue 2", "ack 2"]
    assert [each.id for each in world.batches[0]] == ["m1", "m2"]
    assert consumer.asked == [(25, BATCH_BYTES)]  # a quarter of the prefetch
    assert (world.measures.messages, world.measures.enqueued) == (2, 2)


@pytest.mark.parametrize(("prefetch", "most"), [(1, 1), (3, 1), (400, 100), (10**5, BATCH)])
async def test_a_batch_is_a_part_of_what_is_under_way(
    world: World, prefetch: int, most: int
) -> None:
    world.intake._prefetch = prefetch
    consumer = Queue(world.steps, [delivery(1)])
    await world.intake.run_once(consumer)
    assert consumer.asked == [(most, BATCH_BYTES)]


async def test_a_batch_is_written_however_long_that_takes(world: World) -> None:
    """Why it isn't, is said meanwhile; nothing is acked before."""
    told: list[str] = []
    world.on_pause = lambda: told.append(world.measures.paused)
    world.store_errors = [StoreUnavailable("away"), StoreFull("full"), StoreUnavailable("away")]
    await world.intake.run_once(Queue(world.steps, [delivery(1)]))
    assert told == ["store_unavailable", "store_full", "store_unavailable"]
    assert world.measures.paused == ""
    wake = "wake ['grouped']"
    assert world.steps == [wake, "pause", wake, "pause", wake, "pause", wake, "enqueue 1", "ack 1"]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreFull("full")])
async def test_a_batch_whose_deliveries_are_gone_is_given_up(
    world: World, error: Exception
) -> None:
    """They come again; to write it late would be for nothing."""
    consumer = Queue(world.steps, [delivery(1)])
    world.on_pause = consumer.finish
    world.store_errors = [error, error, error]
    with pytest.raises(BrokerUnavailable):
        await world.intake.run_once(consumer)
    assert world.batches == []
    assert len(world.store_errors) == 1


async def test_it_pauses_until_the_reason_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is acked first; each look asks the store how many wait."""
    sleeps: list[float] = []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        assert world.measures.paused == "waiting"

    consumer = Queue(world.steps, [delivery(1)])
    world.reasons = ["many", "many", ""]
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with capture_logs() as logs:
        await world.intake.run_once(consumer)
    assert sleeps == [PAUSE_LOOK, PAUSE_LOOK]
    assert world.steps[1:] == [
        *("enqueue 1", "ack 1"),
        *("wake []", "enqueue 0", "wake []", "enqueue 0"),
    ]
    assert world.measures.paused == ""
    said = [each["event"] for each in logs if each["event"].startswith("intake.")]
    assert said == ["intake.paused", "intake.resumed"]


async def test_a_pause_ends_with_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Queue(world.steps, [delivery(1)])

    async def sleep(_: float) -> None:
        consumer.finish()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    world.reasons = ["many", "many"]
    await world.intake.run_once(consumer)
    assert world.steps[1:] == ["enqueue 1", "ack 1"]
    assert world.measures.paused == "waiting"


async def test_a_large_batch_lets_the_loop_turn(world: World) -> None:
    """After so many bytes, and no sooner."""
    turns = [0]

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    for sizes, expected in (([TURN_BYTES // 4] * 3, 0), ([TURN_BYTES // 2] * 5, 2)):
        turns[0] = 0
        await world.intake._admit([delivery(n, size) for n, size in enumerate(sizes)])
        assert turns[0] == expected
    counting.cancel()


async def test_a_term_ends_and_the_next_one_begins(world: World) -> None:
    """A queue that was never there is declared; one that is gone is, with a word of it."""
    world.terms = [[[delivery(1)]], [[delivery(2)]]]
    with capture_logs() as logs:
        await world.run_terms()
    term = ["connect", "declare", "consume 100", "look", "reset", "wake ['grouped']", "enqueue 1"]
    assert world.steps == [
        *(*term, "ack 1", "close", "pause"),
        *(*term, "ack 2", "close", "pause"),
        *("connect", "pause"),
    ]
    events = [each["event"] for each in logs]
    assert events.count("intake.queue_gone") == 1
    assert events.index("intake.queue_gone") > events.index("intake.interrupted")
    assert events[-1] == "intake.stopped"
    assert world.measures.terms == 2
    assert world.intake.check().verdict == "fail"


async def test_why_there_is_no_connection_is_told(world: World) -> None:
    told: list[str] = []
    refused = ServerUnreachable("RabbitMQ", "host", "it refused the credentials")
    world.terms = [BrokerUnavailable("it is away"), [], refused]
    await world.run_terms()  # which sets what is done at each pause
    world.steps.clear()
    world.intake._is_stopping = False
    world.terms = [BrokerUnavailable("it is away"), refused, BrokerUnavailable("no more")]

    def looks() -> None:
        told.append(world.intake.check().found)
        if len(told) == 2:
            world.intake.stop()

    world.on_pause = looks
    async with asyncio.timeout(deadline()):
        await world.intake.run()
    assert "it is away" in told[0]
    assert "credentials" in told[1]


async def test_a_queue_that_is_there_is_left_as_it_is(world: World) -> None:
    world.presence = next(each for each in Presence if each is not Presence.MISSING)
    world.terms = [[]]
    await world.run_terms()
    assert "declare" not in world.steps


async def test_credentials_are_wrong_or_have_changed(world: World) -> None:
    """From the start on they are an error; later an operator may be changing them."""
    refused = ServerUnreachable("RabbitMQ", "host", "it refused the credentials")
    world.terms = [BrokerUnavailable("away"), refused]
    with pytest.raises(ServerUnreachable):
        await world.run_terms()
    assert world.steps == ["connect", "pause", "connect"]
    world.steps.clear()
    world.terms = [[], refused, []]
    await world.run_terms()
    assert world.steps.count("connect") == 4
    assert world.intake.check().verdict == "fail"


async def test_it_is_ready_while_it_consumes(world: World) -> None:
    verdicts: list[Any] = []

    def look() -> None:
        intake = world.intake
        verdicts.append((intake.check().verdict, intake.consumes, intake.bytes_in_flight))

    assert not world.intake.consumes
    assert world.intake.bytes_in_flight == 0
    enqueue = world.enqueue

    async def looking(arrivals: Sequence[Arrival], delayed_memory: int = 0) -> Enqueued:
        world.queue._bytes = 11
        look()
        return await enqueue(arrivals, delayed_memory)

    world.enqueue = looking  # type: ignore[method-assign]
    world.terms = [[[delivery(1)]]]
    await world.run_terms()
    look()
    assert verdicts == [("ok", True, 11), ("fail", False, 0)]


async def test_a_stop_ends_it_behind_the_batch_in_hand(world: World) -> None:
    world.terms = [[[delivery(1)], []]]
    enqueue = world.enqueue

    async def stops(arrivals: Sequence[Arrival], delayed_memory: int = 0) -> Enqueued:
        world.intake.stop()
        world.queue._batches.clear()
        return await enqueue(arrivals, delayed_memory)

    world.enqueue = stops  # type: ignore[method-assign]
    async with asyncio.timeout(deadline()):
        await world.intake.run()
    assert world.steps[-2:] == ["ack 1", "close"]
    with pytest.raises(RuntimeError):  # its thread is gone as well
        world.intake._parsing.submit(list)


async def test_a_stop_before_the_first_message_takes_none(world: World) -> None:
    world.terms = [[[delivery(1)]]]
    look = world.look

    async def stops() -> None:
        world.intake.stop()
        await look()

    world.look = stops  # type: ignore[method-assign]
    async with asyncio.timeout(deadline()):
        await world.intake.run()
    assert "enqueue 1" not in world.steps
    assert world.measures.terms == 0


async def test_fewer_at_once_behind_a_term_of_large_ones(world: World) -> None:
    prefetches = []
    for overflowed in (40, 1, 0):
        world.queue.overflowed = overflowed
        prefetches.append(world.intake._next_prefetch(world.queue))
    assert prefetches == [20, 1, 100]
    world.terms = [[], []]

    async def look() -> None:
        world.queue.overflowed = 30

    world.look = look  # type: ignore[method-assign]
    await world.run_terms()
    assert [each for each in world.steps if each.startswith("consume")] == [
        "consume 100",
        "consume 15",
    ]


async def test_a_queue_without_a_leader_is_a_connection_in_vain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def says_nothing(*_: Any) -> Presence:
        await asyncio.Event().wait()
        return cast(Presence, None)

    monkeypatch.setattr(module, "SET_UP", 0.01)
    monkeypatch.setattr(topology, "presence_of", says_nothing)
    world.terms = [[]]
    with capture_logs() as logs:
        await world.run_terms()
    assert "does the queue have a leader?" in logs[0]["error"]
    assert "close" in world.steps


async def test_a_queue_is_handed_over_behind_the_batch_in_hand(world: World) -> None:
    """Acked, its connection closed, and in line again without a pause."""
    world.terms = [[[delivery(1)], [delivery(2)]], []]
    enqueue = world.enqueue

    async def hands_over(arrivals: Sequence[Arrival], delayed_memory: int = 0) -> Enqueued:
        world.enqueue = enqueue  # type: ignore[method-assign]
        world.intake.hand_over()
        world.queue._batches.clear()  # what was delivered beyond goes back to its place
        return await enqueue(arrivals, delayed_memory)

    world.enqueue = hands_over  # type: ignore[method-assign]
    with capture_logs() as logs:
        await world.run_terms()
    wake = "wake ['grouped']"
    assert world.steps[4:10] == ["reset", wake, "enqueue 1", "ack 1", "close", "connect"]
    assert [each["event"] for each in logs].count("intake.handed_over") == 1
    assert world.measures.handed_over == 1


async def test_nothing_is_handed_over_that_is_not_held(world: World) -> None:
    world.intake.hand_over()
    world.terms = [[]]
    with capture_logs() as logs:
        await world.run_terms()
    assert "intake.handed_over" not in [each["event"] for each in logs]
    assert not world.intake.is_active


async def test_an_undeclared_queue_is_over_when_it_is_gone(world: World) -> None:
    """One that another number of partitions has left."""
    world.intake._source = IntakeQueue("jobs.7")
    world.intake.queue = "jobs.7"
    world.intake.state.set("", queue="others")
    world.terms = [[]]
    with capture_logs() as logs:
        async with asyncio.timeout(deadline()):
            await world.intake.run()
    assert world.steps == ["connect", "close"]
    assert [each["event"] for each in logs] == ["intake.queue_over", "intake.stopped"]


async def test_what_leads_to_a_partition_is_declared_each_time(world: World) -> None:
    """The exchanges may be gone while the queue is there."""

    async def ensure(_: Any) -> None:
        world.steps.append("ensure")

    world.presence = Presence.THERE
    world.intake._source = IntakeQueue("jobs", declare=topology.declare, ensure=ensure)  # type: ignore[arg-type]
    world.terms = [[], []]
    await world.run_terms()
    assert world.steps.count("ensure") == 2
    assert "declare" not in world.steps


def test_queues_share_what_may_be_in_flight() -> None:
    section = RabbitMQ(max_in_flight=1000)
    assert IntakeQueue("jobs").held(section) == 1000
    assert IntakeQueue("jobs.0", among=4).held(section) == 250
