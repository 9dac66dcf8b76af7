"""enqueue, claim, settle: each exactly once, in order, and only by who holds the claim."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from groupflow.core.task import Task
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.given import Claim
from groupflow.store.keys import split_checkpoint
from groupflow.store.settlements import Complete, Release, Settlement
from tests.store.bench import Bench, arrival, ids, with_fence
from tests.store.story import named, play, stories

STORIES = named(
    """
    what can't be routed is a dead letter at once, and holds no other up::
        take a0 b0! a1 | status dead=1 buried_total=1 queued_grouped=2 | task b0 dead reason=no
        drain a0 a1
    priority counts as age among plain tasks and heads, and never in a group::
        take a0 b0+60 c0+120 a1+900 d0+-60 p0 p1+60 p2+-60 p3+120 p4
        drain c0 b0 a0 a1 d0 p3 p1 p0 p4 p2
    a retry is due by its delay alone::
        take p0+7200 a0+7200 | claim p0 a0 | retry_now p0 a0
        take p1+60 b0+60 | promote | drain b0 a0 p1 p0
    a stage counts its priority again::
        take p0+3600 | claim p0 | take p1 p2+7200 | advance p0 | drain p2 p0 p1
    only the last settle of a claim's slot is known again::
        take a0 a1 | claim a0 | swap a0 a1 | swap a1 | refused unchanged done a0
    """
)


@stories(STORIES)
async def test_the_path(shop: Bench, story: str) -> None:
    await play(shop, story)


# enqueue


async def test_an_empty_batch_asks_only(shop: Bench) -> None:
    """It writes nothing; and the id decides what is a duplicate, not the group nor the body."""
    before = shop.dump()
    assert await shop.enqueue() == []
    assert shop.dump() == before
    batch = arrival("x", "a"), arrival("x", "b"), arrival("x")
    assert await shop.enqueue(*batch) == [True, False, False]
    assert (await shop.status()).groups == 1


async def test_a_claim_that_is_asked_for_behind_it_finds_its_tasks(shop: Bench) -> None:
    """So no worker waits for a wake; also on a connection that is yet to be opened, and where Redis
    knows no script: a claim that comes while they are loaded doesn't overtake the tasks."""
    daemon = await shop.daemon()
    client = StoreClient(shop.url, shop.keys, "oldest")
    enqueuer, claims = Enqueuer(client, daemon.name), Claims(client, daemon.session, "grouped")

    async def late(slot: str) -> list[Claim]:
        for _ in range(3):
            await client.ping()
        return (await claims.exchange([], [slot])).claims

    try:
        for n in range(3):
            tasks = [arrival(f"a{n}", f"a{n}"), arrival(f"b{n}", f"b{n}")]
            _, first, second = await asyncio.gather(
                enqueuer.enqueue(tasks), claims.exchange([], [f"w{n}"]), late(f"v{n}")
            )
            assert sorted(ids([*first.claims, *second])) == [f"a{n}", f"b{n}"]
            shop.raw.script_flush()
    finally:
        await client.close()


# claim


async def test_a_claim_has_all_facts_and_names_its_lock(shop: Bench) -> None:
    """The body as it was published; lock and checkpoint name each other."""
    before = shop.server_time() / 1e6
    await shop.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await shop.daemon()
    plain, claim = await daemon.claim_one("plain", "w2"), await daemon.claim_one()
    assert (plain.task.id, plain.task.group, plain.rule) == ("p0", None, None)
    assert (claim.slot, claim.rule, claim.errors) == ("w1", "rule", [])
    assert claim.fence > plain.fence > 0
    came = claim.task.enqueued_at
    assert before <= came
    facts = {"tenant": "42", "body": b'{"id":"a0"}', "fence": claim.fence, "enqueued_at": came}
    assert claim.task == Task("a0", "t", "a", **facts), "it is filled past its `__init__`"
    with pytest.raises(FrozenInstanceError):
        claim.task.id = "other"  # type: ignore[misc]
    lock = shop.raw.get(shop.keys("lock", "a"))
    assert lock == f"{claim.fence:016d} d1 w1".encode()
    assert shop.raw.ttl(shop.keys("lock", "a")) == -1, "a lease ends by a script, not by a key"
    checkpoint: Any = shop.raw.hget(shop.keys("worker", "d1"), "w1")
    fence, _since, entry, group = split_checkpoint(checkpoint)
    assert (fence, entry, group) == (claim.fence, claim.entry, "a")


async def test_what_was_deleted_by_hand_is_passed_over(shop: Bench) -> None:
    """An envelope, a lane, a lock of nobody: those beside are given all the same."""
    await shop.enqueue(*(arrival(f"{group}0", group) for group in "abcd"), arrival("p0"))
    shop.raw.hdel(shop.keys("tasks"), "a0", "p0", "c0")
    shop.raw.delete(shop.keys("lane", "c"))
    shop.raw.set(shop.keys("lock", "b"), "unknown")
    for total in ("queued_grouped", "taken"):
        shop.raw.hincrby(shop.keys("count"), total, -1)
    daemon = await shop.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3", "w4", "w5")
    claims += await daemon.claim("plain", "w6")
    assert ids(claims) == ["d0"]
    assert shop.count("missing") == 2
    assert not shop.raw.exists(shop.keys("lock", "c"))
    assert shop.raw.get(shop.keys("lock", "b")) == b"unknown"
    shop.raw.delete(shop.keys("lock", "b"))
    await play(shop, "resume b | d2: claim b0")


async def test_a_claim_whose_envelope_is_gone_is_told_again_all_the_same(shop: Bench) -> None:
    """It is held, and must be settled; what it was is lost."""
    await shop.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    daemon = await shop.daemon()
    held = await daemon.claim("grouped", "w1", "w2")
    shop.raw.hdel(shop.keys("tasks"), "a0")
    again = await daemon.claim("grouped", "w1", "w2")
    assert [(claim.task.id, claim.fence) for claim in again] == [
        (claim.task.id, claim.fence) for claim in held
    ]
    assert (again[0].task.body, again[1].task.body) == (b"", b'{"id":"b0"}')
    assert await daemon.complete(*again) == []


# settle


async def test_one_exchange_settles_hands_back_and_claims(shop: Bench) -> None:
    """All at once, each by its own fence; and told again it says the same."""
    await shop.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abcd"))
    daemon = await shop.daemon()
    a, b, c, d = await daemon.claim("grouped", "w1", "w2", "w3", "w4")
    done, lost = with_fence(c, c.fence - 1), with_fence(d, d.fence - 1)
    settlements: list[Settlement] = [Release(lost), Complete(a), Release(b), Complete(done)]
    for told_before in (False, True):
        before = shop.dump()
        refused, claims = await daemon.exchange("grouped", settlements, ["w1", "w2"])
        assert [each.claim for each in refused] == [done, lost]
        assert [(claim.slot, claim.task.id) for claim in claims] == [("w1", "b0"), ("w2", "a1")]
        assert (shop.dump() == before) == told_before
