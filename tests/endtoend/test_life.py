"""A task's whole life through real daemons: published, retried, buried, redriven, found.

Two daemons serve all of these tests; each test has groups and ids of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.conftest import rigs
from tests.endtoend.process import until
from tests.endtoend.rig import Job, Rig

RULES = """
[[groups]]
app = "hold"
key = "hold:{entity}"
shares = true
[[groups]]
app = "park"
key = "park:{entity}"
on_dead = "park"
shares = true
[[groups]]
app = "burst"
key = "burst:{entity}"
debounce = 300.0
shares = true
[[groups]]
app = "few"
key = "few:{entity}"
max_queued = 2
shares = true
"""
# What `--json` has of a task, of a group and of a dead letter: the public contract.
FOUND_KEYS = {
    *("id", "state", "type", "group", "tenant", "attempt", "crashes", "stage", "daemon", "worker"),
    *(
        "lost_leases",
        "fence",
        "since",
        "until",
        "reason",
        "errors",
        "superseded_by",
        "scope",
        "corrections",
    ),
}
WHY_KEYS = {
    *("group", "state", "queued", "head", "holder", "since", "until", "reason"),
    *("running", "concurrency", "behind", "by_hand_until", "crashes", "lost_leases"),
    *("max_queued", "is_full"),
}
DEAD_KEYS = {"id", "type", "group", "reason", "attempts", "died_at"}


@pytest.fixture(scope="module")
def life(
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: RedisServer,
    rabbitmq_server: RabbitmqServer,
) -> Iterator[Rig]:
    retry = {"max_attempts": 3, "interval": -0.2}
    with rigs(tmp_path_factory.mktemp("life"), rabbitmq_server, redis_server, retry=retry) as make:
        rig = make(workers={"lease": 3600.0})
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
    assert letter == {
        "id": "ds0",
        "type": "scripted",
        "group": "hold:ds",
        "reason": "ValueError: three",
        "attempts": 3,
    }
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
    assert "superseded 1" in life.say("status")
    assert until_state(life, "bu1", "delayed")["reason"].startswith("waits for quiet until ")
    assert life.ask("task", "run-now", "bu1")["due"] == ["bu1"]
    life.wait_for_end("bu1")
    assert ran(life, "bu") == [("bu1", 1)]


def test_a_full_group_refuses_messages_until_there_is_room(life: Rig) -> None:
    life.say("pause", "few:fu")
    life.publish([job(f"fu{n}", "few") for n in range(4)])
    assert until_state(life, "fu3", "dead")["reason"] == "its group is full"
    told = life.ask("why", "few:fu")
    assert (told["state"], told["queued"], told["max_queued"]) == ("paused", 2, 2)
    assert "its group is full" in told["reason"]
    refused = {"redriven": [], "unknown": [], "full": ["fu2"]}
    assert life.ask("dead", "redrive", "fu2", code=1) == refused
    life.say("resume", "few:fu")
    life.wait_for_end("fu1")
    every = life.ask("dead", "redrive", "--group", "few:fu")
    assert every == {"redriven": ["fu2", "fu3"], "unknown": []}
    life.wait_for_end("fu3")
    assert ran(life, "fu") == [(f"fu{n}", 1) for n in range(4)]


def test_dead_letters_are_chosen_by_filter_and_unknown_ids_are_told(life: Rig) -> None:
    life.publish(
        [
            job("fl0", None, "dead no such tenant"),
            job("fl1", None, "dead no such table"),
            job("fl2", None, type="nobody handles this"),
            Job("fl3", "x", type="scripted", facts={"app_name": "hold", "tenant_id": {}}),
        ]
    )
    for id_ in ("fl0", "fl1", "fl2", "fl3"):
        until_state(life, id_, "dead")
    for option, text, ids in (
        ("--reason", "no such t", {"fl0", "fl1"}),
        ("--type", "nobody handles this", {"fl2"}),
    ):
        assert {each["id"] for each in life.ask("dead", "list", option, text)} == ids
    chosen = ("--reason", "no such table")
    for which in (chosen, ("--all",)):  # a script has no terminal where it could be asked
        refused = life.call("dead", "drop", *which, "--config", str(life.config))
        assert refused.returncode == 2
        assert b"dead letter" in refused.stderr
        assert b"--yes" in refused.stderr
    assert life.ask("dead", "drop", *chosen, "--yes") == {"dropped": ["fl1"], "unknown": []}
    assert "dropped 1" in life.say("dead", "drop", "fl0", "never came", code=1)
    # What died at the door has no route yet, and stays until the configuration gives it one.
    assert life.ask("dead", "redrive", "fl3") == {"redriven": [], "unknown": []}
    until_state(life, "fl3", "dead")
    assert life.say("dead", "list", "--group", "none") == "no dead letters\n"
    life.say("dead", "redrive", code=2)
    life.say("dead", "show", "never came", code=1)


def test_a_task_is_found_in_every_state(life: Rig) -> None:
    gate, began = life.gate("st"), time.time()
    life.publish(
        [
            job("st0", "hold", f"wait {gate}"),
            job("st1", "hold"),
            job("st2", "hold", headers={"x-delay": 3_600_000}, entity="late"),
            job("st3", None, "dead no"),
            job("st4", None),
        ]
    )
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


def test_pause_and_resume(life: Rig) -> None:
    gate = life.gate("pa")
    life.publish([job("pa0", "hold", f"wait {gate}"), job("pa1", "hold")])
    life.wait_for_start("pa0")
    assert life.say("pause", "hold:pa") == "hold:pa paused\n"
    assert life.say("pause", "hold:pa") == "hold:pa was paused already\n"
    assert life.ask("pause", "hold:pa") == {"group": "hold:pa", "paused": True, "changed": False}
    gate.touch()  # what runs goes on to its end
    life.publish([job("pa2", "hold"), job("other0", "hold")])
    life.wait_for_end("other0")
    until_state(life, "pa2", "queued")
    until_state(life, "pa0", "done")
    told = life.ask("why", "hold:pa")
    assert (told["state"], told["queued"], told["head"]) == ("paused", 2, "pa1")
    assert "hold:pa is paused, 2 waiting" in life.say("why", "hold:pa")
    assert life.say("resume", "hold:pa") == "hold:pa goes on\n"
    life.wait_for_end("pa2")
    assert ran(life, "pa") == [("pa0", 1), ("pa1", 1), ("pa2", 1)]

    life.say("pause", "--all")
    life.publish([job("pl0", "hold"), job("pl1", None)])
    for id_ in ("pl0", "pl1"):
        until_state(life, id_, "queued")
    assert life.ask("why", "hold:pl")["state"] == "paused"
    assert ran(life, "pl") == []
    assert life.ask("resume", "--all") == {"group": None, "paused": False, "changed": True}
    for id_ in ("pl0", "pl1"):
        life.wait_for_end(id_)
    life.say("pause", code=2)
    life.say("pause", "hold:pa", "--all", code=2)


def test_a_delayed_task_that_comes_up_while_its_group_runs_is_promoted_in_time(life: Rig) -> None:
    """Its due time is first known to the promoter when the task before it ends."""
    gate = life.gate("du")
    life.publish(
        [job("du0", "hold", f"wait {gate}"), job("du1", "hold", headers={"x-delay": 2_000})]
    )
    life.wait_for_start("du0")
    gate.touch()
    # Well within the 30 s after which the promoter looks anyway.
    until(lambda: bool(life.events("end", "du1")), lambda: "du1 is not promoted", 20)
