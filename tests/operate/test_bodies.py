"""Bodies of dead letters on their way to a stream of RabbitMQ and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from groupflow.broker import dead_stream, topology
from groupflow.broker.archive import Archive
from groupflow.broker.connection import connect, open_channel
from groupflow.core.errors import StoreFull
from groupflow.operate.dead import DeadLetters
from groupflow.operate.redrive import Redriver, whole_letter
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.upkeep.archive import Archiver
from tests.deadlines import deadline
from tests.running import running
from tests.store.bench import Bench
from tests.store.task_state import letter


def settings_of(url: str, queue: str, **redis: Any) -> Settings:
    return Settings.model_validate({"rabbitmq": {"url": url, "queue": queue}, "redis": redis})


def dead(id_: str, size: int) -> Arrival:
    """A dead letter with a body of so many bytes."""
    return Arrival(id_, Envelope("t", None, None, None, {}, b"x" * size), dead="no")


async def archive(bench: Bench, url: str, queue: str) -> int:
    stream = Archive(url, queue, retention=60.0, name="test")
    session = (await bench.daemon()).session
    return await Archiver(bench.client, session, stream, 0, lambda: False).archive()


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


@pytest.mark.parametrize("packed", [b"junk" * 1000, b"5\n" + b"x" * 4000])
async def test_what_is_no_envelope_leaves_and_comes_back(
    bench: Bench, rabbitmq_server: Any, queue: str, packed: bytes
) -> None:
    """Somebody wrote to our keys: that stops no archiving, and not a byte of it is lost."""
    await bench.enqueue(dead("t0", len(packed)), dead("t1", 10_000))
    bench.raw.hset(bench.keys("tasks"), "t0", packed)
    assert (await DeadLetters(bench.namespace).envelope("t0"))[0].body == packed
    assert await archive(bench, rabbitmq_server.url, queue) == 2
    story = await letter(bench, "t0")
    assert story.errors[0]["message"] == "no", "that doesn't lie in the body"
    settings = settings_of(rabbitmq_server.url, queue)
    whole = (await whole_letter(settings, bench.namespace, story)).envelope
    assert (whole.body, whole.type) == (packed, "t")


@pytest.mark.parametrize("limit", ["redis.max_memory", "maxmemory"])
async def test_a_redrive_brings_back_no_more_than_there_is_room_for(
    tmp_path: Path, rabbitmq_server: Any, queue: str, limit: str
) -> None:
    url = rabbitmq_server.url
    with running(RedisServer(tmp_path)) as server:  # its memory is this test's alone
        bench = Bench(server.url)
        await bench.enqueue(dead("large", 8_000_000))
        await archive(bench, url, queue)
        # The connection that brought the body is closed: Redis frees its buffer before it measures.
        await bench.client.close()
        bench = Bench(server.url, keys=bench.keys)
        story = replace(await letter(bench, "large"), died_at_the_door=False)
        memory = await DeadLetters(bench.namespace).memory()
        room = memory.used + 4_000_000  # less than the body needs
        ours, own = (room, 0) if limit == "redis.max_memory" else (0, room)
        bench.raw.config_set("maxmemory", own)
        redriver = Redriver(settings_of(url, queue, max_memory=ours), bench.namespace)
        with pytest.raises(StoreFull, match=limit):
            await redriver.redrive(story)
        bench.raw.config_set("maxmemory", 0)
        redriver = Redriver(settings_of(url, queue, max_memory=0), bench.namespace)
        assert await redriver.redrive(story)
        await bench.close()
