"""What bounds the store: calls that run twice, full memory, text that comes from strangers."""

from __future__ import annotations

import pytest

from groupflow.core.errors import StoreFull
from groupflow.operate.dead import DeadLetters
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Release
from tests.store.bench import Bench, arrival, bury, ids, with_fence
from tests.store.story import named, play, stories
from tests.store.words import WAYS

STRANGERS = [
    *(
        "a|||b",
        "{a}:{b}",
        "}{",
        "{{ns}}:lock:a",
        "lock:a",
        "'; redis.call('FLUSHALL') --",
        "%d%s%%",
    ),
    *('"quoted" \\ back\\slash', "[]?*", "*", "-1", "0", "with space and\ttab", "line\nfeed"),
    *("nul\x00inside", "Grüße 租户 🐘", "line\u2028separator", "right\u202eto left"),
    "é" * 127 + "x",  # 255 bytes
]
LONG_KEY = "ключ" * 64  # 512 bytes, the longest group key


@pytest.mark.parametrize("text", [*STRANGERS, LONG_KEY], ids=ascii)
async def test_strangers_text_is_only_text(shop: Bench, text: str) -> None:
    """With any text in ids and groups, each is itself and reaches nothing else."""
    neighbours = ["a", "b", f"{text}x", f"x{text}"]
    await shop.enqueue(arrival(f"{text}1", text), arrival(f"{text}2", text), arrival(text))
    await shop.enqueue(*(arrival(f"n{n}", group) for n, group in enumerate(neighbours)))
    daemon = await shop.daemon("my {host}:1 %s")
    claims = await daemon.claim("grouped", *(f"grouped {n}" for n in range(9)))
    assert ids(claims) == [f"{text}1", "n0", "n1", "n2", "n3"]
    assert [claim.task.group for claim in claims] == [text, *neighbours]
    plain = await daemon.claim_one("plain", "plain:0")
    assert plain.task.id == text
    assert shop.judge() == []
    await daemon.settle(Release(claims[0]))
    claims[0] = await daemon.claim_one(worker="grouped 0")
    shop.with_faults = True
    await daemon.register()
    for claim in claims:  # quarantined tasks all of them, which come one by one
        again = await daemon.claim_one(worker=claim.slot)
        assert again.task.id in ids(claims)
        await daemon.settle(bury(again, text))
    assert sorted(await daemon.work_off()) == sorted([text, f"{text}2"])
    letters = [letter async for letter in DeadLetters(shop.namespace).each()]
    assert {(letter.id, letter.group, letter.reason) for letter in letters} == {
        (claim.task.id, claim.task.group, text) for claim in claims
    }
    assert shop.judge_drained() == []


# Idempotency: what is called twice has happened once

TWICE = named(
    """
    {way} of {id}, also behind the next claims::
        take {id} a1 b0 b1 p1 p2 | claim {id} | {way} {id} | unchanged {way} {id} | some
        unchanged {way} {id}'
    a stale {way} of {id}::
        take {id} a1 b0 p1 | claim {id} | crash | claim {id} | refused unchanged {way} {id}'
    enqueue::
        take p0 p1+5 p2@ p3! z0 z1+5 z2@ z3! | duplicates p0 p1+5 p2@ p3! z0 z1+5 z2@ z3!
        status queued_plain=3 queued_grouped=3 dead=2
    leave:: take a0 p0 | claim a0 p0 | leave | unchanged leave
    reap:: take a0 p0 | claim a0 p0 | lose d1 a0 p0 | d2: unchanged reap
    {act}, by an operator or a duty::
        take a0 b0 | claim a0 | park a0 | pause c | hand group d 2 | {act} | unchanged {act}
    a drop of a dead letter:: take a0 | claim a0 | park a0 | drop a0 | unchanged drop a0 over
    a second registration:: open d1 | crash | crash | renew | status limited_groups=0
    """,
    way=("done", "release", "bury", "park", "retry", "retry aside", "advance", "advance aside"),
    id=("a0", "p0"),
    act=("pause a", "pause all", "resume c", "resume all", "promote"),
)


@stories(TWICE)
async def test_twice_is_once(shop: Bench, story: str) -> None:
    """A settle that is sent again, alone or behind its slot's next claim, changes nothing."""
    await play(shop, story)


async def test_a_claim_is_settled_under_its_own_fence_by_its_own_daemon_and_slot(
    shop: Bench,
) -> None:
    told = await play(shop, "take a0 a1 p0 | open d2 | claim a0 p0")
    own, other = await told.daemon(), await told.daemon("d2")
    for claim in (told.claim_of(id_)[1] for id_ in ("a0", "p0")):
        before, elsewhere = shop.dump(), with_fence(claim, claim.fence)
        elsewhere.slot = "w9"
        wrong = (with_fence(claim, claim.fence + by) for by in (-1, 1))
        for daemon, bad in ((other, claim), *((own, each) for each in (*wrong, elsewhere))):
            for way in WAYS.values():
                settlement = way(bad, "hold", "task")
                assert await daemon.exchange("plain", [settlement], []) == ([settlement], [])
        assert shop.dump() == before


# Memory


async def test_full_memory_refuses_new_tasks_and_lets_all_else_go_on(shop: Bench) -> None:
    """Claims, settles, sessions, pauses, drops: what is queued drains, and so makes room."""
    told = await play(shop, "take a0 b0 c0 d0 e0 f0 g0 h0 a1 b1 p0 p1 p2 p3 | open d1 d2")
    before = shop.dump()
    shop.raw.config_set("maxmemory", 1)
    try:
        for batch in ([arrival("a2", "a")], [arrival(f"p{n}") for n in range(500)]):
            with pytest.raises(StoreFull, match="out of memory"):
                await shop.enqueue(*batch)
        assert shop.dump() == before, "all or nothing"
        await told.go_on(
            """claim a0 b0 c0 d0 e0 f0 g0 h0 p0 p1 p2 | done a0 p0 | release b0 p1 | bury c0 p2
            park d0 | retry_now e0 | retry_now f0 aside | advance g0 | advance h0 aside
            promote | pause a | resume a | d2: claim b0 | renew | claim a1 | reap"""
        )
        with pytest.raises(StoreFull):
            await told.go_on("redrive c0")
        shop.expire("d2")
        assert [e.id for e in (await (await told.daemon()).sessions.reap())[1]] == ["b0"]
        await told.go_on("d2: crash | drop c0 | drop d0 | drop p2 | done a1")
        await shop.client.run(Verb.ROTATE, 3_600_000_000, 1)
        await told.go_on("status queued_grouped=6 running_grouped=0 dead=0")
        assert len(await (await told.daemon()).work_off()) == 8
    finally:
        shop.raw.config_set("maxmemory", 0)
    await told.go_on("take a2")
