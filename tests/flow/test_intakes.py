"""A daemon's intakes on a real RabbitMQ: side by side; none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, TypeAlias, cast
from uuid import uuid4

import orjson
import pytest
from structlog.testing import capture_logs

from groupflow.broker import partitions, topology
from groupflow.broker.connection import Connection, connect
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import ServerUnreachable
from groupflow.core.measures import IntakeMeasures
from groupflow.flow import intake, intakes
from groupflow.flow.admission import Admission
from groupflow.flow.entrance import Batch, Entrance
from groupflow.flow.intakes import Intakes
from groupflow.servers import RabbitmqServer
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.enqueue import Arrival, Enqueued
from tests.broker.wires import waiting_in
from tests.deadlines import deadline, until
from tests.turns import turns

GROUPS = 24
RULES = (GroupRule(key="{g}"),)


class Store(Entrance):
    """Takes every message, but not while a group is held."""

    def __init__(self) -> None:
        super().__init__([])
        self.taken: list[tuple[str, int]] = []
        self.held: str | None = None
        self.is_waiting, self.may_go = asyncio.Event(), asyncio.Event()

    def batch(self, arrivals: Sequence[Arrival]) -> Batch:
        bodies = [orjson.loads(arrival.envelope.body) for arrival in arrivals]
        return cast(Batch, SimpleNamespace(write=partial(self._write, bodies)))

    async def _write(self, bodies: Sequence[dict[str, Any]]) -> Enqueued:
        if any(body["g"] == self.held for body in bodies):
            self.is_waiting.set()
            await self.may_go.wait()
        self.taken += [(body["g"], body["n"]) for body in bodies]
        return Enqueued(0, [True] * len(bodies))

    async def look(self) -> None:
        """Nothing is known."""

    async def reason(self, queued: int) -> str:
        return ""

    async def until(self, count: int) -> None:
        await until(lambda: len(self.taken) >= count)


class World:
    def __init__(self, server: RabbitmqServer, count: int) -> None:
        self.url = server.url
        self.queue = f"intakes-{uuid4().hex}"
        self.count = count
        section = {"url": server.url, "queue": self.queue, "partitions": count}
        self.settings = Settings(rabbitmq=RabbitMQ.model_validate(section), groups=RULES)
        self.store = Store()
        self.measures = IntakeMeasures()
        self.router = self.settings.router()
        self.rounds = 0

    async def publish(self, rounds: int, count: int | None = None) -> None:
        """Messages of each group, to so many partitions."""
        first, many = self.rounds, self.count if count is None else count
        self.rounds += rounds
        numbers = product(range(first, self.rounds), range(GROUPS))
        sent = [Outgoing(orjson.dumps({"g": f"g{group}", "n": n}), "t") for n, group in numbers]
        where = publishing(self.url, self.queue, partitions=many, router=self.router)
        async with where as publisher:
            await publisher.publish_all(sent)

    def is_in_order(self) -> bool:
        """Whether each group's messages were written once, in order."""
        return all(
            [n for g, n in self.store.taken if g == f"g{group}"] == list(range(self.rounds))
            for group in range(GROUPS)
        )

    def intakes(self, daemons: int = 1) -> Intakes:
        async def count_daemons(_: str) -> int:
            return daemons

        admission = Admission(self.router, max_body=10**6, step_aside=frozenset())
        quiet: dict[str, Any] = dict.fromkeys(("on_pause", "retell"), lambda: None)
        how: dict[str, Any] = {"measures": self.measures, "tracing": None}
        how |= quiet | {"count_daemons": count_daemons}
        return Intakes(self.settings, "test", admission, self.store, **how)

    @asynccontextmanager
    async def running(self, daemons: int = 1) -> AsyncIterator[Intakes]:
        intakes = self.intakes(daemons)
        task = asyncio.create_task(intakes.run())
        try:
            await until(lambda: intakes.consumes)
            yield intakes
        finally:
            intakes.stop()
            await asyncio.wait_for(task, deadline())

    async def connect(self) -> Connection:
        return await connect(self.url, heartbeat=10, timeout=deadline(), name="t")


Make: TypeAlias = Callable[[int], World]


@pytest.fixture
def make(rabbitmq_server: RabbitmqServer) -> Make:
    """So many partitions of a queue."""
    return partial(World, rabbitmq_server)


async def test_all_queues_are_taken_in_each_in_order(make: Make) -> None:
    world = make(4)
    async with world.running() as intakes:
        await world.publish(10)
        await world.store.until(10 * GROUPS)
        assert intakes.active_queues == 4
        assert intakes.check().verdict == "ok"
        assert intakes.told() == {"queues": {"of": world.queue, "consumed": 4, "active": 4}}
    assert world.is_in_order()
    names = partitions.names_of(world.queue, 4)
    assert [await waiting_in(world.url, name) for name in names] == [0] * 4
    assert world.measures.messages == 10 * GROUPS


async def test_a_stop_while_a_queue_has_no_leader(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing begins to consume behind it."""
    intakes = make(1).intakes()

    async def look() -> list[str]:
        intakes.stop()
        raise TimeoutError

    monkeypatch.setattr(intakes, "_look", look)
    assert await intakes._find() == []


async def test_one_that_waits_holds_no_other(make: Make) -> None:
    """What comes by other queues is written meanwhile; what stands behind it, behind it."""
    world = make(4)
    world.store.held = "g0"
    async with world.running():
        await world.publish(3)
        await asyncio.wait_for(world.store.is_waiting.wait(), deadline())
        # A quarter of 72 messages may stand behind it, or some more.
        await world.store.until(GROUPS)
        assert ("g0", 0) not in world.store.taken
        world.store.may_go.set()
        await world.store.until(3 * GROUPS)
    assert world.is_in_order()


@pytest.mark.parametrize(("before", "now"), [(1, 2), (3, 1)])
async def test_what_other_partitions_left_is_taken_in(make: Make, before: int, now: int) -> None:
    """Until its queue is deleted; no daemon declares it again."""
    world = make(now)
    await world.publish(2, count=before)
    left = partitions.names_of(world.queue, before)
    with capture_logs() as logs:
        async with world.running() as intakes:
            await world.publish(2)
            await world.store.until(4 * GROUPS)
            async with await world.connect() as connection:
                for name in left:
                    await topology.delete(connection, name)

                def over() -> list[str]:
                    return [each["queue"] for each in logs if each["event"] == "intake.queue_over"]

                await until(lambda: sorted(over()) == sorted(left))
                missing = {await topology.presence_of(connection, name) for name in left}
            assert missing == {topology.Presence.MISSING}
            await world.publish(1)
            await world.store.until(5 * GROUPS)
            assert intakes.check().verdict == "ok"
            assert bool(intakes.told()) == (now > 1)
            # It consumes all that is left; a share is of these.
            assert (intakes.consumes, intakes.active_queues) == (True, now)
    (said,) = [each for each in logs if each["event"] == "intake.other_queues"]
    assert said["queues"] == left


async def test_a_deleted_queue_is_declared_again_whole(make: Make) -> None:
    world = make(3)
    with capture_logs() as logs:
        async with world.running():
            async with await world.connect() as connection:
                await topology.delete(connection, f"{world.queue}.1")
            await until(lambda: sum(each["event"] == "intake.started" for each in logs) == 4)
            await world.publish(2)
            await world.store.until(2 * GROUPS)
    (gone,) = [each for each in logs if each["event"] == "intake.queue_gone"]
    assert gone["queue"] == f"{world.queue}.1"


async def test_a_stop_before_rabbitmq_has_answered(make: Make) -> None:
    intakes = make(2).intakes()
    running = asyncio.create_task(intakes.run())
    await turns()
    intakes.stop()
    await asyncio.wait_for(running, deadline())
    assert not intakes.consumes


async def test_queues_go_to_a_new_daemon(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the batch in hand, which is acked: nothing is written twice, or out of order."""
    world = make(4)
    async with world.running(daemons=2) as first:
        await world.publish(3)
        async with world.running(daemons=2) as second, asyncio.timeout(deadline()):
            monkeypatch.setattr(intakes, "LOOK_EVERY", 0.05)
            while (first.active_queues, second.active_queues) != (2, 2):
                await world.publish(1)
        await world.store.until(world.rounds * GROUPS)
    assert world.is_in_order()
    assert world.measures.handed_over >= 2


async def test_a_queue_without_a_leader(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ never answers for it."""
    told = make(1).intakes()
    monkeypatch.setattr(intake, "SET_UP", 0.0)
    running = asyncio.create_task(told.run())
    await until(lambda: "does the queue have a leader?" in told.check().found)
    monkeypatch.undo()
    await until(lambda: told.consumes)
    told.stop()
    await running


async def test_later_refusals_are_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may be changing them."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise ServerUnreachable("RabbitMQ", "host", "it refused the credentials")

    world = make(1)
    async with world.running() as told:
        monkeypatch.setattr(intake, "connect", refuse)
        async with await world.connect() as connection:
            await topology.delete(connection, world.queue)
        await until(lambda: "credentials" in told.check().found)
        assert told.check().verdict == "fail"
        monkeypatch.undo()
        await until(lambda: told.consumes)
