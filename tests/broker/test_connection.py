"""What a broken connection may raise, and what becomes of it."""

from __future__ import annotations

import asyncio

import aiormq
import pytest

from groupflow.broker.connection import broker_calls, close_quietly
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable


@pytest.mark.parametrize(
    "error",
    [
        StopAsyncIteration(),  # aiormq's reader at its end, given to whoever waits
        Exception(),
        RuntimeError("writer is None"),
        ConnectionResetError(104, "reset"),
        aiormq.exceptions.ChannelInvalidStateError("closed"),
        asyncio.CancelledError(),  # raised by the library, though nobody cancelled us
    ],
    ids=repr,
)
async def test_whatever_a_broken_connection_raises_is_one_error(error: BaseException) -> None:
    with pytest.raises(BrokerUnavailable, match="it took no ack"), broker_calls("it took no ack"):
        raise error


async def test_our_own_errors_and_our_own_cancelling_pass() -> None:
    with pytest.raises(ServerUnreachable), broker_calls("x"):
        raise ServerUnreachable("RabbitMQ", "here", "refused")

    async def wait() -> None:
        with broker_calls("x"):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_close_that_fails_is_no_matter() -> None:
    async def fail() -> None:
        raise StopAsyncIteration

    await close_quietly(fail())
