"""The duty that archives: what it does where RabbitMQ has no stream for it, or doesn't answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from structlog.testing import capture_logs

from groupflow.broker import dead_stream, topology
from groupflow.broker.archive import Archive
from groupflow.broker.connection import connect, open_channel
from groupflow.core.errors import ArchiveRefused, BodyRefused, BrokerUnavailable, StoreFull
from groupflow.core.places import Place
from groupflow.operate.archiving import oldest_bodies
from groupflow.operate.dead import DeadLetters
from groupflow.operate.namespace import Namespace
from groupflow.operate.redrive import Redriver, whole_letter
from groupflow.operate.totals import read_totals
from groupflow.servers import RabbitmqServer, RedisServer
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
NOBODY = "amqp://guest:guest@127.0.0.1:1/"  # nothing listens there


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


def archiver_of(
    client: StoreClient,
    url: str = NOBODY,
    queue: str = "q",
    session: Session | None = None,
    *,
    bound: int = 0,
    pressed: Callable[[], bool] = lambda: False,
) -> Archiver:
    stream = Archive(url, queue, retention=60.0, name="test")
    return Archiver(client, session or Session("d1"), stream, bound, pressed)


async def run_until(
    client: StoreClient,
    passes: int,
    error: Exception | None = None,
    url: str = NOBODY,
    queue: str = "q",
) -> list[Any]:
    """What an archiver logs that runs until it has begun so many passes."""
    begun, reached = 0, asyncio.Event()

    def is_pressed() -> bool:
        nonlocal begun
        begun += 1
        if begun < passes:
            archiver.wake()  # the next pass begins right behind this one
        else:
            reached.set()
        if error is not None:
            raise error
        return False

    archiver = archiver_of(client, url, queue, pressed=is_pressed)
    with capture_logs() as logs:
        running = asyncio.create_task(archiver.run())
        await reached.wait()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    return logs


async def test_under_its_bound_nothing_is_asked_of_rabbitmq(client: StoreClient) -> None:
    pressed: list[int] = []
    archiver = archiver_of(client, bound=3 * SIZE, pressed=lambda: bool(pressed))
    assert await archiver.archive() == 0
    pressed.append(1)  # intake stands: now the bound is 0, and nobody answers there
    with pytest.raises(BrokerUnavailable):
        await archiver.archive()


async def test_without_a_stream_it_says_so_once_and_keeps_the_bodies(
    client: StoreClient, rabbitmq_server: Any, queue: str
) -> None:
    connection = await connect(rabbitmq_server.url, heartbeat=10, timeout=deadline(), name="test")
    channel = await open_channel(connection, confirms=False)
    await channel.queue_declare(dead_stream.name_of(queue), durable=True)
    await connection.close()
    with pytest.raises(ArchiveRefused):
        await archiver_of(client, rabbitmq_server.url, queue).archive()
    (log,) = await run_until(client, 3, None, rabbitmq_server.url, queue)
    assert log["event"] == "archive.refused"
    assert "doctor" in log["remedy"]
    assert len(await oldest_bodies(client, Session("d1"), 0, most=9, most_bytes=10**6)) == 2


async def test_an_error_that_nobody_foresaw_ends_no_daemon(client: StoreClient) -> None:
    logs = await run_until(client, 2, ValueError("odd"))
    assert [(log["event"], log["kind"]) for log in logs] == [("archive.failed", "ValueError")]


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
    assert await archiver_of(client, rabbitmq_server.url, queue).archive() == 2
    assert not await oldest_bodies(client, Session("d1"), 0, most=9, most_bytes=1)
    whole = (await whole_letter(settings, namespace, letter)).envelope
    assert (whole.body, whole.type) == (packed, "t")


async def test_two_daemons_archive_each_body_once(
    client: StoreClient, rabbitmq_server: Any, queue: str
) -> None:
    await enqueue(client, {f"u{n}": 100 for n in range(300)})
    archivers = [
        archiver_of(client, rabbitmq_server.url, queue, await daemon(client, name))
        for name in ("d1", "d2")
    ]
    moved = 0
    while found := sum(await asyncio.gather(*(each.archive() for each in archivers))):
        moved += found
    assert moved == 302
    stream = Archive(rabbitmq_server.url, queue, retention=60.0, name="test")
    (place,) = await stream.write([b"the last one"])
    assert place.offset == 302, "no body lies there twice"


class SmallRabbitmq(RabbitmqServer):
    """A RabbitMQ that takes no message over 100,000 bytes."""

    def prepare(self) -> None:
        """Says so in its configuration."""
        super().prepare()
        with self._path("rabbitmq.conf").open("a") as file:
            file.write("max_message_size = 100000\n")


@pytest.fixture(scope="module")
def small_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqServer]:
    with _running(SmallRabbitmq(tmp_path_factory.mktemp("small"))) as server:
        yield server


async def test_a_body_that_rabbitmq_refuses_stops_no_other(
    client: StoreClient, small_rabbitmq: RabbitmqServer
) -> None:
    """It stays where it is, is told once, and all others leave."""
    sizes = {"a": 10, "large": 200_000, "b": 10, "larger": 300_000, "c": 10}
    await enqueue(client, sizes)
    archiver = archiver_of(client, small_rabbitmq.url, session=await daemon(client))
    with capture_logs() as logs:
        assert await archiver.archive() == 7
        assert await archiver.archive() == 0
    stays = [log["task"] for log in logs if log["event"] == "archive.body_stays"]
    assert stays == ["large", "larger"]
    assert (await read_totals(Namespace([client]))).dead_staying == 2
    letters = DeadLetters(Namespace([client]))
    for id_ in ("t0", "t1", *sizes):
        _, place = await letters.envelope(id_)
        assert (place is None) == (id_ in stays)


async def test_where_nothing_is_taken_nothing_is_marked(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a stream whose disk is full; and another daemon may try at once."""

    async def refuse(_stream: Archive, bodies: Sequence[bytes]) -> list[Place]:
        raise BodyRefused(f"{len(bodies)} refused")

    monkeypatch.setattr(Archive, "write", refuse)
    with pytest.raises(ArchiveRefused):
        await archiver_of(client, session=await daemon(client)).archive()
    assert (await read_totals(Namespace([client]))).dead_staying == 0
    other = await daemon(client, "d2")
    assert len(await oldest_bodies(client, other, 0, most=9, most_bytes=10**6)) == 2


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
