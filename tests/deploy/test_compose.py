"""compose.yaml and what it mounts: valid, complete, and obeyed by real servers."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from groupflow.broker import topology
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.cli.app_loading import load_app
from groupflow.doctor.rabbitmq import examine_rabbitmq
from groupflow.doctor.redis import examine_redis
from groupflow.flow.workforce import HAND_BACK
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.load import load_settings
from groupflow.settings.model import Settings
from tests.broker.wires import connected
from tests.deadlines import deadline
from tests.deploy.manifests import DEPLOY, at, read
from tests.running import running

COMPOSE = DEPLOY / "compose"
DAEMONS = ("groupflow-1", "groupflow-2")
STACK = read(COMPOSE / "compose.yaml")
SERVICES = STACK["services"]
REDIS_CONF = DEPLOY / "redis" / "redis.conf"
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script makes up."""
    folder = tmp_path_factory.mktemp("compose") / "secrets"
    make_secrets(folder)
    return folder


def make_secrets(folder: Path, umask: int = -1, *, check: bool = True) -> Any:
    script = [sys.executable, str(COMPOSE / "make_secrets.py"), str(folder)]
    how: Any = {"capture_output": True, "umask": umask, "text": True}
    return subprocess.run(script, check=check, timeout=deadline(), **how)


@pytest.fixture
def settings(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A daemon's settings, as it finds them in its container."""
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(secrets))
    return load_settings(COMPOSE / "groupflow.toml")


def test_what_it_names_is_there(secrets: Path) -> None:
    for name, secret in STACK["secrets"].items():
        assert secret["file"] == f"secrets/{name}"
        assert (secrets / name).is_file()
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert (COMPOSE / volume["source"]).exists(), volume


def test_every_service_is_held_in_bounds() -> None:
    """And only daemons reach Redis."""
    for name, service in SERVICES.items():
        assert at(service, "deploy/resources/limits/memory"), name
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
    assert at(STACK, "networks/servers/internal") is True
    assert at(SERVICES, "redis/networks") == ["servers"]
    reach = {name for name, each in SERVICES.items() if "servers" in each["networks"]}
    assert reach == {*DAEMONS, "redis", "rabbitmq"}


def test_daemons_fit_their_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(COMPOSE)
    assert load_app("handlers:app").types == ["import.contacts"]
    sys.modules.pop("handlers")
    port = settings.http.listen.rpartition(":")[2]
    for name in DAEMONS:
        service = SERVICES[name]
        assert service["command"][-2:] == ["--name", name]
        grace = float(service["stop_grace_period"].removesuffix("s"))
        assert grace > settings.workers.drain + HAND_BACK
        assert at(service, "ports/*").endswith(f":{port}")
    assert "@redis:6379/" in settings.redis_url()
    assert "@rabbitmq:5672/" in settings.rabbitmq_url()
    (maxmemory,) = re.findall(r"^maxmemory (\d+)mb$", REDIS_CONF.read_text(), re.MULTILINE)
    assert settings.redis.max_memory < int(maxmemory) * 2**20 < 2**30
    assert at(SERVICES, "redis/deploy/resources/limits/memory") == "1g"
    found = at(read(COMPOSE / "prometheus.yaml"), "scrape_configs/*/dns_sd_configs/*")
    assert found["names"] == list(DAEMONS)
    assert str(found["port"]) == port


def test_the_image_asks_where_the_daemon_answers() -> None:
    port = Settings().http.listen.rpartition(":")[2]
    assert f"http://127.0.0.1:{port}/livez" in DOCKERFILE
    assert f"EXPOSE {port}\n" in DOCKERFILE
    # All that is copied from outside passes the .dockerignore, which else lets nothing through.
    passed = set(re.findall(r"^!(.+)$", (DEPLOY.parent / ".dockerignore").read_text(), re.M))
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert {name for line in copied for name in line.split()} == passed
    assert all((DEPLOY.parent / name).exists() for name in passed)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_secrets_are_made_once_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    """Into a folder that is there and open, under any umask, and where they were open before."""
    folder = tmp_path / "secrets"
    folder.mkdir(0o755)

    def made() -> dict[str, str]:
        make_secrets(folder, umask)
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        return {file.name: file.read_text() for file in folder.iterdir()}

    first = made()
    (folder / "publisher_url").chmod(0o644)
    assert made() == first
    assert folder.stat().st_mode & 0o777 == 0o755  # the user's choice


def test_half_a_folder_of_secrets_is_told_of(tmp_path: Path) -> None:
    """As one that was made while the disk was full."""
    make_secrets(tmp_path)
    (tmp_path / "publisher_url").unlink()
    ended = make_secrets(tmp_path, check=False)
    assert (ended.returncode, "publisher_url missing" in ended.stderr) == (1, True)


def test_secrets_are_written_through_no_link(secrets: Path, tmp_path: Path) -> None:
    """A folder that the script makes is its owner's, too."""
    assert secrets.stat().st_mode & 0o077 == 0
    (tmp_path / "publisher_url").symlink_to(tmp_path / "elsewhere")
    write = runpy.run_path(str(COMPOSE / "make_secrets.py"))["write"]
    with pytest.raises(FileExistsError):
        write(tmp_path / "publisher_url", "secret")


def test_each_service_is_handed_its_own_secrets_alone(secrets: Path, tmp_path: Path) -> None:
    """The script of the service `secrets`, run on what was made, by this user in place of root."""
    service = SERVICES["secrets"]
    (script,) = service["command"]
    volumes = {each["target"].removeprefix("/to/"): each["source"] for each in service["volumes"]}
    for name in volumes:
        (tmp_path / name).mkdir()
    owners = set(re.findall(r"give (\d+) (\w+)", script))
    script = re.sub(r"give \d+", f"give {os.getuid()}", script).replace("$$", "$")
    script = script.replace('-g "$1"', f"-g {os.getgid()}")
    script = script.replace("/run/secrets", str(secrets)).replace("/to/", f"{tmp_path}/")
    for _ in range(2):  # as when all are started once more
        subprocess.run([*service["entrypoint"], script], check=True, timeout=deadline())
    needed = {
        "daemons": {"groupflow_redis__url", "groupflow_rabbitmq__url", "groupflow_http__token"},
        "redis": {"redis_users.acl"},
        "rabbitmq": {"rabbitmq_definitions.json"},
        "grafana": {"grafana_admin_password"},
    }
    assert {name: {f.name for f in (tmp_path / name).iterdir()} for name in volumes} == needed
    assert {f.stat().st_mode & 0o777 for f in tmp_path.glob("*/*")} == {0o400}
    assert set(service["secrets"]) == set(STACK["secrets"]) == set().union(*needed.values())
    users = {"daemons": "10001", "redis": "999", "rabbitmq": "999", "grafana": "472"}
    assert {(user, name) for name, user in users.items()} == owners
    assert f"USER {users['daemons']}:" in DOCKERFILE


class ComposedRedis(RedisServer):
    """Redis by the same files and arguments as in the container."""

    def __init__(self, folder: Path, acl: Path) -> None:
        super().__init__(folder)
        self._acl = acl

    def command(self) -> list[str]:
        place = ["--dir", str(self.folder), "--bind", "127.0.0.1", "--port", str(self.port)]
        return [self.binary(), str(REDIS_CONF), *place, "--aclfile", str(self._acl)]


class ComposedRabbitmq(RabbitmqServer):
    """RabbitMQ with the container's configuration, on a port of its own."""

    def __init__(self, folder: Path, definitions: Path) -> None:
        super().__init__(folder)
        self._definitions = definitions

    def prepare(self) -> None:
        super().prepare()
        file = self.folder / "rabbitmq.conf"
        ours = file.read_text()
        taken = {line.partition("=")[0].strip() for line in ours.splitlines()}
        theirs = (COMPOSE / "rabbitmq.conf").read_text()
        assert "/run/secrets/rabbitmq_definitions.json" in theirs
        theirs = theirs.replace("/run/secrets/rabbitmq_definitions.json", str(self._definitions))
        lines = (line for line in theirs.splitlines() if line.split("=")[0].strip() not in taken)
        file.write_text(ours + "\n".join(lines) + "\n")


async def test_redis_is_as_a_daemon_wants_it(tmp_path: Any, secrets: Any, settings: Any) -> None:
    with running(ComposedRedis(tmp_path / "redis", secrets / "redis_users.acl")) as redis:
        url = settings.redis_url().replace("redis:6379", f"127.0.0.1:{redis.port}")
        checks = await examine_redis(Settings.model_validate({"redis": {"url": url}}))
        assert [check.name for check in checks if check.verdict == "fail"] == []
        anybody: Any = Redis.from_url(redis.url)
        with pytest.raises(AuthenticationError):
            anybody.ping()
        health: Any = Redis(port=redis.port, username="health", password="x")
        assert health.ping()
        with pytest.raises(NoPermissionError):
            health.get("{groupflow}:count")
        password = (secrets / "redis_admin_password").read_text()
        admin: Any = Redis(port=redis.port, username="admin", password=password)
        assert admin.config_get("appendonly")


async def test_rabbitmq_has_both_users_and_rights(
    tmp_path: Any, secrets: Any, settings: Any
) -> None:
    server = ComposedRabbitmq(tmp_path / "rabbitmq", secrets / "rabbitmq_definitions.json")
    with running(server):
        queue = settings.rabbitmq.queue
        daemon = settings.rabbitmq_url().replace("rabbitmq:5672", f"127.0.0.1:{server.port}")
        publisher = (secrets / "publisher_url").read_text()
        publisher = publisher.replace("localhost:5672", f"127.0.0.1:{server.port}")
        async with connected(daemon) as connection:
            await topology.declare(connection, queue)
            async with publishing(publisher, queue) as out:
                await out.publish(Outgoing(b"{}", message_id="m1"))
        here = Settings.model_validate({"rabbitmq": {"url": daemon, "queue": queue}})
        verdicts = {c.name: c.verdict for c in await examine_rabbitmq(here)}
        assert verdicts.pop("rabbitmq.waiting") == "warn", "m1, which no daemon takes in"
        assert set(verdicts.values()) == {"ok"}, verdicts
