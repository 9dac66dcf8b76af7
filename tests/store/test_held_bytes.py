"""What waits for delays, and what tasks carry of stages and failures, is counted and bounded.

The auditor compares the counters with the lives at the end of each of these tests too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupflow.core.errors import NoRoomForDelay
from groupflow.core.task import Task
from groupflow.operate.dead import DeadLetters
from groupflow.operate.tasks import Tasks
from groupflow.settings.model import Redis
from groupflow.store.carrying import CARRIED_SHARE, CarriedLimits, Carrying
from groupflow.store.enqueue import Arrival
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Bury, Retry, calls_of
from tests.history.held_bytes import DELAY_COSTS
from tests.store.actors import Worker, made, pooled
from tests.store.bench import Bench, arrival
from tests.store.story import Story, play, played
from tests.store.task_state import FAILURE, HOUR, POOLS, Bounded, found, letter
from tests.store.test_pools import put

YEAR = 31_536_000.0
KILO = 1000
LATE = KILO + DELAY_COSTS  # what such a message counts that waits for a delay


def large(id_: str, group: str | None = None, size: int = KILO, **facts: object) -> Arrival:
    """A message whose envelope has so many bytes."""
    plain = arrival(id_, group, **facts)
    head = replace(plain.envelope, body=b"").pack()
    return replace(plain, envelope=replace(plain.envelope, body=b"x" * (size - len(head))))


class Bytes(Story):
    """A store whose delayed bytes are looked at."""

    async def late(self, number: str, like: str = "") -> None:
        """So many tasks count as waiting for a delay, all like this one, or the first of all."""
        first = next((each.id for each in self.shop.events if each.kind == "published"), like)
        each = DELAY_COSTS + len(made(like or first).envelope.pack())
        assert self.shop.count("delayed_bytes") == int(number) * each

    async def crowd(self, room: str, out: str, *words: str) -> None:
        """A batch comes where so many may wait for a delay; and which of it find no room."""
        batch = [made(word) for word in words]
        each = DELAY_COSTS + len(batch[0].envelope.pack())
        done = await self.shop.enqueuer.enqueue(batch, int(room) * each)
        assert (",".join(batch[n].id for n in sorted(done.crowded_out)) or "-") == out

    async def passes(self, seconds: str) -> None:
        """So much time, by the server's clock."""
        over = self.shop.server_time() + float(seconds) * 1e6
        while self.shop.server_time() < over:
            pass


test_delays_count = played(
    """
    a retry does not count, nor what comes behind it::
        take a0 b0@ | claim a0 | retry a0 | late 1 | take a1 | late 1
    what comes behind a delay waits for it too::
        take a0 a1@ | take a2 a3 b0 | late 3 | all a0 b0 | done a0 b0 | drop a1
        drain a2 a3 | late 0
    until it is over, or an operator ends it: {id}{aside}::
        take {id}0@{aside} {id}1@{aside} {id}2@{aside} | duplicates {id}0@{aside} | late 3
        drop {id}1 | late 2 | run_now {id}0 | run_now {id}2 | late 0
    who promotes hears of one behind a head that runs, and not of what comes behind it::
        take a0 | claim a0 | hears due take a1@60 | hears - take a2 | hears - take a3@90
        late 3
    one that an operator ends delays no task::
        take a0 | claim a0 | take a1@ a2 | take a3@1800 | drop a1 | late 2 | take a4
        late 3 | sound | drop a3 | take a5 | late 2 | done a0 | drain a2 a4 a5 | late 0
    a letter from the door waits for no delay, and keeps its reason where there is no room::
        crowd 1 - a0@ a1@! a2! | task a1 dead reason=no | task a2 dead reason=no
    whose delay is over runs at once, and holds a group that is ready where it isn't::
        crowd 0 a0,b0 a0@0.001 b0@ | take b1 | passes 0.002 | why b ready | redrive a0 | late 0
        redrive b0 | why a ready | why b delayed head=b0
    {id}: what is promoted or claimed counts no more, and delays nothing when it is due::
        take {id}0@0.001 {id}1@0.001 | passes 0.002 | take {id}2 | late 2 | promote | promote
        late 0 | drain {id}0 {id}1 {id}2
    quiet replaces within the room of what it replaces, within a batch as well::
        crowd 1 - c1^ | waits c1 60 | late 1 c1^ | crowd 1 - c2^ | waits c2 60
        late 1 c1^ | crowd 1 - c3^ c4^ c5^ | waits c5 60
        late 1 c1^ | time | drain c5
    without room nothing waits for quiet, or is a letter since it waits behind it::
        crowd 0 - c1^ c2^ | superseded c1=c2 | drain c2 | crowd 1 - c3^ c4 | lane c3 c4 | take c5^
        why c ready
    without room for its own delay the older one stays::
        take c1^ | crowd 0 c2 c2^@ c3^ | superseded c1=c3 | redrive c2 | lane c2 c3 | waits c2 3600
    behind a delay that was asked for quiet makes a letter:: crowd 1 c1 c0@ c1^ | gone debouncing
    a delay that is over delays no task, be its group busy::
        take a0 | claim a0 | take a1@0.05 a2 | late 2 | passes 0.1 | crowd 0 - a3 a4 | late 2
        promote 0 | promote 0 | late 0 | done a0 | drain a1 a2 a3 a4
    or paused::
        take a0 | pause a | take a1@0.05 a2 | late 2 | passes 0.1 | crowd 0 - a3 a4 | late 2
        promote 0 | promote 0 | late 0 | resume a | drain a0 a1 a2 a3 a4
    """,
    Bytes,
    id=("a", "q"),
    aside=("", "~"),
)


@pytest.mark.parametrize("aside", [True, False])
async def test_what_waits_for_delays_pauses_no_intake(shop: Bench, aside: bool) -> None:
    """Its bytes are bounded; its number would count towards `redis.max_waiting` for a year."""
    late = [large(f"t{n}", "g", delay=YEAR, steps_aside=aside) for n in range(3)]
    assert (await shop.take_in(*late, large("u"), large("v", "h"))).queued == 2


async def test_small_delayed_tasks_count_what_they_take(shop: Bench) -> None:
    tasks = [arrival(f"t{n:06}", "g", delay=YEAR, steps_aside=True) for n in range(2000)]
    before = shop.used_memory()
    for n in range(0, 2000, 200):
        await shop.enqueue(*tasks[n : n + 200])
    taken = shop.used_memory() - before
    assert taken / 2 < shop.count("delayed_bytes") < taken * 2


@pytest.mark.parametrize("aside", [True, False])
@pytest.mark.parametrize("group", ["g", None])
async def test_beyond_the_bound_it_is_a_letter(shop: Bench, group: str | None, aside: bool) -> None:
    messages = [large(f"t{n}", group, delay=YEAR, steps_aside=aside) for n in range(3)]
    done = await shop.enqueuer.enqueue([*messages, large("now", "h")], 2 * LATE)
    assert (done.taken, done.crowded_out) == ([True] * 4, frozenset({2}))
    assert shop.count("delayed_bytes") == 2 * LATE
    letters, dead = DeadLetters(shop.namespace), await letter(shop, "t2")
    assert "redis.delayed_memory" in dead.reason
    assert (dead.type, dead.group, dead.tenant) == ("t", group, "42")
    assert (dead.attempts, dead.died_at_the_door) == (0, False)
    before = shop.dump()
    with pytest.raises(NoRoomForDelay, match=r"redis\.delayed_memory"):
        await letters.redrive(dead, delayed_memory=3 * LATE - 1)
    assert shop.dump() == before
    await Tasks(shop.namespace).drop("t0")
    await Tasks(shop.namespace).drop("t1")
    assert await letters.redrive(dead)
    assert not await letters.redrive(dead)
    assert shop.count("delayed_bytes") == LATE
    told = await found(shop, "t2")
    assert (told.state, told.until is not None) == ("delayed", True)
    stands_aside = shop.raw.zcard(shop.keys("delayed"))
    assert stands_aside == (aside or group is None), "as its message said"
    await play(shop, "drain now | run_now t2")
    assert await (await shop.daemon("d2")).work_off() == ["t2"]


@pytest.mark.parametrize("size", [KILO, 70 * KILO])
async def test_what_is_crowded_out_is_known_without_its_body(shop: Bench, size: int) -> None:
    """Behind a delay as well; or where it is too large to be read."""
    batch = [large("late", "g", delay=YEAR), large("behind", "g", size)]
    await shop.enqueuer.enqueue(batch, 2 * LATE - 1)
    dead = await letter(shop, "behind")
    assert (dead.type, dead.group, dead.tenant) == ("t", "g", "42")
    task_state: Any = shop.raw.hgetall(shop.keys("task_state", "behind"))
    assert {b"type": b"t", b"tenant": b"42"}.items() <= task_state.items()


# What tasks carry of stages and failed attempts is counted, bounded, and taken off once


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
            assert await holder.settle(told, end=False) == []

    async def room(self, every: str, tenant: str = "1000000") -> None:
        """Tasks may carry so much, all and those of a tenant."""
        for pool in POOLS:
            claims = (await self.daemon()).claims(pool)
            claims._carrying = Bounded(int(every), int(tenant))

    async def carried(self, *facts: str) -> None:
        """What the tasks of each tenant carry, as ``42=1000``; the total is their sum."""
        found: Any = self.shop.raw.hgetall(self.shop.keys("carried"))
        told = {name.decode()[8:]: int(size) for name, size in found.items()}
        assert told == {name: int(size) for name, size in (fact.split("=") for fact in facts)}
        assert self.shop.count("carried_bytes") == sum(told.values())


test_what_is_carried = played(
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
    Carried,
    how=(
        *("done a0 | done a0", "tell a0 > | tell a0 >", "bury a0 | bury a0", "retry a0 | drop a0"),
        *("take a1 | swap a0 a1", "carry a0 | lost a0 | idle grouped | stateless a0"),
    ),
    which=("", "last"),
)


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
