"""`groupflow doctor`, on real servers."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest

from groupflow import Publisher
from groupflow.broker import partitions, topology
from groupflow.broker.connection import open_channel
from groupflow.core.app import App
from groupflow.core.errors import ConfigError
from groupflow.daemon import Daemon
from groupflow.doctor import rabbitmq as looks
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.server import free_ports
from groupflow.settings.model import Settings
from tests.broker.wires import connected, make_queue
from tests.endtoend.verbs import said
from tests.running import running
from tests.servers.managed import ManagedRabbitmq

_names = itertools.count(1)


class Doctor:
    """Calls the verb, with a queue of its own name.

    Attributes:
        names: what stands in the settings' values and in what is told: addresses, the queue.
    """

    def __init__(self, folder: Path, redis: RedisServer, rabbitmq: RabbitmqServer) -> None:
        self.folder, self.redis, self.rabbitmq = folder, redis, rabbitmq
        self.queue = f"doctor{next(_names)}"
        self.names = {
            "queue": self.queue, "redis": redis.url, "rabbitmq": rabbitmq.url,
            "denied": redis.url.replace("redis://", "redis://nobody:hunter2@"),
            "free": free_ports(1)[0], "host": f"localhost:{rabbitmq.port}",
        }  # fmt: skip
        self.environment = {"PATH": os.environ["PATH"]}
        self.set(RABBITMQ__QUEUE="{queue}", REDIS__NAMESPACE="doctors")
        self.set(REDIS__URL="{redis}", RABBITMQ__URL="{rabbitmq}")

    def set(self, **values: str) -> None:
        for name, value in values.items():
            prefix = "" if name.startswith("KUBERNETES") else "GROUPFLOW_"
            self.environment[f"{prefix}{name}"] = value.format(**self.names)

    def text(self, *words: str) -> tuple[object, str, str]:
        code, out, err = said(["doctor", *words], self.environment)
        assert "hunter2" not in out + err
        assert "guest:guest" not in out + err
        return code, out, err

    def checks(self) -> tuple[object, dict[str, list[dict[str, str]]]]:
        """The exit code, and what was found by name."""
        code, out, _ = self.text("--json")
        found: dict[str, list[dict[str, str]]] = {}
        told = orjson.loads(out)
        verdicts = {check["verdict"] for check in told["checks"]}
        assert told["verdict"] == max(verdicts, key=("ok", "warn", "fail").index)
        for check in told["checks"]:
            assert set(check) == {"name", "verdict", "found", "remedy"}
            found.setdefault(check["name"], []).append(check)
        return code, found

    def declare(self, count: int = 1, url: str = "") -> None:
        """As a daemon does."""
        self.work(lambda connection: partitions.declare(connection, self.queue, count), url)

    def work(self, act: Callable[[Any], Awaitable[object]], url: str = "") -> None:
        async def working() -> None:
            async with connected(url or self.rabbitmq.url) as connection:
                await act(connection)

        asyncio.run(working())


@pytest.fixture
def doctor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    rabbitmq_server: RabbitmqServer,
) -> Doctor:
    monkeypatch.chdir(tmp_path)
    return Doctor(tmp_path, redis_server, rabbitmq_server)


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedRabbitmq]:
    """A RabbitMQ with its management API."""
    folder = tmp_path_factory.mktemp("managed")
    with running(ManagedRabbitmq(folder)) as server:
        yield server


# What there is while the doctor looks

Scene: TypeAlias = Callable[[Doctor], object]


def queue(*, durable: bool = True, **arguments: Any) -> Scene:
    """The queue, as another program has declared it."""
    named = {f"x_{key}": value for key, value in arguments.items()}

    def scene(doctor: Doctor) -> None:
        url = doctor.environment["GROUPFLOW_RABBITMQ__URL"]
        asyncio.run(make_queue(url, doctor.queue, durable=durable, **named))

    return scene


def exchange(kind: str) -> Scene:
    """The exchange of events, of some type, on the RabbitMQ that is looked at."""

    def scene(doctor: Doctor) -> None:
        async def declare(connection: Any) -> None:
            channel = await open_channel(connection, confirms=False)
            await channel.exchange_declare(f"{doctor.queue}.told", exchange_type=kind, durable=True)

        doctor.work(declare, doctor.environment["GROUPFLOW_RABBITMQ__URL"])

    return scene


def waiting(doctor: Doctor) -> None:
    """Our queue, with messages in it and no consumer."""
    doctor.declare()

    async def publish(connection: Any) -> None:
        channel = await open_channel(connection, confirms=True)
        for _ in range(5):
            await channel.basic_publish(b"{}", routing_key=doctor.queue)

    doctor.work(publish)


def nothing(_: Doctor) -> None: ...


def four_queues(doctor: Doctor) -> None:
    doctor.declare(4)


def open_file(doctor: Doctor) -> None:
    (doctor.folder / "groupflow.toml").write_text("")
    (doctor.folder / "groupflow.toml").chmod(0o666)


OURS: dict[str, Any] = {"queue_type": "quorum", "single_active_consumer": True}
AWAY, SAME = '["amqp://guest:guest@127.0.0.1:{free}/", "{rabbitmq}"]', "amqp://guest:guest@{host}/"
BY_API = {"RABBITMQ__URL": "{managed}", "RABBITMQ__PARTITIONS": "2"}
MANAGED, HEALTH = "RABBITMQ__MANAGEMENT", "HTTP__HEALTH"
EVENTS = {"EVENTS__EXCHANGE": "{queue}.told"}
# Settings, what there is, the exit code; a check, its verdict, words of what it found or advises.
ROWS: list[tuple[dict[str, str], Scene, int, str, str, Sequence[str]]] = [
    ({}, queue(durable=False, message_ttl=1000, max_length=7, max_priority=3), 1,
     "rabbitmq.queue", "fail",
     ("durable = false", "x-message-ttl = 1000", "x-max-length = 7", "x-max-priority = 3",
      "x-queue-type = classic", "x-single-active-consumer = none")),
    ({"RABBITMQ__URL": "{managed}", MANAGED: "http://guest:guest@127.0.0.1:{management}"},
     queue(single_active_consumer=True), 0,  # none leads it, as none leads others of its kind
     "rabbitmq.queue", "warn", ("x-queue-type = classic",)),
    ({}, queue(**OURS, delivery_limit=3), 0, "rabbitmq.queue", "ok", ()),
    ({}, queue(**OURS, delivery_limit=3), 0, "rabbitmq.delivery-limit", "warn", ()),
    ({}, waiting, 0, "rabbitmq.waiting", "warn",
     ("'{queue}': 5 messages wait, and nothing consumes them",)),
    (EVENTS, exchange("topic"), 0, "rabbitmq.events", "ok", ("a durable topic exchange",)),
    (EVENTS, exchange("fanout"), 1, "rabbitmq.events", "fail", ("current is 'fanout'",)),
    ({**BY_API, **EVENTS, MANAGED: "http://guest:guest@127.0.0.1:{management}"}, exchange("topic"),
     0, "rabbitmq.events", "warn", ("no queue is bound to '{queue}.told'",)),
    ({}, open_file, 0, "files", "warn", ("0666", "chmod go-w")),
    ({}, nothing, 0, "http.health", "ok", ()),
    ({HEALTH: "127.0.0.1:9465"}, nothing, 0, "http.health", "ok", ("this machine alone",)),
    ({HEALTH: "0.0.0.0:9465"}, nothing, 0, "http.health", "warn", ("without a token",)),
    # … where the kubelet's probes come from elsewhere
    ({HEALTH: "0.0.0.0:9465", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, nothing, 0,
     "http.health", "ok", ()),
    ({"REDIS__URL": "redis://:hunter2@127.0.0.1:{free}/0"}, nothing, 69, "rabbitmq.version", "ok",
     ("RabbitMQ",)),  # the other server is examined all the same
    ({"REDIS__URL": "{denied}"}, nothing, 69, "redis.reachable", "fail", ("user and password",)),
    ({**BY_API, MANAGED: "http://guest:hunter2@127.0.0.1:{management}"}, nothing, 0,
     "rabbitmq.management", "warn", ("it answered 401",)),
    ({**BY_API, MANAGED: "http://guest:guest@127.0.0.1:1"}, nothing, 0,
     "rabbitmq.management", "warn", ("onnect",)),
    ({**BY_API, MANAGED: "http://guest:guest@127.0.0.1:{management}/deep"}, nothing, 0,
     "rabbitmq.management", "warn", ("it answered 400",)),
    ({MANAGED: "https://guest:hunter2@-a.ß:1"}, nothing, 0,
     "rabbitmq.management", "warn", ("Invalid IDNA hostname: '-a.ß'", "rabbitmq.management right")),
    ({MANAGED: "https://guest:hunter2@xn--a:1"}, nothing, 0,
     "rabbitmq.management", "warn", ("Codepoint U+0080",)),
    ({"RABBITMQ__PARTITIONS": "2"}, four_queues, 0, "rabbitmq.partitions", "warn",
     ("{queue}.2, {queue}.3:",)),
    ({"RABBITMQ__PARTITIONS": "1"}, four_queues, 0, "rabbitmq.partitions", "warn",
     ("{queue}.0, ",)),
    ({"RABBITMQ__URL": AWAY}, nothing, 0, "rabbitmq.nodes", "warn", ("{free}",)),
    ({"RABBITMQ__URL": '["{managed}", "{rabbitmq}"]'}, nothing, 1, "rabbitmq.nodes", "fail",
     ("different clusters",)),
    ({"RABBITMQ__URL": f'["{SAME}", "{{rabbitmq}}"]'}, nothing, 0, "rabbitmq.nodes", "ok", ()),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[3]} {row[4]}")
def test_a_finding(doctor: Doctor, row: Any, request: pytest.FixtureRequest) -> None:
    variables, scene, code, name, verdict, words = row
    if "{managed}" in str(variables):
        server: ManagedRabbitmq = request.getfixturevalue("managed")
        port = server.management.rpartition(":")[2]
        doctor.names |= {"managed": server.url, "management": port}
    doctor.set(**variables)
    scene(doctor)
    ended, found = doctor.checks()
    assert ended == code
    checks = found[name]
    assert verdict in [check["verdict"] for check in checks]
    told = "\n".join(check["found"] + check["remedy"] for check in checks)
    for each in words:
        assert each.format(**doctor.names) in told


def test_a_wrong_configuration(doctor: Doctor) -> None:
    doctor.set(RABBITMQ__URL="amqp://u:hunter2@rabbit.example/")
    code, out, err = doctor.text()
    assert (code, out, "rabbitmq.allow_plaintext" in err) == (78, "", True)
    doctor.set(RABBITMQ__URL="{rabbitmq}", **{MANAGED: "http://u:hunter2@rabbit.example:15672"})
    assert "allow_plaintext" in doctor.text()[2]


@pytest.mark.parametrize("count", [1, 3])
def test_all_is_well(doctor: Doctor, count: int) -> None:
    doctor.set(RABBITMQ__PARTITIONS=str(count))
    doctor.declare(count)
    code, found = doctor.checks()
    assert code == 0
    wrong = {name for name, checks in found.items() if {c["verdict"] for c in checks} != {"ok"}}
    # no maxmemory, which is worth a word, and no daemon
    assert wrong == {"redis.memory", "daemons"}
    names = ("rabbitmq.queue", "rabbitmq.waiting", "rabbitmq.reading")
    assert [len(found[name]) for name in names] == [count] * 3
    assert set(found) >= {
        *("redis.reachable", "redis.eviction", "redis.fsync", "redis.rights", "redis.clock"),
        *("rabbitmq.alarms", "rabbitmq.transport"),
        *(("rabbitmq.plugin", "rabbitmq.leaders") if count > 1 else ()),
    }
    if count > 1:
        assert f"3 queues behind '{doctor.queue}'" in found["rabbitmq.partitions"][0]["found"]


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_missing_stays_missing(doctor: Doctor, count: int) -> None:
    """A look declares nothing."""
    doctor.set(RABBITMQ__PARTITIONS=str(count), **EVENTS)
    for _ in range(2):
        code, out, err = doctor.text()
        assert (code, err) == (0, "")
        assert out.count("not there yet") >= count
        assert f"'{doctor.queue}.told' is not there yet" in out
        assert ("no exchange" in out) is (count > 1)


def test_nothing_is_sent(doctor: Doctor) -> None:
    """Whether the user may publish events is tried with a message that RabbitMQ refuses."""
    doctor.set(**EVENTS)
    exchange("topic")(doctor)
    counts = list[int | None]()

    async def listen(connection: Any) -> None:
        channel = await open_channel(connection, confirms=False)
        declared = await channel.queue_declare(f"{doctor.queue}.heard", durable=True)
        await channel.queue_bind(f"{doctor.queue}.heard", f"{doctor.queue}.told", routing_key="#")
        counts.append(declared.message_count)

    doctor.work(listen)
    assert doctor.checks()[1]["rabbitmq.events"][0]["verdict"] == "ok"
    doctor.work(listen)
    assert counts == [0, 0]


def test_a_silent_queue(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else is looked at, and a publisher goes on to wait for its confirm."""
    monkeypatch.setattr(topology, "SILENCE", 0.0)
    _, found = doctor.checks()
    for told in (*found["rabbitmq.queue"], *found["rabbitmq.dead-stream"]):
        assert (told["verdict"], "no answer in time" in told["found"]) == ("warn", True)
    assert found["rabbitmq.alarms"][0]["verdict"] == "ok"


class FullRabbitmq(RabbitmqServer):
    """Its disk is always too full."""

    def prepare(self) -> None:
        super().prepare()
        file = self._path("rabbitmq.conf")
        file.write_text(file.read_text().replace("50MB", "900000GB"))


def test_under_an_alarm(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ opens no channel on a connection that has published: what it hides has an end."""
    monkeypatch.setattr(looks, "TIMEOUT", 1.0)
    monkeypatch.setattr(topology, "SILENCE", 3.0)
    with running(FullRabbitmq(doctor.folder / "full")) as server:
        doctor.set(RABBITMQ__URL=server.url, RABBITMQ__PARTITIONS="2", **EVENTS)
        exchange("topic")(doctor)
        code, found = doctor.checks()
    assert code == 0
    assert "blocks publishers" in found["rabbitmq.alarms"][0]["found"]
    assert "did not say whether" in found["rabbitmq.plugin"][0]["found"]


def test_a_server_that_is_silent(doctor: Doctor) -> None:
    """A timeout has no words of its own."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        doctor.set(REDIS__URL=f"redis://127.0.0.1:{port}/0", REDIS__TIMEOUT="0.5")
        code, found = doctor.checks()
    assert code == 69
    assert "no answer within 0.5 s" in found["redis.reachable"][0]["found"]


def test_no_delivery_limit_given(doctor: Doctor) -> None:
    """From RabbitMQ 4 on that is a limit of 20; the queue that we declare has none."""
    queue(**OURS)(doctor)
    _, found = doctor.checks()
    version = found["rabbitmq.version"][0]["found"].removeprefix("RabbitMQ ")
    limited = int(version.partition(".")[0]) >= 4
    (told,) = found["rabbitmq.delivery-limit"]
    assert told["verdict"] == ("warn" if limited else "ok")
    assert told["found"].startswith("the default of 20" if limited else "none")


def test_what_amqp_does_not_tell(doctor: Doctor, managed: ManagedRabbitmq) -> None:
    """The management API does: bindings that are gone, and who leads."""
    doctor.set(RABBITMQ__PARTITIONS="3", RABBITMQ__URL=managed.url)
    doctor.set(RABBITMQ__MANAGEMENT=managed.management)
    doctor.declare(3, managed.url)
    name = doctor.queue

    def bound() -> tuple[object, str, str]:
        code, found = doctor.checks()
        (check,) = found["rabbitmq.bindings"]
        (led,) = found["rabbitmq.leaders"]
        assert (led["verdict"], led["found"]) == ("ok", f"{managed.node} leads 3 of 3")
        return code, check["verdict"], check["found"]

    def rebind(gone: str, stray: str = "") -> None:
        """As an operator does by hand: a partition is bound no more, and another queue is."""

        async def act(connection: Any) -> None:
            channel = await open_channel(connection, confirms=False)
            await channel.queue_unbind(gone, f"{name}.ring", routing_key="1")
            if stray:
                await channel.queue_declare(stray)
                await channel.queue_bind(stray, f"{name}.ring", routing_key="1")

        doctor.work(act, managed.url)

    assert bound() == (0, "ok", f"all 3 queues are bound to '{name}.ring'")
    rebind(f"{name}.1")
    assert bound() == (0, "warn", f"not bound: {name}.1")
    rebind(f"{name}.0", stray="nobody")
    told = f"not bound: {name}.0, {name}.1; bound besides: nobody"
    assert bound() == (1, "fail", told)


def test_the_plugin_is_missing(doctor: Doctor) -> None:
    """A daemon ends with it as well, and so does a publisher; nothing is declared by asking."""

    async def ask(connection: Any) -> None:
        assert await partitions.has_plugin(connection, doctor.queue) is False

    async def publish(_: Any) -> None:
        async with Publisher(server.url, doctor.queue, partitions=2, declare=True):
            pass

    with running(RabbitmqServer(doctor.folder / "bare")) as server:
        doctor.work(ask, server.url)
        with pytest.raises(ConfigError, match="rabbitmq-plugins enable") as refused:
            doctor.declare(2, server.url)
        assert refused.value.problems[0].setting == "rabbitmq.partitions"
        with pytest.raises(ConfigError):
            doctor.work(publish, server.url)
        settings = Settings(
            redis={"url": doctor.redis.url, "namespace": "doctors"},
            rabbitmq={"url": server.url, "queue": doctor.queue, "partitions": 2},
            http={"listen": ""},
        )
        with pytest.raises(ConfigError):
            asyncio.run(Daemon(settings, App(), "d", "intake").run())
        doctor.set(RABBITMQ__PARTITIONS="2", RABBITMQ__URL=server.url)
        code, found = doctor.checks()
    assert code == 1
    (check,) = found["rabbitmq.plugin"]
    assert check["verdict"] == "fail"
    assert "rabbitmq-plugins enable rabbitmq_consistent_hash_exchange" in check["remedy"]
