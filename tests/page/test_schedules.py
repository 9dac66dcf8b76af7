"""Schedules by the API: what it tells, and what it does with the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.endtoend.rig import Rig
from tests.endtoend.ticking import with_schedules
from tests.page.world import TOKEN


@pytest.fixture
def rig(
    tmp_path: Path, rabbitmq_server: RabbitmqServer, redis_server: RedisServer
) -> Iterator[Rig]:
    rig = Rig(
        tmp_path, rabbitmq_server, redis_server, http={"listen": "127.0.0.1:0", "token": TOKEN}
    )
    with_schedules(rig, {"name": "yearly", "cron": "0 0 1 1 *", "overlap": "skip"})
    try:
        yield rig
    finally:
        rig.close()


def test_what_a_person_does_to_a_schedule(rig: Rig) -> None:
    daemon = rig.start("d1")
    daemon.wait_for("schedule.begun")
    url = daemon.wait_for("http.listening")["url"].rstrip("/")
    rig.call("pause", "--all", "--config", str(rig.config))  # its task waits
    with httpx.Client(base_url=f"{url}/api", timeout=deadline(), trust_env=False) as http:
        assert http.post("/schedules/run", json={"name": "yearly"}).status_code == 401
        http.headers["authorization"] = f"Bearer {TOKEN}"

        def does(verb: str, name: str = "yearly") -> httpx.Response:
            return http.post(f"/schedules/{verb}", json={"name": name, "by": "Ada"})

        assert does("pause").json() == {"changed": True}
        assert does("pause").json() == {"changed": False}
        (paused,) = http.get("/schedules").json()["schedules"]
        assert (paused["paused"], paused["paused_by"]) == (True, "Ada")
        assert does("resume").json() == {"changed": True}
        task = does("run").json()["task"]
        assert task.startswith("schedule:yearly:")
        refused = does("run")
        assert (refused.status_code, task in refused.json()["detail"]) == (400, True)
        for verb in ("run", "pause", "resume"):
            assert does(verb, "nobody").status_code == 404
        rig.until(
            lambda: http.get("/schedules").json()["schedules"][0]["last_task"] == task,
            "what the page keeps for a second",
        )
        (found,) = http.get("/schedules").json()["schedules"]
        assert (found["last_outcome"], found["runs"][0]["kind"]) == ("queued", "now")
    rig.call("resume", "--all", "--config", str(rig.config))
    rig.until(lambda: rig.count("done") == 1, "its end")
    rig.stop_all()
