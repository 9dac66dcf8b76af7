"""The rights that `deploy/` hands out are enough for all that groupflow does, and no more."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import hypothesis
import pytest
from aio_pika.abc import AbstractConnection
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis
from redis.exceptions import NoPermissionError

from groupflow import Publisher, QueueMissing
from groupflow.broker import partitions, topology
from groupflow.broker.archive import Archive
from groupflow.broker.consumer import Consumer, consuming
from groupflow.broker.events import EventPublisher, EventsRefused, Published
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.broker.replies import Replies
from groupflow.core.errors import BrokerUnavailable
from groupflow.core.events import Told
from groupflow.core.measures import Types
from groupflow.doctor.rabbitmq import examine_rabbitmq
from groupflow.doctor.redis import examine_redis
from groupflow.operate.dead import sweep_letters
from groupflow.operate.statistics import Busyness, Latencies, take_sample
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from groupflow.store.history import rotate_history
from groupflow.store.keys import Keys
from tests.broker import wires
from tests.model.test_model import StoreMachine
from tests.page.context import client_of
from tests.page.test_endpoints import SHOWN
from tests.programs import ran
from tests.running import running
from tests.security.conftest import TlsRabbitmq
from tests.security.strict import StrictBroker
from tests.servers.valkey import ValkeyServer
from tests.store.bench import Bench, arrival
from tests.store.test_large import large

DEPLOY = Path(__file__).parents[3] / "deploy"
ACL = (DEPLOY / "redis" / "groupflow.acl").read_text()
KEYS = Keys("groupflow")
QUEUE, EVENTS = "jobs.a+b", "told.a+b"
ROUTER = Settings().router()


@pytest.fixture(scope="module", params=[RedisServer, ValkeyServer])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[RedisServer]:
    """Redis, then Valkey, with our ACL file and a password."""
    folder = tmp_path_factory.mktemp("acl")
    file = folder / "users.acl"
    ours = f"{ACL.strip()} >pw\n"
    model = ours.replace("user groupflow", "user model").replace("{groupflow}", "{model}")
    file.write_text(f"user default on nopass ~* &* +@all\n{ours}{model}")
    with running(request.param(folder / "server", extra=("--aclfile", str(file)))) as server:
        yield server


def as_user(url: str, name: str = "groupflow") -> str:
    return url.replace("redis://", f"redis://{name}:pw@")


def of_redis(url: str, replicas: int = 0) -> Settings:
    return Settings.model_validate({"redis": {"url": as_user(url), "replicas": replicas}})


def of_rabbitmq(url: str, partitions: int = 1, events: str = EVENTS) -> Settings:
    rabbitmq = {"url": url, "queue": QUEUE, "partitions": partitions}
    history = {"dead_retention": 60.0}  # as the tests' archive has it
    told = {"exchange": events}
    return Settings.model_validate({"rabbitmq": rabbitmq, "history": history, "events": told})


@contextmanager
def nothing_denied(server: RedisServer) -> Iterator[Redis]:
    """Redis's own log of what users were denied stays empty; a client that may do everything."""
    admin: Any = Redis.from_url(server.url)
    admin.execute_command("ACL", "LOG", "RESET")
    yield admin
    assert admin.execute_command("ACL", "LOG") == []


class TestRedis:
    def test_whatever_tasks_come_to(self, guarded: RedisServer, monkeypatch: Any) -> None:
        """The model's histories: each verb of the store, by a user with the same rights."""
        clients = list[StoreClient]()

        def as_model(url: str, *more: Any, **how: Any) -> StoreClient:
            clients.append(StoreClient(as_user(url, "model"), *more, **how))
            return clients[-1]

        monkeypatch.setattr("tests.store.bench.StoreClient", as_model)
        lived = type("Lived", (StoreMachine,), {"url": guarded.url})
        with nothing_denied(guarded):
            run_state_machine_as_test(lived, settings=hypothesis.settings(max_examples=10))
        assert clients

    async def test_what_daemons_tell_and_the_page_reads(self, guarded: RedisServer) -> None:
        bench = Bench(as_user(guarded.url), keys=KEYS)
        with nothing_denied(guarded) as bench.raw:
            daemon = await bench.daemon("d1")
            async with bench.client.wakes() as wakes:
                assert await anext(wakes) == b"all"
            await bench.client.info("memory")
            await bench.enqueue(arrival("run-0", "g"), arrival("plain-0"), arrival("y", dead="x"))
            await bench.enqueue(large("large", "l", priority=-9.0))
            await daemon.claim("grouped", "w1")
            await daemon.complete(await daemon.claim_one("plain"))
            await daemon.sessions.tell({"workers": 1}, {"workers": {}})
            await take_sample(bench.client, Latencies(), Busyness(Types(["t"]), lambda: 1))
            async with client_of(bench.namespace) as api:
                for path in SHOWN:
                    assert (await api.get(f"/{path}")).status_code in (200, 404), path
            await sweep_letters(bench.client, -1.0, 10)
            await rotate_history(bench.client, keep=0.0, size=1)
            await daemon.sessions.leave()
        checks = await examine_redis(of_redis(guarded.url))
        assert {c.name: c.verdict for c in checks}["redis.rights"] == "ok", checks
        assert bench.raw.keys("*doctor*") == []
        await bench.close()

    def test_what_it_may_not(self, guarded: RedisServer) -> None:
        user: Any = Redis.from_url(as_user(guarded.url))
        for command in (
            *("GET {other}:task:1", "SET groupflow x", "PUBLISH {other}:wake x", "KEYS *"),
            *("FLUSHALL", "CONFIG SET maxmemory 1", "ACL LIST", "SCRIPT FLUSH"),
        ):
            with pytest.raises(NoPermissionError):
                user.execute_command(*command.split())

    async def test_enough_for_the_demo_s_corner(self, guarded: RedisServer) -> None:
        """With what the README adds for it."""
        (words,) = re.findall(r"`([^`]+ \+scan)`", (DEPLOY / "redis" / "README.md").read_text())
        bench = Bench(as_user(guarded.url, "demo"), keys=Keys("groupflow-demo-0a1b2c3d"))
        with nothing_denied(guarded) as bench.raw:
            user: Any = bench.raw
            user.execute_command("ACL", "SETUSER", "demo", *ACL.split()[2:], ">pw", *words.split())
            daemon = await bench.daemon("d1")
            async with bench.client.wakes() as wakes:
                assert await anext(wakes) == b"all"
            await bench.enqueue(arrival("plain-0"))
            await daemon.complete(await daemon.claim_one("plain"))
            await bench.client.erase_namespace()
            assert bench.raw.keys("{groupflow-demo-*") == []
        await bench.close()

    def test_nobody_can_log_in_with_the_file_as_it_is(self) -> None:
        assert [words for words in (" >", " #", "nopass") if words in ACL] == []


@pytest.mark.parametrize(("change", "replicas", "rights", "info"), [
    ("-hset -zadd", 0, "HSET, ZADD", ""),
    ("-set", 0, "SET", ""),
    ("-evalsha", 0, "scripts can't be run", ""),
    ("-script|load", 0, "scripts can't be loaded", ""),
    ("-subscribe", 0, "SUBSCRIBE to {groupflow}:wake", ""),
    ("resetkeys ~{groupflow}: ~{groupflow}:doctor*", 0, "EXISTS on {groupflow}:lane:", ""),
    ("resetchannels", 0, "PUBLISH on {groupflow}:wake", ""),
    # It is needed only where replicas are waited for.
    ("-wait", 0, "", ""),
    ("-wait", 1, "the user may not: WAIT", ""),
    ("-info", 0, "", "warn"),
])  # fmt: skip
async def test_the_doctor_names_what_is_denied(
    store_server: RedisServer, change: str, replicas: int, rights: str, info: str
) -> None:
    """Of a user that may do less, on Redis and on Valkey; it leaves nothing behind."""
    admin: Any = Redis.from_url(store_server.url)
    admin.execute_command("ACL", "SETUSER", *ACL.split()[1:], ">pw", *change.split())
    try:
        checks = await examine_redis(of_redis(store_server.url, replicas))
    finally:
        admin.execute_command("ACL", "DELUSER", "groupflow")
    found = {check.name: check for check in checks}
    assert found["redis.rights"].verdict == ("fail" if rights else "ok")
    assert rights in found["redis.rights"].found
    if info:
        assert {c.name: c.verdict for c in checks} == {"redis.info": info, "redis.rights": "ok"}
    assert admin.keys("{groupflow}:doctor*") == []


# Stands before rabbitmqctl and tells what others on the machine could read of each call.
_WATCHED = """\
#!/bin/sh
{ tr '\\0' ' ' </proc/$$/cmdline; tr '\\0' ' ' </proc/$$/environ; echo; } >>"$SEEN"
exec /usr/lib/rabbitmq/bin/rabbitmqctl "$@"
"""


def _program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o700)
    return str(path)


def _run_script(
    variables: dict[str, str], *arguments: str, password: str = "daemon-pw"
) -> CompletedProcess[str]:
    passwords = {"GROUPFLOW_PASSWORD": password, "PUBLISHER_PASSWORD": "publisher-pw"}
    script = DEPLOY / "rabbitmq" / "permissions.sh"
    return ran(script, *arguments, env={**os.environ, **variables, **passwords}, seconds=300.0)


def test_a_rabbitmqctl_that_does_not_do_it(tmp_path: Path) -> None:
    for does, code, words in (
        # It waits for an end of its input that never comes, as one of RabbitMQ 4 may.
        ("exec sleep 1000", 124, "no answer within 0.2 s"),
        ("echo no such node >&2; exit 69", 69, "no such node\n"),
    ):
        program = _program(tmp_path / "program", f"#!/bin/sh\n{does}\n")
        told = _run_script({"RABBITMQCTL": program, "RABBITMQCTL_TIMEOUT": "0.2"})
        assert (told.returncode, words in told.stderr) == (code, True)


@dataclass(frozen=True)
class Granted:
    """A RabbitMQ with the users that the script makes.

    Attributes:
        port: where it listens.
        seen: what others on the machine could read of the script's calls.
    """

    port: int
    seen: str

    def daemon(self, port: int = 0) -> str:
        return f"amqp://groupflow:daemon-pw@127.0.0.1:{port or self.port}/%2Fgroupflow"

    def publisher(self, port: int = 0) -> str:
        where = f"127.0.0.1:{port or self.port}/%2Fgroupflow"
        return f"amqp://groupflow-publisher:publisher-pw@{where}"


@pytest.fixture(scope="module")
def granted(tls_rabbitmq: TlsRabbitmq, tmp_path_factory: pytest.TempPathFactory) -> Granted:
    folder = tmp_path_factory.mktemp("permissions")
    variables = tls_rabbitmq.environment() | {
        "RABBITMQCTL": _program(folder / "watched", _WATCHED),
        "RABBITMQCTL_TIMEOUT": "250",
        "SEEN": str(folder / "seen"),
    }
    # Twice: the second time all of it is there, and the passwords are set again.
    for password in ("another-pw", "daemon-pw"):
        told = _run_script(variables, "/groupflow", QUEUE, EVENTS, password=password)
        assert told.returncode == 0, told.stderr
    return Granted(tls_rabbitmq.port, (folder / "seen").read_text())


@asynccontextmanager
async def connected(granted: Granted, *queues: str) -> AsyncIterator[AbstractConnection]:
    """A daemon's connection; its queues are deleted at the end."""
    async with wires.connected(granted.daemon()) as connection:
        try:
            yield connection
        finally:
            for queue in queues:
                await topology.delete(connection, queue)


# rabbitmqctl of RabbitMQ 4 takes a minute where all cores are busy.
@pytest.mark.timeout(300)
class TestRabbitmq:
    async def test_enough_and_no_more(self, granted: Granted) -> None:
        assert granted.seen.count(" change_password ") == 2
        assert "-pw" not in granted.seen
        daemon, publisher = granted.daemon(), granted.publisher()
        async with connected(granted, QUEUE) as connection:
            await topology.declare(connection, QUEUE)
            async with publishing(publisher, QUEUE) as out:
                await out.publish(Outgoing(b"{}", message_id="m1"))
            consumer = Consumer(QUEUE, 1000)
            async with consuming(connection, consumer, 10):
                (delivery,) = await consumer.take(1, 1)
                assert delivery.message_id == "m1"
                await consumer.ack_through(delivery)
            archive = Archive(daemon, QUEUE, retention=60.0, name="t")
            (place,) = await archive.write([b"body"])
            assert await archive.read(place) == b"body"
            told, replies = EventPublisher(daemon, EVENTS, "t"), Replies(publisher)
            event = Told(1, {"id": "m1", "event": "done", "reply_to": await replies.queue()})
            await told.publish([event], frozenset({"done"}), published := Published())
            assert (published.events, published.replies, published.unanswered) == (1, 1, "")
            await told.close()
            await replies.close()
            # … and no more:
            with pytest.raises(BrokerUnavailable):
                await topology.declare(connection, "jobsXa+b")
            for url, others in ((daemon, "toldXa+b"), (publisher, EVENTS)):
                refused = EventPublisher(url, others, "t")
                with pytest.raises(EventsRefused):
                    await refused.publish([event], frozenset({"done"}), Published())
            found = await examine_rabbitmq(of_rabbitmq(daemon, events=f"{QUEUE}.lock"))
            (check,) = (check for check in found if check.name == "rabbitmq.events")
            assert check.found == f"the user may not publish to '{QUEUE}.lock'"

    async def test_enough_for_partitions(self, granted: Granted) -> None:
        """Daemons declare all of it; publishers reach the exchange, and nothing behind it."""
        names = partitions.names_of(QUEUE, 2)
        async with connected(granted, *names) as connection:
            await partitions.declare(connection, QUEUE, 2)
            async with publishing(granted.publisher(), QUEUE, partitions=2, router=ROUTER) as out:
                await out.publish_all([Outgoing(b"{}", message_id=f"m{n}") for n in range(20)])
            for name in names:
                consumer = Consumer(name, 10_000)
                async with consuming(connection, consumer, 10):
                    await consumer.take(1, 1)
            found = await examine_rabbitmq(of_rabbitmq(granted.daemon(), 2))
            assert {c.name for c in found if c.verdict != "ok"} <= {"rabbitmq.waiting"}

    async def test_where_it_is_not_told_whether_the_queue_is_there(self, granted: Granted) -> None:
        """Publishers publish all the same, and hear of a queue that is missing; so says doctor."""
        strict = StrictBroker(granted.port)
        await strict.start()
        url = granted.publisher(strict.port)
        try:
            async with publishing(url, QUEUE) as out, Publisher(url, QUEUE, declare=True) as app:
                assert strict.asked == 2
                with pytest.raises(QueueMissing, match="no daemon has declared it yet"):
                    await out.publish(Outgoing(b"{}"))
                with pytest.raises(QueueMissing):
                    await app.publish({})
                async with connected(granted, QUEUE) as connection:
                    await topology.declare(connection, QUEUE)
                    await out.publish(Outgoing(b"{}"))
                    await app.publish({})
                    found = await examine_rabbitmq(of_rabbitmq(url))
                    told = await examine_rabbitmq(of_rabbitmq(granted.publisher()))
                    ours = await examine_rabbitmq(of_rabbitmq(granted.daemon()))
        finally:
            await strict.stop()
        assert {c.name for c in ours if c.verdict != "ok"} <= {"rabbitmq.waiting"}
        checks = {check.name: check for check in told}
        assert checks["rabbitmq.reading"].verdict == checks["rabbitmq.events"].verdict == "fail"
        assert "permissions.sh" in checks["rabbitmq.dead-stream"].remedy
        (check,) = (check for check in found if check.name == "rabbitmq.queue")
        assert check.verdict == "warn"
        assert "can't be checked without the right to configure it" in check.found
