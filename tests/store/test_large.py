"""What scripts read is bounded in bytes: what goes beyond is fetched by a command each."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.store.enqueue import SCRIPT_BYTES, Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.pulling import Puller, Pulling
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance
from tests.store.bench import Bench, arrival, ids

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
    """All are claimed; what goes beyond is fetched, and is the same to the byte."""
    every = [large(f"{n:02}", group and f"{group}{n}") for n in range(12)]
    await bench.enqueue(*every)
    daemon = await bench.daemon()
    sizes = replies_of(bench, monkeypatch)
    slots = [f"w{n}" for n in range(12)]
    claims = await daemon.claim("grouped" if group else "plain", *slots)
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


async def test_a_claim_that_is_told_again_reads_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost reply costs one more of the same size."""
    await bench.enqueue(*(large(f"{n:02}") for n in range(12)))
    daemon = await bench.daemon()
    slots = [f"w{n}" for n in range(12)]
    first = await daemon.claim("plain", *slots)
    sizes = replies_of(bench, monkeypatch)
    again = await daemon.claim("plain", *slots)
    assert max(sizes) < 5 * MIB
    assert [claim.fence for claim in again] == [claim.fence for claim in first]
    await daemon.complete(*first)


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
    visit = await pulling.visit(Puller("p", "anna", 60.0), 12)
    claims = await pulling.claim(visit, groups=0, plain=12)
    assert len(claims) == 12
    reply = await bench.client.run(Verb.HOLDINGS, "pool/p/anna")
    assert _size(reply) < 5 * MIB
    held = [claim for claim, _ in (await pulling.holdings("pool/p/anna")).claims]
    for claim in held:
        if claim.apart:
            assert await claim.fetch()
    assert len(held) == 12
    assert all(is_whole(claim) for claim in held)
    await pulling.leave(await pulling.visit(Puller("p", "anna", 60.0)))


async def test_a_batch_of_many_bytes_is_several_scripts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, as one to whoever asked for it; run again it is all duplicates."""
    calls, run = list[int](), bench.client.run

    async def noted(verb: Any, *arguments: Any) -> Any:
        calls.append(sum(len(each) for each in arguments if isinstance(each, bytes)))
        return await run(verb, *arguments)

    monkeypatch.setattr(bench.client, "run", noted)
    batch = [
        arrival("first", "g"),
        *(large(f"{n:02}", "g", MIB) for n in range(6)),
        arrival("z", "g"),
    ]
    enqueued = await bench.take_in(*batch)
    assert len(calls) == 4
    assert max(calls) < SCRIPT_BYTES + 4096
    assert (enqueued.taken, enqueued.queued) == ([True] * 8, 8)
    again = await bench.take_in(*batch, arrival("new"))
    assert again.taken == [False] * 8 + [True]
    daemon, ran = await bench.daemon(), list[str]()
    while claims := await daemon.claim("grouped", "w"):
        ran += ids(claims)
        await daemon.complete(*claims)
    assert ran == [each.id for each in batch]
    await daemon.complete(*await daemon.claim("plain", "w"))
