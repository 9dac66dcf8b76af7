"""What the tests of a task state do to a store: fill it, settle, and let a due time come.

No test waits for a due time. `pass_time` lets a waiting task's time come by rewriting what the
scripts wrote, and the age of one task against another's comes from `count.arrival`, the store's own
last arrival: both are exact, where sleeping would only be likely.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from groupflow.operate.dead import DeadLetters, DeadStory
from groupflow.operate.groups import Groups, Why
from groupflow.operate.namespace import Namespace
from groupflow.operate.tasks import Found, Tasks
from groupflow.store.carrying import CarriedLimits, Carrying
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Retry
from tests.store.bench import Bench, Daemon, arrival

Order = Literal["oldest", "fair"]
Standing = Literal["hold", "step-aside"]
HOUR = 3600.0
POOLS: tuple[Pool, Pool] = ("grouped", "plain")
FAILURE = [{"attempt": 1, "error": "ValueError", "message": "no such row"}]


class Bounded(Carrying):
    """Room for so many bytes."""

    def __init__(self, every: int, tenant: int) -> None:
        self._room = CarriedLimits(every, tenant)

    async def room(self) -> CarriedLimits:
        return self._room


async def promote(shop: Bench) -> int:
    """One pass of `promote`; how many tasks and groups it promoted."""
    promoted, _ = await shop.client.run(Verb.PROMOTE, 200)
    return int(promoted)


async def pass_time(shop: Bench, *only: str) -> None:
    """Let the time of these waiting tasks (of all, if none is named) have come, and promote."""
    raw, keys = shop.raw, shop.keys
    rows: Any = raw.zrange(keys("delayed"), 0, -1)
    waiting: dict[str, tuple[str, bytes]] = {row[17:].decode(): ("delayed", row) for row in rows}
    groups: Any = raw.zrange(keys("held"), 0, -1)
    for group in groups:
        waiting[shop.lane(group.decode())[0]] = ("held", group)
    for n, id_ in enumerate(only or sorted(waiting), start=1):
        where, member = waiting[id_]
        raw.hset(keys("task_state", id_), mapping={"due": f"{n:016d}", "order": f"{n:016d}"})
        raw.zadd(keys(where), {member: n})
    await promote(shop)


def retry(claim: Claim, standing: Standing = "hold", after: float = HOUR) -> Retry:
    """It failed, and is to be tried again in an hour, or so many seconds."""
    return Retry(claim, after, FAILURE, standing)


def advance(claim: Claim, stage: str = "two", standing: Standing = "hold") -> Advance:
    """It has come to a stage, with some context."""
    return Advance(claim, stage, b'{"rows": 3}', standing)


async def fill(shop: Bench, *named: str) -> Daemon:
    """A daemon, and tasks whose first letter is their group; ``p`` is for plain ones."""
    await shop.enqueue(*(arrival(id_, id_[0] if id_[0] != "p" else None) for id_ in named))
    return await shop.daemon()


class Looked(Protocol):
    """What has a namespace to look into."""

    @property
    def namespace(self) -> Namespace: ...


async def found(shop: Looked, id_: str) -> Found:
    """What is known of a task that is there."""
    task = await Tasks(shop.namespace).find(id_)
    assert task is not None
    return task


async def why(shop: Bench, group: str) -> Why:
    """Why a group doesn't run, or that it does."""
    return await Groups(shop.namespace).why(group)


async def letter(shop: Looked, id_: str) -> DeadStory:
    """The dead letter of a task that has one."""
    dead = await DeadLetters(shop.namespace).find(id_)
    assert dead is not None
    return dead


async def redrive(shop: Bench, *named: str) -> None:
    """Redrive dead letters, one after another."""
    for id_ in named:
        assert await DeadLetters(shop.namespace).redrive(await letter(shop, id_))
