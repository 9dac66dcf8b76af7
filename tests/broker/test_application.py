"""`groupflow.Publisher` on a real RabbitMQ: confirms, ids, refusals, connections that break."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import orjson
import pytest

import groupflow
from groupflow import Message, Publisher, PublishRefused, QueueMissing, Unroutable
from groupflow.broker import replies, terms, topology
from groupflow.broker.connection import connect
from groupflow.core import errors
from groupflow.core.errors import ConfigError, GroupflowError
from groupflow.servers.server import free_ports
from tests.broker.wires import connected, make_queue, proxied, taken, waiting_in
from tests.deadlines import deadline
from tests.servers.proxy import Proxy

BODY = {"app_name": "crm", "tenant_id": 42}


def test_the_package_is_light() -> None:
    """A handlers' module that publishes nothing pays nothing for it."""
    there = "'aio_pika' in sys.modules"
    code = f"import sys, groupflow; assert not {there}; groupflow.Publisher; assert {there}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=deadline())


async def test_what_is_published_arrives_whole(rabbitmq_server: Any, queue: str) -> None:
    url = rabbitmq_server.url
    raw = b'{ "app_name":  "crm", "n": 123456789012345678901234567890 }'
    async with Publisher(url, queue, declare=True) as publisher:
        fresh = await publisher.publish(BODY, type="import")
        assert await publisher.publish(raw, id="租户-1", headers={"x-key": "a"}) == "租户-1"
        facts: dict[str, Any] = {"type": "t", "priority": 1.5, "delay": 0.25, "expires": 90}
        message = Message("{}", **facts)
        assert await publisher.publish(message) == message.id
        for name, fact in {**facts, "id": message.id, "headers": {}}.items():
            with pytest.raises(TypeError, match=f"a message has its own {name}"):
                await publisher.publish(message, **{name: fact})
        await publisher.cancel("租户-1", BODY, headers={"x-key": "a"})
        with pytest.raises(Unroutable, match="the id has control characters"):
            await publisher.cancel("a\n")
    one, two, three, four = await taken(url, queue, 4)
    assert (orjson.loads(one.body), one.type, one.message_id) == (BODY, "import", fresh)
    assert (two.body, two.type, two.message_id) == (raw, None, "租户-1")
    assert two.headers == {"x-key": "a"}
    assert three.headers == {"x-priority": "1.5", "x-delay": 250, "x-expires": 90}
    assert (three.type, three.message_id) == ("t", message.id)
    assert (orjson.loads(four.body), four.headers) == (BODY, {"x-key": "a", "x-cancel": "租户-1"})


async def test_many_keep_their_order_over_cuts(rabbitmq_server: Any, queue: str) -> None:
    """Each id once and in order, apart from repeats, which dedup drops."""
    messages = [Message({"n": n}, "work", f"m{n}") for n in range(3000)]

    async with proxied(rabbitmq_server) as (proxy, url):
        cuts = 0

        def feed() -> Iterator[Message]:
            nonlocal cuts
            for n, message in enumerate(messages):
                if n in (700, 1500, 2990):
                    cuts += 1
                    proxy.cut()
                yield message

        async with Publisher(url, queue, declare=True) as publisher:
            assert await publisher.publish_many(feed()) == [m.id for m in messages]
        assert cuts == 3
    count = await waiting_in(rabbitmq_server.url, queue)
    arrived = [delivery.message_id for delivery in await taken(rabbitmq_server.url, queue, count)]
    assert list(dict.fromkeys(arrived)) == [m.id for m in messages]


async def test_many_may_come_slowly(
    rabbitmq_server: Any, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confirms and heartbeats pass in between; a connection that is lost meanwhile is replaced."""
    confirmed, loop, clock = list[int](), asyncio.get_running_loop(), 0.0

    def feed() -> Iterator[Message]:
        nonlocal clock
        for n in range(4):
            confirmed.append(one._confirmed)
            time.sleep(0.02)
            yield Message(BODY, "work", f"m{n}")
        clock += 1000.0
        proxy.cut()
        yield Message(BODY, "work", "last")

    async with published_through(rabbitmq_server, queue) as (proxy, publisher):
        await publisher.open()
        one = terms.PublishedInOrder(deadline(), feed(), 1000)
        turned = loop.time
        monkeypatch.setattr(loop, "time", lambda: turned() + clock)
        assert (await one.publish(publisher._terms))[-1] == "last"
    assert confirmed == [0, 1, 2, 3]


@asynccontextmanager
async def published_through(server: Any, queue: str) -> AsyncIterator[tuple[Proxy, Publisher]]:
    async with proxied(server) as (proxy, url), Publisher(url, queue, declare=True) as publisher:
        yield proxy, publisher


async def test_one_is_published_again_under_its_id(rabbitmq_server: Any, queue: str) -> None:
    """A connection that dies with the confirm on its way: the same id goes out again."""
    async with published_through(rabbitmq_server, queue) as (proxy, publisher):
        proxy.hold("down")
        publishing = asyncio.create_task(publisher.publish(BODY, type="work", id="the-one"))
        while not await waiting_in(rabbitmq_server.url, queue):
            pass  # it is asked by a connection of its own each time
        proxy.cut()
        proxy.release()
        assert await publishing == "the-one"
    arrived = await taken(rabbitmq_server.url, queue, 2)
    assert [delivery.message_id for delivery in arrived] == ["the-one", "the-one"]


async def test_what_is_behind_a_refusal_stays_behind(rabbitmq_server: Any, queue: str) -> None:
    """The connection is lost before those in front are confirmed: only they are sent again."""
    async with published_through(rabbitmq_server, queue) as (proxy, publisher):
        await publisher.open()

        def feed() -> Iterator[Message]:
            yield Message(BODY, "work", "before")
            proxy.cut()
            yield Message(b"", "work", "wrong")
            yield Message(BODY, "work", "behind")

        with pytest.raises(Unroutable, match="empty body"):
            await publisher.publish_many(feed())
        await publisher.publish(BODY, type="work", id="last")
    arrived = await taken(rabbitmq_server.url, queue, 2)
    assert [delivery.message_id for delivery in arrived] == ["before", "last"]


async def test_a_publisher_that_is_closed_opens_nothing(
    rabbitmq_server: Any, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """Not even what it was about to: for messages, or for replies."""
    opened = list[Any]()

    async def slowly(*arguments: Any, **options: Any) -> Any:
        opened.append(await connect(*arguments, **options))
        closing = asyncio.create_task(publisher.close())
        await asyncio.sleep(0)
        await closing
        return opened[-1]

    for module in (terms, replies):
        monkeypatch.setattr(module, "connect", slowly)
        publisher = Publisher(rabbitmq_server.url, queue, declare=True)
        with pytest.raises(GroupflowError, match="closed"):
            await publisher.request(BODY, type="work", timeout=deadline())
        assert [each.is_closed for each in opened] == [True] * len(opened)
        monkeypatch.undo()
    assert (len(opened), "never retrieved" in caplog.text) == (2, False)


async def test_a_missing_queue_is_said(rabbitmq_server: Any, queue: str) -> None:
    """Nothing is lost in silence; and the publisher goes on once the queue is there.

    RabbitMQ confirms what it could route nowhere, and hands it back first: that is no success.
    Found by the nemesis (seed 5001): what was published before the queue was declared again
    counted as published, and was lost.
    """
    async with Publisher(rabbitmq_server.url, queue) as publisher:
        with pytest.raises(QueueMissing, match=queue):
            await publisher.publish(BODY, type="work")
        with pytest.raises(QueueMissing) as caught:
            await publisher.publish_many([Message(BODY, "work"), Message(BODY, "work")])
        assert caught.value.confirmed == 0
        same = [publisher.publish(BODY, type="work", id="same") for _ in range(2)]
        ended = await asyncio.gather(*same, return_exceptions=True)
        assert [type(each) for each in ended] == [QueueMissing] * 2
        async with connected(rabbitmq_server.url) as connection:
            await topology.declare(connection, queue)
            await publisher.publish(BODY, type="work")
            await topology.delete(connection, queue)
        with pytest.raises(QueueMissing, match="was deleted"):
            await publisher.publish(BODY, type="work")


async def test_many_keep_their_order_where_an_id_comes_again(
    rabbitmq_server: Any, queue: str
) -> None:
    async with Publisher(rabbitmq_server.url, queue, declare=True) as publisher:
        ids = ["a", "b", "a", "a", "c"]
        assert await publisher.publish_many(Message(BODY, "work", id_) for id_ in ids) == ids
    arrived = await taken(rabbitmq_server.url, queue, 5)
    assert [delivery.message_id for delivery in arrived] == ids


async def test_a_full_queue_refuses(rabbitmq_server: Any, queue: str) -> None:
    """What was confirmed is counted, so that the rest can be given again."""
    await make_queue(rabbitmq_server.url, queue, x_max_length=3, x_overflow="reject-publish")
    messages = [Message({"n": n}, "work", f"m{n}") for n in range(6)]
    async with Publisher(rabbitmq_server.url, queue) as publisher:
        with pytest.raises(PublishRefused, match="full") as caught:
            await publisher.publish_many(messages)
        confirmed = caught.value.confirmed
        assert confirmed == 3
        arrived = await taken(rabbitmq_server.url, queue, 3)
        await publisher.publish_many(messages[confirmed:])
        arrived += await taken(rabbitmq_server.url, queue, 3)
    assert [delivery.message_id for delivery in arrived] == [m.id for m in messages]


async def test_what_would_be_a_dead_letter_is_not_sent(rabbitmq_server: Any, queue: str) -> None:
    async with Publisher(rabbitmq_server.url, queue, declare=True) as publisher:
        wrong: list[tuple[Any, dict[str, Any], str]] = [
            *((b"", {}, "empty body"), ("[1]", {}, "not a JSON object"), (b"\xff", {}, "UTF-8")),
            *(({"a": object()}, {}, "JSON"), (BODY, {"id": "a\nb"}, "control")),
            *((BODY, {name: "ä" * 128}, "255 bytes") for name in ("id", "type")),
            *((BODY, {"delay": -1}, "delay"), (BODY, {"priority": float("nan")}, "priority")),
            *((BODY, {"headers": {"a": a}}, "headers") for a in (object(), 2**70, "\ud800")),
            (BODY, {"headers": {"a" * 129: 1}}, "128 bytes"),
            (BODY, {"headers": {"a": orjson.loads("[" * 17 + "]" * 17)}}, "16 deep"),
            (BODY, {"headers": {"a": [0] * 2000}}, "over 1024 values"),
            (BODY, {"headers": {"a": "x" * 65_536}}, "rabbitmq.max_headers = 65536"),
        ]
        for body, facts, said in wrong:
            with pytest.raises(Unroutable, match=said):
                await publisher.publish(body, **facts)
        good = [Message({"n": n}, "work", f"m{n}") for n in range(3)]
        with pytest.raises(Unroutable, match="empty body"):
            await publisher.publish_many([*good, Message(b"", "work"), Message(BODY, "work")])
    arrived = await taken(rabbitmq_server.url, queue, 3)
    assert [delivery.message_id for delivery in arrived] == ["m0", "m1", "m2"]


async def both(publisher: Publisher, error: type[GroupflowError]) -> list[Any]:
    """Publish one message, and many: both end with that error."""
    one = publisher.publish(BODY, type="work", id="the-one")
    many = publisher.publish_many([Message(BODY, "work")])
    ended = await asyncio.gather(one, many, return_exceptions=True)
    assert [type(each) for each in ended] == [error, error]
    return [*ended]


async def test_no_confirm_is_told_from_no_connection(rabbitmq_server: Any, queue: str) -> None:
    async with (
        proxied(rabbitmq_server) as (proxy, url),
        Publisher(url, queue, declare=True, timeout=deadline(1.0)) as publisher,
    ):
        await publisher.publish(BODY, type="work")
        proxy.hold("down")
        one, _ = await both(publisher, groupflow.ConfirmTimeout)
        assert "the-one" in str(one)
        proxy.refuse(refuse=True)
        proxy.cut()
        _, many = await both(publisher, groupflow.BrokerUnavailable)
        assert many.confirmed == 0
        proxy.heal()
        await publisher.publish(BODY, type="work")
    with pytest.raises(GroupflowError, match="closed"):
        await publisher.publish(BODY, type="work")


async def test_an_outage_is_told_once_and_its_end_too(
    rabbitmq_server: Any, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """However many tries it takes; and nothing of what the libraries below say of each."""
    gc.collect()  # asyncio tells of other tests' tasks when they go
    caplog.set_level("INFO")
    tries, many = 0, asyncio.Event()

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 5:
            many.set()
        return await connect(*arguments, **options)

    async with published_through(rabbitmq_server, queue) as (proxy, publisher):
        await publisher.publish(BODY, type="work")
        monkeypatch.setattr(terms, "connect", counted)
        proxy.refuse(refuse=True)
        proxy.cut()
        waiting = [asyncio.create_task(publisher.publish(BODY, type="work")) for _ in range(5)]
        async with asyncio.timeout(deadline()):
            await many.wait()
            proxy.heal()
            await asyncio.gather(*waiting)
    assert {record.name for record in caplog.records} == {"groupflow.publisher"}
    waits, goes_on = (record.getMessage() for record in caplog.records)
    assert waits.startswith("publishing waits: ")
    assert goes_on.startswith(f"publishing goes on: RabbitMQ at 127.0.0.1:{proxy.port} was away")


async def test_the_applications_own_connections_go_on_being_told_of(
    rabbitmq_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What it does with the same libraries is its own affair."""
    (port,) = free_ports(1)
    async with connected(rabbitmq_server.url):
        pass
    with pytest.raises(aio_pika.exceptions.CONNECTION_EXCEPTIONS):
        await aio_pika.connect(f"amqp://127.0.0.1:{port}/")
    assert [record.name for record in caplog.records] == ["aiormq.connection"]


async def test_what_can_not_work_is_said_at_once(rabbitmq_server: Any, queue: str) -> None:
    with pytest.raises(ConfigError, match=r"rabbitmq\.url"):
        Publisher("http://localhost/")
    with pytest.raises(ConfigError, match="plaintext"):
        Publisher("amqp://rabbit.example/")
    wrong = rabbitmq_server.url.replace("guest:guest", "guest:hushhush")
    with pytest.raises(errors.ServerUnreachable, match="credentials") as caught:
        await Publisher(wrong, queue).open()
    assert "hushhush" not in str(caught.value)
    (port,) = free_ports(1)
    with pytest.raises(groupflow.BrokerUnavailable, match=str(port)):
        await Publisher(f"amqp://guest:hushhush@127.0.0.1:{port}/", queue, timeout=0.3).open()


async def test_a_body_over_rabbitmqs_own_limit_is_refused(rabbitmq_server: Any, queue: str) -> None:
    """RabbitMQ closes the channel for it; the next message opens another."""
    async with Publisher(rabbitmq_server.url, queue, declare=True) as publisher:
        large = b'{"a": "%s"}' % (b"x" * (128 * 1024 * 1024))
        with pytest.raises(PublishRefused, match="larger"):
            await publisher.publish(large, type="work")
        await publisher.publish(BODY, type="work")


def test_a_configuration_says_where(tmp_path: Any) -> None:
    file = tmp_path / "groupflow.toml"
    file.write_text('[rabbitmq]\nurl = "amqp://u:p@localhost:5/v"\nqueue = "q"\n')
    publisher = Publisher.from_config(file)
    assert (publisher._url, publisher._address.name) == ("amqp://u:p@localhost:5/v", "queue 'q'")


async def test_headers_over_a_frame_harm_nobody_else(rabbitmq_server: Any, queue: str) -> None:
    """They are refused before they are sent: the connection stays, with what is under way on it."""
    url = rabbitmq_server.url
    async with Publisher(url, queue, declare=True, max_headers=1_000_000) as publisher:
        await publisher.publish(BODY, type="work", id="first")
        term = await publisher._terms.reach()
        others = [publisher.publish(BODY, type="work", id=f"m{n}") for n in range(50)]
        large = {"a": "x" * 131_072}
        refused, *ids = await asyncio.gather(
            publisher.publish(BODY, type="work", headers=large), *others, return_exceptions=True
        )
        assert isinstance(refused, errors.HeadersTooLarge), refused
        assert "131072 (frame_max)" in str(refused)
        assert ids == [f"m{n}" for n in range(50)]
        fits = {"a": "x" * (131_072 - 300)}
        assert await publisher.publish(BODY, type="work", id="fits", headers=fits) == "fits"
        assert await publisher._terms.reach() is term
    last = (await taken(url, queue, 52))[-1]
    assert (last.message_id, len(last.headers["a"])) == ("fits", 131_072 - 300)
