"""The wire, where its loop was blocked or its server is in trouble that passes."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.core.errors import StoreUnavailable
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.scripts import Verb
from groupflow.store.wire import Wires, pack
from tests.deadlines import deadline


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
            time.sleep(0.3)  # noqa: ASYNC251  a handler that blocks
            stream = cast(Any, wire._transport).get_extra_info("socket")
            assert select.select([stream.fileno()], [], [], deadline())[0]
            assert await asking in ([b"PONG"], ["PONG"])
            assert wire.is_open
        finally:
            wire.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())


async def test_a_call_that_was_given_up_is_not_brought_to_the_server_later() -> None:
    """What the kernel still has of it would run behind the calls that were made since."""
    came, may_read = asyncio.Event(), asyncio.Event()
    ends: list[bytes | str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await may_read.wait()
        try:
            while chunk := await reader.read(1 << 20):
                ends.append(chunk[-1:])
            ends.append("end")
        except ConnectionError:
            ends.append("reset")
        writer.close()

    # A window that is soon full, so that most of a call stays on our side.
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        listening.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(serve, sock=listening, limit=1 << 12)
        async with server, asyncio.timeout(deadline()):
            wire = await Wires(f"redis://127.0.0.1:{listening.getsockname()[1]}").open(5.0)
            await came.wait()
            with pytest.raises(RedisTimeoutError):
                await wire.call([pack("SET", "k", b"x" * (1 << 17))], 0.2)
            may_read.set()
            while "end" not in ends and "reset" not in ends:
                await asyncio.sleep(0.01)
    assert ends[-1] == "reset"


@pytest.mark.parametrize(
    "config",
    [{"min-replicas-to-write": "1"}, {"maxclients": "1"}, {"maxclients": "1", "requirepass": "pw"}],
    ids=["replicas", "connections", "connections and a password"],
)
async def test_trouble_that_passes_ends_no_call(tmp_path: Path, config: dict[str, str]) -> None:
    """A replica that restarts, and more connections than Redis takes: both are waited out."""
    async with RedisServer(tmp_path) as server:
        password = config.get("requirepass")
        url = server.url.replace("//", f"//:{password}@") if password else server.url
        async with Redis.from_url(server.url, single_connection_client=True) as admin:
            for name, value in config.items():
                await admin.config_set(name, value)
            client = StoreClient(url, Keys("passing"))
            try:
                with pytest.raises(StoreUnavailable):
                    await client.run(Verb.PROMOTE, 1)
                await admin.config_set("maxclients", "100")
                await admin.config_set("min-replicas-to-write", "0")
                await client.run(Verb.PROMOTE, 1)
            finally:
                await client.close()
