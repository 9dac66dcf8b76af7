"""What never drains by itself can't stop intake: dead letters and delays by the 10 MiB, on 100 MB.

One stranger's messages fill Redis up to the limit; another tenant's go on, and nothing is lost.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from groupflow.broker.publisher import Outgoing
from groupflow.cli.exits import Exit
from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.endtoend.conftest import rigs
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.history.auditor import audit
from tests.page.served import TOKEN, as_

MIB = 2**20
LIMIT = 100_000_000
pytestmark = pytest.mark.timeout(300)  # 120 MiB there and back, where all cores are busy


@pytest.fixture
def rig(tmp_path: Path, rabbitmq_server: RabbitmqServer, store: RedisServer) -> Iterator[Rig]:
    settings: dict[str, Any] = {
        "redis": {"max_memory": LIMIT},
        "fields": {"delay": "delay_s"},
        "http": {"listen": "127.0.0.1:0", "token": TOKEN},
    }
    with rigs(tmp_path, rabbitmq_server, store, **settings) as make:
        rig = make()
        yield rig
        rig.stop_all()
        assert audit(rig.raw, rig.keys) == []


def send(rig: Rig, bodies: dict[str, bytes], type_: str = "work") -> None:
    for id_, body in bodies.items():
        rig.send(Outgoing(body, type_, id_))


def shown(rig: Rig, id_: str) -> bytes:
    """The body of a dead letter, as `dead show --json` tells it."""
    letter = rig.ask("dead", "show", id_)
    if "body" in letter:
        return str(letter["body"]).encode()
    return base64.b64decode(letter["body_base64"])


def others_go_on(rig: Rig, daemon: Process, n: int) -> None:
    """Another tenant's task comes in and runs beside what the stranger has sent."""
    rig.publish([Job(f"good-{n}", "good", tenant=7)])
    rig.wait_for_end(f"good-{n}")
    assert daemon.is_running


def test_malformed_messages_stop_nobody(rig: Rig) -> None:
    daemon = rig.start("d1")
    bodies = {f"junk-{n}": b"%d" % (n % 10) * (10 * MIB) for n in range(12)}
    send(rig, bodies)
    others_go_on(rig, daemon, 1)
    rig.until(lambda: len(rig.dead()) == 12, "twelve letters")
    others_go_on(rig, daemon, 2)
    rig.until(lambda: rig.count("archived") > 0, "a body that has left Redis")
    assert {shown(rig, id_) == body for id_, body in bodies.items()} == {True}
    url = daemon.wait_for("http.listening")["url"].rstrip("/")
    asked: Any = {"headers": as_(TOKEN), "trust_env": False, "timeout": deadline()}
    letter = httpx.get(f"{url}/api/letter?id=junk-1", **asked).json()
    assert (letter["body_bytes"], letter["body"][:3]) == (10 * MIB, "111")

    # They are routed first, by whole bodies, and none of them can be.
    refused = rig.call("dead", "redrive", "junk-0", "--config", str(rig.config))
    assert b"junk-0 stays" in refused.stderr


def test_delays_of_a_year_stop_nobody(rig: Rig) -> None:
    daemon = rig.start("d1")
    facts = {"app_name": "plain", "delay_s": 31_000_000}
    bodies = {f"late-{n}": orjson.dumps({**facts, "n": n}).ljust(10 * MIB, b" ") for n in range(7)}
    send(rig, bodies)
    others_go_on(rig, daemon, 1)
    rig.until(lambda: rig.count("taken") == 8, "seven delays")
    delayed = 7 - len(rig.dead())
    assert delayed == 4, "half of redis.max_memory may wait"
    assert rig.count("delayed_bytes") <= LIMIT / 2
    assert "redis.delayed_memory" in daemon.wait_for("task.buried")["reason"]
    others_go_on(rig, daemon, 2)
    assert {shown(rig, id_) == bodies[id_] for id_ in rig.dead()} == {True}

    # Room is made by hand, and what had none gets the rest of its delay.
    (unlucky, *_) = rig.dead()
    refused = rig.call("dead", "redrive", unlucky, "--config", str(rig.config))
    assert refused.returncode == Exit.FAILED
    assert b"redis.delayed_memory" in refused.stderr
    late = sorted(bodies.keys() - set(rig.dead()))
    rig.say("task", "drop", *late)
    (first, *_) = rig.dead()
    rig.say("dead", "redrive", first)
    assert rig.ask("task", first)["state"] == "delayed"
    rig.say("task", "run-now", first)
    rig.wait_for_end(first)
