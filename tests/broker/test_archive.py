"""The stream of dead letters' bodies, on a real RabbitMQ: what goes there comes back as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import aiormq
import pytest
from aio_pika.abc import AbstractConnection

from groupflow.broker import dead_stream, topology
from groupflow.broker.archive import PART, Archive
from groupflow.broker.connection import open_channel
from groupflow.broker.consumer import Consumer
from groupflow.core.checkup import Check
from groupflow.core.errors import ArchiveRefused, BodyMissing, BrokerUnavailable
from groupflow.core.task import Place
from groupflow.servers.server import free_ports
from tests.broker.wires import first_of, forget, make_queue
from tests.deadlines import deadline

DAY = 86400.0


class World:
    """A queue's stream of dead letters, and archives of daemons on it."""

    def __init__(self, url: str, connection: AbstractConnection) -> None:
        self.url, self.connection, self.queue = url, connection, f"archive-{uuid4().hex}"
        self.stream = dead_stream.name_of(self.queue)

    def archive(self, **otherwise: Any) -> Archive:
        usual: Any = {"retention": 30 * DAY, "name": "test", "timeout": deadline()}
        return Archive(**{"url": self.url, "queue": self.queue, **usual, **otherwise})

    async def examine(self, days: float = 30, version: str = "3.12.1", **how: Any) -> Check:
        """What doctor says of it."""
        return await dead_stream.examine(self.connection, self.queue, version, days * DAY, **how)


@pytest.fixture
async def world(rabbitmq_server: Any, connection: AbstractConnection) -> AsyncIterator[World]:
    world = World(rabbitmq_server.url, connection)
    yield world
    await forget(world.url, world.queue)


async def test_bodies_come_back_as_they_were(world: World) -> None:
    archive = world.archive()
    bodies = [b"", b"\x00\xff\n" * 1000, b"[]\nx" * 1_000_000, b"same", b"same"]
    places = await archive.write(bodies)
    places += await archive.write([b"later"])
    assert len({place.offset for place in places}) == 6
    for place, body in reversed(list(zip(places, [*bodies, b"later"], strict=True))):
        assert await archive.read(place) == body


async def test_a_body_larger_than_rabbitmq_takes_lies_in_parts(world: World) -> None:
    """Others' may lie between them. What is kept of a message is larger than the message was."""
    archives = [world.archive() for _ in range(2)]
    bodies = [bytes([n]) * (16 * PART + n) for n in range(2)]
    written = await asyncio.gather(
        *(archive.write([b"small", own]) for archive, own in zip(archives, bodies, strict=True))
    )
    for places, body in zip(written, bodies, strict=True):
        assert await archives[0].read(places[0]) == b"small"
        assert await archives[1].read(places[1]) == body
    consumer = Consumer(world.stream, 10**9)
    channel = await open_channel(world.connection, confirms=False)
    await channel.basic_qos(prefetch_count=100)
    first: Any = {"x-stream-offset": "first"}
    await channel.basic_consume(world.stream, consumer._on_delivery, arguments=first)
    assert max(len(each.body) for each in await first_of(consumer, 2 * 1 + 16 + 17)) == PART


async def test_what_is_not_there_is_said_to_be_missing(world: World) -> None:
    archive = world.archive(timeout=deadline(1.0))
    (place,) = await archive.write([b"x"])
    with pytest.raises(BodyMissing, match="retention"):
        await archive.read(Place(place.offset, "another"))
    with pytest.raises(BodyMissing, match="deleted"):
        await archive.read(Place(place.offset + 5, place.message_id))


@pytest.mark.parametrize("is_silent", [False, True])
async def test_no_word_is_not_waited_for(world: World, monkeypatch: Any, is_silent: bool) -> None:
    """Of a server that isn't there, or of a queue that has no leader."""

    async def says_nothing(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    (port,) = free_ports(1)
    url = world.url if is_silent else f"amqp://guest:guest@127.0.0.1:{port}/"
    words = f"nothing of '{world.stream}': no answer in time" if is_silent else str(port)
    monkeypatch.setattr(dead_stream, "declare", says_nothing)
    archive = world.archive(url=url, timeout=1.0)
    with pytest.raises(BrokerUnavailable, match=words):
        await asyncio.wait_for(archive.write([b"body"]), deadline())


async def test_a_slow_rabbitmq_has_its_time_for_each_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a letter with a large body is taken again and again, and never moved."""
    seconds, publish = deadline(1.0), aiormq.Channel.basic_publish

    async def slowly(*arguments: Any, **how: Any) -> Any:
        await asyncio.sleep(seconds / 3)
        return await publish(*arguments, **how)

    monkeypatch.setattr(aiormq.Channel, "basic_publish", slowly)
    archive, body = world.archive(timeout=seconds), b"x" * (4 * PART)
    (place,) = await archive.write([body])
    assert await archive.read(place) == body


STREAM: dict[str, Any] = {"x_queue_type": "stream"}


UNFIT: list[Any] = [
    ({}, "is no stream of ours"),
    ({**STREAM, "x_max_age": "7D"}, "7D"),
    ({**STREAM, "x_max_age": "37D", "x_max_length_bytes": 100}, "max-length"),
]


@pytest.mark.parametrize(("otherwise", "found"), UNFIT)
async def test_what_keeps_no_bodies_is_refused(world: World, otherwise: Any, found: str) -> None:
    """A queue in its place, or a stream in which a body is gone before its letter."""
    await make_queue(world.url, world.stream, **otherwise)
    with pytest.raises(ArchiveRefused, match=found):
        await world.archive().write([b"x"])
    check = await world.examine()
    assert (check.name, check.verdict) == (dead_stream.CHECK, "warn")
    assert found in check.found


async def test_a_queue_may_have_too_long_a_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exchange has a longer one, which AMQP's client refuses: that is no outage."""
    monkeypatch.setattr(world, "queue", "q" * 123)
    with pytest.raises(ArchiveRefused, match="up to 127 characters"):
        await world.archive().write([b"x"])
    check = await world.examine()
    assert (check.verdict, check.remedy) == ("warn", "Shorten rabbitmq.queue.")


async def test_a_stream_that_keeps_for_long_enough_is_taken(world: World) -> None:
    """With other arguments beside it; or where a policy is said to keep bodies for so long."""
    arguments: Any = {"x_max_age": "31D", "x_stream_max_segment_size_bytes": 1_000_000}
    await make_queue(world.url, world.stream, **STREAM, **arguments)
    archive = world.archive()
    (place,) = await archive.write([b"x"])
    assert await archive.read(place) == b"x"
    assert (await world.examine()).verdict == "ok"
    check = await world.examine(90)
    assert check.verdict == "warn"
    assert "dead_policy" in check.remedy
    check = await world.examine(90, trusts_policy=True)
    assert check.verdict == "ok"
    trusting = world.archive(retention=90 * DAY, trusts_policy=True)
    assert await archive.read((await trusting.write([b"y"]))[0]) == b"y"


async def test_doctor_declares_nothing(world: World) -> None:
    assert (await world.examine(1)).verdict == "ok"
    presence = await topology.presence_of(world.connection, world.stream)
    assert presence is topology.Presence.MISSING
    assert "no streams" in (await world.examine(1, "3.8.9")).found
    await world.archive().write([b"x"])
    check = await world.examine()
    assert (check.verdict, check.remedy) == ("ok", "")


@pytest.mark.parametrize(
    ("text", "seconds"), [("7D", 7 * DAY), ("90s", 90.0), ("1Y", 365 * DAY), ("soon", 0.0)]
)
def test_ages(text: str, seconds: float) -> None:
    assert dead_stream.age_of(text) == seconds
