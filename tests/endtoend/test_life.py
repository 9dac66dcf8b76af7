"""A task's whole life through real daemons: published, retried, buried, redriven, found.

Two daemons serve all of these tests; each test has groups and ids of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from groupflow import Publisher
from tests.deadlines import deadline
from tests.endtoend.conftest import rigs
from tests.endtoend.rig import Job, Rig
from tests.running import run

MORE = {"hold": "", "park": 'on_dead = "park"', "burst": "debounce = 300.0"}
MARKS = "\x7f\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\U000e0041"
RULES = "".join(
    f'[[groups]]\napp = "{app}"\nkey = "{app}:{{entity}}"\nshares = true\n{more}\n'
    for app, more in MORE.items()
)
# What `--json` has of a task, of a group and of a dead letter: the public contract.
FOUND_KEYS = {
    *("id", "state", "type", "group", "tenant", "attempt", "crashes", "stage", "daemon", "worker"),
    *("lost_leases", "fence", "since", "until", "reason", "errors", "superseded_by", "scope"),
    *("corrections", "cancelled_by", "asked_at", "start_by", "progress", "pool", "silence"),
    *("enqueued_at", "began_at", "seconds", "result", "result_error"),
}
WHY_KEYS = {
    *("group", "state", "queued", "head", "holder", "since", "until", "reason", "max_queued"),
    *("running", "concurrency", "behind", "by_hand_until", "crashes", "lost_leases", "is_full"),
    *("progress", "lately", "aside", "known", "is_paused"),
}
DEAD_KEYS = {"id", "type", "group", "reason", "attempts", "died_at"}


@pytest.fixture(scope="module")
def life(tmp_path_factory: Any, rabbitmq_server: Any, redis_server: Any) -> Iterator[Rig]:
    retry = {"max_attempts": 3, "interval": -0.2}
    with rigs(tmp_path_factory.mktemp("life"), rabbitmq_server, redis_server, retry=retry) as make:
        rig = make(workers={"lease": 3600.0, "unknown_for": 3600.0})
        with rig.config.open("a") as file:
            file.write(RULES)
        rig.start_all("one", "two")
        yield rig
        rig.stop_all()


def job(id_: str, app: str | None, *steps: str, **how: Any) -> Job:
    """A task of these steps, one an attempt; its group is named for what its id begins with."""
    entity = None if app is None else how.pop("entity", id_.rstrip("0123456789"))
    named = {} if app is None else {"app_name": app}
    facts = {**named, "do": {"": list(steps)} if steps else {}}
    return Job(id_, entity, type=how.pop("type", "scripted"), facts=facts, **how)


def ran(life: Rig, among: str) -> list[tuple[str, int]]:
    """Which attempts began, in order."""
    starts = life.events("start")
    return [(each.id, each.attempt) for each in starts if each.id.startswith(among)]


def until_state(life: Rig, id_: str, state: str) -> dict[str, Any]:
    """Wait until a task is in a state; what `task --json` says of it then."""
    told: dict[str, Any] = {}

    def is_so() -> bool:
        told.update(life.ask("task", id_, code=None) or {})
        return told.get("state") == state

    life.until(is_so, f"{id_} to be {state}")
    assert told.keys() == FOUND_KEYS
    return told


def test_a_dead_letter_tells_its_story(life: Rig) -> None:
    life.publish([job("ds0", "hold", "fail one", "fail two", "fail three")])
    told = until_state(life, "ds0", "dead")
    assert told["reason"] == "ValueError: three"
    [letter] = life.ask("dead", "list", "--group", "hold:ds")
    assert letter.keys() == DEAD_KEYS
    assert isinstance(letter.pop("died_at"), float)
    known = {"id": "ds0", "type": "scripted", "group": "hold:ds", "attempts": 3}
    assert letter == known | {"reason": "ValueError: three"}
    shown = life.ask("dead", "show", "ds0")
    assert shown.keys() == DEAD_KEYS | {"tenant", "errors", "headers", "body", "corrections"}
    assert [(e["attempt"], e["error"], e["message"]) for e in shown["errors"]] == [
        (1, "ValueError", "one"), (2, "ValueError", "two"), (3, "ValueError", "three")
    ]  # fmt: skip
    assert all(e["seconds"] >= 0 and e["daemon"] and e["at"] > 0 for e in shown["errors"])
    assert ["traceback" in e for e in shown["errors"]] == [False, False, True]
    assert shown["errors"][-1]["traceback"].endswith("ValueError: three")
    assert "ValueError: three\n" in life.say("task", "ds0")
    assert orjson.loads(shown["body"])["entity"] == "ds"


def test_a_parked_group_says_so_and_its_redriven_death_goes_first(life: Rig) -> None:
    life.publish([job("pk0", "park", "dead broken"), job("pk1", "park"), job("pk2", "park")])
    until_state(life, "pk0", "dead")
    assert ran(life, "pk") == [("pk0", 1)]
    told = life.ask("why", "park:pk")
    assert told.keys() == WHY_KEYS
    assert (told["state"], told["head"], told["holder"]) == ("parked", "pk1", None)
    assert "pk0" in told["reason"]
    assert life.ask("dead", "redrive", "pk0") == {"redriven": ["pk0"], "unknown": []}
    # It dies again, at its own place, before the others have run.
    life.wait_for_end("pk0", 2)
    until_state(life, "pk0", "dead")
    assert ran(life, "pk") == [("pk0", 1), ("pk0", 1)]
    assert life.ask("dead", "drop", "pk0") == {"dropped": ["pk0"], "unknown": []}
    life.wait_for_end("pk2")
    assert ran(life, "pk") == [("pk0", 1), ("pk0", 1), ("pk1", 1), ("pk2", 1)]
    until_state(life, "pk0", "dropped")
    assert life.ask("why", "park:pk")["state"] == "idle"


def test_of_a_burst_the_newest_runs(life: Rig) -> None:
    life.publish([job("bu0", "burst"), job("bu1", "burst")])
    assert until_state(life, "bu0", "superseded")["superseded_by"] == "bu1"
    assert "superseded by bu1" in life.say("task", "bu0")
    assert life.ask("task", "run-now", "bu1")["due"] == ["bu1"]
    life.wait_for_end("bu1")
    assert ran(life, "bu") == [("bu1", 1)]


def test_no_mark_reaches_a_terminal_or_a_log(life: Rig) -> None:
    """U+009B drives a terminal as ESC does; the others turn or break what it shows."""
    sent = job("mk0", None, f"dead {MARKS}", headers={"note": MARKS})
    life.publish([sent])
    until_state(life, "mk0", "dead")
    verbs = (("show", "mk0"), ("show", "mk0", "--json"), ("list",), ("list", "--json"))
    shown = [life.say("dead", *words) for words in verbs]
    log = "".join(path.read_text() for path in life.folder.glob("*.log"))
    assert "mk0" in log
    for text in (*shown, log):
        assert not set(text) & set(MARKS)
    found = orjson.loads(shown[1])
    assert found["headers"]["note"] == MARKS
    assert found["body"].encode() == sent.body


def test_a_task_is_found_in_every_state(life: Rig) -> None:
    gate, began = life.gate("st"), time.time()
    late = job("st2", "hold", headers={"x-delay": 3_600_000}, entity="late")
    held = [job("st0", "hold", f"wait {gate}"), job("st1", "hold")]
    life.publish([*held, late, job("st3", None, "dead no"), job("st4", None)])
    running = until_state(life, "st0", "running")
    assert (running["daemon"] in ("one", "two"), running["attempt"]) == (True, 1)
    assert running["worker"].startswith("grouped-")
    assert running["fence"] > 0
    assert began - 1 < running["since"] <= time.time() + 1
    queued = until_state(life, "st1", "queued")
    assert (queued["group"], queued["tenant"], queued["daemon"]) == ("hold:st", "42", None)
    why = life.ask("why", "hold:st")
    assert why.keys() == WHY_KEYS
    assert (why["state"], why["head"], why["queued"]) == ("running", "st0", 1)
    assert why["holder"].keys() == {"daemon", "worker", "fence", "lease_left"}
    assert why["holder"]["daemon"] == running["daemon"]
    delayed = until_state(life, "st2", "delayed")
    assert time.time() < delayed["until"] < time.time() + 3_601
    assert life.ask("why", "hold:late")["state"] == "delayed"
    dead = until_state(life, "st3", "dead")
    assert (dead["reason"], dead["errors"][0]["error"]) == ("no", "Dead")
    done = until_state(life, "st4", "done")
    assert (done["type"], done["attempt"], done["reason"]) == ("scripted", 1, None)
    assert "st0" in {each["id"] for each in life.ask("tasks", "running")}
    assert "state    running" in life.say("task", "st0")
    assert life.ask("task", "never came", code=1) is None
    gate.touch()
    life.wait_for_end("st1")


def test_what_starts_late_never_starts(life: Rig) -> None:
    gate, late = life.gate("ex"), job("ex1", "hold", headers={"x-expires": 1})
    life.publish([job("ex0", "hold", f"wait {gate}"), late, job("ex2", "hold")])
    assert until_state(life, "ex1", "expired")["start_by"] < time.time()
    assert "expired: it had to start by" in life.say("task", "ex1")
    gate.touch()
    life.wait_for_end("ex2")
    assert ran(life, "ex") == [("ex0", 1), ("ex2", 1)]


def test_a_request_is_answered_with_the_result(life: Rig) -> None:
    async def answer() -> Any:
        asked = job("an0", None, "gives 7")
        async with Publisher.from_config(life.config) as publisher:
            return await publisher.request(asked.body, type=asked.type, timeout=deadline())

    assert run(answer()) == {"gave": "7", "number": 2**60 + 1}
