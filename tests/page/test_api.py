"""The API: what it tells of what is there, and what its actions do."""

from __future__ import annotations

from typing import Any

import httpx
import orjson

from tests.endtoend.rig import Job
from tests.page.world import HOSTILE, HOSTILE_ID, SECRET, TOKEN, World


def test_pages_go_on(world: World) -> None:
    seen: list[str] = []
    cursor = "0"
    while cursor is not None:
        page = world.get("groups", cursor=cursor, limit=50)
        seen += [row["group"] for row in page["groups"]]
        cursor = page["next"]
    assert len(seen) == len(set(seen)) == page["total"] == 119


def test_strange_names_are_found(world: World) -> None:
    group = world.get("task", id=HOSTILE_ID)["group"]
    assert group.startswith("<script>")
    why = world.get("group", key=group)["why"]
    assert (why["state"], why["head"]) == ("running", HOSTILE_ID)
    assert world.get("letter", id="<b>no type</b>")["routed_first"]
    letter = world.get("letter", TOKEN, id="dead-3")
    assert orjson.loads(letter["body"])["note"] == HOSTILE
    assert letter["body_bytes"] == len(letter["body"].encode())


def test_samples_are_taken(world: World) -> None:
    """By the daemon itself, with the latencies of what it did."""
    world.wait(lambda: sum(sample["measured"] for sample in world.get("samples")) >= 5)
    assert world.get("samples")[-1]["running"] == 2
    assert any(sample["latency_p50"] for sample in world.get("samples"))


def test_no_secret_is_shown(world: World) -> None:
    text = world.http.get("/api/configuration").text
    assert TOKEN not in text
    assert "guest:***@" in text
    handlers = world.get("configuration")["settings"]["handlers"]
    assert handlers["hook"]["http"] == "https://hooks.example.com"
    assert handlers["command"]["exec"] == ["true"]
    ways = [
        world.act("route", {"body": "{}", "type": type_}).json()["handler"]
        for type_ in ("hook", "command")
    ]
    assert ways == ["http https://hooks.example.com", "exec true"]
    told = world.raw.hget(world.rig.keys("daemon", "d1"), "settings")
    for shown in (text, str(told), world.daemon.log.read_text()):
        assert SECRET not in shown


def test_events(world: World) -> None:
    """Two events a second apart, the totals in each."""
    with world.http.stream("GET", "/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = (line[6:] for line in answer.iter_lines() if line.startswith("data: "))
        first, second = orjson.loads(next(told)), orjson.loads(next(told))
    assert second["at"] > first["at"]
    assert first["ready"] == 119


def test_dead_letters_are_redriven_and_dropped(world: World) -> None:
    answer = world.act("dead/redrive", {"ids": ["dead-7", "dead-7", "nobody"], "by": "me"})
    assert answer.json()["done"] == ["dead-7"]
    assert [stayed["id"] for stayed in answer.json()["stayed"]] == ["nobody"]
    world.wait(lambda: "dead-7" in world.rig.dead())  # it ran, and died again
    unroutable = world.act("dead/redrive", {"ids": ["<b>no type</b>"]}).json()
    assert "can't be routed" in unroutable["stayed"][0]["reason"]
    assert world.act("dead/drop", {"ids": ["dead-7"]}).json()["done"] == ["dead-7"]
    assert "dead-7" not in world.rig.dead()
    (event,) = world.daemon.events("operator.dropped")[-1:]
    assert (event["by"], event["peer"], event["tasks"]) == (None, "127.0.0.1", ["dead-7"])
    assert "me" in [event["by"] for event in world.daemon.events("operator.redriven")]


def test_waiting_tasks_are_dropped_and_run_now(world: World) -> None:
    """One or a group's delayed; what runs is left alone."""
    facts = {"delay_s": 9000, "gate": str(world.rig.gate())}
    world.rig.publish(Job(f"late-{n}", "late", facts=facts) for n in range(3))
    world.wait(lambda: world.get("group", key="late:42")["why"]["queued"] == 3)
    answer = world.act("task/drop", {"ids": ["late-0", "run-0", "nobody"], "by": "me"}).json()
    assert answer["done"] == ["late-0"]
    reasons = {each["id"]: each["reason"].split()[0] for each in answer["stayed"]}
    assert reasons == {"run-0": "it", "nobody": "nothing"}
    assert world.get("task", id="late-0")["state"] == "dropped"
    answer = world.act("task/run-now", {"delayed": "late:42"}).json()
    assert (sorted(answer["done"]), answer["stayed"]) == (["late-1", "late-2"], [])
    assert world.get("group", key="late:42")["why"]["state"] in ("ready", "running")
    both = ["late-1", "late-2"]  # so that the world is as it was
    assert world.act("task/drop", {"ids": both}).json()["done"] == both
    events = world.daemon.events("operator.dropped_waiting")
    assert ("me", ["late-0"]) in [(event["by"], event["tasks"]) for event in events]


def test_pause_and_resume(world: World) -> None:
    def changed(verb: str, **what: object) -> bool:
        answer = world.act(verb, what).json()
        assert answer.keys() == {"changed"}
        return bool(answer["changed"])

    group = "ready-003:8"
    assert [changed("pause", group=group, by="me"), changed("pause", group=group)] == [True, False]
    why = world.get("group", key=group)["why"]
    assert (why["state"], why["reason"]) == ("paused", "me paused the group")
    assert changed("resume", group=group)
    assert changed("pause", everything=True, by="me")
    world.wait(lambda: world.get("overview")["everything_paused"] is not None)
    assert changed("resume", everything=True)


def test_what_a_person_does_to_a_schedule(world: World) -> None:
    def does(verb: str, name: str = "yearly") -> httpx.Response:
        return world.act(f"schedules/{verb}", {"name": name, "by": "Ada"})

    def shown() -> dict[str, Any]:
        (found,) = world.get("schedules")["schedules"]
        return dict(found)

    name = {"name": "yearly"}
    assert world.http.post("/api/schedules/run", json=name).status_code == 401
    assert world.act("pause", {"everything": True}).status_code == 200  # so that its task waits
    for verb, changed in (("pause", True), ("pause", False), ("resume", True), ("pause", True)):
        assert does(verb).json() == {"changed": changed}
    world.wait(lambda: shown()["paused"])  # what the page keeps for a second
    assert shown()["paused_by"] == "Ada"
    assert does("resume").json() == {"changed": True}
    task = does("run").json()["task"]
    assert task.startswith("schedule:yearly:")
    refused = does("run")
    assert (refused.status_code, task in refused.json()["detail"]) == (400, True)
    assert [does(verb, "nobody").status_code for verb in ("run", "pause", "resume")] == [404] * 3
    world.wait(lambda: shown()["last_task"] == task)
    assert (shown()["last_outcome"], shown()["runs"][0]["kind"]) == ("queued", "now")
    done = world.rig.count("done")
    assert world.act("resume", {"everything": True}).status_code == 200
    world.wait(lambda: world.rig.count("done") == done + 1)
