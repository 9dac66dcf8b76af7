"""What a broken connection may raise, and what becomes of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import aio_pika
import aiormq
import pytest

from groupflow.broker.connection import broker_calls, close_quietly, connect
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable
from groupflow.servers import RabbitmqServer
from tests.broker.wires import connected
from tests.deadlines import deadline
from tests.turns import turns

WORDS: list[Any] = [
    (StopAsyncIteration(), "the connection has ended"),
    (aiormq.exceptions.ChannelClosed(None, None), "the connection has ended"),
    (TimeoutError(), "no answer in time"),
    (aiormq.exceptions.ConnectionClosed(320, "CONNECTION_FORCED - x"), "CONNECTION_FORCED - x"),
    (aiormq.exceptions.ChannelNotFoundEntity("NOT_FOUND - no queue"), "NOT_FOUND - no queue"),
    (RuntimeError('<Channel: "1" at 0x7f6f00228f50> closed'), "the channel closed"),
    (ValueError("got <Connection.Close object at 0x7f6f00228f50>"), "got the close"),
    (ConnectionResetError(104, "reset by peer"), "[Errno 104] reset by peer"),
    (RuntimeError("writer is None"), "writer is None"),
    (Exception(), "the connection has ended"),
]


@pytest.mark.parametrize(("error", "words"), WORDS)
async def test_an_operator_reads_words_and_no_python(error: Exception, words: str) -> None:
    """In the error, and in its cause, which some verbs show alone."""
    with pytest.raises(BrokerUnavailable) as caught, broker_calls("it took no ack"):
        raise error
    assert str(caught.value) == f"it took no ack: {words}"
    assert str(caught.value.__cause__) == words


async def test_a_cancellation_that_nobody_asked_for_is_an_end_of_the_connection() -> None:
    with pytest.raises(BrokerUnavailable, match="it took no ack"), broker_calls("it took no ack"):
        raise asyncio.CancelledError


REFUSALS: list[Any] = [
    ("guest:hunter2@/", ServerUnreachable, "the credentials (ACCESS_REFUSED - Login was"),
    ("guest:guest@/nowhere", ServerUnreachable, "the virtual host (NOT_ALLOWED - vhost no"),
    ("guest:guest@/others", ServerUnreachable, "access to vhost 'others' refused for user"),
    ("guest:guest@/full", BrokerUnavailable, "connection limit (0) is reached"),
]


@pytest.mark.parametrize(("place", "kind", "words"), REFUSALS)
async def test_what_rabbitmq_refuses_for_good_and_what_passes(
    rabbitmq_server: RabbitmqServer, place: str, kind: type[Exception], words: str
) -> None:
    """In its own words, whether it refuses the user or the virtual host."""
    with pytest.raises(kind) as caught:
        async with connected("amqp://" + place.replace("@", f"@127.0.0.1:{rabbitmq_server.port}")):
            pass
    assert words in str(caught.value)
    assert " object at 0x" not in str(caught.value)


async def test_a_tls_file_that_cant_be_read_is_an_outage(tmp_path: Path) -> None:
    """It may be written anew just now, long after the start, which looks at each."""
    for content in (None, "half of a certif"):
        if content:
            (tmp_path / "ca.pem").write_text(content)
        url = f"amqps://guest:guest@127.0.0.1:1/?ca_file={tmp_path / 'ca.pem'}"
        with pytest.raises(BrokerUnavailable, match="can't be reached: "):
            await connect(url, heartbeat=10, timeout=deadline(), name="test")


async def test_our_own_errors_pass() -> None:
    with pytest.raises(ServerUnreachable), broker_calls("x"):
        raise ServerUnreachable("RabbitMQ", "here", "refused")


@pytest.mark.parametrize(
    "error", [None, aiormq.exceptions.ChannelInvalidStateError("closed"), asyncio.CancelledError()]
)
async def test_a_cancellation_that_a_library_drops_counts(error: BaseException | None) -> None:
    """It answers all the same, makes it an error of a channel that it closes, or passes it."""

    async def library() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error:
                raise error from None

    async def call() -> None:
        with broker_calls("x"):
            await library()

    for work in (call(), close_quietly(library())):
        waiting = asyncio.create_task(work)
        await turns()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()


async def test_a_connection_that_comes_with_the_cancellation_is_closed(
    rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made to happen at the library's edge: `wait_for` of Python 3.11 drops the cancellation."""
    real, made = aio_pika.connect, []

    async def connect_late(*args: Any, **options: Any) -> Any:
        made.append(await real(*args, **options))
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        with suppress(asyncio.CancelledError):
            await turns()
        return made[0]

    monkeypatch.setattr(aio_pika, "connect", connect_late)
    how: Any = {"heartbeat": 10, "timeout": deadline(), "name": "test"}
    opening = asyncio.create_task(connect(rabbitmq_server.url, **how))
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert made[0].is_closed
