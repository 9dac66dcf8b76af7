"""The verbs against real servers: shapes and exit codes of the public contract."""

from __future__ import annotations

import signal
from typing import Any

import orjson

from groupflow.cli.exits import Exit
from groupflow.servers.ports import free_ports
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig


def json_of(rig: Rig, *arguments: str) -> Any:
    """What a verb prints with --json; logs and words go elsewhere."""
    done = rig.call(*arguments, "--config", str(rig.config), "--json")
    assert done.returncode == Exit.FINE, done.stderr.decode()
    return orjson.loads(done.stdout)


def test_publish_and_status(rig: Rig) -> None:
    """What `publish` sends runs, and `status` counts it in the shape of the contract."""
    config = ("--config", str(rig.config))
    empty = json_of(rig, "status")
    assert empty == {
        "paused": None,
        "plain": {"queued": 0, "running": 0, "waited": 0.0},
        "grouped": {
            "queued": 0,
            "asleep": 0,
            "running": 0,
            "groups": 0,
            "ready": 0,
            "delayed": 0,
            "parked": 0,
            "paused": 0,
            "waited": 0.0,
        },
        "tenants": {"standing": 0, "groups": 0},
        "limited": {"tenants": 0, "groups": 0},
        "limits": [],
        "dead": 0,
        "dead_staying": 0,
        "done_total": 0,
        "superseded_total": 0,
        "failed_total": 0,
        "daemons": [],
        "intake": [],
        "rates": None,
    }
    held = {"gate": str(rig.gate())}
    bodies = [Job(f"{n}", "a", facts=held).body for n in range(3)] + [Job("p").body]
    lines = b"\n".join(bodies)
    done = rig.call("publish", *config, "--type", "work", "-", stdin=lines)
    assert done.returncode == Exit.FINE, done.stderr.decode()
    assert b", all confirmed, as " in done.stdout
    one = rig.folder / "one.json"
    one.write_bytes(b'{"app_name": "plain", "type": "fail"}\n')
    assert json_of(rig, "publish", str(one), "--id", "one") == {
        "published": 1,
        "queue": rig.queue,
        "ids": ["one"],
        "refused": [],
    }
    assert json_of(rig, "publish", str(one), "--id", "one")["published"] == 1  # and counts once

    daemon = rig.start("d1")
    rig.until(lambda: rig.is_over(2) and rig.count("running_grouped") == 1, "its work")
    status = json_of(rig, "status")
    (shown,) = status.pop("daemons")
    rates = status.pop("rates")  # of a minute; nobody may have kept two samples yet
    assert rates is None or rates.keys() == {"taken_in", "done", "buried"}
    age = shown.pop("heartbeat_age")
    assert isinstance(age, float)
    assert shown == {"name": "d1", "pid": daemon.pid, "host": shown["host"], "workers": 12}
    assert status == {
        "paused": None,
        "plain": {"queued": 0, "running": 0, "waited": 0.0},
        "grouped": {
            "queued": 2,
            "asleep": 0,
            "running": 1,
            "groups": 1,
            "ready": 0,
            "delayed": 0,
            "parked": 0,
            "paused": 0,
            "waited": 0.0,
        },
        "tenants": {"standing": 0, "groups": 0},
        "limited": {"tenants": 0, "groups": 0},
        "limits": [],
        "dead": 1,
        "dead_staying": 0,
        "done_total": 1,
        "superseded_total": 0,
        "failed_total": 1,
        "intake": [],
    }
    rig.gate().touch()
    rig.wait_for_all(tasks=5)
    rig.stop_all()
    assert json_of(rig, "status")["daemons"] == []


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
        assert json_of(rig, "task", id_)["state"] == "delayed"
    assert json_of(rig, "status")["dead"] == 0
    rig.stop_all()


def test_waiting_tasks_are_dropped_and_run_now(rig: Rig) -> None:
    """By id, or a group's delayed ones; `task ID` goes on meaning what it did."""
    rig.configure(fields={"delay": "delay_s"}, workers={"plain": 0})
    rig.start("d1")
    rig.publish(Job(f"late-{n}", "late", facts={"delay_s": 9000}) for n in range(3))
    rig.publish([Job("plain"), Job("drop")])
    rig.until(lambda: rig.count("taken") == 5, "the tasks")
    config = ("--config", str(rig.config))
    assert json_of(rig, "task", "late-0")["state"] == "delayed"
    assert json_of(rig, "task", "show", "drop")["state"] == "queued"
    assert json_of(rig, "task", "drop", "late-0", "plain") == {
        "dropped": ["late-0", "plain"],
        "stayed": [],
    }
    assert json_of(rig, "task", "plain")["state"] == "dropped"
    again = rig.call("task", "drop", "plain", *config)
    assert (again.returncode, again.stderr) == (Exit.FAILED, b"plain stays: it is over\n")
    assert json_of(rig, "task", "run-now", "--delayed", "late:42")["due"] == ["late-1", "late-2"]
    rig.wait_for_end("late-2")
    assert [event.id for event in rig.events("start")] == ["late-1", "late-2"]
    for wrong in ((), ("x", "--delayed", "late:42")):
        assert rig.call("task", "drop", *wrong, *config).returncode == Exit.USAGE
    assert json_of(rig, "task", "drop", "--delayed", "late:42", "--yes")["dropped"] == []
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
    rig.stop_all()
    assert rig.judge(with_faults=False) == []


def test_no_handlers(rig: Rig) -> None:
    """A daemon that could run nothing says so, and ends with 78."""
    daemon = rig.spawn("d1", app="tests.endtoend.handlers:empty")
    assert daemon.wait() == Exit.CONFIG
    assert "handlers" in daemon.tail()


def test_dead_servers(make_rig: MakeRig) -> None:
    """A one-shot verb that can't reach its server ends with 69, and names the setting."""
    rig = make_rig()
    port = free_ports(1)[0]
    rig.configure(
        redis={"url": f"redis://:hushhush@127.0.0.1:{port}/0"},
        rabbitmq={"url": f"amqp://guest:hushhush@127.0.0.1:{port}/"},
    )
    config = ("--config", str(rig.config))
    for arguments, setting in (
        (("status", *config, "--json"), "redis.url"),
        (("publish", *config, "--type", "work", "-"), "rabbitmq.url"),
    ):
        done = rig.call(*arguments, stdin=b"{}")
        said = done.stderr.decode()
        assert done.returncode == Exit.UNAVAILABLE, said
        assert done.stdout == b""
        assert setting in said
        assert f"127.0.0.1:{port}" in said
        assert "hushhush" not in said
        assert "Traceback" not in said


def test_wrong_credentials(make_rig: MakeRig) -> None:
    """RabbitMQ's refusal is an end with 69 as well, not a wait for ever."""
    rig = make_rig()
    url = rig.rabbitmq.url.replace("guest:guest", "guest:hushhush")
    rig.configure(rabbitmq={"url": url})
    done = rig.call("publish", "--config", str(rig.config), "--type", "work", "-", stdin=b"{}")
    assert done.returncode == Exit.UNAVAILABLE
    assert b"credentials" in done.stderr
    daemon = rig.spawn("d1")
    assert daemon.wait() == Exit.UNAVAILABLE
    assert "hushhush" not in daemon.tail() + done.stderr.decode()


def test_nothing_is_deleted_without_a_word_where_nobody_can_be_asked(rig: Rig) -> None:
    """Scripts have no terminal: what is chosen by a filter wants --yes; what is named does not."""
    rig.start("d1")
    rig.publish(Job(f"dead-{n}", None, type="fail") for n in range(3))
    rig.until(lambda: len(rig.dead()) == 3, "the dead letters")
    config = ("--config", str(rig.config))
    for chosen in (("--all",), ("--type", "fail")):
        done = rig.call("dead", "drop", *chosen, *config)
        assert done.returncode == Exit.USAGE
        assert b"drop 3 dead letters?" in done.stderr
        assert b"--yes" in done.stderr
    assert len(rig.dead()) == 3
    assert json_of(rig, "dead", "drop", "dead-0")["dropped"] == ["dead-0"]
    assert len(json_of(rig, "dead", "drop", "--all", "--yes")["dropped"]) == 2
    rig.stop_all()
