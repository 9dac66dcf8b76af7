"""What scripts read is bounded in bytes: what goes beyond is fetched by a command each."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.errors import StoreFull
from groupflow.store.enqueue import CARRIED, Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance
from tests.store.actors import POOL, Worker
from tests.store.bench import Bench, arrival, ids

MIB = 2**20


def large(id_: str, group: str | None = None, size: int = 2 * MIB, **facts: Any) -> Arrival:
    """A message with a body of so many bytes, which begins with its id."""
    body = id_.encode().ljust(size, b"x")
    envelope = Envelope("t", group, "42", "rule" if group else None, {"h": id_}, body, "5c")
    return Arrival(id_, envelope, **facts)


def replies_of(bench: Bench, monkeypatch: Any) -> list[int]:
    """The bytes that each script answers with, from here on."""
    seen, run_all = list[int](), bench.client.run_all

    async def noted(*arguments: Any) -> list[Any]:
        replies = await run_all(*arguments)
        seen.extend(map(_size, replies))
        return replies

    monkeypatch.setattr(bench.client, "run_all", noted)
    return seen


def _size(reply: Any) -> int:
    if isinstance(reply, list):
        return sum(map(_size, reply))
    return len(reply) if isinstance(reply, bytes) else 0


async def is_whole(claim: Claim, size: int = 2 * MIB) -> bool:
    """Whether it is, to the byte, what was sent; once what lies apart is fetched."""
    sent = large(claim.task.id, claim.task.group, size).envelope
    assert (claim.task.type, claim.task.tenant, claim.rule) == (sent.type, sent.tenant, sent.rule)
    assert not claim.apart or await claim.fetch()
    found = claim.task.body, claim.task.headers, claim.scope, claim.apart
    return found == (sent.body, sent.headers, sent.scope, 0)


@pytest.mark.parametrize("group", [None, "g"])
async def test_claims_read_so_many_bytes(shop: Bench, monkeypatch: Any, group: str | None) -> None:
    """All are claimed, told again too; what goes beyond is fetched, and is the same to the byte."""
    every = [large(f"{n:02}", group and f"{group}{n}") for n in range(12)]
    await shop.enqueue(*every)
    daemon = await shop.daemon()
    sizes = replies_of(shop, monkeypatch)
    slots = [f"w{n}" for n in range(12)]
    first = await daemon.claim("grouped" if group else "plain", *slots)
    claims = await daemon.claim("grouped" if group else "plain", *slots)  # a lost reply
    assert [claim.fence for claim in claims] == [claim.fence for claim in first]
    assert sorted(ids(claims)) == [each.id for each in every]
    assert max(sizes) < 5 * MIB
    assert sum(claim.apart > 0 for claim in claims) >= 9
    assert all([await is_whole(claim) for claim in claims])
    assert await daemon.complete(*claims) == []


async def test_small_tasks_with_a_life_are_always_read(shop: Bench) -> None:
    """However large the others beside them are: their lives don't say of which type they are."""
    await shop.enqueue(*(large(f"{n:02}") for n in range(6)), arrival("small", priority=-60.0))
    *_, small = await (await shop.daemon()).claim("plain", *(f"w{n}" for n in range(7)))
    assert (small.task.id, small.apart, small.task.type) == ("small", 0, "t")


async def test_what_a_puller_holds_is_told_within_the_bound(shop: Bench) -> None:
    every, anna = [large(f"{n:02}") for n in range(12)], Worker(shop)
    for each in every:
        each.envelope.named_pool = POOL
    await shop.enqueue(*every)
    assert len(await anna.claim(12)) == 12
    assert _size(await shop.client.run(Verb.HOLDINGS, anna.puller.daemon)) < 5 * MIB
    held = [claim for claim, _ in (await anna.store.holdings(anna.puller.daemon)).claims]
    assert sorted(ids(held)) == [each.id for each in every]
    assert all([await is_whole(claim) for claim in held])


async def test_a_large_context_is_fetched(shop: Bench, monkeypatch: Any) -> None:
    """Contexts count as bodies do; whose it is, the envelope tells, which is small."""
    await shop.enqueue(*(arrival(f"{n:02}", f"g{n}") for n in range(8)))
    daemon = await shop.daemon()
    slots = [f"w{n}" for n in range(8)]
    claims = await daemon.claim("grouped", *slots)
    whose = {(claim.task.type, claim.task.tenant, claim.rule, claim.scope) for claim in claims}
    contexts = {claim.task.id: {"of": claim.task.id * MIB} for claim in claims}
    for claim in claims:
        await daemon.settle(Advance(claim, "second", orjson.dumps(contexts[claim.task.id])))
    sizes = replies_of(shop, monkeypatch)
    claims = await daemon.claim("grouped", *slots)
    assert len(claims) == 8
    assert max(sizes) < 5 * MIB
    for claim in claims:
        if claim.apart:
            assert await claim.fetch()
        assert (claim.task.stage, claim.task.context) == ("second", contexts[claim.task.id])
        assert {(claim.task.type, claim.task.tenant, claim.rule, claim.scope)} == whose
    await daemon.complete(*claims)


async def test_a_task_that_is_gone_is_not_made_up(shop: Bench) -> None:
    """Another daemon ended it while this one waited for room."""
    await shop.enqueue(large("a", size=5 * MIB))
    daemon = await shop.daemon()
    claim = await daemon.claim_one("plain")
    assert claim.apart > 5 * MIB
    await daemon.complete(claim)
    assert not await claim.fetch()


async def test_a_batch_of_many_bytes_is_several_scripts(shop: Bench, monkeypatch: Any) -> None:
    """In order, none with a large message's bytes; run again all is known, also when it is over."""
    calls, run = list[int](), shop.client.run_replicated

    async def noted(verb: Any, arguments: Any, *rest: Any) -> Any:
        calls.append(sum(len(each) for each in arguments if isinstance(each, bytes)))
        return await run(verb, arguments, *rest)

    monkeypatch.setattr(shop.client, "run_replicated", noted)
    sizes = [10, 400_000, 400_000, 15 * MIB, 10, 2 * MIB, 500_000, 600_000, 10]
    batch = [large(f"a{n}", "a", size) for n, size in enumerate(sizes)]
    enqueued = await shop.take_in(*batch)
    assert len(calls) > 2
    assert max(calls) < CARRIED
    assert (enqueued.taken, enqueued.queued) == ([True] * 9, 9)
    assert await shop.enqueue(*batch, arrival("new")) == [False] * 9 + [True]
    daemon = await shop.daemon()
    for each, size in zip(batch, sizes, strict=True):
        claim = await daemon.claim_one()
        assert claim.task.id == each.id
        assert await is_whole(claim, size)
        await daemon.complete(claim)
    assert await shop.enqueue(*batch) == [False] * 9
    assert shop.raw.hkeys(shop.keys("tasks")) == [b"new"]
    assert await daemon.work_off() == ["new"]


async def test_another_scopes_id_gives_it_a_derived_one(shop: Bench) -> None:
    """Whether that other task is small or large, or over; and its body stays its own."""
    daemon = await shop.daemon()
    await shop.enqueue(large("o", size=10))
    assert await daemon.work_off() == ["o"]
    await shop.enqueue(large("s", size=10), large("l"))
    for id_ in "ols":
        mine = large(id_)
        mine.envelope.scope = "0123"
        assert (await shop.take_in(mine)).renamed[0].startswith(f"{id_}~")
        assert await shop.enqueue(mine) == [False]
    claims = await daemon.claim("plain", *"123456")
    for claim in claims:
        assert not claim.apart or await claim.fetch()
    sizes = sorted((claim.task.id.partition("~")[0], len(claim.task.body)) for claim in claims)
    assert sizes == [*(("l", 2 * MIB),) * 2, ("o", 2 * MIB), ("s", 10), ("s", 2 * MIB)]


async def test_full_memory_refuses_it_whole(shop: Bench) -> None:
    """Nothing of it is left, and it comes in once there is room."""
    with shop.full(), pytest.raises(StoreFull):
        await shop.enqueuer.enqueue([large("a")])
    assert shop.raw.hlen(shop.keys("tasks")) == 0
    assert await shop.enqueue(large("a")) == [True]


async def test_scripts_that_redis_forgot_are_brought_again(shop: Bench) -> None:
    """What was put in front of one is never without it."""
    await shop.enqueue(arrival("a"))
    shop.raw.script_flush()
    assert await shop.enqueue(large("b")) == [True]
    assert await shop.enqueue(large("b")) == [False]
