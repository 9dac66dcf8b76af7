"""Bodies of dead letters on their way to a stream of RabbitMQ and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from groupflow.broker import dead_stream, topology
from groupflow.broker.archive import Archive
from groupflow.broker.connection import connect, open_channel
from groupflow.core.errors import StoreFull
from groupflow.operate.archiving import oldest_bodies
from groupflow.operate.dead import DeadLetters
from groupflow.operate.namespace import Namespace
from groupflow.operate.redrive import Redriver, whole_letter
from groupflow.servers import RedisServer
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.model import Redis as RedisSettings
from groupflow.settings.types import SecretUrl
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.store.sessions import Session, Sessions
from groupflow.upkeep.archive import Archiver
from tests.conftest import _running
from tests.deadlines import deadline

SIZE = 10_000


@asynccontextmanager
async def opened(url: str, keys: Keys) -> AsyncIterator[StoreClient]:
    client = StoreClient(url, keys)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def client(redis_server: Any) -> AsyncIterator[StoreClient]:
    """A store with two dead letters."""
    async with opened(redis_server.url, Keys(f"archiving-{uuid4().hex}")) as client:
        await enqueue(client, {"t0": SIZE, "t1": SIZE})
        yield client


@pytest.fixture
async def queue(rabbitmq_server: Any) -> AsyncIterator[str]:
    """A queue's name; its stream and its exchange are gone when the test is over."""
    queue = f"archiving-{uuid4().hex}"
    yield queue
    connection = await connect(rabbitmq_server.url, heartbeat=10, timeout=deadline(), name="test")
    await topology.delete(connection, dead_stream.name_of(queue))
    channel = await open_channel(connection, confirms=False)
    await channel.exchange_delete(dead_stream.name_of(queue))
    await connection.close()


async def enqueue(client: StoreClient, sizes: dict[str, int]) -> None:
    """Dead letters with bodies of so many bytes."""
    await Enqueuer(client).enqueue(
        [
            Arrival(id_, Envelope("t", None, None, None, {}, b"x" * size), dead="no")
            for id_, size in sizes.items()
        ]
    )


async def daemon(client: StoreClient, name: str = "d1") -> Session:
    session = Session(name)
    told = {"pid": 1, "host": "h", "workers": 1, "lease": 600.0}
    await Sessions(client, session, 600.0).register(told)
    return session


def archiver_of(client: StoreClient, url: str, queue: str, session: Session) -> Archiver:
    stream = Archive(url, queue, retention=60.0, name="test")
    return Archiver(client, session, stream, 0, lambda: False)


@pytest.mark.parametrize("packed", [b"junk" * 1000, b"5\n" + b"x" * 4000])
async def test_what_is_no_envelope_leaves_and_comes_back(
    client: StoreClient, redis_server: Any, rabbitmq_server: Any, queue: str, packed: bytes
) -> None:
    """Somebody wrote to our keys: that stops no archiving, and not a byte of it is lost."""
    with redis.Redis.from_url(redis_server.url) as raw:
        raw.hset(client.keys("tasks"), "t0", packed)
    namespace = Namespace([client])
    letter = await DeadLetters(namespace).find("t0")
    assert letter is not None
    assert (await DeadLetters(namespace).envelope("t0"))[0].body == packed
    settings = Settings(rabbitmq=RabbitMQ(url=SecretUrl(rabbitmq_server.url), queue=queue))
    archiver = archiver_of(client, rabbitmq_server.url, queue, await daemon(client))
    assert await archiver.archive() == 2
    assert not await oldest_bodies(client, Session("d1"), 0, most=9, most_bytes=1)
    whole = (await whole_letter(settings, namespace, letter)).envelope
    assert (whole.body, whole.type) == (packed, "t")


@pytest.mark.parametrize("limit", ["redis.max_memory", "maxmemory"])
async def test_a_redrive_brings_back_no_more_than_there_is_room_for(
    tmp_path: Path, rabbitmq_server: Any, queue: str, limit: str
) -> None:
    keys, url = Keys("archiving"), rabbitmq_server.url
    with _running(RedisServer(tmp_path)) as server:  # its memory is this test's alone
        async with opened(server.url, keys) as first:
            await enqueue(first, {"large": 8_000_000})
            await archiver_of(first, url, queue, await daemon(first)).archive()
        # The connection that brought the body is closed: Redis frees its buffer before it measures.
        with redis.Redis.from_url(server.url) as raw:
            async with opened(server.url, keys) as client:
                letters = DeadLetters(Namespace([client]))
                letter = await letters.find("large")
                assert letter is not None
                letter = replace(letter, died_at_the_door=False)
                room = (await letters.memory()).used + 4_000_000  # less than the body needs
                ours, own = (room, 0) if limit == "redis.max_memory" else (0, room)
                settings = Settings(
                    rabbitmq=RabbitMQ(url=SecretUrl(url), queue=queue),
                    redis=RedisSettings(max_memory=ours),
                )
                raw.config_set("maxmemory", own)
                with pytest.raises(StoreFull, match=limit):
                    await Redriver(settings, Namespace([client])).redrive(letter)
                raw.config_set("maxmemory", 0)
                unbound = settings.model_copy(update={"redis": RedisSettings(max_memory=0)})
                assert await Redriver(unbound, Namespace([client])).redrive(letter)
