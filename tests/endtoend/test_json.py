"""Every verb that has `--json` prints one JSON value on stdout, and nothing else there."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.cli.exits import Exit
from tests.endtoend.rig import Job, Rig


@pytest.mark.timeout(600)  # some thirty processes, one after another
def test_each_verb_prints_one_json_value(rig: Rig) -> None:
    """One story told by all of them, in the order in which an operator would ask."""
    config = ("--config", str(rig.config))

    def ask(*arguments: str, stdin: bytes = b"", code: int = Exit.FINE) -> Any:
        done = rig.call(*arguments, *config, "--json", stdin=stdin)
        assert done.returncode == code, (arguments, done.stderr.decode())
        return orjson.loads(done.stdout)

    body = Job("x", "a").body
    assert ask("check-config")["ok"] is True
    assert ask("route", "--type", "work", "-", stdin=body)[0]["group"] == "a:42"
    assert ask("doctor", code=Exit.FINE)["verdict"] in ("ok", "warn")
    assert ask("pause", "--all") == {"group": None, "paused": True, "changed": True}
    assert ask("pause", "a:42") == {"group": "a:42", "paused": True, "changed": True}
    assert ask("pause", "a:42")["changed"] is False
    assert ask("publish", "--type", "fail", "-", stdin=body) == {
        "published": 1,
        "queue": rig.queue,
    }
    rig.start()
    rig.until(lambda: rig.count("queued_grouped") == 1, "the task")
    assert ask("why", "a:42")["state"] == "paused"
    ((queued),) = ask("tasks", "queued")
    id_ = queued["id"]
    assert ask("task", id_)["state"] == "queued"
    for state in ("running", "delayed", "done"):
        assert ask("tasks", state) == []
    assert ask("resume", "a:42") == {"group": "a:42", "paused": False, "changed": True}
    assert ask("resume", "--all")["changed"] is True
    rig.wait_for_all(tasks=1)
    assert ask("status")["dead"] == 1
    assert [row["id"] for row in ask("top", "--once")["dead"]] == [id_]
    assert [letter["id"] for letter in ask("dead", "list")] == [id_]
    assert ask("dead", "show", id_)["id"] == id_
    assert isinstance(ask("dead", "redrive", id_), dict | list)
    rig.until(lambda: rig.count("buried") == 2, "its second death")
    assert isinstance(ask("dead", "drop", id_, "--yes"), dict | list)
    assert ask("task", "nobody", code=Exit.FAILED) is None
    assert [each["verdict"] for each in ask("reload")] == ["unchanged"]
    done = rig.call("schema", *config)
    assert orjson.loads(done.stdout)["title"] == "A message for groupflow"
