"""The page's process: it comes back, it ends with its daemon, and it never has the handlers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from groupflow.ops.health.responder import MOST
from groupflow.ops.page.facts import Facts
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.ports import free_ports
from groupflow.settings.changes import public_values
from groupflow.settings.load import load_settings
from groupflow.settings.rules import HandlerRule
from groupflow.settings.types import SecretUrl
from tests.deadlines import deadline
from tests.endtoend.process import REPOSITORY, Process, until
from tests.endtoend.rig import Job, Rig
from tests.page.raw import connected, exchange
from tests.page.world import TOKEN

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(
    tmp_path: Path, rabbitmq_server: RabbitmqServer, redis_server: RedisServer
) -> Iterator[MakeRig]:
    """A rig whose daemons have a page on a free port."""
    rigs: list[Rig] = []

    def make(**http: Any) -> Rig:
        folder = tmp_path / tmp_path.name
        folder.mkdir()
        settings = {"listen": "127.0.0.1:0", "token": TOKEN, **http}
        rig = Rig(folder, rabbitmq_server, redis_server, http=settings)
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        rig.close()


def _pages(daemon: Process) -> list[int]:
    """The processes of a daemon's page."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
            words = (entry / "cmdline").read_bytes().split(b"\0") if stat else []
        except OSError:
            continue
        if stat and int(stat.rpartition(") ")[2].split()[1]) == daemon.pid and b"page" in words:
            found.append(int(entry.name))
    return found


def _url(daemon: Process, times: int = 1) -> str:
    return str(daemon.wait_for("http.listening", times)["url"]).rstrip("/")


def _get(url: str, path: str) -> httpx.Response:
    return httpx.get(url + path, timeout=deadline(), trust_env=False)


def _status(url: str, path: str) -> int:
    return _get(url, path).status_code


def test_it_comes_back(make_rig: MakeRig) -> None:
    rig = make_rig()
    daemon = rig.start()
    _url(daemon)
    (page,) = _pages(daemon)
    os.kill(page, signal.SIGKILL)
    assert daemon.wait_for("page.ended")["how"] == "signal 9"
    assert _status(_url(daemon, 2), "/readyz") == 200
    rig.publish([Job("t")])
    rig.wait_for_all()
    rig.stop_all()


def test_it_ends_with_its_daemon(make_rig: MakeRig) -> None:
    """Also when nobody is left to tell it."""
    rig = make_rig()
    daemon = rig.start()
    _url(daemon)
    (page,) = _pages(daemon)
    daemon.kill()
    until(lambda: not Path(f"/proc/{page}").exists(), lambda: "the page outlives its daemon")


def test_it_ends_before_its_daemon_has(make_rig: MakeRig) -> None:
    daemon = make_rig().start()
    _url(daemon)
    (page,) = _pages(daemon)
    assert daemon.stop() == 0
    assert not Path(f"/proc/{page}").exists()
    assert daemon.events("page.ended") == []


def test_signals_for_all_are_the_daemons(make_rig: MakeRig) -> None:
    """A terminal, or a supervisor, sends them to every process of a group."""
    daemon = make_rig().start()
    url = _url(daemon)
    (page,) = _pages(daemon)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(page, number)
    assert _status(url, "/livez") == 200
    assert _pages(daemon) == [page]


def test_handlers_are_not_imported_there(make_rig: MakeRig, tmp_path: Path) -> None:
    """Whatever an application does at its import is done once: in the daemon."""
    imports = tmp_path / "imports"
    (tmp_path / "counted.py").write_text(
        "import os, pathlib\nfrom groupflow import App\napp = App()\n"
        "@app.handler('work')\nasync def work(task): ...\n"
        f"with pathlib.Path({str(imports)!r}).open('a') as file:\n"
        "    print(os.getpid(), file=file)\n"
    )
    rig = make_rig()
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    surroundings = {**rig.environment(), "PYTHONPATH": path}
    rig.environment = lambda: surroundings  # type: ignore[method-assign]
    daemon = rig.spawn("d1", app="counted:app")
    answer = _get(_url(daemon), "/api/configuration")
    assert answer.json()["handlers"] == ["work"]
    assert imports.read_text().split() == [str(daemon.pid)]


def test_its_command_line_and_environment_hold_no_secret(make_rig: MakeRig) -> None:
    rig = make_rig()
    surroundings = {**rig.environment(), "GROUPFLOW_RABBITMQ__URL": rig.rabbitmq.url}
    surroundings["MY_DB_PASSWORD"] = "of-the-handlers-alone"
    rig.environment = lambda: surroundings  # type: ignore[method-assign]
    daemon = rig.start()
    _url(daemon)
    (page,) = _pages(daemon)
    seen = Path(f"/proc/{page}/cmdline").read_bytes() + Path(f"/proc/{page}/environ").read_bytes()
    assert TOKEN.encode() not in seen
    assert b"GROUPFLOW_" not in seen
    assert b"of-the-handlers-alone" not in seen
    assert b"PATH=" in seen


def test_a_reload_reaches_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    daemon = rig.start()
    url = _url(daemon)
    rig.configure(
        http={"listen": "127.0.0.1:0", "token": TOKEN}, workers={"plain": 3}, log={"level": "debug"}
    )
    daemon.send(signal.SIGHUP)

    def workers() -> int:
        answer = _get(url, "/api/configuration").json()
        return int(answer["settings"]["workers"]["plain"])

    rig.until(lambda: workers() == 3, "the page's new configuration")


def test_a_daemon_that_stands_still(make_rig: MakeRig) -> None:
    """The page says so, instead of saying what the daemon said before."""
    daemon = make_rig().start()
    url = _url(daemon)
    assert _status(url, "/livez") == 200
    daemon.send(signal.SIGSTOP)
    until(lambda: _status(url, "/livez") == 503, lambda: "the page says that all is well")
    daemon.send(signal.SIGCONT)
    until(lambda: _status(url, "/livez") == 200, lambda: "the page says that nothing is well")


class TestOwnAddress:
    """`[http] health`: the daemon itself."""

    def test_it_answers_though_the_page_stands_still(self, make_rig: MakeRig) -> None:
        daemon = make_rig(health="127.0.0.1:0").start()
        own = str(daemon.wait_for("health.listening")["url"]).rstrip("/")
        _url(daemon)
        (page,) = _pages(daemon)
        os.kill(page, signal.SIGSTOP)
        for path in ("/livez", "/startupz", "/readyz", "/metrics"):
            assert _status(own, path) == 200, path
        assert b"groupflow_workers" in _get(own, "/metrics").content
        os.kill(page, signal.SIGCONT)

    def test_it_answers_nothing_else(self, make_rig: MakeRig) -> None:
        daemon = make_rig(listen="", health="127.0.0.1:0").start()
        own = str(daemon.wait_for("health.listening")["url"]).rstrip("/")
        assert _status(own, "/") == 404
        assert _status(own, "/api/overview") == 404
        assert httpx.post(f"{own}/livez", trust_env=False, timeout=deadline()).status_code == 405
        head = httpx.head(f"{own}/livez", trust_env=False, timeout=deadline())
        assert (head.status_code, head.content) == (200, b"")
        assert exchange(own, b"GET /readyz?x=1 HTTP/1.0", []).status == 200
        assert _pages(daemon) == []

    def test_silence_keeps_no_probe_out(self, make_rig: MakeRig) -> None:
        daemon = make_rig(listen="", health="127.0.0.1:0").start()
        own = str(daemon.wait_for("health.listening")["url"]).rstrip("/")
        silent = [connected(own) for _ in range(MOST + 8)]
        try:
            assert _status(own, "/livez") == 200
            long = connected(own)
            silent.append(long)
            long.sendall(b"GET /livez HTTP/1.1\r\nX: " + b"x" * 5000)
            assert _ended(long)
        finally:
            for sock in silent:
                sock.close()


def _ended(sock: Any) -> bool:
    try:
        return bool(sock.recv(1) == b"")
    except ConnectionError:
        return True


class TestAlone:
    """`groupflow page`: the whole cluster's, on a machine that runs no tasks."""

    def test_it_shows_and_acts(self, make_rig: MakeRig) -> None:
        rig = make_rig()
        rig.start("d1")
        rig.publish([Job("dies", type="fail"), Job("lives")])
        rig.wait_for_all()
        command = rig.command("page", "--config", str(rig.config))
        page = Process("page", command, rig.environment(), rig.folder / "page.log")
        try:
            url = _url(page)
            for path in ("/livez", "/readyz", "/startupz", "/", "/api/overview"):
                assert _status(url, path) == 200, path
            access = _get(url, "/api/access").json()
            assert (access["daemon"], access["has_actions"]) == ("page", True)
            metrics = _get(url, "/metrics").text
            assert "groupflow_cluster_dead_letters 1.0" in metrics
            assert "groupflow_workers" not in metrics
            answer = httpx.post(
                f"{url}/api/dead/drop",
                json={"ids": ["dies"]},
                headers={"Authorization": f"Bearer {TOKEN}"},
                trust_env=False,
                timeout=deadline(),
            )
            assert answer.json()["done"] == ["dies"]
            assert page.stop() == 0
        finally:
            page.close()

    def test_a_reload(self, make_rig: MakeRig) -> None:
        rig = make_rig()
        command = rig.command("page", "--config", str(rig.config))
        page = Process("page", command, rig.environment(), rig.folder / "page.log")
        try:
            url = _url(page)
            rig.configure(http={"listen": "127.0.0.1:0"}, retry={"max_attempts": 7})
            page.send(signal.SIGHUP)
            page.wait_for("page.reloaded")
            found = _get(url, "/api/configuration").json()["settings"]
            assert found["retry"]["max_attempts"] == 7
            assert found["http"]["token"]  # the token of the start is still asked for
            rig.config.write_text("[retry]\nmax_attempts = 'many'\n")
            page.send(signal.SIGHUP)
            page.wait_for("page.not_reloaded")
            assert _status(url, "/livez") == 200
        finally:
            page.close()

    def test_it_needs_an_address(self, make_rig: MakeRig) -> None:
        rig = make_rig(listen="")
        done = rig.call("page", "--config", str(rig.config))
        assert done.returncode == 78
        assert b"http.listen" in done.stderr


def test_a_port_is_taken_over(make_rig: MakeRig) -> None:
    """The second daemon's page appears when the first daemon has ended."""
    (port,) = free_ports(1)
    rig = make_rig(listen=f"127.0.0.1:{port}")
    first = rig.start("d1")
    first.wait_for("http.listening")
    second = rig.start("d2", "--only", "workers")
    second.wait_for("http.not_listening")
    assert first.stop() == 0
    assert _get(_url(second), "/api/access").json()["daemon"] == "d2"


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
