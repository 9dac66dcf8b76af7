"""SIGHUP and `groupflow reload`: a changed configuration, whole or not at all, under load."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from typing import Any

import pytest

from groupflow.cli.exits import Exit
from tests.deadlines import deadline, short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import REPOSITORY, Process, groupflow, until
from tests.endtoend.rig import APP, Job, Rig

DAEMON = "d1"


def hang_up(daemon: Process, event: str = "config.reloaded", times: int = 1) -> dict[str, Any]:
    """SIGHUP; what the daemon says to it."""
    daemon.send(signal.SIGHUP)
    return daemon.wait_for(event, times)


def reload(rig: Rig, *arguments: str, code: int = Exit.FINE) -> Any:
    """What `groupflow reload --json` answers."""
    return rig.ask("reload", *arguments, code=code)


def change_key(rig: Rig, key: str) -> None:
    text = rig.config.read_text()
    assert "{entity}:{tenant_id}" in text
    rig.config.write_text(text.replace("{entity}:{tenant_id}", key))


def test_a_stop_settles_what_surplus_workers_finished(make_rig: MakeRig) -> None:
    """All workers are surplus, a task runs, and the daemon is told to stop: the task is done."""
    rig = make_rig(workers={"plain": 0, "grouped": 2})
    daemon = rig.start(DAEMON)
    rig.publish([Job("a", "a", facts={"gate": str(rig.gate())})])
    rig.wait_for_start("a")
    rig.configure(workers={"plain": 0, "grouped": 0})
    hang_up(daemon)
    daemon.send(signal.SIGTERM)
    daemon.wait_for("daemon.stopping")
    rig.gate().touch()
    assert daemon.wait() == Exit.FINE
    assert (rig.count("done"), rig.count("crashed")) == (1, 0)


def test_what_changed_holds_for_what_comes(rig: Rig) -> None:
    """Tasks that are queued keep their group; keys, policies and handlers are the new file's."""
    rig.start(DAEMON)
    held = {"gate": str(rig.gate())}
    rig.publish([Job("old-1", "a", facts=held), Job("old-2", "a")])
    rig.wait_for_start("old-1")
    rig.configure(retry={"max_attempts": 3, "interval": -0.01})
    change_key(rig, "new:{entity}")
    with rig.config.open("a") as file:
        file.write('[handlers."say"]\nexec = ["true"]\n')
    (answer,) = reload(rig)
    assert (answer["daemon"], answer["verdict"]) == (DAEMON, "changed")
    changed = {change["setting"]: change["new"] for change in answer["changes"]}
    assert changed["groups.groups[0].key"] == "new:{entity}"
    assert {"retry.max_attempts", "retry.interval", 'handlers."say".exec'} <= changed.keys()
    assert reload(rig, DAEMON)[0]["verdict"] == "unchanged"
    rig.publish([Job("new-1", "a"), Job("f", "b", type="fail"), Job("s", type="say")])
    assert rig.wait_for_end("new-1").group == "new:a"
    assert rig.ask("task", "old-2")["group"] == "a:42"
    assert rig.events("start", "old-2") == []
    rig.gate().touch()
    rig.wait_for_all()
    assert rig.wait_for_end("old-2").group == "a:42"
    assert len(rig.events("start", "f")) == 3
    assert rig.dead() == ["f"]


def test_what_is_refused_changes_nothing(rig: Rig) -> None:
    """A file that is broken, or gone, or changes what needs a restart."""
    daemon = rig.start(DAEMON)
    good = rig.config.read_text()
    rig.config.write_text(good.replace("{entity}:{tenant_id}", "{entity"))
    refused = hang_up(daemon, "config.refused")
    assert any("groups[0].key" in problem for problem in refused["problems"])
    done = rig.call("reload", "--config", str(rig.config))
    assert done.returncode == Exit.CONFIG
    assert b"groups[0].key" in done.stderr
    rig.config.unlink()
    hang_up(daemon, "config.refused", times=2)
    rig.configure(redis={"timeout": 4.0})
    change_key(rig, "new:{entity}")
    (answer,) = reload(rig, code=Exit.FAILED)
    assert answer["verdict"] == "refused"
    assert answer["problems"] == [f"redis.timeout: {rig.store_timeout} → 4.0 needs a restart"]
    rig.publish([Job("a", "a")])
    assert rig.wait_for_end("a").group == "a:42"
    rig.config.write_text(good)
    hang_up(daemon, "config.unchanged")
    assert len(daemon.events("config.refused")) == 3, "a file that can't be used was handed on"


def test_what_does_not_answer_is_said(rig: Rig) -> None:
    """No daemon, one without its name, a frozen one, and a dead one: its pid may be anybody's."""
    assert reload(rig, code=Exit.FAILED) == []
    done = rig.call("reload", "nobody", "--config", str(rig.config))
    assert done.returncode == Exit.USAGE
    assert b"nobody" in done.stderr
    daemon = rig.start(DAEMON)
    daemon.send(signal.SIGSTOP)
    (answer,) = reload(rig, "--timeout", "0.3", code=Exit.FAILED)
    assert answer["verdict"] == "no answer"
    daemon.send(signal.SIGCONT)
    daemon.wait_for("config.unchanged")
    daemon.kill()  # its lease runs still
    (answer,) = reload(rig, code=Exit.FAILED)
    assert answer["verdict"] == "no answer"
    assert str(daemon.pid) in answer["problems"][0]


def test_a_terminal_that_is_closed_ends_its_daemon(rig: Rig) -> None:
    """SIGHUP with the terminal there is a reload; with the terminal gone, an orderly end."""
    ours, theirs = pty.openpty()
    log = rig.folder / "terminal.log"
    command = groupflow("run", "--config", rig.config, "--app", APP)
    with log.open("wb") as file:
        daemon = subprocess.Popen(
            command, cwd=REPOSITORY, env=rig.environment(), stdin=theirs, stdout=file, stderr=file
        )
    os.close(theirs)
    try:
        until(lambda: b"daemon.started" in log.read_bytes(), log.read_text)
        daemon.send_signal(signal.SIGHUP)
        until(lambda: b"config.unchanged" in log.read_bytes(), log.read_text)
        os.close(ours)
        daemon.send_signal(signal.SIGHUP)
        assert daemon.wait(deadline()) == Exit.FINE
        assert b"daemon.stopped" in log.read_bytes()
    finally:
        daemon.kill()
        daemon.wait()


def test_what_would_change(rig: Rig) -> None:
    """`check-config --diff`, against a running daemon and against a file."""
    handler = '[handlers."say"]\nexec = ["true", "--password={}"]\n'
    with rig.config.open("a") as file:
        file.write(handler.format("one"))
    rig.start(DAEMON)
    old = rig.folder / "old.toml"
    old.write_text(rig.config.read_text())
    rig.configure(workers={"grouped": 9, "lease": 9.0})
    with rig.config.open("a") as file:
        file.write(handler.format("two"))

    def differences(target: str) -> dict[str, bool]:
        found = rig.ask("check-config", "--diff", target)["changes"]
        return {
            change["setting"]: change["needs_restart"]
            for change in found
            if change["setting"] != "http.listen"  # each process of the rig has its own
        }

    wanted = {"workers.grouped": False, "workers.lease": True, 'handlers."say".exec': False}
    assert differences(str(old)) == wanted
    rig.until(lambda: bool(rig.raw.hexists(rig.keys("daemon", DAEMON), "settings")), "its word")
    assert differences(DAEMON) == wanted
    said = rig.say("check-config", "--diff", str(old))
    assert "workers.lease: 60.0 → 9.0, needs a restart" in said
    rig.say("check-config", "--diff", "nobody", code=Exit.USAGE)


# A handler that blocks its daemon's event loop: its tasks are kept for `max_block`.


def counted(rig: Rig, id_: str) -> tuple[int, int]:
    """Crashes and lost leases of a task, as an operator sees them."""
    told = rig.ask("task", id_)
    return told["crashes"], told["lost_leases"]


def blocked(rig: Rig, **facts: Any) -> Process:
    """A daemon whose loop is blocked by `a0`, with others of its tasks beside that."""
    daemon = rig.start("d1")
    beside = {"gate": str(rig.gate("beside"))}
    rig.publish([Job("b0", "b", facts=beside), Job("p0", facts=beside)])
    rig.wait_for_starts("b0", "p0")
    rig.publish([Job("a0", "a", type="block", facts={"gate": str(rig.gate()), **facts})])
    rig.wait_for_start("a0")
    return daemon


@pytest.mark.parametrize("computes", [False, True], ids=["waits", "computes"])
def test_a_block_is_borne_for_max_block(make_rig: MakeRig, computes: bool) -> None:
    """Until then another daemon takes nothing over; then it does, and the blocked one comes back.

    It is named from a lease on; when its loop turns again, it is a daemon as any other.
    """
    lease = short_lease()
    block = {"lease": lease, "max_block": 3 * lease}
    rig = make_rig(workers=block, rabbitmq={"heartbeat": 1})
    daemon = blocked(rig, gate_once=True, computes=computes)
    rig.gate("beside").touch()
    other = rig.start("d2")
    seen = daemon.wait_for("loop.blocked")
    assert (seen["task"], seen["type"], seen["group"]) == ("a0", "block", "a:42")
    assert "tests/endtoend/handlers.py" in "".join(seen["at"])
    rig.publish([Job(f"{g}{n}", g, n=n) for n in range(1, 4) for g in "abc"])
    rig.wait_for_all()
    begun = rig.wait_for_start("a0", times=2)
    assert begun.pid == other.pid
    assert begun.at - rig.events("start", "a0")[0].at >= 3 * lease
    taken = {event["task"] for event in other.events("task.taken_over")}
    assert {"a0", "b0", "p0"} <= taken
    given_up = daemon.wait_for("loop.given_up")
    assert (given_up["level"], given_up["task"]) == ("error", "a0")
    assert given_up["blocked_for"] >= given_up["max_block"] == 3 * lease
    assert "max_block" in daemon.wait_for("lease.ended")["reason"]
    assert rig.events("end", "a0")[0].pid == other.pid  # the first run stands where it stood
    rig.gate().touch()
    daemon.wait_for("session.lost")
    other.stop()
    rig.publish([Job("a4", "a", n=4), Job("c4", "c", n=4)])
    rig.wait_for_all()
    assert rig.wait_for_end("a4").pid == daemon.pid
    # What blocked it crashed, though the daemon lives; what it held beside that did not.
    assert counted(rig, "a0") == (1, 0)
    assert counted(rig, "b0") == counted(rig, "p0") == (0, 1)
    rig.end(with_faults=True)
