"""What scripts read is bounded in bytes: what goes beyond is fetched by a command each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from redis import Redis

from groupflow.core.errors import StoreFull
from groupflow.store.enqueue import CARRIED, Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.pulling import Puller, Pulling
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance
from tests.store.bench import Bench, arrival, bury, ids

MIB = 2**20


def large(id_: str, group: str | None = None, size: int = MIB, **facts: Any) -> Arrival:
    envelope = Envelope(
        "t", group, "42", "rule" if group else None, {"h": id_}, id_.encode() * size
    )
    return Arrival(id_, envelope, **facts)


def replies_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
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


def is_whole(claim: Claim) -> bool:
    task = claim.task
    return task.body == task.id.encode() * (len(task.body) // len(task.id)) != b"" and (
        task.headers == {"h": task.id}
    )


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_claim_reads_no_more_than_a_script_may(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    """All are claimed, told again too; what goes beyond is fetched, and is the same to the byte."""
    every = [large(f"{n:02}", group and f"{group}{n}") for n in range(12)]
    await bench.enqueue(*every)
    daemon = await bench.daemon()
    sizes = replies_of(bench, monkeypatch)
    slots = [f"w{n}" for n in range(12)]
    first = await daemon.claim("grouped" if group else "plain", *slots)
    claims = await daemon.claim("grouped" if group else "plain", *slots)  # a lost reply
    assert [claim.fence for claim in claims] == [claim.fence for claim in first]
    assert sorted(ids(claims)) == [each.id for each in every]
    assert max(sizes) < 5 * MIB
    apart = [claim for claim in claims if claim.apart]
    assert len(apart) >= 9
    for claim in apart:
        assert (claim.task.type, claim.task.tenant, claim.rule) == ("t", "42", group and "rule")
        assert await claim.fetch()
    assert all(is_whole(claim) for claim in claims)
    assert not any(claim.apart for claim in claims)
    assert await daemon.complete(*claims) == []


async def test_small_tasks_with_a_life_are_always_read(bench: Bench) -> None:
    """Whatever the others beside them weigh: their lives don't say of which type they are."""
    await bench.enqueue(*(large(f"{n:02}") for n in range(6)), arrival("small", priority=-60.0))
    daemon = await bench.daemon()
    claims = await daemon.claim("plain", *(f"w{n}" for n in range(7)))
    small = claims[-1]
    assert (small.task.id, small.apart, small.task.type) == ("small", 0, "t")
    await daemon.complete(*claims)


async def test_a_large_context_is_fetched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts count as bodies do."""
    await bench.enqueue(*(arrival(f"{n:02}") for n in range(8)))
    daemon = await bench.daemon()
    slots = [f"w{n}" for n in range(8)]
    claims = await daemon.claim("plain", *slots)
    contexts = {claim.task.id: {"of": claim.task.id * MIB} for claim in claims}
    for claim in claims:
        await daemon.settle(Advance(claim, "second", orjson.dumps(contexts[claim.task.id])))
    sizes = replies_of(bench, monkeypatch)
    claims = await daemon.claim("plain", *slots)
    assert len(claims) == 8
    assert max(sizes) < 5 * MIB
    for claim in claims:
        if claim.apart:
            assert await claim.fetch()
        assert (claim.task.stage, claim.task.context) == ("second", contexts[claim.task.id])
    await daemon.complete(*claims)
    bench.events.clear()  # of stages the history knows nothing


async def test_a_task_that_is_gone_is_not_made_up(bench: Bench) -> None:
    """Another daemon ended it while this one waited for room."""
    await bench.enqueue(large("a", size=5 * MIB))
    daemon = await bench.daemon()
    claim = await daemon.claim_one("plain")
    assert claim.apart > 5 * MIB
    await daemon.complete(claim)
    assert not await claim.fetch()


async def test_what_a_puller_holds_is_told_within_the_bound(bench: Bench) -> None:
    pulling = Pulling(bench.client, 60.0)
    envelopes = [large(f"{n:02}") for n in range(12)]
    for each in envelopes:
        each.envelope.named_pool = "p"
    await bench.enqueue(*envelopes)
    poll = await pulling.poll(Puller("p", "anna", 60.0), 12)
    claims = await pulling.claim(poll, groups=0, plain=12)
    assert len(claims) == 12
    reply = await bench.client.run(Verb.HOLDINGS, "pool/p/anna")
    assert _size(reply) < 5 * MIB
    held = [claim for claim, _ in (await pulling.holdings("pool/p/anna")).claims]
    for claim in held:
        if claim.apart:
            assert await claim.fetch()
    assert len(held) == 12
    assert all(is_whole(claim) for claim in held)
    await pulling.leave(await pulling.poll(Puller("p", "anna", 60.0)))


async def test_a_batch_of_many_bytes_is_several_scripts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, as one to its caller; run again it is all duplicates."""
    calls, run = list[int](), bench.client.run_replicated

    async def noted(verb: Any, arguments: Any, *rest: Any) -> Any:
        calls.append(sum(len(each) for each in arguments if isinstance(each, bytes)))
        return await run(verb, arguments, *rest)

    monkeypatch.setattr(bench.client, "run_replicated", noted)
    some = [large(f"{n:02}", "g", 150_000) for n in range(6)]  # 300 kB each
    batch = [arrival("first", "g"), *some, arrival("z", "g")]
    enqueued = await bench.take_in(*batch)
    assert len(calls) == 2
    assert max(calls) < CARRIED
    assert (enqueued.taken, enqueued.queued) == ([True] * 8, 8)
    again = await bench.take_in(*batch, arrival("new"))
    assert again.taken == [False] * 8 + [True]
    daemon, ran = await bench.daemon(), list[str]()
    while claims := await daemon.claim("grouped", "w"):
        ran += ids(claims)
        await daemon.complete(*claims)
    assert ran == [each.id for each in batch]
    await daemon.complete(*await daemon.claim("plain", "w"))


MOST = 50_000  # µs that one script may take, with bodies of 15 MiB
TRIES = 10
LARGE = 15 * 1024 * 1024


def sized(id_: str, group: str | None = None, size: int = LARGE, **facts: Any) -> Arrival:
    """A message with a body of so many bytes, which begins with its id."""
    body = id_.encode().ljust(size, b"x")
    envelope = Envelope("t", group, "42", "rule" if group else None, {"h": id_}, body, "5c")
    return Arrival(id_, envelope, **facts)


@contextmanager
def watched(redis: Redis) -> Iterator[list[float]]:
    """Fills a list with the milliseconds of all scripts, the slowest first."""
    before: Any = redis.config_get("slowlog-*")
    redis.config_set("slowlog-log-slower-than", 0)
    redis.config_set("slowlog-max-len", 100_000)
    redis.slowlog_reset()
    found: list[float] = []
    try:
        yield found
    finally:
        entries: Any = redis.slowlog_get(100_000)
        scripts = [each for each in entries if each["command"].startswith(b"EVALSHA")]
        found += sorted((each["duration"] / 1000 for each in scripts), reverse=True)
        for name, value in before.items():
            redis.config_set(name, value)


async def test_a_large_message_goes_past_the_script(bench: Bench) -> None:
    """It is there whole, its facts with it, and no script had its bytes."""
    for n in range(TRIES):  # Redis may wait for a core within a script
        with watched(bench.raw) as took:
            assert await bench.enqueue(sized(f"p{n}"), sized(f"a{n}", "a")) == [True, True]
        if took[0] * 1000 < MOST:
            break
    assert took[0] * 1000 < MOST
    daemon = await bench.daemon()
    plain = await daemon.claim_one("plain", "p1")
    grouped = await daemon.claim_one(worker="w1")
    for claim, id_ in ((plain, "p0"), (grouped, "a0")):
        assert await claim.fetch()
        assert claim.task.body == id_.encode().ljust(LARGE, b"x")
        assert claim.task.headers == {"h": id_}
        assert (claim.task.type, claim.task.tenant, claim.scope) == ("t", "42", "5c")
    await daemon.complete(plain, grouped)


async def test_order_is_kept_around_it(bench: Bench) -> None:
    """A batch that is cut into parts comes in its order."""
    sizes = [10, 400_000, 400_000, 2 * MIB, 10, 2 * MIB, 500_000, 600_000, 10]
    await bench.enqueue(*(sized(f"a{n}", "a", size) for n, size in enumerate(sizes)))
    assert bench.lane("a") == [f"a{n}" for n in range(len(sizes))]


async def test_it_runs_again_as_any_batch(bench: Bench) -> None:
    """What is known is a duplicate, waiting, claimed or done; the first bytes stay."""
    batch = [sized("a0", "a", 10), sized("a1", "a", 2 * MIB)]
    assert await bench.enqueue(*batch) == [True, True]
    assert await bench.enqueue(*batch) == [False, False]
    daemon = await bench.daemon()
    assert await daemon.work_off() == ["a0", "a1"]
    assert await bench.enqueue(*batch) == [False, False]
    assert bench.raw.hlen(bench.keys("tasks")) == 0


async def test_another_scopes_id_gives_it_a_derived_one(bench: Bench) -> None:
    """Whether that other task is small or large, waits or is over."""
    for id_, size in (("s", 10), ("l", 2 * MIB), ("o", 10)):
        await bench.enqueue(sized(id_, size=size))
    daemon = await bench.daemon()
    while (claim := await daemon.claim_one("plain", "p")).task.id != "o":
        await daemon.settle(bury(claim))
    await daemon.complete(claim)
    for id_ in ("s", "l", "o"):
        mine = sized(id_, size=2 * MIB)
        mine = replace(mine, envelope=replace(mine.envelope, scope="0123"))
        taken = await bench.take_in(mine)
        assert taken.taken == [True]
        assert taken.renamed[0].startswith(f"{id_}~")
        assert (await bench.take_in(mine)).taken == [False]
    found = [await daemon.claim_one("plain", f"p{n}") for n in range(3)]
    assert [each.split("~")[0] for each in ids(found)] == ["s", "l", "o"]
    await daemon.complete(*found)
    assert bench.raw.hlen(bench.keys("tasks")) == 2  # the letters


async def test_full_memory_refuses_it_whole(bench: Bench) -> None:
    """Nothing of it is left, and it comes in once there is room."""
    bench.raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            await bench.enqueuer.enqueue([sized("a", size=2 * MIB)])
    finally:
        bench.raw.config_set("maxmemory", 0)
    assert bench.raw.hlen(bench.keys("tasks")) == 0
    assert await bench.enqueue(sized("a", size=2 * MIB)) == [True]


async def test_scripts_that_redis_forgot_are_brought_again(bench: Bench) -> None:
    """What was put in front of one is never without it."""
    await bench.enqueue(arrival("a"))
    bench.raw.script_flush()
    assert await bench.enqueue(sized("b", size=2 * MIB)) == [True]
    assert await bench.enqueue(sized("b", size=2 * MIB)) == [False]
