"""Health, and a page that work never depends on."""

from __future__ import annotations

import signal
import time
from typing import Any

from redis import Redis

from groupflow.servers import RedisServer
from groupflow.servers.server import free_ports
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.page.served import TOKEN, as_
from tests.running import run
from tests.verification.page.conftest import ask, status, url_of

WELL = {"redis.answers": "ok", "lease": "ok", "intake": "ok"}


def checks(daemon: Process) -> dict[str, str]:
    found = ask(url_of(daemon), "/readyz").json()["checks"]
    return {check["name"]: check["verdict"] for check in found}


def is_ready(daemon: Process) -> bool:
    return status(url_of(daemon), "/readyz") == 200


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
    assert [status(url_of(other), path) for path in ("/livez", "/startupz")] == [200, 503]
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
    """It says why and since when, everywhere somebody looks; and it goes on when there is room."""
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
    """It holds back on purpose: whoever looks is told, and no probe takes it out for that."""
    rig = make_rig(redis={"max_waiting": 1}, workers={"plain": 0})
    daemon = rig.start()
    rig.publish([Job("t1")])
    daemon.wait_for("intake.paused")
    rig.until(lambda: checks(daemon)["intake"] == "warn", "the pause")
    assert is_ready(daemon)
    rig.until(lambda: [each["daemon"] for each in standing(rig)] == ["d1"], "its word")
