"""The stream of dead letters' bodies, on a real RabbitMQ: what goes there comes back as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from aio_pika.abc import AbstractConnection

from groupflow.broker import dead_stream, topology
from groupflow.broker.archive import PART, Archive
from groupflow.broker.connection import open_channel
from groupflow.broker.consumer import Consumer
from groupflow.core.errors import ArchiveRefused, BodyMissing, BrokerUnavailable
from groupflow.core.task import Place
from groupflow.servers.server import free_ports
from tests.broker.wires import first_of, make_queue
from tests.deadlines import deadline

DAY = 86400.0


@pytest.fixture
async def queue(connection: AbstractConnection) -> AsyncIterator[str]:
    """A queue's name; its stream is gone with the test."""
    name = f"archive-{uuid4().hex}"
    yield name
    await topology.delete(connection, dead_stream.name_of(name))
    channel = await open_channel(connection, confirms=False)
    await channel.exchange_delete(dead_stream.name_of(name))


def archive_of(url: str, queue: str, **otherwise: Any) -> Archive:
    settings = {"retention": 30 * DAY, "name": "test", "timeout": deadline(), **otherwise}
    return Archive(url, queue, **settings)


async def test_bodies_come_back_as_they_were(rabbitmq_server: Any, queue: str) -> None:
    archive = archive_of(rabbitmq_server.url, queue)
    bodies = [b"", b"\x00\xff\n" * 1000, b"[]\nx" * 1_000_000, b"same", b"same"]
    places = await archive.write(bodies)
    places += await archive.write([b"later"])
    assert len({place.offset for place in places}) == 6
    for place, body in reversed(list(zip(places, [*bodies, b"later"], strict=True))):
        assert await archive.read(place) == body


async def test_a_body_larger_than_rabbitmq_takes_lies_in_parts(
    rabbitmq_server: Any, queue: str, connection: AbstractConnection
) -> None:
    """Others' may lie between them. What is kept of a message is larger than the message was."""
    archives = [archive_of(rabbitmq_server.url, queue) for _ in range(2)]
    bodies = [bytes([n]) * (16 * PART + n) for n in range(2)]
    written = await asyncio.gather(
        *(archive.write([b"small", own]) for archive, own in zip(archives, bodies, strict=True))
    )
    for places, body in zip(written, bodies, strict=True):
        assert await archives[0].read(places[0]) == b"small"
        assert await archives[1].read(places[1]) == body
    stream = dead_stream.name_of(queue)
    consumer = Consumer(stream, 10**9)
    channel = await open_channel(connection, confirms=False)
    await channel.basic_qos(prefetch_count=100)
    await channel.basic_consume(
        stream, consumer._on_delivery, arguments={"x-stream-offset": "first"}
    )
    assert max(len(each.body) for each in await first_of(consumer, 2 * 1 + 16 + 17)) == PART


async def test_what_is_not_there_is_said_to_be_missing(rabbitmq_server: Any, queue: str) -> None:
    archive = archive_of(rabbitmq_server.url, queue, timeout=deadline(1.0))
    (place,) = await archive.write([b"x"])
    with pytest.raises(BodyMissing, match="retention"):
        await archive.read(Place(place.offset, "another"))
    with pytest.raises(BodyMissing, match="deleted"):
        await archive.read(Place(place.offset + 5, place.message_id))


@pytest.mark.parametrize("is_silent", [False, True])
async def test_no_word_is_not_waited_for(
    rabbitmq_server: Any, queue: str, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """Of a server that isn't there, or of a queue that has no leader."""

    async def says_nothing(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    (port,) = free_ports(1)
    url = rabbitmq_server.url if is_silent else f"amqp://guest:guest@127.0.0.1:{port}/"
    words = f"nothing of '{queue}.dead': no answer in time" if is_silent else str(port)
    monkeypatch.setattr(dead_stream, "declare", says_nothing)
    archive = archive_of(url, queue, timeout=1.0)
    with pytest.raises(BrokerUnavailable, match=words):
        async with asyncio.timeout(deadline()):
            await archive.write([b"body"])


STREAM = {"x_queue_type": "stream"}


@pytest.mark.parametrize(
    ("otherwise", "found"),
    [
        ({}, "is no stream of ours"),
        ({**STREAM, "x_max_age": "7D"}, "7D"),
        ({**STREAM, "x_max_age": "37D", "x_max_length_bytes": 100}, "max-length"),
    ],
)
async def test_a_queue_in_its_place_or_a_stream_that_throws_bodies_away_too_soon_is_refused(
    rabbitmq_server: Any,
    connection: AbstractConnection,
    queue: str,
    otherwise: dict[str, Any],
    found: str,
) -> None:
    """No body goes where it is gone before its letter."""
    await make_queue(rabbitmq_server.url, dead_stream.name_of(queue), **otherwise)
    with pytest.raises(ArchiveRefused, match=found):
        await archive_of(rabbitmq_server.url, queue).write([b"x"])
    check = await dead_stream.examine(connection, queue, "3.12.1", 30 * DAY)
    assert (check.name, check.verdict) == (dead_stream.CHECK, "warn")
    assert found in check.found


async def test_a_stream_that_keeps_for_long_enough_is_taken(
    rabbitmq_server: Any, connection: AbstractConnection, queue: str
) -> None:
    """Whatever else it is declared with; or as a policy is said to see to it."""
    arguments: Any = {"x_max_age": "31D", "x_stream_max_segment_size_bytes": 1_000_000}
    await make_queue(rabbitmq_server.url, dead_stream.name_of(queue), **STREAM, **arguments)
    archive = archive_of(rabbitmq_server.url, queue)
    (place,) = await archive.write([b"x"])
    assert await archive.read(place) == b"x"
    assert (await dead_stream.examine(connection, queue, "3.12.1", 30 * DAY)).verdict == "ok"
    check = await dead_stream.examine(connection, queue, "3.12.1", 90 * DAY)
    assert check.verdict == "warn"
    assert "dead_policy" in check.remedy
    check = await dead_stream.examine(connection, queue, "3.12.1", 90 * DAY, trusts_policy=True)
    assert check.verdict == "ok"
    trusting = archive_of(rabbitmq_server.url, queue, retention=90 * DAY, trusts_policy=True)
    assert await archive.read((await trusting.write([b"y"]))[0]) == b"y"


async def test_doctor_declares_nothing(
    rabbitmq_server: Any, connection: AbstractConnection, queue: str
) -> None:
    assert (await dead_stream.examine(connection, queue, "3.12.1", DAY)).verdict == "ok"
    presence = await topology.presence_of(connection, dead_stream.name_of(queue))
    assert presence is topology.Presence.MISSING
    assert "no streams" in (await dead_stream.examine(connection, queue, "3.8.9", DAY)).found
    await archive_of(rabbitmq_server.url, queue).write([b"x"])
    check = await dead_stream.examine(connection, queue, "3.12.1", 30 * DAY)
    assert (check.verdict, check.remedy) == ("ok", "")


@pytest.mark.parametrize(
    ("text", "seconds"), [("7D", 7 * DAY), ("90s", 90.0), ("1Y", 365 * DAY), ("soon", 0.0)]
)
def test_ages(text: str, seconds: float) -> None:
    assert dead_stream.age_of(text) == seconds
