"""What bounds the store: calls that run twice, full memory, text that comes from strangers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from groupflow.core.errors import StoreFull
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import ALL, Groups
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Complete, Release, Retry, Settlement
from tests.store.bench import Bench, Daemon, arrival, bury, ids

STRANGERS = [
    "a|||b",
    "{a}:{b}",
    "}{",
    "{{ns}}:lock:a",
    "'; redis.call('FLUSHALL') --",
    '"quoted" \\ back\\slash',
    "[]?*",
    "%d%s%%",
    "with space and\ttab",
    "line\nfeed",
    "nul\x00inside",
    "Grüße 租户 🐘",
    "line\u2028separator",
    "right\u202eto left",
    "*",
    "-1",
    "0",
    "lock:a",
    "é" * 127 + "x",  # 255 bytes
]
LONG_KEY = "ключ" * 64  # 512 bytes, the longest group key


@pytest.mark.parametrize("text", [*STRANGERS, LONG_KEY], ids=ascii)
async def test_strangers_text_is_only_text(bench: Bench, text: str) -> None:
    """With any text in ids and groups, each is itself and reaches nothing else."""
    neighbours = ["a", "b", f"{text}x", f"x{text}"]
    await bench.enqueue(arrival(f"{text}1", text), arrival(f"{text}2", text), arrival(text))
    await bench.enqueue(*(arrival(f"n{n}", group) for n, group in enumerate(neighbours)))
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", *(f"w{n}" for n in range(9)))
    assert ids(claims) == [f"{text}1", "n0", "n1", "n2", "n3"]
    assert [claim.task.group for claim in claims] == [text, *neighbours]
    plain = await daemon.claim_one("plain", "p1")
    assert plain.task.id == text
    assert bench.judge() == []
    await daemon.settle(Release(claims[0]))
    claims[0] = await daemon.claim_one(worker="w0")
    bench.with_faults = True
    await daemon.register()
    for claim in claims:  # quarantined tasks all of them, which come one by one
        again = await daemon.claim_one(worker=claim.slot)
        assert again.task.id in ids(claims)
        await daemon.settle(bury(again, text))
    assert sorted(await daemon.work_off()) == sorted([text, f"{text}2"])
    letters = [letter async for letter in DeadLetters(bench.namespace).each()]
    assert {(letter.id, letter.group, letter.reason) for letter in letters} == {
        (claim.task.id, claim.task.group, text) for claim in claims
    }
    assert bench.judge_drained() == []


async def test_groups_that_look_alike_are_not_one(bench: Bench) -> None:
    """No two group keys share a lane, a lock or a place in `ready`, however alike they are."""
    groups = [
        "a",
        "a ",
        " a",
        "A",
        "a:",
        ":a",
        "a\x00",
        "a|||",
        "á",
        "a\u0301",
        "0",
        "00",
        "1",
        "1.0",
    ]
    await bench.enqueue(*(arrival(f"t{n}", group) for n, group in enumerate(groups)))
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", *(f"w{n}" for n in range(20)))
    assert [claim.task.group for claim in claims] == groups


# Idempotency: what is called twice has happened once.

Step = Callable[[Bench, Daemon], Awaitable[object]]


async def _enqueue(bench: Bench, _: Daemon) -> object:
    facts: list[dict[str, Any]] = [{}, {"priority": 5.0}, {"delay": 60.0}, {"dead": "no"}]
    batch = [
        arrival(f"{group or 'p'}-{n}", group, **fact)
        for group in (None, "z")
        for n, fact in enumerate(facts)
    ]
    return await bench.enqueue(*batch)


async def _claim_grouped(_: Bench, daemon: Daemon) -> object:
    return ids(await daemon.claim("grouped", "w1", "w2"))


async def _claim_plain(_: Bench, daemon: Daemon) -> object:
    return ids(await daemon.claim("plain", "w1", "w2"))


async def _renew(_: Bench, daemon: Daemon) -> object:
    return await daemon.sessions.renew()


async def _leave(bench: Bench, daemon: Daemon) -> object:
    bench.with_faults = True
    await daemon.sessions.leave()
    return None


async def _reap(bench: Bench, daemon: Daemon) -> object:
    bench.with_faults = True
    bench.expire("d1")
    await daemon.sessions.reap()
    return None


async def _roll(bench: Bench, _: Daemon) -> object:
    await bench.client.run(Verb.ROTATE, 3_600_000_000, 100)
    return None


async def _pause(bench: Bench, _: Daemon) -> object:
    await Groups(bench.namespace).pause("a", "me")
    await Groups(bench.namespace).pause(ALL, "me")
    return None


async def _resume(bench: Bench, _: Daemon) -> object:
    await Groups(bench.namespace).resume("a")
    return None


async def _promote(bench: Bench, _: Daemon) -> object:
    await bench.client.run(Verb.PROMOTE, 100)
    return None


@pytest.mark.parametrize(
    "step",
    [
        _enqueue,
        _claim_grouped,
        _claim_plain,
        _renew,
        _leave,
        _reap,
        _roll,
        _pause,
        _resume,
        _promote,
    ],
    ids=lambda step: step.__name__.strip("_"),
)
async def test_twice_is_once(bench: Bench, step: Step) -> None:
    """A step that is run a second time with the same arguments leaves everything as it was."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(3) for group in "abc"))
    await bench.enqueue(*(arrival(f"p{n}") for n in range(3)))
    daemon = await bench.daemon()
    await daemon.complete(await daemon.claim_one(worker="w9"))
    first = await step(bench, daemon)
    before = _without_times(bench)
    second = await step(bench, daemon)
    assert _without_times(bench) == before
    if first is not None and step is not _enqueue:
        assert second == first


@pytest.mark.parametrize("pool", ["grouped", "plain"])
@pytest.mark.parametrize(
    "way",
    [
        Complete,
        Release,
        bury,
        lambda claim: bury(claim, park=True),
        lambda claim: Retry(claim, 60.0, []),
        lambda claim: Retry(claim, 60.0, [], "step-aside"),
        lambda claim: Advance(claim, "next", b"{}"),
        lambda claim: Advance(claim, "next", b"{}", "step-aside"),
    ],
    ids=["done", "release", "bury", "park", "retry", "retry-aside", "stage", "stage-aside"],
)
async def test_every_settle_twice_is_once(bench: Bench, way: Any, pool: Any) -> None:
    """A settle that is sent again, alone or behind the worker's next claim, changes nothing."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(3) for group in "ab"))
    await bench.enqueue(*(arrival(f"p{n}") for n in range(3)))
    daemon = await bench.daemon()
    settlement: Settlement = way(await daemon.claim_one(pool))
    assert await daemon.exchange(pool, [settlement], []) == ([], [])
    before = bench.dump()
    assert await daemon.exchange(pool, [settlement], []) == ([], [])
    assert bench.dump() == before
    assert await daemon.exchange(pool, [], ["w1", "w2"]) is not None
    before = bench.dump()
    refused, _ = await daemon.exchange(pool, [settlement], ["w1", "w2"])
    assert refused == []
    assert bench.dump() == before
    bench.events.clear()  # the round trips above are not in it


async def test_registering_twice_keeps_the_last_session_only(bench: Bench) -> None:
    """A second registration is a second session: of one daemon, holding nothing."""
    daemon = await bench.daemon()
    await daemon.register()
    assert [each.name for each in (await bench.status()).daemons] == ["d1"]
    await daemon.sessions.renew()


def _without_times(bench: Bench) -> dict[bytes, Any]:
    """All keys, without the ends of leases and the number of duplicates."""
    moving = {bench.keys(kind).encode() for kind in ("daemons", "count")}
    kept: dict[bytes, Any] = {k: v for k, v in bench.dump().items() if k not in moving}
    counts: Any = bench.raw.hgetall(bench.keys("count"))
    kept[b"count"] = {name: n for name, n in counts.items() if name != b"duplicates"}
    return kept


# Memory


@contextmanager
def _full(raw: Redis) -> Iterator[None]:
    """A server without any memory left."""
    raw.config_set("maxmemory", 1)
    try:
        yield
    finally:
        raw.config_set("maxmemory", 0)


async def test_full_memory_refuses_new_tasks_and_writes_nothing(bench: Bench) -> None:
    """enqueue under OOM is one clear error, and all or nothing."""
    await bench.enqueue(arrival("a0", "a"))
    before, so_far = bench.dump(), len(bench.events)
    with _full(bench.raw):
        for batch in ([arrival("a1", "a")], [arrival(f"p{n}") for n in range(500)]):
            with pytest.raises(StoreFull, match="out of memory"):
                await bench.enqueue(*batch)
        assert bench.dump() == before
    assert len(bench.events) == so_far
    assert await bench.enqueue(arrival("a1", "a")) == [True]


async def test_full_memory_lets_everything_else_go_on(bench: Bench) -> None:
    """Claims, settles, sessions: what is queued drains, and so makes room."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(4) for group in "abc"))
    await bench.enqueue(*(arrival(f"p{n}") for n in range(6)))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    bench.with_faults = True
    with _full(bench.raw):
        a, b, c = await daemon.claim("grouped", "w1", "w2", "w3")
        plain = await daemon.claim("plain", "w4", "w5", "w6")
        assert await daemon.settle(Complete(a), Release(b), bury(c)) == []
        assert await daemon.settle(bury(plain[0]), Release(plain[1]), Complete(plain[2])) == []
        assert len(await daemon.claim("grouped", "w1", "w2")) == 2
        await daemon.sessions.renew()
        bench.expire("d1")
        assert len((await other.sessions.reap())[1]) == 2
        await daemon.register()
        await bench.status()
        await bench.client.run(Verb.ROTATE, 3_600_000_000, 1)
        await daemon.work_off()
        await daemon.sessions.leave()
    assert bench.judge_drained() == []


async def test_full_memory_and_retries(bench: Bench) -> None:
    """A retry, a stage, a pause and a dead letter's end work in full memory as well."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("b0", "b"))
    daemon = await bench.daemon()
    letters, groups = DeadLetters(bench.namespace), Groups(bench.namespace)
    with _full(bench.raw):
        claim = await daemon.claim_one()
        assert await daemon.settle(Advance(claim, "next", b'{"n":1}')) == []
        claim = await daemon.claim_one()
        assert await daemon.settle(bury(claim, park=True)) == []
        claim = await daemon.claim_one()
        assert await daemon.settle(Retry(claim, 0.0, [])) == []
        await groups.pause("b", "me")
        await bench.client.run(Verb.PROMOTE, 100)
        await groups.resume("b")
        letter = await anext(letters.each())
        assert await letters.drop(letter)
        await bench.client.run(Verb.PROMOTE, 100)
        await daemon.work_off()
    status = await bench.status()
    assert (status.queued_grouped, status.running_grouped, status.dead) == (0, 0, 0)
    assert bench.audit() == []
    bench.events.clear()  # stages and retries are the model's business
