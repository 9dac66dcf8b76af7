"""Limits by hand: they hold in place of what is configured, for a while, and end by themselves."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.limits import HandLimit, Limit, Limited, Limits, TenantLimit
from groupflow.operate.groups import Groups
from groupflow.operate.limits import LimitsByHand
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Proceed
from tests.store.bench import Bench, arrival, ids
from tests.store.test_limits import WORKERS, fill, limited, move_time

HOUR = 3600.0
OTHERS = [f"v{n}" for n in range(9)]


async def limit(
    shop: Bench, kind: Limited, name: str, concurrency: int | None = None, rate: str | None = None
) -> None:
    """An operator sets it, for an hour."""
    await LimitsByHand(shop.namespace).begin(HandLimit(kind, name, concurrency, rate), "ada", HOUR)


async def pass_hour(shop: Bench, *, promote: bool = True) -> None:
    """The time of all limits by hand is over."""
    known: Any = shop.raw.hgetall(shop.keys("by_hand"))
    for whose, text in known.items():
        shop.raw.hset(shop.keys("by_hand"), whose, b"%016d" % 1 + text[16:])
        shop.raw.zadd(shop.keys("by_hand_ends"), {whose: 1})
    if promote:
        await shop.client.run(Verb.PROMOTE, 10)


async def news_of(shop: Bench) -> list[list[Any]]:
    """What a daemon's log is told: what, of whom, by whom."""
    _, _, *news = await shop.client.run(Verb.PROMOTE, 10, "tell")
    told = [orjson.loads(each) for each in (news[0] if news else [])]
    return [[each[0], each[1], each[5]] for each in told]


# Groups


async def test_a_group_without_a_limit_gets_one(bench: Bench) -> None:
    bench.concurrency = {"a": 3}
    daemon = await fill(bench, "a0", "a1", "a2", "a3", "b0", "b1")
    await limit(bench, "group", "a", concurrency=3)
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a0", "a1", "a2", "b0"]


async def test_a_rate_by_hand_holds_starts_apart(bench: Bench) -> None:
    daemon = await fill(bench, "a0", "a1", "b0", "b1")
    await limit(bench, "group", "a", rate="1/min")
    await daemon.work_off()
    assert bench.lane("a") == ["a1"]
    told = await Groups(bench.namespace).why("a")
    assert told.state == "delayed"
    assert "over its 1/min until" in told.reason
    assert "by hand" in told.reason
    move_time(bench, 61)
    await bench.client.run(Verb.PROMOTE, 10)
    assert await daemon.work_off() == ["a1"]


async def test_a_group_that_runs_may_run_more_at_once(shop: Bench) -> None:
    """At once, and as before when that is over: when enough have ended."""
    shop.concurrency = {"a": 3}
    daemon = await fill(shop, "a0", "a1", "a2", "a3", "a4")
    first = await daemon.claim_one()
    await limit(shop, "group", "a", concurrency=3)
    assert shop.audit() == []
    more = await daemon.claim("grouped", "w2", "w3", "w4")
    assert ids(more) == ["a1", "a2"]
    await pass_hour(shop)
    assert shop.raw.exists(shop.keys("by_hand"), shop.keys("by_hand_ends")) == 0
    await daemon.complete(first, more[0])
    assert await daemon.claim("grouped", "w5") == []
    await daemon.complete(more[1])
    assert ids(await daemon.claim("grouped", "w5", "w6")) == ["a3"]


@pytest.mark.parametrize("how", ["over", "ended", "replaced"])
async def test_what_its_rule_says_holds_again(shop: Bench, how: str) -> None:
    limited(shop, 3)
    daemon = await fill(shop, "a0", "a1", "a2", "a3")
    await limit(shop, "group", "a", concurrency=1, rate="1/h")
    [first] = await daemon.claim("grouped", *WORKERS)
    match how:
        case "over":
            await pass_hour(shop)
        case "ended":
            assert await LimitsByHand(shop.namespace).end("group", "a", "bob")
            assert not await LimitsByHand(shop.namespace).end("group", "a", "bob")
        case _:
            await limit(shop, "group", "a", rate="")
    assert shop.audit() == []
    assert ids(await daemon.claim("grouped", *OTHERS)) == ["a1", "a2"]
    await daemon.complete(first)
    assert ids(await daemon.claim("grouped", "w9")) == ["a3"]


async def test_a_limit_that_is_over_holds_nothing_before_its_removal(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0")
    await limit(shop, "group", "a", concurrency=2)
    await limit(shop, "group", "b", rate="1/h")
    await pass_hour(shop, promote=False)
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a0", "b0"]
    assert (await LimitsByHand(shop.namespace).every()).limits == []
    told = await shop.status()
    assert (told.limited_groups, told.limited_tenants, told.by_hand) == (0, 0, [])
    _, wait = await shop.client.run(Verb.PROMOTE, 10)
    assert wait == -1


async def test_the_nearest_end_is_waited_for(shop: Bench) -> None:
    await fill(shop, "a0")
    await limit(shop, "group", "a", concurrency=2)
    await LimitsByHand(shop.namespace).begin(HandLimit("tenant", "42", 2), "ada", 60.0)
    _, wait = await shop.client.run(Verb.PROMOTE, 10)
    assert 0 < wait <= 60_000_000


async def test_a_run_ends_soon_under_a_limit_and_its_tasks_wait(shop: Bench) -> None:
    """What it has begun stands in the lane, where others would find it."""
    daemon = await fill(shop, *(f"a{n}" for n in range(6)))
    daemon.claims("grouped").adopt({"rule": 4})
    first = await daemon.claim_one()
    run = [first, *first.run]
    await limit(shop, "group", "a", concurrency=2)
    assert shop.audit() == []
    assert await daemon.claim("grouped", "w2") == []
    answer = await daemon.claims("grouped").exchange([Proceed([Complete(run[0])], run[1])], [])
    assert answer.refused == []
    assert answer.ending == {"w1"}
    assert await daemon.claim("grouped", "w2") == []
    await daemon.exchange("grouped", [Proceed([Complete(run[1])], None)], [])
    claims = await daemon.claim("grouped", *WORKERS)
    assert ids(claims) == ["a2", "a3"]
    assert not any(claim.run for claim in claims)
    await daemon.complete(*claims)
    await pass_hour(shop)
    assert ids((await daemon.claim_one()).run) == ["a5"]


async def test_a_hot_groups_slot_goes_on_no_more(shop: Bench) -> None:
    daemon = await fill(shop, *(f"a{n}" for n in range(4)))
    claim = await daemon.claim_one()
    await limit(shop, "group", "a", rate="1/h")
    assert await daemon.hop(claim) is None
    [claim] = (await daemon.exchange("grouped", [Complete(claim)], ["w1"]))[1]
    assert await daemon.exchange("grouped", [Complete(claim)], ["w1"]) == ([], [])


async def test_no_batch_waits_to_be_full(shop: Bench) -> None:
    """One by one its tasks are claimed: what it waits for would not come."""
    shop.limits = Limits({"rule": Limit(batch=3, batch_wait=60.0)})
    await shop.daemon("d2")
    daemon = await fill(shop, "a0", "a1")
    shop.concurrency = {"a": 2}
    assert await daemon.claim("grouped", *WORKERS) == []
    await limit(shop, "group", "a", concurrency=2)
    claims = await daemon.claim("grouped", *WORKERS)
    assert ids(claims) == ["a0", "a1"]
    await daemon.complete(*claims)
    await LimitsByHand(shop.namespace).end("group", "a", "bob")
    await shop.enqueue(arrival("a2", "a"))
    assert await daemon.claim("grouped", *WORKERS) == []


# Tenants


async def test_a_tenants_cap_counts_who_runs_already(bench: Bench) -> None:
    """Grouped and plain; it says so when enough have ended."""
    daemon = await fill(bench, "a0", "b0", "c0", "d0")
    await bench.enqueue(arrival("p0"), arrival("p1"))
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    plain = await daemon.claim_one("plain", "v1")
    await limit(bench, "tenant", "42", concurrency=2)
    assert bench.raw.zcard(bench.keys("charges")) == 4
    assert await daemon.claim("grouped", "w4") == []
    assert await daemon.claim("plain", "v2") == []
    await daemon.complete(*claims[:2])
    assert await daemon.claim("grouped", "w4") == []
    told = await Groups(bench.namespace).why("d")
    assert "tenant 42 runs its 2 of 2; 1 groups wait" in told.reason
    assert "by hand" in told.reason
    await daemon.complete(plain)
    assert len(await daemon.claim("grouped", "w4", "w5")) == 1
    await bench.client.run(Verb.PROMOTE, 10)


async def test_a_tenants_limit_is_lifted_for_a_while(bench: Bench) -> None:
    bench.limits = Limits(tenants={"42": TenantLimit(concurrency=1)})
    daemon = await fill(bench, "a0", "b0", "c0", "d0")
    first = await daemon.claim("grouped", "w1", "w2")
    assert ids(first) == ["a0"]
    await limit(bench, "tenant", "42", concurrency=0)
    more = await daemon.claim("grouped", "w2", "w3")
    assert ids(more) == ["b0", "c0"]
    await pass_hour(bench)
    await daemon.complete(*first)
    assert await daemon.claim("grouped", "w4") == []
    await daemon.complete(*more)
    assert ids(await daemon.claim("grouped", "w4", "w5")) == ["d0"]


@pytest.mark.parametrize("how", ["over", "ended"])
async def test_a_tenant_goes_on_as_configured(shop: Bench, how: str) -> None:
    daemon = await fill(shop, "a0", "b0", "c0")
    await shop.enqueue(arrival("p0"), arrival("p1"))
    await limit(shop, "tenant", "42", rate="1/h")
    [first] = await daemon.claim("grouped", "u1")
    assert await daemon.claim("plain", *OTHERS) == []
    if how == "over":
        await pass_hour(shop)
    else:
        assert await LimitsByHand(shop.namespace).end("tenant", "42", "bob")
    assert shop.audit() == []
    assert sorted(await daemon.work_off()) == ["b0", "c0", "p0", "p1"]
    await daemon.complete(first)


async def test_a_tenants_limit_is_its_in_every_application(shop: Bench) -> None:
    for number, scope in enumerate(("0a0a0a0a", "1b1b1b1b")):
        every = arrival(f"a{number}", f"a{number}"), arrival(f"b{number}", f"b{number}")
        for each in every:
            each.envelope.scope = scope
        await shop.enqueue(*every)
    daemon = await shop.daemon()
    await limit(shop, "tenant", "42", concurrency=1)
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a0", "a1"]
    await limit(shop, "tenant", "42", concurrency=2)
    assert shop.audit() == []
    assert ids(await daemon.claim("grouped", *OTHERS)) == ["b0", "b1"]


async def test_what_a_tenant_runs_is_counted_under_its_runs_next_fence(shop: Bench) -> None:
    daemon = await fill(shop, *(f"a{n}" for n in range(4)))
    daemon.claims("grouped").adopt({"rule": 4})
    first = await daemon.claim_one()
    run = [first, *first.run]
    await limit(shop, "tenant", "42", concurrency=1)
    assert shop.audit() == []
    await daemon.exchange("grouped", [Proceed([Complete(run[0])], run[1])], [])
    assert shop.audit() == []
    await daemon.exchange("grouped", [Proceed([Complete(run[1])], None)], [])
    assert shop.raw.zcard(shop.keys("charges")) == 0
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a2"]


async def test_what_was_counted_ends_by_an_exchange_and_counts_no_more(shop: Bench) -> None:
    """Though its limit is over. What is claimed then isn't counted, and hops."""
    daemon = await fill(shop, *(f"a{n}" for n in range(3)))
    claim = await daemon.claim_one()
    await limit(shop, "tenant", "42", concurrency=1)
    assert shop.raw.zcard(shop.keys("charges")) == 1
    assert await LimitsByHand(shop.namespace).end("tenant", "42", "bob")
    assert await daemon.hop(claim) is None
    [claim] = (await daemon.exchange("grouped", [Complete(claim)], ["w1"]))[1]
    assert shop.raw.zcard(shop.keys("charges")) == 0
    assert await daemon.hop(claim) is not None


# Both


async def test_they_are_listed_the_first_to_end_first(shop: Bench) -> None:
    await LimitsByHand(shop.namespace).begin(HandLimit("tenant", "4 2", 8, ""), "ada\nbob", 120.0)
    await LimitsByHand(shop.namespace).begin(
        HandLimit("group", "a\nb", rate="10/s burst 50"), "", 60.0
    )
    found = await LimitsByHand(shop.namespace).every()
    rows = [(e.kind, e.name, e.concurrency, e.rate, e.by, e.words) for e in found.limits]
    assert rows == [
        ("group", "a\nb", None, "10/s burst 50", "", "10/s burst 50"),
        ("tenant", "4 2", 8, "", "ada\nbob", "8 at once, any rate"),
    ]
    assert [round(each.until - each.since) for each in found.limits] == [60, 120]


async def test_a_status_has_them(shop: Bench) -> None:
    await limit(shop, "tenant", "42", concurrency=2)
    await limit(shop, "tenant", "43", rate="5/s")
    await LimitsByHand(shop.namespace).begin(HandLimit("group", "a", 2), "ada", 60.0)
    found = await shop.status()
    assert (found.limited_groups, found.limited_tenants) == (1, 2)
    assert [each.name for each in found.by_hand] == ["a", "42", "43"]
    assert found.as_json()["limits"][0]["by"] == "ada"


async def test_a_daemon_is_told_once_what_began_and_ended(shop: Bench) -> None:
    await limit(shop, "group", "a", concurrency=2)
    await limit(shop, "tenant", "42", concurrency=2)
    assert await news_of(shop) == [["began", "ga", "ada"], ["began", "t42", "ada"]]
    assert await news_of(shop) == []
    await LimitsByHand(shop.namespace).end("group", "a", "bob")
    await pass_hour(shop, promote=False)
    assert await news_of(shop) == [["ended", "ga", "bob"], ["ended", "t42", ""]]
    assert shop.dump().keys() <= {shop.keys("count").encode()}


async def test_there_is_a_most(shop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds already may be changed all the same."""
    monkeypatch.setattr("groupflow.operate.limits.MOST", 1)
    await limit(shop, "group", "a", concurrency=2)
    with pytest.raises(Exception, match="limited by hand already"):
        await limit(shop, "group", "b", concurrency=2)
    await limit(shop, "group", "a", concurrency=3)
    assert [each.concurrency for each in (await LimitsByHand(shop.namespace).every()).limits] == [3]


@pytest.mark.parametrize(
    ("given", "seconds", "words"),
    [
        (HandLimit("group", "a", 0), 60.0, "concurrency of 1"),
        (HandLimit("tenant", "a", -1), 60.0, "concurrency of 0"),
        (HandLimit("group", "a", rate="fast"), 60.0, "Write a rate"),
        (HandLimit("group", "a"), 60.0, "a concurrency, a rate"),
        (HandLimit("tenant", "", 1), 60.0, "Name a tenant"),
        (HandLimit("group", "a", 2), 0.0, "30 days"),
        (HandLimit("group", "a", 2), 31 * 86400.0, "30 days"),
        (HandLimit("group", "a", 2), float("nan"), "30 days"),
    ],
)
def test_what_can_not_hold_is_refused(given: HandLimit, seconds: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        given.check(seconds)
