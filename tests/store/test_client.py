"""The client: what is told of a server that refuses, is silent, or has forgotten its scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection
from redis.exceptions import AuthenticationError, OutOfMemoryError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreFull, StoreUnavailable
from groupflow.core.measures import EXCHANGE, ScriptMeasures
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.pool import make_pool
from groupflow.store.refusals import address_of, translated
from groupflow.store.scripts import Verb
from groupflow.store.wire import Wire, Wires
from tests.deadlines import deadline


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:secret@host:1/0", "host:1"),
        ("redis://host/0", "host"),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
def test_an_address_has_no_password(url: str, address: str) -> None:
    assert address_of(url) == address


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
        (OSError("refused"), StoreUnavailable),
        (ResponseError("LOADING its file"), StoreUnavailable),
        (ResponseError("READONLY a replica"), StoreUnavailable),
        (ResponseError("ERR LOADING"), GroupflowError),
        (ValueError("BUSY"), GroupflowError),
    ],
)
def test_each_error_has_its_kind(error: Exception, ours: type[Exception]) -> None:
    assert type(translated(error, "host:1")) is ours


def test_connections_are_kept_alive_and_verified() -> None:
    plain, local = make_pool("redis://host:1/0", 5.0), make_pool("unix:///run/redis.sock", 5.0)
    assert plain.connection_kwargs["socket_keepalive"] is True
    assert plain.connection_kwargs["retry"].get_retries() == 0
    assert "socket_keepalive" not in local.connection_kwargs
    assert "tls" not in plain.connection_kwargs
    secure = make_pool("rediss://host:1/0", 5.0)
    assert issubclass(secure.connection_class, SSLConnection)
    made = secure.connection_class(**secure.connection_kwargs)
    assert made.ssl_context.context is secure.connection_kwargs["tls"]


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[StoreClient]:
    """On a namespace of its own."""
    client = StoreClient(redis_server.url, Keys("test-client"), measures=ScriptMeasures())
    try:
        yield client
    finally:
        await client.erase_namespace()
        await client.close()


def _renewal() -> tuple[Verb, tuple[str | int, ...]]:
    return Verb.RENEW, ("d1", "1", 1_000_000)


async def test_calls_made_at_once_share_one_connection(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a new one is opened once it is gone, with the scripts loaded as they are."""
    opened: list[Wire] = []
    open_one = Wires.open

    async def opening(wires: Wires, timeout: float) -> Wire:
        wire = await open_one(wires, timeout)
        opened.append(wire)
        return wire

    monkeypatch.setattr(Wires, "open", opening)
    verb, arguments = _renewal()
    await asyncio.gather(*(client.run(verb, *arguments) for _ in range(5)))
    assert len(opened) == 1
    opened[0].close()
    await asyncio.gather(*(client.run(verb, *arguments) for _ in range(5)))
    assert len(opened) == 2
    await client.close()
    assert not opened[1].is_open


async def test_a_server_that_forgets_each_script_is_none(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
        if _are_loads(commands):
            return [b"sha"] * len(commands)
        sent.append(len(commands))
        return [ResponseError("NOSCRIPT No matching script.")] * len(commands)

    monkeypatch.setattr(Wire, "call", call)
    with pytest.raises(GroupflowError, match="refused a script: NOSCRIPT"):
        await client.run(*_renewal()[:1], *_renewal()[1])
    assert sent == [1, 1]


def _are_loads(commands: list[bytes]) -> bool:
    return b"SCRIPT" in commands[0]


@pytest.mark.parametrize("error", [RedisConnectionError("reset"), RedisTimeoutError("late")])
async def test_a_connection_that_breaks_meanwhile_is_a_server_that_is_away(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
        raise error

    monkeypatch.setattr(Wire, "call", call)
    with pytest.raises(StoreUnavailable):
        await client.run(*_renewal()[:1], *_renewal()[1])


async def test_of_several_one_that_is_unknown_has_all_run_again(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a lost reply; another error has none run again."""
    unknown, refused = ResponseError("NOSCRIPT No matching script."), ResponseError("ERR no")
    answers: list[list[Any]] = [[1, unknown], [1, 2], [1, refused]]

    async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
        return [b"sha"] * len(commands) if _are_loads(commands) else answers.pop(0)

    monkeypatch.setattr(Wire, "call", call)
    assert await client.run_all([_renewal(), _renewal()]) == [1, 2]
    with pytest.raises(GroupflowError):
        await client.run_all([_renewal(), _renewal()])
    assert answers == []


@pytest.mark.parametrize(
    ("error", "ours"),
    [(RedisTimeoutError("late"), StoreUnavailable), (ResponseError("NOPERM"), GroupflowError)],
)
async def test_scripts_that_are_not_taken_end_the_call(
    client: StoreClient,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    ours: type[Exception],
) -> None:
    async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
        if not _are_loads(commands):
            return [ResponseError("NOSCRIPT")] * len(commands)
        if isinstance(error, RedisTimeoutError):
            raise error
        return [error] * len(commands)

    monkeypatch.setattr(Wire, "call", call)
    with pytest.raises(ours, match=str(error)):
        await client.run(*_renewal()[:1], *_renewal()[1])


async def test_nothing_overtakes_a_call_whose_scripts_are_loaded(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for later, so it runs later."""
    happened: list[str] = []
    loading, may_load = asyncio.Event(), asyncio.Event()

    async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
        if _are_loads(commands):
            loading.set()
            await may_load.wait()
            happened.append("loaded")
            return [b"sha"] * len(commands)
        happened.append(f"call {len(commands)}")
        return [ResponseError("NOSCRIPT") if len(happened) == 1 else 1] * len(commands)

    monkeypatch.setattr(Wire, "call", call)
    first = asyncio.create_task(client.run_all([_renewal()] * 3))
    async with asyncio.timeout(deadline()):
        await loading.wait()
        second = asyncio.create_task(client.run_all([_renewal()] * 2))
        for _ in range(10):
            await asyncio.sleep(0)
        may_load.set()
        assert await first == [1, 1, 1]
        assert await second == [1, 1]
    assert happened[:2] == ["call 3", "loaded"]


async def test_a_call_that_waited_too_long_for_a_connection_leaves_it_to_the_others(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call without time to be answered in would end the connection for all that share it."""
    verb, arguments = _renewal()
    await client.run(verb, *arguments)
    wire = client._wire
    assert wire is not None
    async with client._preparing:
        late = asyncio.create_task(client.run(verb, *arguments))
        await asyncio.sleep(0)
        monkeypatch.setattr("groupflow.store.client.monotonic", lambda: monotonic() + 6.0)
    with pytest.raises(StoreUnavailable, match="does not answer: no answer within"):
        await late
    assert wire.is_open
    assert client._wire is wire


async def test_an_answer_that_looks_like_an_error_is_none(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a script answers is a stranger's text, perhaps."""
    sent: list[int] = []

    async def call(_: Wire, commands: list[bytes], timeout: float) -> list[Any]:
        sent.append(len(commands))
        return ["NOSCRIPT No matching script."]

    monkeypatch.setattr(Wire, "call", call)
    assert await client.run(*_renewal()[:1], *_renewal()[1]) == "NOSCRIPT No matching script."
    assert sent == [1]


async def test_round_trips_are_counted(client: StoreClient) -> None:
    measures = client._measures
    await client.run_all([_renewal()])
    await client.run_all([_renewal(), _renewal()])
    assert {verb: sum(histogram.counts) for verb, histogram in measures.seconds.items()} == {
        Verb.RENEW: 1,
        EXCHANGE: 1,
    }
    with pytest.raises(GroupflowError):
        await client.run(Verb.RENEW)
    assert measures.failed == {Verb.RENEW: 1}


async def _enter_wakes(client: StoreClient) -> None:
    async with client.wakes():
        pass


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.run(Verb.RENEW, "d1", "1", 1),
        lambda client: client.info("memory"),
        lambda client: client.ping(),
        _enter_wakes,
    ],
)
async def test_a_server_that_says_nothing_is_away(
    ask: Callable[[StoreClient], Awaitable[Any]],
) -> None:
    over = asyncio.Event()

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = StoreClient(f"redis://127.0.0.1:{port}/0", Keys("n"), timeout=0.05)
    try:
        async with asyncio.timeout(deadline()):
            with pytest.raises(StoreUnavailable):
                await ask(client)
    finally:
        over.set()
        await client.close()
        server.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.run(Verb.RENEW, "d1", "1", 1),
        lambda client: client.info("memory"),
        lambda client: client.ping(),
        lambda client: client.erase_namespace(),
        _enter_wakes,
    ],
)
async def test_a_server_that_is_not_there_is_away(
    ask: Callable[[StoreClient], Awaitable[Any]],
) -> None:
    client = StoreClient("redis://127.0.0.1:1/0", Keys("n"))
    with pytest.raises(StoreUnavailable):
        await ask(client)
    await client.close()


async def test_wakes_begin_with_one_and_end_with_the_subscription(
    client: StoreClient,
) -> None:
    async with asyncio.timeout(deadline()):
        async with client.wakes() as wakes:
            assert await anext(wakes) == b"all"
            await (await client._located()).publish(client.keys.wake, "ready")
            assert await anext(wakes) == b"ready"
            assert await (await client._located()).pubsub_numsub(client.keys.wake) == [
                (client.keys.wake.encode(), 1)
            ]
        while dict(await (await client._located()).pubsub_numsub(client.keys.wake))[
            client.keys.wake.encode()
        ]:
            await asyncio.sleep(0)


async def test_a_silent_channel_is_told_from_a_dead_peer(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_namespace_is_erased_and_no_other(
    client: StoreClient, redis_server: RedisServer
) -> None:
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
        await client.run(Verb.START)
    finally:
        await client.close()
        await raw.aclose()
