"""`groupflow doctor` and a daemon's look at its start, on real servers."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiormq
import orjson
import pytest
from redis import Redis
from structlog.testing import capture_logs

from groupflow.broker import partitions
from groupflow.broker.connection import connect, open_channel
from groupflow.cli import main
from groupflow.core.app import App
from groupflow.core.errors import ConfigError
from groupflow.daemon import Daemon
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.ports import free_ports
from groupflow.servers.rabbitmq import HASH_EXCHANGE, MANAGEMENT
from groupflow.settings.model import Settings
from groupflow.store.keys import Keys
from tests.deadlines import deadline

_names = itertools.count(1)


class Doctor:
    """Calls the verb."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch

    def set(self, **values: str) -> None:
        for name, value in values.items():
            self._patch.setenv(f"GROUPFLOW_{name}", value)

    def text(self) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["doctor"])
        out, err = self._capsys.readouterr()
        return int(caught.value.code or 0), out, err

    def run_daemon(self) -> int:
        """The exit code of a daemon that ends by itself."""
        command = [sys.executable, "-m", "groupflow", "run", "--only", "intake"]
        return subprocess.run(
            command, check=False, capture_output=True, timeout=deadline()
        ).returncode

    def checks(self) -> tuple[int, dict[str, list[dict[str, str]]]]:
        """The exit code, and what was found by name."""
        with pytest.raises(SystemExit) as caught:
            main(["doctor", "--json"])
        report = orjson.loads(self._capsys.readouterr().out)
        found: dict[str, list[dict[str, str]]] = {}
        for check in report["checks"]:
            assert set(check) == {"name", "verdict", "found", "remedy"}
            found.setdefault(check["name"], []).append(check)
        return int(caught.value.code or 0), found


@pytest.fixture
def doctor(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    redis_server: RedisServer,
    rabbitmq_server: RabbitmqServer,
) -> Doctor:
    monkeypatch.chdir(tmp_path)
    found = Doctor(capsys, monkeypatch)
    found.set(
        REDIS__URL=redis_server.url,
        RABBITMQ__URL=rabbitmq_server.url,
        RABBITMQ__QUEUE=f"doctor{next(_names)}",
        REDIS__NAMESPACE="doctors",
    )
    return found


@contextmanager
def queue(server: RabbitmqServer, name: str, *, durable: bool = True, **arguments: Any) -> Any:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}

    async def act(declare: bool) -> None:
        connection = await aiormq.connect(server.url)
        channel = await connection.channel()
        if declare:
            await channel.queue_declare(name, durable=durable, arguments=named)
        else:
            await channel.queue_delete(name)
        await connection.close()

    asyncio.run(act(True))
    try:
        yield
    finally:
        asyncio.run(act(False))


async def declare(server: RabbitmqServer, name: str, count: int = 1) -> None:
    """As a daemon does."""
    connection = await connect(server.url, heartbeat=10, timeout=deadline(), name="test")
    await partitions.declare(connection, name, count)
    await connection.close()


async def rebind(server: RabbitmqServer, name: str, gone: str, stray: str = "") -> None:
    """As somebody does by hand: a partition is bound no more, and another queue is."""
    connection = await connect(server.url, heartbeat=10, timeout=deadline(), name="test")
    channel = await open_channel(connection, confirms=False)
    await channel.queue_unbind(gone, f"{name}.ring", routing_key="1")
    if stray:
        await channel.queue_declare(stray)
        await channel.queue_bind(stray, f"{name}.ring", routing_key="1")
    await connection.close()


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqServer]:
    """A RabbitMQ with its management API."""
    folder = tmp_path_factory.mktemp("managed")
    server = RabbitmqServer(folder, plugins=[HASH_EXCHANGE, MANAGEMENT])
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@contextmanager
def policy(server: RedisServer, name: str) -> Iterator[None]:
    redis: Any = Redis.from_url(server.url)
    redis.config_set("maxmemory-policy", name)
    try:
        yield
    finally:
        redis.config_set("maxmemory-policy", "noeviction")


OURS: dict[str, Any] = {"queue_type": "quorum", "single_active_consumer": True}


class TestDoctor:
    def test_all_is_well(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        doctor.set(RABBITMQ__QUEUE="sound")
        asyncio.run(declare(rabbitmq_server, "sound"))
        code, found = doctor.checks()
        assert code == 0
        assert {name for name, checks in found.items() if checks[0]["verdict"] != "ok"} == {
            "redis.memory"  # no maxmemory, which is worth a word
        }
        assert set(found) >= {
            *("redis.reachable", "redis.eviction", "redis.fsync", "redis.rights", "redis.clock"),
            *("rabbitmq.queue", "rabbitmq.reading", "rabbitmq.alarms", "rabbitmq.transport"),
        }

    def test_a_missing_queue_stays_missing(self, doctor: Doctor) -> None:
        code, out, err = doctor.text()
        assert (code, err) == (0, "")
        assert "is not there yet" in out
        assert "is not there yet" in doctor.text()[1]

    def test_a_queue_of_another_make(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        doctor.set(RABBITMQ__QUEUE="odd")
        arguments: dict[str, Any] = {"message_ttl": 1000, "max_length": 7, "max_priority": 3}
        with queue(rabbitmq_server, "odd", durable=False, **arguments):
            code, found = doctor.checks()
        assert code == 1
        told = "\n".join(check["found"] for check in found["rabbitmq.queue"])
        for argument in (
            *("durable = false", "x-message-ttl = 1000", "x-max-length = 7"),
            *("x-max-priority = 3", "x-queue-type = classic", "x-single-active-consumer = none"),
        ):
            assert argument in told

    def test_a_delivery_limit(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        doctor.set(RABBITMQ__QUEUE="limited")
        with queue(rabbitmq_server, "limited", **OURS, delivery_limit=3):
            code, found = doctor.checks()
        assert code == 0
        assert found["rabbitmq.queue"][0]["verdict"] == "ok"
        assert found["rabbitmq.delivery-limit"][0]["verdict"] == "warn"

    def test_no_delivery_limit_given(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        """From RabbitMQ 4 on that is a limit of 20; the queue that we declare has none."""
        doctor.set(RABBITMQ__QUEUE="unlimited")
        with queue(rabbitmq_server, "unlimited", **OURS):
            _, found = doctor.checks()
        version = found["rabbitmq.version"][0]["found"].removeprefix("RabbitMQ ")
        limited = int(version.partition(".")[0]) >= 4
        (told,) = found["rabbitmq.delivery-limit"]
        assert told["verdict"] == ("warn" if limited else "ok")
        assert told["found"].startswith("the default of 20" if limited else "none")

    def test_a_configuration_that_others_can_write(self, doctor: Doctor, tmp_path: Path) -> None:
        (tmp_path / "groupflow.toml").write_text("")
        (tmp_path / "groupflow.toml").chmod(0o666)
        code, found = doctor.checks()
        assert code == 0
        (told,) = found["files"]
        assert told["verdict"] == "warn"
        assert "0666" in told["found"]
        assert "chmod go-w" in told["remedy"]

    def test_health_that_others_reach(
        self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        assert doctor.checks()[1]["http.health"][0]["verdict"] == "ok"
        doctor.set(HTTP__HEALTH="127.0.0.1:9465")
        assert "this machine alone" in doctor.checks()[1]["http.health"][0]["found"]
        doctor.set(HTTP__HEALTH="0.0.0.0:9465")
        code, found = doctor.checks()
        assert code == 0
        (told,) = found["http.health"]
        assert told["verdict"] == "warn"
        assert "without a token" in told["found"]
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # the kubelet's probes
        assert doctor.checks()[1]["http.health"][0]["verdict"] == "ok"

    def test_eviction(self, doctor: Doctor, redis_server: RedisServer) -> None:
        with policy(redis_server, "allkeys-lru"):
            code, found = doctor.checks()
        assert code == 1
        assert "noeviction" in found["redis.eviction"][0]["remedy"]

    def test_nobody_answers(self, doctor: Doctor) -> None:
        (port,) = free_ports(1)
        doctor.set(REDIS__URL=f"redis://:hunter2@127.0.0.1:{port}/0")
        code, out, err = doctor.text()
        assert code == 69
        assert "redis.reachable" in out
        assert "rabbitmq.version" in out, "the other server is examined all the same"
        assert "hunter2" not in out + err

    def test_wrong_credentials(self, doctor: Doctor, redis_server: RedisServer) -> None:
        doctor.set(REDIS__URL=redis_server.url.replace("redis://", "redis://nobody:wrong@"))
        code, found = doctor.checks()
        assert code == 69
        assert "user and password" in found["redis.reachable"][0]["remedy"]

    def test_bad_configuration(self, doctor: Doctor) -> None:
        doctor.set(RABBITMQ__URL="amqp://u:hunter2@rabbit.example/")
        code, out, err = doctor.text()
        assert (code, out) == (78, "")
        assert "rabbitmq.allow_plaintext" in err
        assert "hunter2" not in err

    def test_a_replica(self, doctor: Doctor, tmp_path: Any, redis_server: RedisServer) -> None:
        async def start_and_look() -> tuple[int, dict[str, list[dict[str, str]]]]:
            extra = ("--replicaof", f"127.0.0.1 {redis_server.port}")
            async with RedisServer(tmp_path / "replica", extra=extra) as server:
                doctor.set(REDIS__URL=server.url)
                return await asyncio.to_thread(doctor.checks)

        code, found = asyncio.run(start_and_look())
        assert code == 1
        assert found["redis.role"][0]["verdict"] == "fail"


class TestPartitions:
    """What AMQP tells of several queues, and of several nodes."""

    def test_all_is_well(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        doctor.set(RABBITMQ__QUEUE="parted", RABBITMQ__PARTITIONS="3")
        asyncio.run(declare(rabbitmq_server, "parted", 3))
        code, found = doctor.checks()
        assert code == 0
        assert len(found["rabbitmq.queue"]) == len(found["rabbitmq.reading"]) == 3
        names = ("rabbitmq.queue", "rabbitmq.plugin", "rabbitmq.partitions", "rabbitmq.leaders")
        assert {check["verdict"] for name in names for check in found[name]} == {"ok"}
        assert "3 queues behind 'parted'" in found["rabbitmq.partitions"][0]["found"]

    def test_what_amqp_does_not_tell(self, doctor: Doctor, managed: RabbitmqServer) -> None:
        """The management API does: bindings that are gone, and who leads."""
        url = managed.url
        doctor.set(RABBITMQ__QUEUE="bound", RABBITMQ__PARTITIONS="3")
        doctor.set(RABBITMQ__URL=url, RABBITMQ__MANAGEMENT=managed.management)
        asyncio.run(declare(managed, "bound", 3))
        code, found = doctor.checks()
        assert code == 0
        (bound,), (led,) = found["rabbitmq.bindings"], found["rabbitmq.leaders"]
        assert (bound["verdict"], led["verdict"]) == ("ok", "ok")
        assert bound["found"] == "all 3 queues are bound to 'bound.ring'"
        assert led["found"] == f"{managed.node} leads 3 of 3"
        asyncio.run(rebind(managed, "bound", "bound.1"))
        code, found = doctor.checks()
        (bound,) = found["rabbitmq.bindings"]
        assert (code, bound["verdict"]) == (0, "warn")
        assert bound["found"] == "not bound: bound.1"
        asyncio.run(rebind(managed, "bound", "bound.0", stray="nobody"))
        code, found = doctor.checks()
        (bound,) = found["rabbitmq.bindings"]
        assert (code, bound["verdict"]) == (1, "fail")
        assert bound["found"] == "not bound: bound.0, bound.1; bound besides: nobody"

    @pytest.mark.parametrize(
        ("management", "said"),
        [
            ("http://guest:hunter2@127.0.0.1:{}", "it answered 401"),
            ("http://guest:guest@127.0.0.1:1", "onnect"),
            ("http://guest:guest@127.0.0.1:{}/deep", "it answered 400"),
        ],
    )
    def test_a_management_that_does_not_tell(
        self, doctor: Doctor, managed: RabbitmqServer, management: str, said: str
    ) -> None:
        port = managed.management.rpartition(":")[2]
        doctor.set(RABBITMQ__URL=managed.url, RABBITMQ__PARTITIONS="2")
        doctor.set(RABBITMQ__MANAGEMENT=management.format(port))
        code, found = doctor.checks()
        (check,) = found["rabbitmq.management"]
        assert (code, check["verdict"]) == (0, "warn")
        assert said in check["found"]
        assert "hunter2" not in orjson.dumps(found).decode()

    def test_a_management_in_plain_text(self, doctor: Doctor) -> None:
        doctor.set(RABBITMQ__MANAGEMENT="http://u:hunter2@rabbit.example:15672")
        code, _, err = doctor.text()
        assert code == 78
        assert "allow_plaintext" in err
        assert "hunter2" not in err

    def test_nothing_is_declared(self, doctor: Doctor) -> None:
        doctor.set(RABBITMQ__PARTITIONS="2")
        for _ in range(2):
            code, found = doctor.checks()
            assert code == 0
            assert "no exchange" in found["rabbitmq.partitions"][0]["found"]
            assert all("not there yet" in check["found"] for check in found["rabbitmq.queue"])

    def test_queues_of_another_number(
        self, doctor: Doctor, rabbitmq_server: RabbitmqServer
    ) -> None:
        asyncio.run(declare(rabbitmq_server, "reparted", 4))
        doctor.set(RABBITMQ__QUEUE="reparted")
        for count, left in (("2", "reparted.2, reparted.3:"), ("1", "reparted.0, ")):
            doctor.set(RABBITMQ__PARTITIONS=count)
            check = doctor.checks()[1]["rabbitmq.partitions"][0]
            assert check["verdict"] == "warn"
            assert left in check["found"]

    def test_the_plugin_is_missing(self, doctor: Doctor, tmp_path: Path) -> None:
        """A daemon ends with it as well."""
        doctor.set(RABBITMQ__PARTITIONS="2", HTTP__LISTEN="")

        async def start_and_look() -> tuple[int, dict[str, list[dict[str, str]]], int]:
            async with RabbitmqServer(tmp_path / "bare") as server:
                doctor.set(RABBITMQ__URL=server.url)
                code, found = await asyncio.to_thread(doctor.checks)
                return code, found, await asyncio.to_thread(doctor.run_daemon)

        code, found, daemon = asyncio.run(start_and_look())
        assert (code, daemon) == (1, 78)
        (check,) = found["rabbitmq.plugin"]
        assert check["verdict"] == "fail"
        assert "rabbitmq-plugins enable rabbitmq_consistent_hash_exchange" in check["remedy"]

    def test_a_node_that_is_away(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        (port,) = free_ports(1)
        dead = f"amqp://guest:guest@127.0.0.1:{port}/"
        doctor.set(RABBITMQ__URL=orjson.dumps([dead, rabbitmq_server.url]).decode())
        code, found = doctor.checks()
        assert code == 0
        (check,) = found["rabbitmq.nodes"]
        assert check["verdict"] == "warn"
        assert str(port) in check["found"]
        assert "guest:guest" not in str(found)

    def test_nodes_of_two_clusters(
        self, doctor: Doctor, rabbitmq_server: RabbitmqServer, tmp_path: Path
    ) -> None:
        async def start_and_look() -> tuple[int, dict[str, list[dict[str, str]]]]:
            async with RabbitmqServer(tmp_path / "other") as server:
                urls = [server.url, rabbitmq_server.url]
                doctor.set(RABBITMQ__URL=orjson.dumps(urls).decode())
                return await asyncio.to_thread(doctor.checks)

        code, found = asyncio.run(start_and_look())
        assert code == 1
        assert "different clusters" in found["rabbitmq.nodes"][0]["found"]

    def test_nodes_of_one_cluster(self, doctor: Doctor, rabbitmq_server: RabbitmqServer) -> None:
        same = rabbitmq_server.url.replace("127.0.0.1", "localhost")
        doctor.set(RABBITMQ__URL=orjson.dumps([same, rabbitmq_server.url]).decode())
        (check,) = doctor.checks()[1]["rabbitmq.nodes"]
        assert check["verdict"] == "ok"


def _daemon(url: str, namespace: str) -> Daemon:
    settings = Settings(redis={"url": url, "namespace": namespace})
    return Daemon(settings, App(), "d", only="workers")


class TestStart:
    async def test_a_redis_that_evicts_is_refused(self, redis_server: RedisServer) -> None:
        refused = pytest.raises(ConfigError, match="maxmemory-policy noeviction")
        with policy(redis_server, "volatile-ttl"), refused:
            await _daemon(redis_server.url, "evicted").run()
        keys = Keys("evicted")
        redis: Any = Redis.from_url(redis_server.url)
        assert redis.zcard(keys("daemons")) == 0

    async def test_the_rest_is_told(self, redis_server: RedisServer) -> None:
        daemon = _daemon(redis_server.url, "told")
        with capture_logs() as logs:
            running = asyncio.create_task(daemon.run())
            while not any(entry["event"] == "daemon.started" for entry in logs):
                await asyncio.sleep(0.01)
            daemon.stop()
            await running
        told = [entry for entry in logs if entry["event"] == "doctor.finding"]
        assert [entry["check"] for entry in told] == ["redis.memory"]

    async def test_a_redis_that_does_not_tell_is_taken(self, redis_server: RedisServer) -> None:
        admin: Any = Redis.from_url(redis_server.url)
        admin.execute_command(
            "ACL", "SETUSER", "silent", "on", ">pw", "~*", "&*", "+@all", "-info", "-config"
        )
        daemon = _daemon(redis_server.url.replace("//", "//silent:pw@"), "silent")
        try:
            with capture_logs() as logs:
                running = asyncio.create_task(daemon.run())
                while not any(entry["event"] == "daemon.started" for entry in logs):
                    assert not running.done()
                    await asyncio.sleep(0.01)
                daemon.stop()
                await running
        finally:
            admin.execute_command("ACL", "DELUSER", "silent")
        assert any(entry["event"] == "doctor.not_checked" for entry in logs)
