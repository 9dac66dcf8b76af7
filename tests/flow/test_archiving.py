"""The duty that archives: what it does where RabbitMQ has no stream for it, or doesn't answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from structlog.testing import capture_logs

from groupflow.broker import dead_stream, topology
from groupflow.broker.archive import Archive
from groupflow.broker.connection import connect, open_channel
from groupflow.core.errors import ArchiveRefused, BrokerUnavailable
from groupflow.flow.bodies import whole_letter
from groupflow.servers.ports import free_ports
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.types import SecretUrl
from groupflow.store.archiving import oldest_bodies
from groupflow.store.client import StoreClient
from groupflow.store.dead import DeadLetters
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.upkeep.archive import Archiver

SIZE = 10_000


@pytest.fixture
async def client(redis_server: Any) -> AsyncIterator[StoreClient]:
    """A store with two dead letters."""
    keys = Keys(f"archiving-{uuid4().hex}")
    client = StoreClient(redis_server.url, keys)
    envelope = Envelope("t", None, None, None, {}, b"x" * SIZE)
    await Enqueuer(client).enqueue([Arrival(f"t{n}", envelope, dead="no") for n in range(2)])
    yield client
    await client.close()


async def forget(url: str, queue: str) -> None:
    """Delete a queue's stream and its exchange."""
    connection = await connect(url, heartbeat=10, timeout=10.0, name="test")
    await topology.delete(connection, dead_stream.name_of(queue))
    channel = await open_channel(connection, confirms=False)
    await channel.exchange_delete(dead_stream.name_of(queue))
    await connection.close()


async def test_under_its_bound_nothing_is_asked_of_rabbitmq(client: StoreClient) -> None:
    (port,) = free_ports(1)
    pressed = False
    stream = Archive(f"amqp://guest:guest@127.0.0.1:{port}/", "q", retention=60.0, name="t")
    archiver = Archiver(client, stream, 3 * SIZE, lambda: pressed)
    assert await archiver.run_once() == 0
    pressed = True  # intake stands: now the bound is 0, and nobody answers there
    with pytest.raises(BrokerUnavailable):
        await archiver.run_once()


async def test_without_a_stream_it_says_so_once_and_keeps_the_bodies(
    client: StoreClient, rabbitmq_server: Any
) -> None:
    queue = f"archiving-{uuid4().hex}"
    connection = await connect(rabbitmq_server.url, heartbeat=10, timeout=10.0, name="test")
    channel = await open_channel(connection, confirms=False)
    await channel.queue_declare(dead_stream.name_of(queue), durable=True)
    stream = Archive(rabbitmq_server.url, queue, retention=60.0, name="test")
    passes = 0

    def is_pressed() -> bool:
        nonlocal passes
        passes += 1
        return False

    archiver = Archiver(client, stream, 0, is_pressed)
    try:
        for _ in range(2):
            with pytest.raises(ArchiveRefused):
                await archiver.run_once()
        with capture_logs() as logs:
            running = asyncio.create_task(archiver.run())
            while passes < 5:  # the third of its own begins when the second has been refused
                archiver.wake()
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
        assert [log["event"] for log in logs] == ["archive.refused"]
        assert "doctor" in logs[0]["remedy"]
    finally:
        await topology.delete(connection, dead_stream.name_of(queue))
        await channel.exchange_delete(dead_stream.name_of(queue))
        await connection.close()


async def test_an_error_that_nobody_foresaw_ends_no_daemon(client: StoreClient) -> None:
    passes = 0

    def is_pressed() -> bool:
        nonlocal passes
        passes += 1
        raise ValueError("odd")

    (port,) = free_ports(1)
    stream = Archive(f"amqp://guest:guest@127.0.0.1:{port}/", "q", retention=60.0, name="t")
    archiver = Archiver(client, stream, 0, is_pressed)
    with capture_logs() as logs:
        running = asyncio.create_task(archiver.run())
        while passes < 2 and not running.done():
            archiver.wake()
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    assert [(log["event"], log["kind"]) for log in logs] == [("archive.failed", "ValueError")]


@pytest.mark.parametrize("packed", [b"junk" * 1000, b"5\n" + b"x" * 4000])
async def test_what_is_no_envelope_leaves_and_comes_back(
    client: StoreClient, redis_server: Any, rabbitmq_server: Any, packed: bytes
) -> None:
    """Somebody wrote to our keys: that stops no archiving, and not a byte of it is lost."""
    queue = f"archiving-{uuid4().hex}"
    with redis.Redis.from_url(redis_server.url) as raw:
        raw.hset(client.keys("tasks"), "t0", packed)
    letters = DeadLetters(client)
    assert (await letters.envelope("t0"))[0].body == packed
    stream = Archive(rabbitmq_server.url, queue, retention=60.0, name="test")
    settings = Settings(rabbitmq=RabbitMQ(url=SecretUrl(rabbitmq_server.url), queue=queue))
    try:
        assert await Archiver(client, stream, 0, lambda: False).run_once() == 2
        assert not await oldest_bodies(client, 0, most=9, most_bytes=1)
        whole = await whole_letter(settings, letters, "t0")
        assert (whole.body, whole.type) == (packed, "t")
    finally:
        await forget(rabbitmq_server.url, queue)
