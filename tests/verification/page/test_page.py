"""The page's process and health: work never depends on the page, which never has the handlers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from groupflow.ops.page.facts import Facts
from groupflow.servers import RedisServer
from groupflow.servers.server import free_ports
from groupflow.settings.changes import public_values
from groupflow.settings.load import load_settings
from groupflow.settings.rules import HandlerRule
from groupflow.settings.urls import SecretUrl
from tests.deadlines import deadline
from tests.endtoend.conftest import MakeRig, rigs
from tests.endtoend.process import REPOSITORY, Process, groupflow, until
from tests.endtoend.rig import Job, Rig
from tests.page.raw import exchange
from tests.page.served import TOKEN, as_, page_of
from tests.running import run

LISTENING = {"listen": "127.0.0.1:0", "token": TOKEN}


@pytest.fixture
def make_rig(tmp_path: Path, rabbitmq_server: Any, redis_server: RedisServer) -> Iterator[MakeRig]:
    with rigs(tmp_path, rabbitmq_server, redis_server, http=LISTENING) as make:
        yield make


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


def status(url: str, *paths: str) -> Any:
    found = [ask(url, path).status_code for path in paths]
    return found if len(found) > 1 else found[0]


WELL = {"redis.answers": "ok", "lease": "ok", "intake": "ok"}


def checks(daemon: Process) -> dict[str, str]:
    found = ask(url_of(daemon), "/readyz").json()["checks"]
    return {check["name"]: check["verdict"] for check in found}


def is_ready(daemon: Process) -> bool:
    return ask(url_of(daemon), "/readyz").status_code == 200


def standing(rig: Rig) -> list[dict[str, Any]]:
    """The intakes that stand, as an operator sees them."""
    found: list[dict[str, Any]] = rig.ask("status", code=None)["intake"]
    return found


def test_without_redis(make_own: MakeRig, store: RedisServer) -> None:
    """Ready is over, alive is not; a start waits for Redis and is alive meanwhile."""
    rig = make_own(redis={"timeout": 1.0})
    daemon = rig.start()
    run(store.kill())
    assert status(url_of(daemon), "/livez") == 200
    rig.until(lambda: not is_ready(daemon), "the loss of Redis")
    assert checks(daemon)["redis.answers"] == "fail"
    overview = ask(url_of(daemon), "/api/overview")
    assert (overview.status_code, "does not answer" in overview.json()["detail"]) == (503, True)
    other = rig.spawn("d2")
    assert status(url_of(other), "/livez", "/startupz") == [200, 503]
    run(store.start())
    rig.until(lambda: status(url_of(other), "/startupz") == 200, "the start of d2")
    rig.until(lambda: is_ready(daemon), "the return of d1")


def test_without_rabbitmq(make_rig: MakeRig) -> None:
    """Intake is what isn't ready, and a daemon without it doesn't mind."""
    (port,) = free_ports(1)
    rig = make_rig(rabbitmq={"url": f"amqp://guest:hushhush@127.0.0.1:{port}/"})
    daemon = rig.spawn("d1")
    daemon.wait_for("intake.interrupted")
    assert "hushhush" not in ask(url_of(daemon), "/readyz").text
    assert (is_ready(daemon), checks(daemon)) == (False, {**WELL, "intake": "fail"})
    workers = rig.spawn("d2", "--only", "workers")
    workers.wait_for("daemon.started")
    rig.until(lambda: is_ready(workers), "d2")
    assert checks(workers) == {"redis.answers": "ok", "lease": "ok"}


def test_a_stopping_daemon_is_not_ready(make_rig: MakeRig) -> None:
    rig = make_rig()
    daemon = rig.start()
    assert (is_ready(daemon), checks(daemon)) == (True, WELL)
    rig.publish([Job("t", "g", facts={"gate": str(rig.gate())})])
    rig.wait_for_start("t")
    daemon.send(signal.SIGTERM)
    daemon.wait_for("daemon.stopping")
    rig.until(lambda: checks(daemon).get("daemon") == "fail", "readiness ends")
    assert status(url_of(daemon), "/livez") == 200
    rig.gate().touch()
    assert daemon.wait() == 0


def test_beyond_this_machine(make_rig: MakeRig) -> None:
    """The log warns, looking needs the token, health doesn't."""
    daemon = make_rig(http={"listen": "0.0.0.0:0"}).start()
    assert "TLS" in daemon.wait_for("http.open_to_others")["remedy"]
    url = url_of(daemon)
    for path, expected in {"livez": 200, "": 200, "api/overview": 401, "api/events": 401}.items():
        assert status(url, f"/{path}") == expected, path
    assert ask(url, "/api/overview", headers=as_(TOKEN)).status_code == 200
    assert ask(url, "/api/access").json()["may_read"] is False
    assert TOKEN not in daemon.log.read_text()


def test_an_intake_without_memory_is_not_ready(make_own: MakeRig, store: RedisServer) -> None:
    """Each view says why and since when; and the intake goes on when there is room."""
    rig = make_own()
    daemon = rig.start()
    raw: Redis = Redis.from_url(store.url)
    raw.config_set("maxmemory", 1)
    rig.publish([Job("t1")])
    daemon.wait_for("intake.paused")
    assert (is_ready(daemon), checks(daemon)["intake"]) == (False, "fail")
    assert "out of memory" in ask(url_of(daemon), "/readyz").text
    rig.until(lambda: standing(rig) != [], "the word of an intake that stands")
    (word,) = standing(rig)
    assert (word["daemon"], "out of memory" in word["paused"]) == ("d1", True)
    assert abs(word["since"] - time.time()) < 600.0
    told = rig.call("status", "--config", str(rig.config)).stdout.decode()
    assert "intake of d1 stands since" in told
    assert ask(url_of(daemon), "/api/overview").json()["intake"] == [word]
    raw.config_set("maxmemory", 0)
    rig.wait_for_end("t1")
    rig.until(lambda: is_ready(daemon) and standing(rig) == [], "room")


def test_an_intake_behind_its_backlog_is_ready(make_rig: MakeRig) -> None:
    """It holds back on purpose: each view says so, and no probe takes it out for that."""
    rig = make_rig(redis={"max_waiting": 1}, workers={"plain": 0})
    daemon = rig.start()
    rig.publish([Job("t1")])
    daemon.wait_for("intake.paused")
    rig.until(lambda: checks(daemon)["intake"] == "warn", "the pause")
    assert is_ready(daemon)
    rig.until(lambda: [each["daemon"] for each in standing(rig)] == ["d1"], "its word")


def test_a_page_s_life(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows no secret, heeds the daemon alone, tells how it is, comes back, and ends with it."""
    monkeypatch.setenv("MY_DB_PASSWORD", "of-the-handlers-alone")
    rig = make_rig()
    daemon = rig.start()
    url, page = url_of(daemon), page_of(daemon)
    seen = Path(f"/proc/{page}/cmdline").read_bytes() + Path(f"/proc/{page}/environ").read_bytes()
    for secret in (TOKEN.encode(), b"GROUPFLOW_", b"of-the-handlers-alone"):
        assert secret not in seen
    assert b"PATH=" in seen
    # A terminal, or a supervisor, sends signals to every process of a group.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(page, number)
    assert status(url, "/livez") == 200
    assert page_of(daemon) == page
    rig.configure(http=LISTENING, workers={"plain": 3}, log={"level": "debug"})
    daemon.send(signal.SIGHUP)

    def workers() -> int:
        return int(ask(url, "/api/configuration").json()["settings"]["workers"]["plain"])

    rig.until(lambda: workers() == 3, "the page's new configuration")
    # Of a daemon that stands still it says so, instead of what the daemon said before.
    daemon.send(signal.SIGSTOP)
    rig.until(lambda: status(url, "/livez") == 503, "the page's word that the daemon stands")
    daemon.send(signal.SIGCONT)
    rig.until(lambda: status(url, "/livez") == 200, "the page's word that it goes on")
    os.kill(page, signal.SIGKILL)
    assert daemon.wait_for("page.ended")["how"] == "signal 9"
    assert status(url_of(daemon, times=2), "/readyz") == 200
    rig.publish([Job("t")])
    rig.wait_for_all()
    page = page_of(daemon)
    rig.stop_all()
    assert not Path(f"/proc/{page}").exists()
    assert len(daemon.events("page.ended")) == 1


def test_it_ends_with_a_daemon_that_can_not_tell_it(make_rig: MakeRig) -> None:
    daemon = make_rig().start()
    url_of(daemon)
    page = page_of(daemon)
    daemon.kill()
    until(lambda: not Path(f"/proc/{page}").exists(), lambda: "the page outlives its daemon")


def test_handlers_are_not_imported_there(make_rig: MakeRig, tmp_path: Path) -> None:
    """What an application does at its import is done once: in the daemon."""
    imports = tmp_path / "imports"
    (tmp_path / "counted.py").write_text(
        "import os, pathlib\nfrom groupflow import App\napp = App()\n"
        "@app.handler('work')\nasync def work(task): ...\n"
        f"with pathlib.Path({str(imports)!r}).open('a') as file:\n"
        "    print(os.getpid(), file=file)\n"
    )
    daemon = make_rig().spawn("d1", app="counted:app", tree=tmp_path)
    assert ask(url_of(daemon), "/api/configuration").json()["handlers"] == ["work"]
    assert imports.read_text().split() == [str(daemon.pid)]


def test_the_daemon_s_own_health_address(make_rig: MakeRig) -> None:
    """`[http] health`: the daemon answers itself, and nothing else; a page alone needs `listen`."""
    rig = make_rig(http={"listen": "", "health": "127.0.0.1:0"})
    alone = rig.call("page", "--config", str(rig.config))
    assert (alone.returncode, b"http.listen" in alone.stderr) == (78, True)
    daemon = rig.start()
    own = url_of(daemon, "health")
    assert status(own, "/livez", "/startupz", "/readyz", "/metrics") == [200] * 4
    assert b"groupflow_workers" in ask(own, "/metrics").content
    assert status(own, "/", "/api/overview") == [404, 404]
    assert ask(own, "/livez", "POST").status_code == 405
    head = ask(own, "/livez", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert exchange(own, b"GET /readyz?x=1 HTTP/1.0", []).status == 200
    assert page_of(daemon) == 0
    assert daemon.events("http.listening") == []


def test_a_page_alone(make_rig: MakeRig) -> None:
    """`groupflow page`: the whole cluster's, on a machine that runs no tasks."""
    rig = make_rig()
    rig.start("d1")
    rig.publish([Job("dies", type="fail"), Job("lives")])
    rig.wait_for_all()
    command = groupflow("page", "--config", rig.config)
    page = Process("page", command, rig.environment(), rig.folder / "page.log")
    with closing(page):
        url = url_of(page)
        assert status(url, "/livez", "/readyz", "/startupz", "/", "/api/overview") == [200] * 5
        access = ask(url, "/api/access").json()
        assert (access["daemon"], access["has_tokens"]) == ("page", True)
        metrics = ask(url, "/metrics").text
        assert "groupflow_cluster_dead_letters 1.0" in metrics
        assert "groupflow_workers" not in metrics
        given = {"json": {"ids": ["dies"]}, "headers": as_(TOKEN)}
        assert ask(url, "/api/dead/drop", "POST", **given).json()["done"] == ["dies"]
        rig.configure(http={"listen": "127.0.0.1:0"}, retry={"max_attempts": 7})
        page.send(signal.SIGHUP)
        page.wait_for("page.reloaded")
        found = ask(url, "/api/configuration").json()["settings"]
        assert found["retry"]["max_attempts"] == 7
        assert found["http"]["token"]  # the token of the start is still asked for
        whole = rig.config.read_text()
        rig.config.write_text("[retry]\nmax_attempts = 'many'\n")
        page.send(signal.SIGHUP)
        page.wait_for("page.not_reloaded")
        assert status(url, "/livez") == 200
        rig.config.write_text(whole)
        rig.stop_all()
        moving = rig.keys("partitions")
        rig.raw.hset(moving, "moving_to", 3)
        page.wait_for("page.closed")
        refused = ask(url, "/api/overview")
        assert refused.status_code == 503
        assert "on its way from 1 to 3" in refused.json()["detail"]
        assert status(url, "/readyz") == 503
        rig.raw.hdel(moving, "moving_to")
        until(lambda: status(url, "/api/overview") == 200)
        moved = rig.call("repartition", "2", "--config", str(rig.config))
        assert moved.returncode == 0, moved.stderr
        assert page.wait_for("page.follows")["partitions"] == 2
        url = page.wait_for("http.listening", 2)["url"].rstrip("/")
        rows = ask(url, "/api/partitions").json()
        assert [row["partition"] for row in rows] == [0, 1]
        assert ask(url, "/api/actions").json()[0]["facts"] == {"before": 1, "now": 2}
        assert page.stop() == 0


def test_a_port_is_taken_over(make_rig: MakeRig) -> None:
    """The second daemon says so once, and works without a page until the first one has ended."""
    (port,) = free_ports(1)
    rig = make_rig(http={"listen": f"127.0.0.1:{port}"})
    first = rig.start("d1")
    first.wait_for("http.listening")
    second = rig.start("d2", "--only", "workers")
    said = second.wait_for("http.not_listening")
    assert said["listen"] == f"127.0.0.1:{port}"
    assert "in use" in said["error"]
    assert first.stop() == 0
    assert ask(url_of(second), "/api/access").json()["daemon"] == "d2"
    intake = rig.spawn("d3", "--only", "intake", app=None)
    intake.wait_for("intake.started")
    rig.publish(Job(f"t{n}", "g", n=n) for n in range(5))
    rig.wait_for_all()


@pytest.mark.parametrize("name", ["groupflow.toml", "tenants.toml"])
def test_facts_arrive_as_they_are(name: str) -> None:
    """What is shown, and the secrets that the page needs; no others."""
    settings = load_settings(REPOSITORY / "config" / name)
    rabbitmq = settings.rabbitmq.model_copy(update={"url": SecretUrl("amqp://me:known@host/")})
    handlers = {"h": HandlerRule(exec=("./import", "--password=hushhush"))}
    settings = settings.model_copy(update={"rabbitmq": rabbitmq, "handlers": handlers})
    facts = Facts("d1", settings, {"a": "m.f"})
    packed = orjson.dumps(facts.packed())
    assert b"hushhush" not in packed
    arrived = Facts.unpacked(orjson.loads(packed))
    assert public_values(arrived.settings) == public_values(settings)
    assert arrived.settings.redis == settings.redis
    assert arrived.settings.rabbitmq == settings.rabbitmq
    assert arrived.settings.http == settings.http
    assert (arrived.daemon, arrived.functions) == (facts.daemon, facts.functions)
