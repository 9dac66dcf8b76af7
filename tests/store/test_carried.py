"""What tasks carry of stages and failed attempts is counted, bounded, and taken off once.

The auditor compares the counters with the lives at the end of each of these tests too.
"""

from __future__ import annotations

from typing import Any

from groupflow.core.task import Task
from groupflow.settings.model import Redis
from groupflow.store.carrying import CARRIED_SHARE, CarriedLimits, Carrying
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Bury, Retry, calls_of
from tests.store.bench import Bench, Daemon
from tests.store.story import Story, named, stories
from tests.store.task_state import FAILURE, HOUR, POOLS, Bounded, found, letter
from tests.store.test_pools import put
from tests.store.worker import Worker, pooled

KILO = 1000
CONTEXT = b'"' + b"x" * (KILO - 5) + b'"'
CARRIED = KILO  # what a task does whose stage is "two", with that context
ERRORS = len(b'[{"attempt":1,"error":"ValueError","message":"no such row"}]')
REASON = "there is no room"
NO_ROOM = [{"attempt": 1, "error": "Advance", "message": REASON}]


class Carried(Story):
    """A store whose tasks carry contexts of a kilobyte."""

    async def carry(self, *words: str) -> None:
        """Claims go on to their next stage with a context; ``last``: of a last attempt.

        Where there is no room it is a failed attempt.
        """
        for holder, claim in (self.claim_of(word) for word in words if word != "last"):
            otherwise: Retry | Bury = Retry(claim, HOUR, NO_ROOM)
            if "last" in words:
                otherwise = Bury(claim, REASON, NO_ROOM)
            told = Advance(claim, "two", CONTEXT, otherwise=otherwise)
            assert isinstance(holder, Daemon)
            assert await holder.settle(told, end=False) == []

    async def room(self, every: str, tenant: str = "1000000") -> None:
        """Tasks may carry so much, all and those of a tenant."""
        for pool in POOLS:
            claims = (await self.daemon()).claims(pool)
            claims._carrying = Bounded(int(every), int(tenant))

    async def delete(self, id_: str) -> None:
        """A task's envelope is deleted by hand, and a claim finds that."""
        self.shop.raw.hdel(self.shop.keys("tasks"), id_)
        assert await (await self.daemon()).claim("grouped", "w1") == []
        self.shop.raw.delete(self.shop.keys("task_state", id_))

    async def carried(self, *facts: str) -> None:
        """What the tasks of each tenant carry, as ``42=1000``; the total is their sum."""
        found: Any = self.shop.raw.hgetall(self.shop.keys("carried"))
        told = {name.decode()[8:]: int(size) for name, size in found.items()}
        assert told == {name: int(size) for name, size in (fact.split("=") for fact in facts)}
        assert self.shop.count("carried_bytes") == sum(told.values())


STORIES = named(
    f"""
    stages, contexts and errors count::
        take a0 p0 | claim a0 p0 | retry a0 | carried 42={ERRORS} | carry p0
        carried 42={ERRORS + CARRIED} | time | claim a0 | carry a0
        carried 42={ERRORS + 2 * CARRIED} | claim p0 | advance p0
        carried 42={ERRORS + CARRIED + 14}
    each tenant's count apart::
        take 1/a0 2/b0 2/c0 | claim a0 b0 c0 | carry a0 b0 c0
        carried 1={CARRIED} 2={2 * CARRIED} | claim a0 b0 c0 | done b0 c0 | carried 1={CARRIED}
    what ends by {{how}} is taken off once::
        take a0 b0 | claim a0 b0 | carry a0 b0 | carried 42={2 * CARRIED} | claim a0 b0 | {{how}}
        carried 42={CARRIED}
    beyond the room an advance is a failed attempt::
        room {2 * CARRIED} | take a0 b0 c0 | claim a0 b0 c0 | carry a0 b0 c0
        count advanced=2 retried=1 running_grouped=0 | task c0 delayed attempt=2 stage=None
    behind the last attempt it is a dead letter, and its group goes on::
        room {CARRIED - 1} | take a0 a1 | claim a0 | carry a0 last | task a0 dead | claim a1
    one tenant leaves room for others::
        room {4 * CARRIED} {CARRIED} | take 6/a0 6/b0 6/c0 1/d0 | claim a0 b0 c0 d0
        carry a0 b0 c0 d0 | count advanced=2 retried=2
    what carries no more than before always has room::
        take a0 p0 | claim a0 p0 | carry a0 p0 | claim a0 p0 | room 1 | carry a0 p0
        count advanced=4 | carried 42={2 * CARRIED}
    nothing else is refused; nor what has no other way, as a shard::
        take a0 b0 c0 d0 | claim a0 b0 c0 d0 | carry a0 b0 c0 | claim a0 b0 c0 | room 0 | retry a0
        bury b0 | done c0 | advance d0 | count retried=1 buried=1 done=1 advanced=4
    said again it is what it was, {{which}}::
        room {CARRIED} | take a0 p0 | claim a0 p0 | carry a0 {{which}} | carry p0 {{which}}
        room 0 | unchanged carry a0 {{which}} | room {10 * CARRIED}
        unchanged carry p0 {{which}} | count advanced=1
    """,
    how=(
        *("done a0 | done a0", "tell a0 > | tell a0 >", "bury a0 | bury a0", "retry a0 | drop a0"),
        *("take a1 | swap a0 a1", "carry a0 | delete a0"),
    ),
    which=("", "last"),
)


@stories(STORIES)
async def test_what_is_carried(shop: Bench, story: str) -> None:
    await Carried(shop).go_on(story)


async def test_an_attempt_that_failed_for_lack_of_room_says_so(shop: Bench) -> None:
    told = Carried(shop)
    await told.go_on("room 0 | take a0 b0 | claim a0 b0 | carry a0 | carry b0 last")
    assert (await found(shop, "a0")).errors == NO_ROOM
    dead = await letter(shop, "b0")
    assert (dead.reason, dead.errors) == (REASON, NO_ROOM)


async def test_what_a_redriven_letter_carries_counts_again(shop: Bench) -> None:
    told = Carried(shop)
    await told.go_on("take a0 | claim a0 | carry a0 | claim a0")
    assert await (await told.daemon()).settle(Bury(told.claim_of("a0")[1], "no", FAILURE)) == []
    await told.go_on("carried")
    assert shop.count("dead_bytes") > CARRIED
    await told.go_on(f"redrive a0 | carried 42={CARRIED + ERRORS}")


async def test_what_a_list_removes_from_a_pool_is_taken_off(shop: Bench) -> None:
    await shop.enqueue(pooled("p0"))
    anna = Worker(shop)
    [claim] = await anna.claim(1)
    await anna.settle(Advance(claim, "two", CONTEXT))
    assert shop.count("carried_bytes") == CARRIED
    assert await put(shop) == ({}, 1)
    assert (shop.count("carried_bytes"), shop.count("dropped")) == (0, 1)


async def test_redis_s_own_memory_bounds_it(shop: Bench) -> None:
    wide = Carrying(shop.client, Redis(carried_memory=10**9, tenant_share=0.5, max_memory=4000))
    share = int(4000 * CARRIED_SHARE)
    assert await wide.room() == CarriedLimits(share, share // 2)
    tight = Carrying(shop.client, Redis(carried_memory=400, partitions=4))
    assert await tight.room() == CarriedLimits(100, 25)


def test_a_failed_attempt_travels_with_its_advance() -> None:
    """One call decides: there is nothing in between for a crash to hit."""
    claim = Claim("s", 1, b"e", Task("t", "t", "g"), None)
    told = Advance(claim, "two", CONTEXT, otherwise=Retry(claim, HOUR, NO_ROOM))
    assert [verb for verb, _ in calls_of([], "grouped", [told], [])[1]] == [Verb.ADVANCE]
