"""A task's whole life through real daemons: published, retried, staged, buried, redriven, found.

Two daemons serve most of these tests together; each test has groups and ids of its own.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline, short_lease
from tests.endtoend.cluster import Cluster, message, running, script
from tests.endtoend.process import LOOK, Process, until


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: RedisServer,
    rabbitmq_server: RabbitmqServer,
) -> Iterator[Cluster]:
    """Two daemons that all tests of this file share, and that nobody kills."""
    cluster = Cluster(tmp_path_factory.mktemp("task_state"), redis_server, rabbitmq_server)
    with running(cluster, "one", "two"):
        yield cluster


FOUND_KEYS = {
    "id", "state", "type", "group", "tenant", "attempt", "crashes", "stage", "daemon", "worker",
    "lost_leases",
    "fence", "since", "until", "reason", "errors", "superseded_by", "scope",
}  # fmt: skip
WHY_KEYS = {
    *("group", "state", "queued", "head", "holder", "since", "until", "reason"),
    *("running", "concurrency", "behind", "by_hand_until", "crashes", "lost_leases"),
}
DEAD_KEYS = {"id", "type", "group", "reason", "attempts", "died_at"}


def test_a_retry_that_holds_keeps_the_order_of_its_group(cluster: Cluster) -> None:
    cluster.publish(
        message("rh0", "hold", do=script("fail", "fail", "ok")),
        message("rh1", "hold", do=script("retry 0.1", "ok")),
        message("rh2", "hold"),
    )
    cluster.until_ended("rh2")
    assert cluster.ran("rh") == [
        ("rh0", 1), ("rh0", 2), ("rh0", 3), ("rh1", 1), ("rh1", 2), ("rh2", 1)
    ]  # fmt: skip


def test_a_retry_that_steps_aside_lets_its_group_go_on(cluster: Cluster) -> None:
    """The next of its group runs meanwhile; once it is due it goes before those behind."""
    gate = cluster.folder / "ra.open"
    cluster.publish(
        message("ra0", "aside", do=script("fail", "ok")),
        message("ra1", "aside", do=script(f"wait {gate}")),
        message("ra2", "aside"),
    )
    cluster.until(lambda: ("ra1", 1) in cluster.ran("ra"))
    cluster.until_state("ra0", "queued")
    gate.touch()
    cluster.until_ended("ra2")
    assert cluster.ran("ra") == [("ra0", 1), ("ra1", 1), ("ra0", 2), ("ra2", 1)]


def test_after_its_last_attempt_a_task_is_a_dead_letter_and_its_group_goes_on(
    cluster: Cluster,
) -> None:
    cluster.publish(
        message("dl0", "hold", do=script("fail one", "fail two", "fail three")),
        message("dl1", "hold"),
    )
    cluster.until_ended("dl1")
    assert cluster.ran("dl") == [("dl0", 1), ("dl0", 2), ("dl0", 3), ("dl1", 1)]
    [letter] = cluster.json("dead", "list", "--group", "hold:dl")
    assert letter.keys() == DEAD_KEYS
    assert isinstance(letter.pop("died_at"), float)
    assert letter == {
        "id": "dl0",
        "type": "scripted",
        "group": "hold:dl",
        "reason": "ValueError: three",
        "attempts": 3,
    }
    shown = cluster.json("dead", "show", "dl0")
    assert shown.keys() == DEAD_KEYS | {"tenant", "errors", "headers", "body"}
    assert [(e["attempt"], e["error"], e["message"]) for e in shown["errors"]] == [
        (1, "ValueError", "one"), (2, "ValueError", "two"), (3, "ValueError", "three")
    ]  # fmt: skip
    assert all(e["seconds"] >= 0 and e["daemon"] and e["at"] > 0 for e in shown["errors"])
    assert ["traceback" in e for e in shown["errors"]] == [False, False, True]
    assert shown["errors"][-1]["traceback"].endswith("ValueError: three")
    assert "ValueError: three\n" in cluster.cli("task", "dl0")
    assert orjson.loads(shown["body"])["entity"] == "dl"
    assert "no dead letter" not in cluster.cli("dead", "show", "dl0")
    told = cluster.json("task", "dl0")
    assert told.keys() == FOUND_KEYS
    assert (told["state"], told["reason"]) == ("dead", "ValueError: three")


def test_a_parked_group_says_so_and_its_redriven_death_goes_first(cluster: Cluster) -> None:
    cluster.publish(
        message("pk0", "park", do=script("dead broken")),
        message("pk1", "park"),
        message("pk2", "park"),
    )
    cluster.until_state("pk0", "dead")
    assert cluster.ran("pk") == [("pk0", 1)]
    told = cluster.json("why", "park:pk")
    assert told.keys() == WHY_KEYS
    assert (told["state"], told["head"], told["holder"]) == ("parked", "pk1", None)
    assert "pk0" in told["reason"]
    assert cluster.json("dead", "redrive", "pk0") == {"redriven": ["pk0"], "unknown": []}
    # It dies again, at its own place, before the others have run.
    cluster.until(lambda: len(cluster.ran("pk")) == 2 and cluster.state("pk0") == "dead")
    assert cluster.ran("pk") == [("pk0", 1), ("pk0", 1)]
    assert cluster.json("dead", "drop", "pk0") == {"dropped": ["pk0"], "unknown": []}
    cluster.until_ended("pk2")
    assert cluster.ran("pk") == [("pk0", 1), ("pk0", 1), ("pk1", 1), ("pk2", 1)]
    assert cluster.state("pk0") == "dropped"
    assert cluster.json("why", "park:pk")["state"] == "idle"


def test_redriven_after_others_went_on_a_task_is_the_next_of_its_group(cluster: Cluster) -> None:
    gate = cluster.folder / "rd.open"
    cluster.publish(
        message("rd0", "hold", do=script("dead first")),
        message("rd1", "hold", do=script("dead second")),
        message("rd2", "hold", do=script(f"wait {gate}")),
        message("rd3", "hold"),
    )
    cluster.until(lambda: ("rd2", 1) in cluster.ran("rd"))
    assert cluster.cli("dead", "redrive", "rd1", "rd0") == "redriven 2\n"
    gate.touch()
    cluster.until_ended("rd3")
    assert [id_ for id_, _ in cluster.ran("rd")] == ["rd0", "rd1", "rd2", "rd0", "rd1", "rd3"]
    cluster.cli("dead", "drop", "--group", "hold:rd", "--yes")


def test_dead_letters_are_chosen_by_filter_and_unknown_ids_are_told(cluster: Cluster) -> None:
    cluster.publish(
        message("fl0", do=script("dead no such tenant")),
        message("fl1", do=script("dead no such table")),
        message("fl2", type_="nobody handles this"),
        message("fl3", "hold", entity={"no": "text"}),
    )
    for id_ in ("fl0", "fl1", "fl2", "fl3"):
        cluster.until_state(id_, "dead")
    listed = cluster.json("dead", "list", "--reason", "no such t")
    assert {each["id"] for each in listed} == {"fl0", "fl1"}
    assert [
        each["id"] for each in cluster.json("dead", "list", "--type", "nobody handles this")
    ] == ["fl2"]
    assert cluster.json("dead", "drop", "--reason", "no such table", "--yes") == {
        "dropped": ["fl1"],
        "unknown": [],
    }
    assert "dropped 1" in cluster.cli("dead", "drop", "fl0", "never came", code=1)
    # What died at the door has no route yet, and stays until the configuration gives it one.
    assert cluster.json("dead", "redrive", "fl3") == {"redriven": [], "unknown": []}
    assert cluster.state("fl3") == "dead"
    assert cluster.cli("dead", "list", "--group", "none") == "no dead letters\n"
    cluster.cli("dead", "redrive", code=2)
    cluster.cli("dead", "show", "never came", code=1)


def test_a_task_is_found_in_every_state(cluster: Cluster) -> None:
    gate, began = cluster.folder / "st.open", time.time()
    cluster.publish(
        message("st0", "hold", do=script(f"wait {gate}")),
        message("st1", "hold"),
        message("st2", "hold", headers={"x-delay": 3_600_000}, entity="late"),
        message("st3", do=script("dead no")),
        message("st4"),
        message("st5", do=script("dead no")),
    )
    running = cluster.until_state("st0", "running")
    assert running.keys() == FOUND_KEYS
    assert (running["daemon"] in ("one", "two"), running["attempt"]) == (True, 1)
    assert running["worker"].startswith("grouped-")
    assert running["fence"] > 0
    assert began - 1 < running["since"] <= time.time() + 1
    why = cluster.json("why", "hold:st")
    assert why.keys() == WHY_KEYS
    assert (why["state"], why["head"], why["queued"]) == ("running", "st0", 1)
    assert why["holder"].keys() == {"daemon", "worker", "fence", "lease_left"}
    assert why["holder"]["daemon"] == running["daemon"]

    queued = cluster.until_state("st1", "queued")
    assert queued.keys() == FOUND_KEYS
    assert (queued["group"], queued["tenant"], queued["daemon"]) == ("hold:st", "42", None)
    delayed = cluster.until_state("st2", "delayed")
    assert time.time() < delayed["until"] < time.time() + 3_601
    assert cluster.json("why", "hold:late")["state"] == "delayed"
    dead = cluster.until_state("st3", "dead")
    assert (dead["reason"], dead["errors"][0]["error"]) == ("no", "Dead")
    done = cluster.until_state("st4", "done")
    assert done.keys() == FOUND_KEYS
    assert (done["type"], done["attempt"], done["reason"]) == ("scripted", 1, None)
    cluster.until_state("st5", "dead")
    cluster.cli("dead", "drop", "st5")
    assert cluster.state("st5") == "dropped"

    listed = {each["id"] for each in cluster.json("tasks", "running")}
    assert "st0" in listed
    assert "state    running" in cluster.cli("task", "st0")
    cluster.cli("task", "never came", code=1)
    assert orjson.loads(cluster.cli("task", "never came", "--json", code=1)) is None
    gate.touch()
    cluster.until_state("st1", "done")


def test_pause_and_resume(cluster: Cluster) -> None:
    gate = cluster.folder / "pa.open"
    cluster.publish(message("pa0", "hold", do=script(f"wait {gate}")), message("pa1", "hold"))
    cluster.until_state("pa0", "running")
    assert cluster.cli("pause", "hold:pa") == "hold:pa paused\n"
    assert cluster.cli("pause", "hold:pa") == "hold:pa was paused already\n"
    gate.touch()  # what runs goes on to its end
    cluster.until_state("pa0", "done")
    cluster.publish(message("pa2", "hold"), message("other0", "hold"))
    cluster.until_state("other0", "done")
    assert cluster.state("pa2") == "queued"
    told = cluster.json("why", "hold:pa")
    assert (told["state"], told["queued"], told["head"]) == ("paused", 2, "pa1")
    assert "hold:pa is paused, 2 waiting" in cluster.cli("why", "hold:pa")
    assert cluster.cli("resume", "hold:pa") == "hold:pa goes on\n"
    cluster.until_state("pa2", "done")
    assert cluster.ran("pa") == [("pa0", 1), ("pa1", 1), ("pa2", 1)]

    cluster.cli("pause", "--all")
    cluster.publish(message("pall0", "hold"), message("pall1"), message("pall2", "hold"))
    for id_ in ("pall0", "pall1", "pall2"):
        cluster.until_state(id_, "queued")
    assert cluster.json("why", "hold:pall")["state"] == "paused"
    assert cluster.ran("pall") == []
    cluster.cli("resume", "--all")
    for id_ in ("pall0", "pall1", "pall2"):
        cluster.until_state(id_, "done")
    cluster.cli("pause", code=2)
    cluster.cli("pause", "hold:pa", "--all", code=2)


def test_stages_carry_their_context(cluster: Cluster) -> None:
    do = script("advance check", check=["fail", "advance load"], load=["ok"])
    cluster.publish(message("sg0", "hold", do=do), message("sg1", "hold"))
    cluster.until_ended("sg1")
    assert [line[:5] for line in cluster.notes("start", "sg0")] == [
        ["sg0", 1, 0, None, None],
        ["sg0", 1, 0, "check", {"came from": None, "rows": [1, 2]}],
        ["sg0", 2, 0, "check", {"came from": None, "rows": [1, 2]}],
        ["sg0", 1, 0, "load", {"came from": "check", "rows": [1, 2]}],
    ]
    assert cluster.ran("sg")[-1] == ("sg1", 1)


def test_a_delayed_task_that_comes_up_while_its_group_runs_is_promoted_in_time(
    cluster: Cluster,
) -> None:
    """Its due time is first known to whoever promotes when the task before it ends."""
    gate = cluster.folder / "du.open"
    cluster.publish(
        message("du0", "hold", do=script(f"wait {gate}")),
        message("du1", "hold", headers={"x-delay": 2_000}),
    )
    cluster.until_state("du1", "delayed", "queued")
    gate.touch()
    # Well within the 30 s after which whoever promotes looks anyway.
    until(lambda: bool(cluster.notes("end", "du1")), lambda: "du1 is not promoted", 20)


def test_a_handler_over_its_time_is_a_dead_letter(cluster: Cluster) -> None:
    cluster.publish(message("ov0", type_="overruns"))
    assert cluster.until_state("ov0", "dead")["reason"] == "TimeoutError: it ran over its 0.2 s"


def test_a_command_as_handler(cluster: Cluster) -> None:
    sent = message("ex0", "hold", type_="shell")
    cluster.publish(sent)
    cluster.until_state("ex0", "done")
    body = sent.body.decode()
    assert (cluster.folder / "shell.out").read_text().splitlines() == [
        f"ex0|hold:ex|1|||{body}",
        f"ex0|hold:ex|2|||{body}",
        f'ex0|hold:ex|1|two|{{"rows":3}}|{body}',
        f'ex0|hold:ex|2|two|{{"rows":3}}|{body}',
    ]


def test_a_stage_resumes_after_kill_9_with_its_context(
    tmp_path: Path, redis_server: RedisServer, rabbitmq_server: RabbitmqServer
) -> None:
    """Its daemon dies in the last stage; the other one takes that stage up, not the first."""
    gate = tmp_path / "open"
    cluster = Cluster(tmp_path, redis_server, rabbitmq_server, lease=short_lease(2.0))
    with running(cluster, "one", "two") as daemons:
        cluster.publish(
            message("ks0", "hold", do=script("advance load", load=[f"wait {gate}"])),
            message("ks1", "hold"),
        )
        cluster.until(lambda: any(line[3] == "load" for line in cluster.notes()))
        pid = cluster.notes()[-1][5]
        [victim] = [daemon for daemon in daemons if daemon.pid == pid]
        victim.kill()
        gate.touch()
        cluster.until_ended("ks1")
    context = {"came from": None, "rows": [1, 2]}
    assert [line[:5] for line in cluster.notes("start", "ks")] == [
        ["ks0", 1, 0, None, None],
        ["ks0", 1, 0, "load", context],
        ["ks0", 1, 1, "load", context],
        ["ks1", 1, 0, None, None],
    ]


@contextmanager
def supervised(cluster: Cluster, name: str) -> Iterator[None]:
    """A daemon that is started again whenever it has died, as systemd would."""
    stopping = threading.Event()
    started: list[Process] = []

    def supervise() -> None:
        while not stopping.is_set():
            started.append(cluster.spawn(name))
            while started[-1].is_running:
                time.sleep(LOOK)

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        while thread.is_alive():  # one may just be starting, and not know of its signals yet
            for daemon in started[-1:]:
                daemon.send(signal.SIGTERM)
            thread.join(0.2)
        for daemon in started:
            daemon.close()


def test_a_task_that_kills_its_daemon_ends_as_a_dead_letter(
    tmp_path: Path, redis_server: RedisServer, rabbitmq_server: RabbitmqServer
) -> None:
    # Each is back under its name within its lease: so each death is known before the next claim.
    cluster = Cluster(tmp_path, redis_server, rabbitmq_server)
    with supervised(cluster, "one"), supervised(cluster, "two"):
        cluster.publish(message("po0", "hold", do=script("kill")), message("po1", "hold"))
        # Three daemons have to start for it, one after another.
        dead = cluster.until_state("po0", "dead", seconds=2 * deadline())
        cluster.until_state("po1", "done")
        cluster.publish(message("fine0", "hold"), message("fine1"))
        for id_ in ("fine0", "fine1"):
            cluster.until_state(id_, "done")
    assert (dead["crashes"], dead["attempt"]) == (3, 1)
    assert dead["reason"].startswith("3 daemons died")
    assert [line[:3] for line in cluster.notes("start", "po0")] == [
        ["po0", 1, 0],
        ["po0", 1, 1],
        ["po0", 1, 2],
    ]
    assert len({line[5] for line in cluster.notes("start", "po0")}) == 3
