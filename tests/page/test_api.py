"""The API: what it tells of what is there, and what its actions do where nothing lower tells."""

from __future__ import annotations

from tests.endtoend.rig import Job
from tests.page.world import NO_TYPE, SECRET, TOKEN, World


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


def test_dead_letters_are_redriven_and_dropped(world: World) -> None:
    """In the log: what, by whom and from where."""
    answer = world.act("dead/redrive", {"ids": ["dead-7", "dead-7", "nobody"], "by": "me"}).json()
    assert (answer["done"], [each["id"] for each in answer["stayed"]]) == (["dead-7"], ["nobody"])
    world.wait(lambda: "dead-7" in world.rig.dead())  # it ran, and died again
    unroutable = world.act("dead/redrive", {"ids": [NO_TYPE]}).json()
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


def test_a_schedule_runs_once_at_a_time(world: World) -> None:
    """By hand too: where one is under way the next is refused, and its runs are told."""
    assert world.act("pause", {"everything": True}).status_code == 200  # so that its task waits
    task = world.act("schedules/run", {"name": "yearly", "by": "Ada"}).json()["task"]
    assert task.startswith("schedule:yearly:")
    refused = world.act("schedules/run", {"name": "yearly"})
    assert (refused.status_code, task in refused.json()["detail"]) == (400, True)
    world.wait(lambda: world.get("schedules")["schedules"][0]["last_task"] == task)
    (shown,) = world.get("schedules")["schedules"]
    assert (shown["last_outcome"], shown["runs"][0]["kind"]) == ("queued", "now")
    done = world.rig.count("done")
    assert world.act("resume", {"everything": True}).status_code == 200
    world.wait(lambda: world.rig.count("done") == done + 1)
