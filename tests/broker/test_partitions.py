"""Partitions of a queue on a real RabbitMQ: a group stays in one, though queues come and go."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import orjson
import pytest
from aio_pika.abc import AbstractConnection

from groupflow import Message, Publisher
from groupflow.broker import partitions, topology
from groupflow.broker.connection import open_channel
from groupflow.broker.publisher import Address, Outgoing, publishing
from groupflow.core.errors import BrokerUnavailable, ConfigError
from groupflow.core.routing import Router
from groupflow.servers import RabbitmqServer
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule
from tests.broker.wires import connected, taken, waiting_in
from tests.deadlines import deadline

GROUPS = 40
RULES = (GroupRule(app="crm", key="{g}:{tenant_id}"),)


async def declare(url: str, queue: str, count: int) -> None:
    async with connected(url) as connection:
        await partitions.declare(connection, queue, count)


def router() -> Router:
    return Settings(groups=RULES).router()


def body(group: int | str, n: int = 0) -> bytes:
    return orjson.dumps({"app_name": "crm", "tenant_id": 1, "g": f"g{group}", "n": n})


def messages(rounds: int) -> list[Outgoing]:
    return [Outgoing(body(group, n), "t") for n in range(rounds) for group in range(GROUPS)]


async def taken_by_queue(url: str, queue: str, count: int) -> dict[str, list[tuple[str, int]]]:
    """The group and number of all that comes by each queue, in order."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name in partitions.names_of(queue, count):
        came = await taken(url, name, await waiting_in(url, name))
        bodies = [orjson.loads(each.body) for each in came]
        found[name] = [(fields["g"], fields["n"]) for fields in bodies]
    return found


def placed(found: dict[str, list[tuple[str, int]]]) -> dict[str, str]:
    """By which queue each group came; it must be one."""
    places = {(group, name) for name, came in found.items() for group, _ in came}
    assert len(places) == len({group for group, _ in places}) == GROUPS
    return dict(places)


async def test_publishers_of_all_kinds_agree(rabbitmq_server: RabbitmqServer, queue: str) -> None:
    """`groupflow publish`, an application's publisher, and plain AMQP with the group as key.

    Each group comes by one queue, in order.
    """
    url = rabbitmq_server.url
    await declare(url, queue, 3)
    async with publishing(url, queue, partitions=3, router=router()) as publisher:
        await publisher.publish_all(messages(5))
    groups = [{"app": "crm", "key": "{g}:{tenant_id}"}]
    async with Publisher(url, queue, partitions=3, groups=groups) as application:
        await application.publish_many(Message(body(group, 5), "t") for group in range(GROUPS))
    async with connected(url) as connection:
        channel = await open_channel(connection, confirms=True)
        for group in range(GROUPS):
            where: Any = {"exchange": queue, "routing_key": f"g{group}:1"}
            await channel.basic_publish(body(group, 6), **where, mandatory=True)
    found = await taken_by_queue(url, queue, 3)
    assert all(found.values())
    for key, name in placed(found).items():
        assert [n for each, n in found[name] if each == key] == list(range(7))


async def test_many_declare_at_once(rabbitmq_server: RabbitmqServer, queue: str) -> None:
    """No daemon finds a ring that isn't whole, or makes it in another order."""
    url = rabbitmq_server.url
    await asyncio.gather(*(declare(url, queue, 12) for _ in range(4)))
    async with publishing(url, queue, partitions=12, router=router()) as publisher:
        await publisher.publish_all(messages(1))
    first = placed(await taken_by_queue(url, queue, 12))
    async with connected(url) as connection:
        await topology.delete(connection, f"{queue}.3")  # and with it its place in the ring
    await asyncio.gather(*(declare(url, queue, 12) for _ in range(4)))
    async with publishing(url, queue, partitions=12, router=router()) as publisher:
        await publisher.publish_all(messages(1))
    assert placed(await taken_by_queue(url, queue, 12)) == first


async def test_who_may_not_bind_keeps_no_lock(rabbitmq_server: RabbitmqServer, queue: str) -> None:
    url = rabbitmq_server.url.replace("guest:", "reader:")
    async with connected(url) as first, connected(url) as second, asyncio.timeout(deadline(10)):
        await partitions.declare(first, queue, 2)
        await partitions.declare(second, queue, 2)


async def test_queues_of_before_are_found_behind_a_gap(
    connection: AbstractConnection, queue: str
) -> None:
    """Whichever an operator deletes first: what the others hold is consumed."""
    await partitions.declare(connection, queue, 6)
    await topology.delete(connection, f"{queue}.2")
    left = [f"{queue}.{n}" for n in (3, 4, 5)]
    assert await partitions.others_of(connection, queue, 2) == left
    for name in left[:2]:
        await topology.delete(connection, name)
    assert await partitions.others_of(connection, queue, 2) == left[2:]


async def test_an_exchange_of_that_name(connection: AbstractConnection, queue: str) -> None:
    channel = await open_channel(connection, confirms=False)
    await channel.exchange_declare(queue, exchange_type="fanout", durable=True)
    with pytest.raises(ConfigError, match="another kind"):
        await partitions.declare(connection, queue, 2)


def test_one_queue_is_its_own_key() -> None:
    address = Address("jobs")
    assert address.exchange == ""
    assert address.routing_key(Outgoing(b"{}", "t", "m")) == "jobs"


def test_a_group_goes_one_way_however_large_its_messages_are() -> None:
    """Daemons may take more values of a body than they do unless told."""
    groups = [{"app": "crm", "key": "{g}:{tenant_id}"}]
    large = body(7)[:-1] + b',"rows":[%b0]}' % (b"0," * 1_000_000)
    publisher = Publisher("amqp://localhost/", partitions=2, groups=groups)
    assert publisher._address.routing_key(Message(large, "t").checked()) == "g7:1"


LONG = "ä" * 127  # a routing key has 255 bytes at most, a group 512
BY_HEADER = (GroupRule(key="{header.who}"),)


KEYS: list[Any] = [
    (RULES, body(7), {}, "g7:1"),
    (RULES, b'{"app_name": "hr", "g": 1}', {}, "m"),  # plain
    (RULES, b'{"app_name": "crm"}', {}, "m"),  # no group can be made
    (RULES, b"no JSON", {}, "m"),
    (RULES, body(LONG), {}, sha256(f"g{LONG}:1".encode()).hexdigest()),
    (BY_HEADER, b"{}", {"who": b"anna"}, "anna"),  # as daemons read it
    (RULES, body(7), {"x-cancel": "other"}, "g7:1"),  # the way of the task that it cancels
    (RULES, b"{}", {"x-cancel": "other"}, "other"),
]


@pytest.mark.parametrize(("rules", "sent", "headers", "key"), KEYS)
def test_groups_are_keys(
    rules: tuple[GroupRule, ...], sent: bytes, headers: dict[str, Any], key: str
) -> None:
    address = Address("jobs", Settings(groups=rules).router())
    assert address.exchange == "jobs"
    assert address.routing_key(Outgoing(sent, "t", "m", headers)) == key


async def test_the_first_node_that_answers(rabbitmq_server: RabbitmqServer, queue: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:1,127.0.0.1:{rabbitmq_server.port},127.0.0.1:2/"
    for _ in range(8):  # they are tried in an order of chance
        async with connected(url) as connection:
            assert await partitions.has_plugin(connection, queue) is True


async def test_no_node_answers() -> None:
    url = "amqp://guest:secret@127.0.0.1:1,127.0.0.1:2/"
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1 .*127\.0\.0\.1:2 ") as refused:
        async with connected(url):
            pass
    assert "secret" not in str(refused.value)
