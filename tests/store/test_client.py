"""The client: what is told of a server that refuses, is silent, or has forgotten its scripts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any, TypeAlias, cast

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreFull, StoreUnavailable
from groupflow.core.measures import ScriptMeasures
from groupflow.servers import RedisServer
from groupflow.settings.transport import address_of
from groupflow.store.client import Call, StoreClient
from groupflow.store.keys import Keys
from groupflow.store.node import make_pool
from groupflow.store.refusals import translated
from groupflow.store.scripts import Verb
from groupflow.store.wire import Wire, Wires
from tests.deadlines import deadline


def test_an_address_has_no_password() -> None:
    assert address_of("redis://user:secret@host:1/0") == "host:1"
    assert address_of("redis://host/0") == "host"
    assert address_of("unix:///run/redis.sock?db=1") == "/run/redis.sock"


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (OutOfMemoryError("no room"), StoreFull),
        (ResponseError("OOM command not allowed"), StoreFull),
        (AuthenticationError("no"), ServerUnreachable),
        (ResponseError("NOAUTH Authentication required."), ServerUnreachable),
        (ResponseError("WRONGPASS invalid"), ServerUnreachable),
        (RedisConnectionError("reset"), StoreUnavailable),
        (RedisTimeoutError("late"), StoreUnavailable),
        (InvalidResponse("Protocol error"), StoreUnavailable),
        (OSError("refused"), StoreUnavailable),
        (ResponseError("LOADING its file"), StoreUnavailable),
        (ResponseError("READONLY a replica"), StoreUnavailable),
        (ReadOnlyError("You can't write", status_code="READONLY"), StoreUnavailable),
        (MovedError("14604 127.0.0.1:1", status_code="MOVED"), StoreUnavailable),
        (ResponseError("ERR LOADING"), GroupflowError),
        (ValueError("BUSY"), GroupflowError),
    ],
)
def test_each_error_has_its_kind(error: Exception, ours: type[Exception]) -> None:
    assert type(translated(error, "host:1")) is ours


def test_a_full_disk_has_its_remedy() -> None:
    refusal = ResponseError("MISCONF Errors writing to the AOF file: No space left on device")
    assert str(translated(refusal, "host:1")).endswith("not load its file at a restart")


def test_connections_are_kept_alive_and_verified_and_retry_nothing_by_themselves() -> None:
    plain, local, secure = (
        make_pool(url, 5.0)
        for url in ("redis://host:1/0", "unix:///run/redis.sock", "rediss://host:1/0")
    )
    assert plain.connection_kwargs["socket_keepalive"] is True
    assert plain.connection_kwargs["retry"].get_retries() == 0
    assert "socket_keepalive" not in local.connection_kwargs
    made = secure.connection_class(**secure.connection_kwargs)
    assert isinstance(made, SSLConnection)
    assert made.ssl_context.context is secure.connection_kwargs["tls"]


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[StoreClient]:
    """On a namespace of its own."""
    client = StoreClient(
        redis_server.url, Keys("test-client"), timeout=deadline(5.0), measures=ScriptMeasures()
    )
    try:
        yield client
    finally:
        await client.erase_namespace()
        await client.close()


RENEWAL: Call = (Verb.RENEW, ("d1", "1", 1_000_000))
UNKNOWN = ResponseError("NOSCRIPT No matching script.")
Server: TypeAlias = Callable[..., list[int]]


@pytest.fixture
def server(monkeypatch: Any) -> Server:
    """A server that answers calls as it is told, one after another.

    It notes of how many commands each call was. `loads` is what it says to each script that is
    loaded, or how it ends that; an error in place of an answer ends a call.
    """

    def begin(*answers: Any, loads: Any = b"sha") -> list[int]:
        told, sent = list(answers), list[int]()

        async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
            is_load = b"SCRIPT" in commands[0]
            answer = [loads] * len(commands) if is_load else told.pop(0)
            ended = loads if is_load else answer
            if isinstance(ended, RedisConnectionError | RedisTimeoutError):
                raise ended
            if not is_load:
                sent.append(len(commands))
            return list(answer)

        monkeypatch.setattr(Wire, "call", call)
        return sent

    return begin


async def test_calls_at_once_share_one_connection(client: StoreClient, monkeypatch: Any) -> None:
    """And a new one is opened once it is gone, with the scripts loaded as they are."""
    opened: list[Wire] = []
    open_one = Wires.open

    async def opening(wires: Wires, timeout: float) -> Wire:
        opened.append(await open_one(wires, timeout))
        return opened[-1]

    monkeypatch.setattr(Wires, "open", opening)
    for number in (1, 2):
        await asyncio.gather(*(client.run_all([RENEWAL]) for _ in range(5)))
        assert len(opened) == number
        if number == 1:
            opened[0].close()
    await client.close()
    assert not opened[1].is_open


async def test_unknown_scripts_are_loaded_and_all_run(client: StoreClient, server: Server) -> None:
    """As after a lost reply, once; another error has none run again, nor has text like it."""
    sent = server(
        *([1, UNKNOWN], [1, 2], [1, ResponseError("ERR no")], [str(UNKNOWN)], [UNKNOWN], [UNKNOWN])
    )
    assert await client.run_all([RENEWAL] * 2) == [1, 2]
    with pytest.raises(GroupflowError):
        await client.run_all([RENEWAL] * 2)
    assert await client.run_all([RENEWAL]) == ["NOSCRIPT No matching script."]
    with pytest.raises(StoreUnavailable, match="can't serve now: NOSCRIPT"):
        await client.run_all([RENEWAL])
    assert sent == [2, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("error", [RedisConnectionError("reset"), RedisTimeoutError("late")])
async def test_a_break_is_an_outage(client: StoreClient, server: Server, error: Exception) -> None:
    """Also while scripts are loaded; scripts that it does not take end the call."""
    server(error)
    with pytest.raises(StoreUnavailable):
        await client.run_all([RENEWAL])
    server([UNKNOWN], loads=error)
    with pytest.raises(StoreUnavailable, match=str(error)):
        await client.run_all([RENEWAL])
    server([UNKNOWN], loads=ResponseError("NOPERM"))
    with pytest.raises(GroupflowError, match="NOPERM"):
        await client.run_all([RENEWAL])


async def test_a_late_call_leaves_the_wire_to_others(client: StoreClient, monkeypatch: Any) -> None:
    """A call without time to be answered in would end the connection for all that share it."""
    await client.run_all([RENEWAL])
    wire = client._wire
    assert wire is not None
    has_begun = asyncio.Event()

    def clock() -> float:
        """Behind the beginning of the call it is late."""
        now = monotonic() + 1000.0 * has_begun.is_set()
        has_begun.set()
        return now

    monkeypatch.setattr("groupflow.store.client.monotonic", clock)
    async with client._preparing:
        late = asyncio.create_task(client.run_all([RENEWAL]))
        await has_begun.wait()
    with pytest.raises(StoreUnavailable, match="does not answer: no answer within"):
        await late
    assert wire.is_open
    assert client._wire is wire


async def _enter_wakes(client: StoreClient) -> None:
    async with client.wakes():
        pass


ASKED: list[Callable[[StoreClient], Awaitable[Any]]] = [
    lambda client: client.run_all([RENEWAL]),
    lambda client: client.info("memory"),
    lambda client: client.ping(),
    lambda client: client.erase_namespace(),
    _enter_wakes,
]


@pytest.mark.parametrize("ask", ASKED)
async def test_a_silent_server_is_away(ask: Callable[[StoreClient], Awaitable[Any]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], 1):
            client = StoreClient(f"redis://127.0.0.1:{port}/0", Keys("n"), timeout=0.05)
            async with asyncio.timeout(deadline()):
                with pytest.raises(StoreUnavailable):
                    await ask(client)
            await client.close()


async def test_wakes_begin_with_one_and_end_with_the_subscription(client: StoreClient) -> None:
    redis, channel = await client._located(), client.keys.wake
    async with asyncio.timeout(deadline()):
        async with client.wakes() as wakes:
            assert await anext(wakes) == b"all"
            await redis.publish(channel, "ready")
            assert await anext(wakes) == b"ready"
            assert await redis.pubsub_numsub(channel) == [(channel.encode(), 1)]
        while dict(await redis.pubsub_numsub(channel))[channel.encode()]:
            pass


async def test_silence_is_told_from_a_dead_peer(client: StoreClient, monkeypatch: Any) -> None:
    """By a ping: what answers it lives, and is listened to on."""
    said: list[Any] = [None, {"type": "pong"}, {"type": "message", "data": b"ready"}, None, None]
    pings: list[int] = []

    class Silent:
        async def get_message(self, timeout: float) -> Any:
            return said.pop(0)

        async def ping(self) -> None:
            pings.append(1)

    wakes = client._wakes(Silent())
    assert await anext(wakes) == b"all"
    assert await anext(wakes) == b"ready"
    assert len(pings) == 1
    with pytest.raises(StoreUnavailable):
        await anext(wakes)
    assert len(pings) == 2


@pytest.mark.parametrize("callers", [1, 2])
async def test_others_may_leave_a_node_while_its_pools_end(
    client: StoreClient, callers: int
) -> None:
    """As at a fail-over: each has its answer all the same."""

    class Ending:
        async def disconnect(self) -> None:
            client._leave()
            await asyncio.sleep(0)

    client._pools.update({name: cast("Any", Ending()) for name in ("one", "two")})
    infos = await asyncio.gather(*(client.info("server") for _ in range(callers)))
    assert ["redis_version" in info for info in infos] == [True] * callers
    assert len(client._pools) == 1


async def test_one_namespace_is_erased(client: StoreClient, redis_server: RedisServer) -> None:
    """A thousand keys a step."""
    other = StoreClient(redis_server.url, Keys("test-client2"))
    for each in (client, other):
        await (await each._located()).mset({each.keys(f"k{n}"): n for n in range(2500)})
    await client.erase_namespace()
    try:
        assert await (await client._located()).keys("{test-client}*") == []
        assert len(await (await other._located()).keys("{test-client2}*")) == 2500
    finally:
        await other.erase_namespace()
        await other.close()


async def test_scripts_are_loaded_over_no_connection_of_before(redis_server: RedisServer) -> None:
    """One that stood idle while the server was restarted is closed, without a word in the log."""
    client = StoreClient(redis_server.url, Keys("idle"))
    raw = Redis.from_url(redis_server.url)
    try:
        await client.info("server")
        idle = [each for each in await raw.client_list() if each["cmd"] == "info"]
        for each in idle:
            await raw.client_kill_filter(_id=each["id"])
        assert idle
        await raw.script_flush()
        await client.run(Verb.START, "d1")
    finally:
        await client.close()
        await raw.aclose()
