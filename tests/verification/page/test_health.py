"""Health, and a page that work never depends on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.ports import free_ports
from tests.conftest import _run
from tests.deadlines import deadline
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(
    tmp_path: Path, rabbitmq_server: RabbitmqServer, redis_server: RedisServer
) -> Iterator[MakeRig]:
    """Make rigs whose daemons listen where the test says."""
    rigs: list[Rig] = []

    def make(listen: str, store: RedisServer = redis_server, **sections: Any) -> Rig:
        folder = tmp_path / f"{tmp_path.name}-{len(rigs)}"
        folder.mkdir()
        rig = Rig(folder, rabbitmq_server, store, **sections)
        surroundings = rig.environment()
        surroundings["GROUPFLOW_HTTP__LISTEN"] = listen
        rig.environment = lambda: surroundings  # type: ignore[method-assign]
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, to be stopped and started."""
    server = RedisServer(tmp_path / "redis-of-its-own")
    _run(server.start())
    yield server
    _run(server.stop())


def _get(daemon: Process, path: str) -> httpx.Response:
    url = daemon.wait_for("http.listening")["url"].rstrip("/")
    return httpx.get(url + path, timeout=deadline(), trust_env=False)


def _checks(daemon: Process) -> dict[str, str]:
    answer = _get(daemon, "/readyz").json()
    return {check["name"]: check["verdict"] for check in answer["checks"]}


def test_without_redis(make_rig: MakeRig, store: RedisServer) -> None:
    """Ready is over, alive is not; a start waits for Redis and is alive meanwhile."""
    rig = make_rig("127.0.0.1:0", store, redis={"timeout": 1.0})
    daemon = rig.start()
    _run(store.kill())
    assert _get(daemon, "/livez").status_code == 200
    rig.until(lambda: _get(daemon, "/readyz").status_code == 503, "the loss of Redis")
    assert _checks(daemon)["redis.answers"] == "fail"
    overview = _get(daemon, "/api/overview")
    assert overview.status_code == 503
    assert "does not answer" in overview.json()["detail"]

    other = rig.spawn("d2")
    assert _get(other, "/livez").status_code == 200
    assert _get(other, "/startupz").status_code == 503
    _run(store.start())
    rig.until(lambda: _get(other, "/startupz").status_code == 200, "the start of d2")
    rig.until(lambda: _get(daemon, "/readyz").status_code == 200, "the return of d1")


def test_without_rabbitmq(make_rig: MakeRig) -> None:
    """Intake is what isn't ready, and a daemon without it doesn't mind."""
    (port,) = free_ports(1)
    rig = make_rig("127.0.0.1:0", rabbitmq={"url": f"amqp://guest:hushhush@127.0.0.1:{port}/"})
    daemon = rig.spawn("d1")
    daemon.wait_for("intake.interrupted")
    answer = _get(daemon, "/readyz")
    assert answer.status_code == 503
    assert _checks(daemon) == {"redis.answers": "ok", "lease": "ok", "intake": "fail"}
    assert "hushhush" not in answer.text
    workers = rig.spawn("d2", "--only", "workers")
    workers.wait_for("daemon.started")
    rig.until(lambda: _get(workers, "/readyz").status_code == 200, "d2")
    assert _checks(workers) == {"redis.answers": "ok", "lease": "ok"}


def test_a_stopping_daemon_is_not_ready(make_rig: MakeRig) -> None:
    rig = make_rig("127.0.0.1:0")
    daemon = rig.start()
    for path in ("/livez", "/startupz", "/readyz"):
        assert _get(daemon, path).status_code == 200
    assert _checks(daemon) == {"redis.answers": "ok", "lease": "ok", "intake": "ok"}
    rig.publish([Job("t", "g", facts={"gate": str(rig.gate())})])
    rig.wait_for_start("t")
    daemon.send(signal.SIGTERM)
    daemon.wait_for("daemon.stopping")
    rig.until(lambda: _checks(daemon).get("daemon") == "fail", "readiness ends")
    assert _get(daemon, "/livez").status_code == 200
    rig.gate().touch()
    assert daemon.wait() == 0


def test_beyond_this_machine(make_rig: MakeRig) -> None:
    """The log warns, looking needs the token, health doesn't."""
    rig = make_rig("0.0.0.0:0", http={"token": "a-token-of-the-tests"})
    daemon = rig.start()
    assert "TLS" in daemon.wait_for("http.open_to_others")["remedy"]
    assert _get(daemon, "/livez").status_code == 200
    assert _get(daemon, "/").status_code == 200
    assert _get(daemon, "/api/overview").status_code == 401
    assert _get(daemon, "/api/events").status_code == 401
    url = daemon.wait_for("http.listening")["url"].rstrip("/")
    headers = {"Authorization": "Bearer a-token-of-the-tests"}
    shown = httpx.get(f"{url}/api/overview", headers=headers, trust_env=False, timeout=deadline())
    assert shown.status_code == 200
    assert _get(daemon, "/api/access").json()["may_read"] is False
    assert "a-token-of-the-tests" not in daemon.log.read_text()


def test_an_intake_without_memory_is_not_ready(make_rig: MakeRig, store: RedisServer) -> None:
    """It says why and since when, everywhere somebody looks; and it goes on when there is room."""
    rig = make_rig("127.0.0.1:0", store)
    daemon = rig.start()
    raw: Redis = Redis.from_url(store.url)
    raw.config_set("maxmemory", 1)
    rig.publish([Job("t1")])
    daemon.wait_for("intake.paused")
    answer = _get(daemon, "/readyz")
    assert answer.status_code == 503
    assert _checks(daemon)["intake"] == "fail"
    assert "out of memory" in answer.text
    rig.until(lambda: _standing(rig) != [], "the word of an intake that stands")
    (standing,) = _standing(rig)
    assert standing["daemon"] == "d1"
    assert "out of memory" in standing["paused"]
    assert abs(standing["since"] - time.time()) < 600.0
    assert "intake of d1 stands since" in rig.call("status", *_config(rig)).stdout.decode()
    assert _get(daemon, "/api/overview").json()["intake"] == [standing]

    raw.config_set("maxmemory", 0)
    rig.wait_for_end("t1")
    rig.until(lambda: _get(daemon, "/readyz").status_code == 200, "room")
    rig.until(lambda: _standing(rig) == [], "the end of its word")


def test_an_intake_behind_its_backlog_is_ready(make_rig: MakeRig) -> None:
    """It holds back on purpose: whoever looks is told, and no probe takes it out for that."""
    rig = make_rig("127.0.0.1:0", redis={"max_waiting": 1}, workers={"plain": 0})
    daemon = rig.start()
    rig.publish([Job("t1")])
    daemon.wait_for("intake.paused")
    rig.until(lambda: _checks(daemon)["intake"] == "warn", "the pause")
    assert _get(daemon, "/readyz").status_code == 200
    rig.until(lambda: [each["daemon"] for each in _standing(rig)] == ["d1"], "its word")


def _config(rig: Rig) -> tuple[str, str]:
    return "--config", str(rig.config)


def _standing(rig: Rig) -> list[dict[str, Any]]:
    standing: list[dict[str, Any]] = orjson.loads(
        rig.call("status", "--json", *_config(rig)).stdout
    )["intake"]
    return standing
