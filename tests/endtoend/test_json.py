"""Every verb that has `--json` prints one JSON value on stdout, and nothing else there."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from groupflow.cli import main
from groupflow.cli.exits import Exit
from tests.endtoend.rig import Job, Rig

Ask = Callable[..., Any]


@pytest.fixture
def ask(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Ask:
    """Call a verb in this process: some thirty of their own would take most of a minute."""
    for name in os.environ.keys() - rig.environment().keys():
        monkeypatch.delenv(name)

    def call(*arguments: str, stdin: bytes = b"", code: int = Exit.FINE) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--config", str(rig.config)])
        said, complaint = capfdbinary.readouterr()
        assert ended.value.code == code, (arguments, complaint.decode())
        return orjson.loads(said)

    return call


def test_each_verb_prints_one_json_value(rig: Rig, ask: Ask) -> None:
    """One story told by all of them, in the order in which an operator would ask."""

    def ask_json(*arguments: str, **how: Any) -> Any:
        return ask(*arguments, "--json", **how)

    body = Job("x", "a").body
    assert ask_json("check-config")["ok"] is True
    assert ask_json("route", "--type", "work", "-", stdin=body)[0]["group"] == "a:42"
    assert ask_json("doctor", code=Exit.FINE)["verdict"] in ("ok", "warn")
    assert ask_json("pause", "--all") == {"group": None, "paused": True, "changed": True}
    assert ask_json("pause", "a:42") == {"group": "a:42", "paused": True, "changed": True}
    assert ask_json("pause", "a:42")["changed"] is False
    published = ask_json("publish", "--type", "fail", "-", stdin=body)
    assert published | {"ids": []} == {
        "published": 1,
        "queue": rig.queue,
        "ids": [],
        "refused": [],
    }
    rig.start()
    rig.until(lambda: rig.count("queued_grouped") == 1, "the task")
    assert ask_json("why", "a:42")["state"] == "paused"
    ((queued),) = ask_json("tasks", "queued")
    id_ = queued["id"]
    assert ask_json("task", id_)["state"] == "queued"
    for state in ("running", "delayed", "done"):
        assert ask_json("tasks", state) == []
    assert ask_json("resume", "a:42") == {"group": "a:42", "paused": False, "changed": True}
    assert ask_json("resume", "--all")["changed"] is True
    rig.wait_for_all(tasks=1)
    assert ask_json("status")["dead"] == 1
    assert [row["id"] for row in ask_json("top", "--once")["dead"]] == [id_]
    assert [letter["id"] for letter in ask_json("dead", "list")] == [id_]
    assert ask_json("dead", "show", id_)["id"] == id_
    assert isinstance(ask_json("dead", "redrive", id_), dict | list)
    rig.until(lambda: rig.count("buried") == 2, "its second death")
    assert isinstance(ask_json("dead", "drop", id_, "--yes"), dict | list)
    assert ask_json("task", "nobody", code=Exit.FAILED) is None
    assert [each["verdict"] for each in ask_json("reload")] == ["unchanged"]
    assert ask("schema")["title"] == "A message for groupflow"
