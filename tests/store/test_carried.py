"""What tasks carry of stages and failed attempts is counted, bounded, and taken off once.

The auditor compares the counters with the lives at the end of each of these tests too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupflow.operate.dead import DeadLetters
from groupflow.operate.tasks import Tasks, find_task
from groupflow.store.carrying import CARRIED_SHARE, CarriedLimits, Carrying
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival
from groupflow.store.given import Claim
from groupflow.store.pulling import PLACES
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Bury, Complete, Proceed, Retry, calls_of
from tests.store.bench import Bench, Daemon, arrival, bury
from tests.store.task_state import FAILURE, POOLS, Bounded, fill, letter, pass_time, retry
from tests.store.test_pools import POOL, Worker, pooled

KILO = 1000
CONTEXT = b'"' + b"x" * (KILO - 5) + b'"'
CARRIED = KILO  # what a task does whose stage is "two", with that context
REASON = "there is no room"
NO_ROOM = [{"attempt": 1, "error": "Advance", "message": REASON}]


def whose(id_: str, tenant: str, group: str | None = None) -> Arrival:
    """A message of a tenant."""
    made = arrival(id_, group)
    return replace(made, envelope=replace(made.envelope, tenant=tenant))


def by_tenant(bench: Bench) -> dict[str, int]:
    """What the tasks of each tenant carry."""
    found: Any = bench.raw.hgetall(bench.keys("carried"))
    return {name.decode().lstrip("-"): int(size) for name, size in found.items()}


def advance(claim: Claim, *, last: bool = False, context: bytes = CONTEXT) -> Advance:
    """An advance that is a failed attempt where there is no room."""
    otherwise: Retry | Bury = Retry(claim, 3600.0, NO_ROOM)
    if last:
        otherwise = Bury(claim, REASON, NO_ROOM)
    return Advance(claim, "two", context, otherwise=otherwise)


def bound(daemon: Daemon, every: int = 2 * CARRIED, tenant: int = 10**9) -> None:
    """Let tasks carry so much."""
    for pool in POOLS:
        claims = daemon.claims(pool)
        claims._carrying = Bounded(every, tenant)


async def carrying(shop: Bench, *named: str) -> tuple[Daemon, list[Claim]]:
    """A daemon that has claimed tasks which carry a context each."""
    daemon = await fill(shop, *named)
    for again in (False, True):
        grouped = await daemon.claim("grouped", *(f"g{n}" for n in range(len(named))))
        plain = await daemon.claim("plain", *(f"p{n}" for n in range(len(named))))
        claims = sorted([*grouped, *plain], key=lambda claim: claim.task.id)
        if not again:
            await daemon.settle(*(Advance(claim, "two", CONTEXT) for claim in claims))
    assert shop.count("carried_bytes") == len(named) * CARRIED
    return daemon, claims


async def test_stages_contexts_and_errors_count(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "p0")
    await daemon.settle(retry(await daemon.claim_one()))
    errors = shop.count("carried_bytes")
    assert errors == len(b'[{"attempt":1,"error":"ValueError","message":"no such row"}]')
    await daemon.settle(advance(await daemon.claim_one("plain")))
    assert shop.count("carried_bytes") == errors + CARRIED
    await pass_time(shop)
    await daemon.settle(advance(await daemon.claim_one()))
    assert shop.count("carried_bytes") == errors + 2 * CARRIED
    await daemon.settle(Advance(await daemon.claim_one("plain"), "six", b"1"))
    assert shop.count("carried_bytes") == errors + CARRIED + 4
    assert by_tenant(shop) == {"42": errors + CARRIED + 4}


async def test_each_tenant_s_tasks_count_apart(shop: Bench) -> None:
    await shop.enqueue(whose("a0", "1", "a"), whose("b0", "2", "b"), whose("c0", "2", "c"))
    daemon = await shop.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    await daemon.settle(*map(advance, claims))
    assert by_tenant(shop) == {"1": CARRIED, "2": 2 * CARRIED}
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    await daemon.complete(*(claim for claim in claims if claim.task.tenant == "2"))
    assert by_tenant(shop) == {"1": CARRIED}


ENDS = ("complete", "run", "bury", "drop", "hop", "deleted")


@pytest.mark.parametrize("how", ENDS)
async def test_what_ends_is_taken_off_once(shop: Bench, how: str) -> None:
    daemon, (claim, _) = await carrying(shop, "a0", "b0")
    if how == "complete":
        for _ in range(2):
            await daemon.complete(claim)
    elif how == "run":
        run = Proceed([Complete(claim)], None)
        for _ in range(2):
            await daemon.exchange("grouped", [run], [])
    elif how == "bury":
        await daemon.settle(bury(claim))
        assert shop.count("dead_bytes") > CARRIED
    elif how == "drop":
        await daemon.settle(retry(claim))
        assert await Tasks(shop.namespace).drop("a0") is None
    elif how == "deleted":
        await daemon.settle(advance(claim))
        shop.raw.hdel(shop.keys("tasks"), "a0")
        assert await daemon.claim("grouped", "w1") == []
        shop.raw.delete(shop.keys("task_state", "a0"))
    else:
        await shop.enqueue(arrival("a1", "a"))
        assert await daemon.hop(claim) is not None
    assert by_tenant(shop) == {"42": CARRIED}
    shop.events.clear()


async def test_what_a_redriven_letter_carries_counts_again(shop: Bench) -> None:
    daemon, (claim,) = await carrying(shop, "a0")
    await daemon.settle(Bury(claim, "broken", FAILURE))
    assert (shop.count("carried_bytes"), by_tenant(shop)) == (0, {})
    dead = await letter(shop, "a0")
    assert await DeadLetters(shop.namespace).redrive(dead)
    assert shop.count("carried_bytes") > CARRIED, "its errors are kept too"
    assert by_tenant(shop) == {"42": shop.count("carried_bytes")}


async def test_what_a_crash_hands_over_is_carried_on(shop: Bench) -> None:
    await carrying(shop, "a0", "p0")
    other = await shop.daemon("d2")
    shop.with_faults = True
    shop.expire("d1")
    await other.sessions.reap()
    assert shop.count("carried_bytes") == 2 * CARRIED


async def test_what_a_list_removes_from_a_pool_is_taken_off(shop: Bench) -> None:
    await shop.enqueue(pooled("p0"))
    anna = Worker(shop)
    [claim] = await anna.claim(1)
    await anna.settle(Advance(claim, "two", CONTEXT))
    assert shop.count("carried_bytes") == CARRIED
    number = await anna.store.begin_list(POOL)
    for place in PLACES:
        await anna.store.prune(POOL, number, place, "0")
    assert (shop.count("carried_bytes"), shop.count("dropped")) == (0, 1)


class TestRoom:
    async def test_beyond_it_an_advance_is_a_failed_attempt(self, shop: Bench) -> None:
        daemon = await fill(shop, "a0", "b0", "c0", "p0")
        bound(daemon)
        claims = await daemon.claim("grouped", "w1", "w2", "w3")
        answers = [await daemon.claims("plain").exchange([advance(claim)], []) for claim in claims]
        assert [len(answer.crowded_out) for answer in answers] == [0, 0, 1]
        assert [answer.refused for answer in answers] == [[]] * 3
        assert (shop.count("advanced"), shop.count("retried")) == (2, 1)
        last = await find_task(shop.client, claims[2].task.id)
        assert last is not None
        assert (last.attempt, last.stage, last.errors) == (2, None, NO_ROOM)
        assert shop.count("running_grouped") == 0
        shop.events.clear()

    async def test_behind_the_last_attempt_it_is_a_dead_letter(self, shop: Bench) -> None:
        daemon = await fill(shop, "a0", "a1")
        bound(daemon, CARRIED - 1)
        claim = await daemon.claim_one()
        await daemon.settle(advance(claim, last=True))
        dead = await letter(shop, "a0")
        assert (dead.reason, dead.errors) == (REASON, NO_ROOM)
        assert (await daemon.claim_one()).task.id == "a1", "its group goes on"

    @pytest.mark.parametrize("last", [True, False])
    async def test_said_again_it_is_what_it_was(self, shop: Bench, last: bool) -> None:
        """A lost answer turns no advance into a failure, and no failure into an advance."""
        daemon = await fill(shop, "a0", "p0")
        bound(daemon, CARRIED)
        claims = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
        for claim in claims:
            await daemon.settle(advance(claim, last=last))
        before = shop.dump()
        # There is no room for the first any more, and there would be for the second.
        bound(daemon, 0)
        assert await daemon.settle(advance(claims[0], last=last), end=False) == []
        bound(daemon, 10 * CARRIED)
        assert await daemon.settle(advance(claims[1], last=last), end=False) == []
        assert shop.dump() == before
        shop.events.clear()

    async def test_one_tenant_leaves_room_for_others(self, shop: Bench) -> None:
        await shop.enqueue(*(whose(f"a{n}", "666", f"a{n}") for n in range(3)))
        await shop.enqueue(whose("b0", "1", "b"))
        daemon = await shop.daemon()
        bound(daemon, 4 * CARRIED, tenant=CARRIED)
        await daemon.settle(*map(advance, await daemon.claim("grouped", "1", "2", "3", "4")))
        assert by_tenant(shop)["1"] == CARRIED
        assert (shop.count("advanced"), shop.count("retried")) == (2, 2)
        assert shop.count("carried_bytes") < 3 * CARRIED

    async def test_who_carries_no_more_than_before_always_has_room(self, shop: Bench) -> None:
        daemon, claims = await carrying(shop, "a0", "p0")
        bound(daemon, 1)
        await daemon.settle(*map(advance, claims))
        assert shop.count("advanced") == 4
        assert shop.count("carried_bytes") == 2 * CARRIED

    async def test_nothing_else_is_refused(self, shop: Bench) -> None:
        daemon, claims = await carrying(shop, "a0", "b0", "c0")
        bound(daemon, 0)
        await daemon.settle(retry(claims[0]), bury(claims[1]), Complete(claims[2]))
        assert (shop.count("retried"), shop.count("buried"), shop.count("done")) == (1, 1, 1)

    async def test_what_never_ends_is_not_refused(self, shop: Bench) -> None:
        """A shard of a scan could not go on without its state."""
        daemon = await fill(shop, "a0")
        bound(daemon, 0)
        await daemon.settle(Advance(await daemon.claim_one(), "two", CONTEXT))
        assert (shop.count("advanced"), shop.count("carried_bytes")) == (1, CARRIED)

    async def test_redis_s_own_memory_bounds_it(self, bench: Bench) -> None:
        client: StoreClient = bench.client
        wide = Carrying(client, carried_memory=10**9, tenant_share=0.5, max_memory=4000)
        share = int(4000 * CARRIED_SHARE)
        assert await wide.room() == CarriedLimits(share, share // 2)
        tight = Carrying(client, carried_memory=100, tenant_share=0.25)
        assert await tight.room() == CarriedLimits(100, 25)

    async def test_a_failed_attempt_travels_with_its_advance(self, shop: Bench) -> None:
        """One call decides: there is nothing in between for a crash to hit."""
        daemon = await fill(shop, "a0")
        claim = await daemon.claim_one()
        _, calls = calls_of([], "grouped", [advance(claim)], [])
        assert [verb for verb, _ in calls] == [Verb.ADVANCE]
        await daemon.complete(claim)
