"""The demo as a user starts it, on servers of others."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupflow.broker import topology
from groupflow.servers import RabbitmqServer, RedisServer
from tests.broker.wires import connected
from tests.deadlines import deadline
from tests.endtoend.process import environment, groupflow


@contextmanager
def started(
    *words: str, folder: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """`groupflow` with these words, whose output can be read; it is killed at the end."""
    where: Any = {"cwd": folder, "env": environment(**variables), "stdout": subprocess.PIPE}
    command = groupflow(*words)
    with subprocess.Popen(command, **where, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_until(process: subprocess.Popen[str], *words: str) -> str:
    """What it says until all of these words have been in it."""
    assert process.stdout is not None
    said = ""
    while not all(each in said for each in words):
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


def interrupted(process: subprocess.Popen[str]) -> str:
    """What it says from a SIGINT to its end."""
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=2 * deadline())[0]


@pytest.fixture
def config(redis_server: RedisServer, rabbitmq_server: RabbitmqServer, tmp_path: Path) -> Path:
    path = tmp_path / "groupflow.toml"
    path.write_text(
        f'[rabbitmq]\nurl = "{rabbitmq_server.url}"\n[redis]\nurl = "{redis_server.url}"\n'
    )
    return path


async def test_an_interrupted_demo_leaves_no_queue_on_servers_of_others(
    config: Path, rabbitmq_server: RabbitmqServer
) -> None:
    with started("demo", "--config", str(config)) as demo:
        said = said_until(demo, " imported ") + interrupted(demo)
    assert demo.returncode == 130, said
    assert "Interrupted" in said
    name = re.search(r"groupflow-demo-\w+", said)
    assert name is not None
    async with connected(rabbitmq_server.url) as connection:
        presence = await topology.presence_of(connection, name[0])
    assert presence is topology.Presence.MISSING


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = tmp_path / "groupflow.toml"
    config.write_text('[rabbitmq]\nurl = "amqp://guest:secret@127.0.0.1:1/"\n')
    with started("demo", "--config", str(config)) as demo:
        said, _ = demo.communicate(timeout=2 * deadline())
    assert demo.returncode == 69, said
    assert "RabbitMQ at 127.0.0.1:1 can't be reached" in said
    assert "secret" not in said
