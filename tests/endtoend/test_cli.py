"""The verbs against real servers: shapes and exit codes of the public contract."""

from __future__ import annotations

import signal
from typing import Any

from groupflow import __version__
from groupflow.cli.exits import Exit
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig

GROUPED = {
    "queued": 0, "asleep": 0, "running": 0, "groups": 0, "ready": 0, "delayed": 0, "parked": 0,
    "paused": 0, "paused_too": 0, "waited": 0.0,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "paused": None, "plain": {"queued": 0, "running": 0, "waited": 0.0}, "grouped": GROUPED,
    "tenants": {"standing": 0, "groups": 0, "plain": 0, "waited": 0.0, "names": []},
    "types": {"standing": 0, "groups": 0},
    "limited": {"tenants": 0, "groups": 0, "types": 0}, "limits": [], "pools": [],
    "dead": 0, "dead_staying": 0, "done_total": 0, "cancelled_total": 0,
    "expired_total": 0, "superseded_total": 0, "dropped_total": 0, "failed_total": 0,
    "drained_total": 0,
    "daemons": [], "intake": [], "rates": None,
}  # fmt: skip


def test_publish_and_status(rig: Rig) -> None:
    """What `publish` sends runs, and `status` counts it in the shape of the contract."""
    assert rig.ask("status") == STATUS
    held = {"gate": str(rig.gate())}
    bodies = [Job(f"{n}", "a", facts=held).body for n in range(3)] + [Job("p").body]
    publish = ("publish", "--config", str(rig.config))
    done = rig.call(*publish, "--type", "work", "-", stdin=b"\n".join(bodies))
    assert done.returncode == Exit.FINE, done.stderr.decode()
    assert b", all confirmed, as " in done.stdout
    one = rig.folder / "one.json"
    one.write_bytes(b'{"app_name": "plain", "type": "fail"}\n')
    told = {"published": 1, "queue": rig.queue, "ids": ["one"], "refused": []}
    for _ in range(2):  # which counts once
        assert rig.ask("publish", str(one), "--id", "one") == told

    daemon = rig.start("d1")
    rig.until(lambda: rig.is_over(2) and rig.count("running_grouped") == 1, "its work")
    status = rig.ask("status")
    (shown,) = status["daemons"]
    rates = status["rates"]  # of a minute; there may be no two samples yet
    assert rates is None or rates.keys() == {"taken_in", "done", "buried", "seconds"}
    assert isinstance(shown.pop("heartbeat_age"), float)
    known = {"name": "d1", "pid": daemon.pid, "host": shown["host"], "workers": 12}
    assert shown == {**known, "version": __version__, "draining": False, "late": False}
    assert status == STATUS | {
        "daemons": [shown],
        "rates": rates,
        "grouped": GROUPED | {"queued": 2, "running": 1, "groups": 1},
        **dict.fromkeys(("dead", "done_total", "failed_total"), 1),
    }
    rig.gate().touch()
    rig.wait_for_all(tasks=5)
    rig.stop_all()
    assert rig.ask("status")["daemons"] == []


def test_what_publish_is_given_reaches_the_task(rig: Rig) -> None:
    """Ids by number, headers, priority, delay; and the rest where a line can't be one."""
    rig.configure(workers={"plain": 0})
    rig.start("d1")
    config = ("--config", str(rig.config), "--type", "work", "--id", "batch")
    body = b'{"app_name": "plain"}'
    facts = ("--delay", "9000", "--priority", "7", "--header", "x-note=a=b", "--partial")
    done = rig.call("publish", *config, *facts, stdin=body + b"\nnot json\n" + body)
    assert done.returncode == Exit.FAILED, "a line was left out"
    assert b"line 2: not JSON" in done.stderr
    assert b"1 of 3 would be dead letters: the others are published" in done.stderr
    assert b"published 2" in done.stdout
    rig.until(lambda: rig.count("taken") == 2, "the tasks")
    for id_ in ("batch-1", "batch-3"):
        assert rig.ask("task", id_)["state"] == "delayed"
    assert rig.ask("status")["dead"] == 0
    rig.stop_all()


def test_halves_work_together(rig: Rig) -> None:
    """One process only takes in, another only works."""
    intake = rig.spawn("in", "--only", "intake", app=None)
    workers = rig.spawn("out", "--only", "workers")
    intake.wait_for("intake.started")
    workers.wait_for("daemon.started")
    rig.publish(Job(f"t{n}", f"g{n % 3}" if n % 2 else None, n=n) for n in range(60))
    rig.wait_for_all()
    assert {event.pid for event in rig.events("start")} == {workers.pid}
    assert workers.events("intake.started") == []
    workers.send(signal.SIGINT)  # Ctrl-C is an orderly end too
    assert workers.wait() == Exit.FINE
    rig.end(with_faults=False)


def test_wrong_credentials(make_rig: MakeRig) -> None:
    """RabbitMQ's refusal is an end with 69 as well, not a wait for ever."""
    rig = make_rig()
    rig.configure(rabbitmq={"url": rig.rabbitmq.url.replace("guest:guest", "guest:hushhush")})
    done = rig.call("publish", "--config", str(rig.config), "--type", "work", "-", stdin=b"{}")
    assert done.returncode == Exit.UNAVAILABLE
    assert b"credentials" in done.stderr
    daemon = rig.spawn("d1")
    assert daemon.wait() == Exit.UNAVAILABLE
    assert "hushhush" not in daemon.tail() + done.stderr.decode()
