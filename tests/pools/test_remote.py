"""Workers as programs: `groupflow.remote.Worker`, `groupflow work` and the other verbs of pools."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from groupflow.broker.publisher import Message
from groupflow.core.outcome import Advance, Done, Outcome, Retry
from groupflow.core.task import Task
from groupflow.remote import Refused, Worker
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.server import free_ports
from tests.deadlines import deadline, short_lease
from tests.endtoend.process import REPOSITORY, Process, groupflow
from tests.endtoend.rig import Job
from tests.page.browsing import allow, launch, watch
from tests.page.raw import connected
from tests.page.served import TOKEN, Served, as_
from tests.pools.shop import COURIER, lines, said
from tests.running import run

LEASE = short_lease()
POOLS = f"""
[pools.couriers]
types = ["deliver"]
[pools.brief]
types = ["knock"]
lease = {LEASE}
[http.tokens.couriers]
token = "{COURIER}"
rights = ["pull"]
"""


NEXT = Message(Job("next").body, "deliver")
DEEP = Job("deep", type="deliver", facts={"a": orjson.Fragment(b"[" * 1023 + b"]" * 1023)})


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


# What a handler raises on its first attempt.
RAISED: dict[str, BaseException] = {
    "raises": ValueError("no"),
    "gives-up": asyncio.CancelledError(),  # of a task of its own that ended so
    "exits": SystemExit(1),
    "unspeakable": Unspeakable(),
}


class World(Served):
    """A daemon, its page, and a pool."""

    def publish(self, *ids: str, entity: str | None = None, type: str = "deliver") -> None:
        self.rig.publish(Job(id_, entity, type=type) for id_ in ids)

    @contextmanager
    def program(self, pool: str, command: str) -> Iterator[Process]:
        """A `groupflow work`, which must end well."""
        token = self.rig.folder / "token"
        token.write_text(TOKEN)
        arguments = ("--url", self.url, "--token-file", str(token), "--pool", pool)
        words = groupflow("work", *arguments, "--exec", command)
        log = self.rig.folder / f"work-{pool}.log"
        with closing(Process("work", words, self.rig.environment(), log, REPOSITORY)) as program:
            yield program
            assert program.stop() == 0, program.tail()

    def wait_for(self, done: int) -> None:
        self.rig.until(lambda: self.rig.count("done") == done, f"{done} tasks are done")

    def seen(self) -> dict[str, int]:
        """What the page tells of the pool."""
        answer = self.http.get("/api/pools/couriers", headers=as_(TOKEN))
        found: dict[str, int] = answer.json()
        return found


async def work(worker: Worker) -> None:
    async with asyncio.timeout(deadline()):
        await worker.run()


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
) -> Iterator[World]:
    (port,) = free_ports(1)  # the same one for each daemon
    folder, http = tmp_path_factory.mktemp("pools"), {"listen": f"127.0.0.1:{port}"}
    settings: Any = {"http": http, "retry": {"max_attempts": 3, "interval": -0.1}}
    with closing(World(folder, rabbitmq_server, redis_server, POOLS, **settings)) as made:
        yield made


def test_published_tasks_are_pulled_and_settled(world: World) -> None:
    """From RabbitMQ to a worker's stages and retries, a group in order.

    A stage that is refused is a failed attempt, and so are follow-up tasks without the right to
    publish, and whatever a handler raises. A body may be as deep as messages may be. A wrong token
    ends a worker.
    """
    ran: list[tuple[str, int]] = []
    before = world.rig.count("done")

    async def deliver(task: Task) -> Outcome | None:
        ran.append((task.id, task.attempt))
        if task.id == "staged" and task.stage is None:
            return Advance("two", {"n": 1})
        if task.id == "again" and task.attempt == 1:
            return Retry(after=0.0)
        if task.id in RAISED and task.attempt == 1:
            raise RAISED[task.id]
        if task.id == "bad-stage" and task.attempt == 1:
            return Advance("a\0b")
        if task.id == "no-right" and task.attempt == 1:
            return Done(then=[NEXT])
        if task.id == "deep":
            assert task.body == DEEP.body
        if task.id == "nonsense":
            return {"ok": False}  # type: ignore[return-value]
        if len(ran) >= 21:
            worker.stop()
        return None

    world.publish("staged", "again", *RAISED, "bad-stage", "no-right", "nonsense")
    world.rig.publish([DEEP])
    world.publish("g0", "g1", "g2", entity="contact/7")
    worker = Worker(world.url, "couriers", deliver, token=COURIER, concurrency=4)
    run(work(worker))
    world.wait_for(before + 12)
    groups = [("g0", 1), ("g1", 1), ("g2", 1)]
    assert [each for each in ran if each in groups] == groups
    ids = ("again", *RAISED, "bad-stage", "no-right")
    twice = [(id_, attempt) for id_ in ids for attempt in (1, 2)]
    once = [("staged", 1), ("staged", 1), ("nonsense", 1), ("deep", 1)]
    assert sorted(ran) == sorted([*once, *twice, *groups])
    letter = world.rig.call("dead", "show", "nonsense", "--config", str(world.rig.config)).stdout
    assert b"not dict" in letter
    worker = Worker(world.url, "couriers", deliver, token="wrong")
    with pytest.raises(Refused, match=r"refuses this worker: [A-Z].* \(401\)"):
        run(work(worker))


def test_a_task_is_followed(world: World) -> None:
    """By what its handler gave; where that can't be a task it is dead."""
    ran, before = list[str](), world.rig.count("done")

    async def deliver(task: Task) -> Outcome | None:
        ran.append(task.id)
        if len(ran) == 3:
            worker.stop()
        given: dict[str, Any] = {"leads": NEXT, "spoils": 7}
        return Done({"n": 1}, [given[task.id]]) if task.id in given else None

    world.publish("leads", "spoils")
    worker = Worker(world.url, "couriers", deliver, token=TOKEN)
    run(work(worker))
    world.wait_for(before + 2)
    assert sorted(ran) == ["leads", "leads/then/1", "spoils"]
    letter = world.rig.call("dead", "show", "spoils", "--config", str(world.rig.config)).stdout
    assert b"follow-up task 1 is no groupflow.Message, but int" in letter


def test_the_verbs(world: World) -> None:
    """A list is sent, a program runs a command for each of it, and drains on SIGTERM."""
    before = world.rig.count("done")
    sent = world.rig.folder / "list.jsonl"
    sent.write_bytes(lines(*({"id": f"row{n}", "priority": n, "body": {}} for n in range(5))))
    config = ["--config", str(world.rig.config)]
    done = world.rig.call("pool", "sync", "couriers", str(sent), *config)
    assert (done.returncode, done.stdout.split(b",")[0]) == (0, b"5 added"), done.stderr
    words = ("pool", "sync", "couriers", "/dev/stdin", *config)
    piped = world.rig.call(*words, stdin=sent.read_bytes())
    assert b"0 added, 0 removed, 5 kept" in piped.stdout, piped.stderr
    seen = world.rig.call("pools", "--json", *config)
    pools = {pool["name"]: pool for pool in orjson.loads(seen.stdout)}
    assert pools["couriers"]["claimable"] == 5
    with world.program("couriers", "cat") as program:
        world.wait_for(before + 5)
    assert (
        f"remote.connected         concurrency=1 pool=couriers url={world.url} " in program.tail()
    )
    assert world.seen()["held"] == 0


def test_a_list_that_breaks_off_changes_nothing(world: World) -> None:
    """Its first half is not the list: nothing is added, and nothing that waits goes."""
    head = "PUT /api/pools/couriers/tasks HTTP/1.1\r\nhost: localhost"
    half = b'{"id": "half"}\n{"id": "other"'
    with connected(world.url) as connection:
        more = f"authorization: Bearer {TOKEN}\r\ncontent-length: {2 * len(half)}\r\n\r\n"
        connection.sendall(f"{head}\r\n{more}".encode() + half)
        connection.shutdown(socket.SHUT_WR)
        connection.makefile("rb").read()
    seen = world.seen()
    assert (seen["plain"], seen["held"]) == (0, 0)


class Slow:
    """A command that notes each start, and runs until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.ran, self.door, self.file = (folder / name for name in ("ran", "door", "slow.sh"))
        os.mkfifo(self.door)
        self.ran.touch()
        note = f'echo "$GROUPFLOW_ID" >> {self.ran}'
        said = 'echo \'{"progress": [1, 4, "doors"]}\''
        self.file.write_text(f"#!/bin/sh\n{note}\n{said}\nread -r _ < {self.door}\n")
        self.file.chmod(0o755)

    def starts(self) -> list[str]:
        return self.ran.read_text().split()

    def let_go(self) -> None:
        self.door.write_text("go\n")


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


def test_a_lease_is_pushed_back_while_a_command_runs(world: World, slow: Slow) -> None:
    """For more than a lease, and the task runs once. It tells how far the command has got."""
    before = world.rig.count("done")

    def until() -> float:
        """When the worker's lease runs out, in µs."""
        leases = world.rig.keys("pool_pullers", "brief")
        [(_, ends)] = world.rig.raw.zrange(leases, -1, -1, withscores=True)
        return float(ends)

    with world.program("brief", str(slow.file)):
        world.publish("knock", type="knock")
        world.rig.until(lambda: bool(slow.starts()), "the start of the command")
        first = until()
        world.rig.until(lambda: until() > first + 1.2e6 * LEASE, "renewals for more than a lease")
        task = world.http.get("/api/task?id=knock", headers=as_(TOKEN)).json()
        assert task["progress"].items() >= {"done": 1, "total": 4, "unit": "doors"}.items()
        slow.let_go()
        world.wait_for(before + 1)
    assert slow.starts() == ["knock"]


def test_a_cancelled_task_ends_where_it_is_pulled(world: World) -> None:
    """Its handler is cancelled once, and the next of its group comes behind its end."""
    before, seen = world.rig.count("cancelled"), list[tuple[str, bool]]()

    async def knock(task: Task) -> None:
        try:
            if task.id == "regretted":
                await asyncio.to_thread(world.rig.cancel, task.id)
                await asyncio.Event().wait()
            worker.stop()
        finally:
            seen.append((task.id, task.cancelled))

    world.publish("regretted", "next", entity="door/1", type="knock")
    worker = Worker(world.url, "brief", knock, token=TOKEN, concurrency=2)
    run(work(worker))
    assert seen == [("regretted", True), ("next", False)]
    assert world.rig.count("cancelled") == before + 1


def test_a_program_outlives_the_server(world: World, slow: Slow) -> None:
    """Its command runs on while no server answers, and is settled then; it asks for more."""
    before = world.rig.count("done")
    with world.program("couriers", str(slow.file)) as program:
        world.publish("meanwhile")
        world.rig.until(lambda: bool(slow.starts()), "the start of the command")
        world.http.close()
        world.rig.kill(world.daemon)
        slow.let_go()
        world.rig.until(lambda: "remote.no_answer" in program.tail(), "word of its end")
        world.publish("afterwards")
        world.start()
        world.wait_for(before + 1)
        slow.let_go()
        world.wait_for(before + 2)
    assert slow.starts() == ["meanwhile", "afterwards"]


def test_looking_at_who_pulls(world: World) -> None:
    """What waits, who holds how much since when; with the token, what one of them holds."""
    world.publish("shown", entity="street/1")
    worker, mine = "/api/pools/couriers/workers/ida", as_(COURIER)
    wanted = {"limit": 5, "wait": 30}
    claimed = world.http.post(f"{worker}/claims", json=wanted, headers=mine).json()
    assert [task["id"] for task in claimed["tasks"]] == ["shown"]
    told = {name: claimed["tasks"][0][name] for name in ("id", "fence")}
    for figures in ({"done": 7}, {"done": 1500.5, "total": 6000, "unit": "<b>steps"}):
        said_so = {"progress": [{**told, **figures}]}
        world.http.post(f"{worker}/renewal", json=said_so, headers=mine).raise_for_status()
    world.publish("waits")
    world.rig.until(lambda: world.seen()["plain"] == 1, "a task that waits")
    with sync_playwright() as playwright, launch(playwright) as browser:
        page, heard = browser.new_page(base_url=world.url), list[str]()
        watch(page, heard)
        page.goto("/#/pools")
        expect(page.locator("#live")).to_contain_text("Live")
        expect(page.locator("main")).to_contain_text("1 claimable")
        row = page.get_by_role("table", name="Workers of couriers").get_by_role("row", name="ida")
        expect(row).to_contain_text("alive")
        allow(page)
        row.get_by_role("link").click()
        held = page.get_by_role("table", name="Tasks")
        expect(held.get_by_role("link", name="shown")).to_be_visible()
        words = "1,500.5 of 6,000 <b>steps, 25 %"
        expect(held.get_by_role("progressbar", name=words)).to_have_attribute("value", "1500.5")
        held.get_by_role("link", name="street/1:42").click()
        expect(page.locator("main")).to_contain_text("held by ida")
        expect(page.get_by_role("progressbar", name=words)).to_be_visible()
        assert Axe().run(page).response["violations"] == []
        assert heard == []
    world.http.post(f"{worker}/settlements", json=[*map(said, claimed["tasks"])], headers=mine)
    [waits] = world.http.post(f"{worker}/claims", json=wanted, headers=mine).json()["tasks"]
    world.http.post(f"{worker}/settlements", json=[said(waits)], headers=mine)
