"""A stranger who takes another tenant's ids, all of them, while that tenant's list is worked off.

What is measured: how often each task of the list is handed out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.raw import Properties, RawMessage, send_raw
from tests.page.served import Served, as_
from tests.pools.shop import COURIER, lines, said
from tests.security.conftest import running

STRANGER, TENANT = 666, 1
POOL = "/api/pools/couriers"
NAMES = [f"d{n}" for n in range(200)]
POOLS = f"""
[pools.couriers]
types = ["deliver"]
[http.tokens.couriers]
token = "{COURIER}"
rights = ["pull", "fill"]
pools = ["couriers"]
"""


class World(Served):
    """A daemon over two partitions, its page, and a stranger who may publish."""

    sent, filled = 0, 0  # messages, and tasks that came by lists

    def attack(self, seed: int) -> None:
        """Each id once more: plain or grouped, of the pool or of daemons, delayed or malformed."""
        rng = random.Random(seed)
        messages = [_message(rng, name) for name in NAMES]
        send_raw(self.rig.rabbitmq.url, self.rig.queue, messages)
        self.sent += len(messages)
        self.rig.until(lambda: self.seen() >= self.sent, "all that was sent has been taken in")

    def seen(self) -> int:
        """The messages that intake is through with."""
        keys = [each("count") for each in self.rig.partitions]
        counts: list[Any] = [self.rig.raw.hmget(key, "taken", "duplicates") for key in keys]
        return sum(int(n or 0) for row in counts for n in row) - self.filled

    def fill(self) -> dict[str, int]:
        """Send the list: what it answers, but for what is 0."""
        rows = lines(*({"id": id_, "body": {"tenant_id": TENANT, "n": id_}} for id_ in NAMES))
        answer = self.http.put(f"{POOL}/tasks", content=rows, headers=as_(COURIER))
        assert answer.status_code == 200, answer.text
        counts: dict[str, int] = answer.json()
        self.filled += counts["added"]
        return {name: count for name, count in counts.items() if count}

    def pull(self) -> list[dict[str, Any]]:
        """Some tasks, which are done at once."""
        tasks: list[dict[str, Any]] = self.call("claims", {"limit": 20})["tasks"]
        for task in tasks:
            settled = self.call("settlements", [said(task)])
            assert settled == [{"id": task["id"], "verdict": "accepted"}]
        return tasks

    def call(self, name: str, body: Any) -> Any:
        path = f"{POOL}/workers/anna/{name}"
        answer = self.http.post(path, json=body, headers=as_(COURIER))
        assert answer.status_code == 200, answer.text
        return answer.json()


def _message(rng: random.Random, name: str) -> RawMessage:
    body = {"app_name": rng.choice(["crm", "plain"]), "tenant_id": STRANGER, "entity": name}
    packed = orjson.dumps(body)
    if rng.random() < 0.3:
        packed = rng.choice([b"", b"{", b"\xff", b"[]", packed[:-1]])
    headers: Any = {"x-delay": 600_000} if rng.random() < 0.2 else {}
    type_ = rng.choice(["deliver", "work", ""])
    return RawMessage(packed, Properties(message_id=name, message_type=type_, headers=headers))


@pytest.fixture
def world(tmp_path: Path, rabbitmq_server: RabbitmqServer) -> Iterator[World]:
    with running(RedisServer(tmp_path / "redis")) as redis:
        folder = tmp_path / "rig"
        folder.mkdir()
        with closing(World(folder, rabbitmq_server, redis, POOLS, redis={"partitions": 2})) as made:
            yield made


def test_each_task_of_a_list_is_handed_out_once(world: World, record_property: Any) -> None:
    world.attack(seed=1)
    assert world.fill()["added"] == len(NAMES)
    world.attack(seed=2)
    again = world.fill()
    assert "added" not in again
    assert again["kept"] == len(NAMES), again
    given: Counter[str] = Counter()
    strangers = 0
    for seed in range(3, 40):
        tasks = world.pull()
        if not tasks:
            break
        given.update(task["body"]["n"] for task in tasks if task["tenant"] == str(TENANT))
        strangers += sum(task["tenant"] != str(TENANT) for task in tasks)
        if seed % 4 == 0:
            world.attack(seed)
            assert "added" not in world.fill()
    figures = {"handed out": len(given), "most often": max(given.values()), "strangers": strangers}
    record_property("figures", figures)
    print(figures)
    assert given == Counter(NAMES), figures
    assert world.fill() == {"over": len(NAMES)}
