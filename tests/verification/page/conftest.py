"""Rigs whose daemons have a page on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.endtoend.conftest import MakeRig, rigs
from tests.endtoend.process import Process
from tests.page.served import TOKEN
from tests.running import running

LISTENING = {"listen": "127.0.0.1:0", "token": TOKEN}


@pytest.fixture
def make_rig(
    tmp_path: Path, rabbitmq_server: RabbitmqServer, redis_server: RedisServer
) -> Iterator[MakeRig]:
    with rigs(tmp_path, rabbitmq_server, redis_server, http=LISTENING) as make:
        yield make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, to be stopped and started."""
    with running(RedisServer(tmp_path / "redis-of-its-own")) as server:
        yield server


@pytest.fixture
def make_own(tmp_path: Path, rabbitmq_server: Any, store: RedisServer) -> Iterator[MakeRig]:
    """The same on that Redis."""
    with rigs(tmp_path, rabbitmq_server, store, http=LISTENING) as make:
        yield make


def url_of(daemon: Process, event: str = "http", times: int = 1) -> str:
    """The address of its page, or of its health."""
    return str(daemon.wait_for(f"{event}.listening", times)["url"]).rstrip("/")


def ask(url: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:
    return httpx.request(method, url + path, timeout=deadline(), trust_env=False, **more)


def status(url: str, path: str) -> int:
    return ask(url, path).status_code
