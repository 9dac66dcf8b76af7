"""A session on servers that are up: beside a file of production, and from save to save."""

from __future__ import annotations

import asyncio
import re
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupflow.dev.session import Session
from groupflow.dev.variables import of_daemon, of_verbs
from groupflow.servers import PrivateServers, RabbitmqServer, RedisServer
from groupflow.servers.server import free_ports
from tests.deadlines import until
from tests.endtoend.process import environment, groupflow
from tests.programs import must

HANDLERS = """
from groupflow import App, Task

app = App()


@app.handler("greet")
async def greet(task: Task) -> None:
    pass
"""
PRODUCTION = """
[rabbitmq]
url = "amqps://jobs:secret@rabbitmq.example/"
queue = "{name}"
partitions = 2
management = "https://watch:secret@rabbitmq.example:15671"
ca_file = "/nowhere/ca.pem"
cert_file = "/nowhere/cert.pem"
key_file = "/nowhere/key.pem"

[redis]
url = "rediss+cluster://:secret@a.redis.example,b.redis.example"
namespace = "{name}"
partitions = 2
replicas = 1
ca_file = "/nowhere/ca.pem"
cert_file = "/nowhere/cert.pem"
key_file = "/nowhere/key.pem"

[http]
listen = "0.0.0.0:9464"
health = "0.0.0.0:{health}"
token_file = "/nowhere/token"
hosts = ["groupflow.example"]

[http.tokens.worker__1]
token_file = "/nowhere/worker.token"
rights = ["pull"]
pools = ["far"]

[events]
exchange = "{name}.ends"

[traces]
enabled = true

[pools.far]
types = ["render"]
"""


@pytest.fixture
def name() -> str:
    """That of a queue and a namespace, which the tests' servers have for others too."""
    return f"dev-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def servers(redis_server: RedisServer, rabbitmq_server: RabbitmqServer) -> PrivateServers:
    return PrivateServers(redis=redis_server, rabbitmq=rabbitmq_server)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the application is, and the session runs."""
    found = tmp_path / "application"
    found.mkdir()
    (found / "handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(found)
    return found


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A session's own folder."""
    found = tmp_path / "scratch"
    found.mkdir()
    return found


@asynccontextmanager
async def session(servers: PrivateServers, scratch: Path) -> AsyncIterator[StringIO]:
    """What a session says; it has begun."""
    said = StringIO()
    console = Console(file=said, markup=False, highlight=False, soft_wrap=True)
    running = asyncio.create_task(
        Session(console, "handlers:app", None, servers, scratch).run(shows_page=False)
    )
    try:
        await shown(said, "Ready.")
        yield said
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def shown(said: StringIO, words: str, times: int = 1) -> None:
    """Wait until a session has said this so many times, its daemon being alive."""

    def is_shown() -> bool:
        assert "It ended" not in said.getvalue(), said.getvalue()
        return said.getvalue().count(words) >= times

    await until(is_shown)


async def test_it_runs_beside_a_file_of_production(
    servers: PrivateServers,
    folder: Path,
    scratch: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And other verbs meet it; nothing of it is open to the network, nor needs an extra."""
    (health,) = free_ports(1)
    (folder / "groupflow.toml").write_text(PRODUCTION.format(name=name, health=health))
    monkeypatch.setattr("groupflow.dev.variables.find_spec", lambda _: None)
    async with session(servers, scratch) as said:
        exports = dict(re.findall(r"export (\w+)=(\S*)", said.getvalue()))
        publish = groupflow("publish", "--type", "greet")
        told: Any = {"folder": folder, "env": environment(**exports), "stdin": "{}\n"}
        await asyncio.to_thread(must, *publish, **told)
        await shown(said, "✓ greet")
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", health)) != 0
        assert "traces.nowhere" not in said.getvalue()
    assert "GROUPFLOW_REDIS__REPLICAS" in exports


async def test_a_save_begins_a_new_log(
    servers: PrivateServers, folder: Path, scratch: Path, name: str
) -> None:
    """All of both is shown."""
    file = f'[rabbitmq]\nqueue = "{name}"\n[redis]\nnamespace = "{name}"\n'
    (folder / "groupflow.toml").write_text(file)
    async with session(servers, scratch) as said:
        (folder / "handlers.py").write_text(f"{HANDLERS}print('new')\n")
        await shown(said, "Ready.", 2)
        log = (scratch / "daemon.log").read_text()
        assert log.count('"intake.started"') == 1
    assert said.getvalue().splitlines().count("new") == 1


WRONG = ["[[", "[http]\ntokens = 5", "http = 5\nredis = 5", "[http.tokens.a]\ntoken_file = 5"]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_in_a_file_is_left_to_the_daemon(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "groupflow.toml"
    file.write_text(wrong)
    assert "GROUPFLOW_HTTP__TOKENS" not in of_daemon(file, "127.0.0.1:0", "token")
    assert of_verbs(file) == {}
