"""Connections to RabbitMQ: opened plainly, with our errors, and never reopened behind our back.

aio-pika's self-restoring connection would declare a deleted queue again, empty and in silence, and
goes on delivering while its caller still holds messages of the old connection. Here a connection
lives for one *term*: when it ends, the term ends, and its user opens another.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeAlias
from urllib.parse import urlunsplit

import aio_pika
import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from pamqp.commands import Connection as Methods
from yarl import URL

from groupflow.core.errors import BrokerUnavailable, GroupflowError, ServerUnreachable
from groupflow.settings.transport import address_of, split_tls, split_url

Connection: TypeAlias = AbstractConnection

# A connection that ends may raise anything at all; see `broker_calls`.
ENDED: tuple[type[Exception], ...] = (Exception,)

CLOSING = 3.0  # seconds to say good-bye; a frozen server is left without
HEARTBEAT = 10  # seconds, for connections without a setting of their own

_REFUSED = (
    aiormq.exceptions.AuthenticationError,
    aiormq.exceptions.ProbableAuthenticationError,
)
_NOT_ALLOWED = 530  # AMQP's code where the virtual host is missing, or is not for this user
# The same code where a server, a virtual host or a user has too many connections. That passes.
_CROWDED = re.compile(r"limit \(\d+\) is reached")


_CLOSED = (aiormq.exceptions.ConnectionClosed, aiormq.exceptions.ChannelClosed)  # code and text
_OBJECT = re.compile(r"<(?:\w+\.)*(\w+)[^<>]* at 0x[0-9a-f]+>")


# Whether code runs for a connection of ours: set around each call, so in all tasks it begins.
_OURS: ContextVar[bool] = ContextVar("groupflow_broker", default=False)

_LIBRARIES = (
    *("aiormq.connection", "aiormq.connection.marshall", "aiormq.channel", "aiormq.base"),
    *("aio_pika.connection", "aio_pika.channel", "aio_pika.exchange", "aio_pika.queue"),
)


class _Hush(logging.Filter):
    """Drops the libraries' log lines about our connections: the connection's user logs it, once.

    Lines about the application's own connections still pass.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not _OURS.get() or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


for _library in _LIBRARIES:
    logging.getLogger(_library).addFilter(_Hush())


@contextmanager
def broker_calls(what: str) -> Iterator[None]:
    """Turns any error of a broken connection into `BrokerUnavailable`.

    aiormq answers waiting calls with the error that ended its reader. That may be anything: its own
    errors, `StopAsyncIteration`, a bare `Exception`, even a `CancelledError` without a cancel. None
    of them may end the daemon. Conversely, where we are cancelled, it may raise one of its own
    errors, or go on; we end all the same.

    `what` did not happen, as a clause: ``RabbitMQ opened no channel``.
    """
    before = _cancellations()
    ours = _OURS.set(True)
    try:
        yield
    except GroupflowError:
        raise
    except asyncio.CancelledError as error:
        if _cancellations():
            raise
        raise BrokerUnavailable(f"{what}: the connection has ended") from error
    except Exception as error:
        if _cancellations() > before:
            raise asyncio.CancelledError from error
        words = _words(error)
        # Code that shows the cause alone shows the same words.
        cause = error if words == str(error) else ConnectionError(words)
        raise BrokerUnavailable(f"{what}: {words}") from cause
    finally:
        _OURS.reset(ours)
    if _cancellations() > before:
        raise asyncio.CancelledError


def _words(error: Exception) -> str:
    """What the libraries' error says to an operator: RabbitMQ's own text, and no Python object."""
    if isinstance(error, _CLOSED) and error.args and isinstance(error.args[-1], str):
        return error.args[-1]
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, _CLOSED) or not str(error):
        return "the connection has ended"
    return _OBJECT.sub(lambda found: f"the {found[1].lower()}", str(error))


def _cancellations() -> int:
    """How many requests to cancel the current task are pending."""
    current = asyncio.current_task()
    return current.cancelling() if current else 0


async def close_quietly(closing: Awaitable[Any]) -> None:
    """Close a channel or connection that may well be gone already."""
    with suppress(BrokerUnavailable), broker_calls("RabbitMQ was not told of the end"):
        async with asyncio.timeout(CLOSING):
            await closing


def nodes_of(url: str) -> list[str]:
    """A URL for each of the nodes that a broker's URL names."""
    parts = split_url(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]


class _Owned(aio_pika.Connection):
    """A connection that its owner alone closes.

    The library's own closes itself when it is collected, even a failed one. In a thread without a
    loop, that only leaves a coroutine that was never awaited.
    """

    def __del__(self) -> None:
        """Do nothing: its owner has closed it, and a failed connection is not open."""


async def connect(url: str, *, heartbeat: int, timeout: float, name: str) -> AbstractConnection:
    """Open a connection to the first node that answers, in random order.

    So connections spread over the nodes. A caller that meets a node that answers and can't do its
    work (cut off from the others, say) meets another one next time.

    Args:
        url: ``amqp://``, or ``amqps://`` with its TLS files; of one node or of several.
        heartbeat: seconds; a dead peer is noticed after about three times as many.
        timeout: seconds for all nodes together, each of which has its share for the handshake.
        name: shown on RabbitMQ's own page.

    Raises:
        BrokerUnavailable: no answer of any, or a TLS file that can't be read; try again.
        ServerUnreachable: one answered, and refused the user or the virtual host.
    """
    nodes = nodes_of(url)
    random.shuffle(nodes)
    failures: list[BrokerUnavailable] = []
    for node in nodes:
        try:
            return await _connect(node, heartbeat, timeout / len(nodes), name)
        except BrokerUnavailable as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    raise BrokerUnavailable("; ".join(sorted(map(str, failures))))


@asynccontextmanager
async def connected(url: str, *, timeout: float, name: str) -> AsyncIterator[AbstractConnection]:
    """The same for the time of a block."""
    connection = await connect(url, heartbeat=HEARTBEAT, timeout=timeout, name=name)
    try:
        yield connection
    finally:
        await close_quietly(connection.close())


async def _connect(url: str, heartbeat: int, timeout: float, name: str) -> AbstractConnection:
    address = address_of(url)
    before = _cancellations()
    with broker_calls(f"RabbitMQ at {address} can't be reached"):
        url, tls = split_tls(url)  # its files may be written anew just now
        target = URL(url).update_query(heartbeat=heartbeat)
        try:
            connection = await aio_pika.connect(
                target,
                timeout=timeout,
                ssl_context=tls,
                client_properties={"connection_name": name},
                connection_class=_Owned,
            )
        except _REFUSED as error:
            raise _refused(address, "the credentials", _words(error)) from error
        except aiormq.exceptions.AMQPError as error:
            close = _close_in(error)
            if close is None:
                raise
            closed = ConnectionError(close.reply_text)
            if close.reply_code == _NOT_ALLOWED and not _CROWDED.search(close.reply_text):
                raise _refused(address, "the virtual host", close.reply_text) from closed
            raise closed from error
        if _cancellations() > before:
            # Python 3.11's `wait_for` has dropped it: it came with the answer.
            await close_quietly(connection.close())
        return connection


def _refused(address: str, what: str, words: str) -> ServerUnreachable:
    return ServerUnreachable("RabbitMQ", address, f"it refused {what} ({words})")


def _close_in(error: BaseException) -> Methods.Close | None:
    """RabbitMQ's answer to a handshake, where the library has only said that it was another one."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("frame")
        if isinstance(found, Methods.Close):
            return found
    return None


async def open_channel(connection: AbstractConnection, *, confirms: bool) -> AbstractChannel:
    """A channel, at the level where deliveries and acks are plain frames.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    with broker_calls("RabbitMQ opened no channel"):
        # RabbitMQ hands back *and* confirms what it can't route; only this makes it a refusal.
        channel = await connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
        underlay = await channel.get_underlay_channel()
        _hear_out(underlay)
        return underlay


def _hear_out(channel: AbstractChannel) -> None:
    """Retrieve the exception of a channel's reader; calls that wait for it get it anyway.

    Else asyncio logs later that a task's exception was never retrieved.
    """
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame is not None and frame.f_locals.get("self") is channel:
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
