"""The wire, where its loop was blocked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from groupflow.servers import RedisServer
from groupflow.store.wire import Wires, pack


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_answer_that_came_while_the_loop_stood_counts(
    redis_server: RedisServer, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It is read first; then the timer was found due, and the wire was given up for everybody."""

    async def ask() -> None:
        wire = await Wires(redis_server.url).open(5.0)
        try:
            asking = asyncio.create_task(wire.call([pack("PING")], 0.2))
            await asyncio.sleep(0)
            time.sleep(0.5)  # noqa: ASYNC251  a handler that blocks
            assert await asking in ([b"PONG"], ["PONG"])
            assert wire.is_open
        finally:
            wire.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())
