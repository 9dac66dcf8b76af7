"""Limits: how many of a group run at once, how often they start, until when none does."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.core.limits import Limit, Limits, Rate
from groupflow.operate.groups import Groups
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance, Complete, Release, Retry
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.task_state import promote, redrive

WORKERS = [f"w{n}" for n in range(9)]


def limited(shop: Bench, concurrency: int = 1, rate: str = "") -> None:
    """From the next session on, the groups of all arrivals have this limit."""
    shop.limits = Limits({"rule": Limit(concurrency, Rate.parse(rate))})
    shop.concurrency = dict.fromkeys(("a", "b"), concurrency)


async def fill(shop: Bench, *named: str) -> Daemon:
    """A daemon, and tasks whose first letter is their group."""
    await shop.enqueue(*(arrival(id_, id_[0]) for id_ in named))
    return await shop.daemon()


def move_time(shop: Bench, seconds: float) -> None:
    """What limits wait for is so much sooner."""
    for kind in ("rates", "closed", "held"):
        members: Any = shop.raw.zrange(shop.keys(kind), 0, -1, withscores=True)
        for member, due in members:
            shop.raw.zadd(shop.keys(kind), {member: due - seconds * 1_000_000})


def holders(shop: Bench) -> int:
    """How many claims are counted in groups without locks."""
    found: Any = shop.raw.zcard(shop.keys("sharing"))
    return int(found)


# Concurrency


async def test_so_many_of_a_group_run_at_once(bench: Bench) -> None:
    """In the order in which they came, on all daemons."""
    limited(bench, 3)
    first = await fill(bench, "a0", "a1", "a2", "a3", "a4")
    second = await bench.daemon("d2")
    assert ids(await first.claim("grouped", "w1", "w2")) == ["a0", "a1"]
    claims = await second.claim("grouped", *WORKERS)
    assert ids(claims) == ["a2"]
    assert bench.judge() == []
    await second.complete(*claims)
    assert ids(await second.claim("grouped", *WORKERS)) == ["a3"]


async def test_the_oldest_group_goes_first_with_all_that_it_may(bench: Bench) -> None:
    limited(bench, 2)
    daemon = await fill(bench, "a0", "b0", "a1", "b1", "a2")
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a0", "b0", "a1", "b1"]


async def test_a_group_without_a_limit_beside_them_stays_serial(bench: Bench) -> None:
    limited(bench, 3)
    other = arrival("c0", "c"), arrival("c1", "c")
    for each in other:
        each.envelope.rule = "another"
    await bench.enqueue(*other)
    daemon = await fill(bench, "a0", "a1")
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["c0", "a0", "a1"]
    assert await bench.daemon("d2") is not None


@pytest.mark.parametrize(
    "way",
    [
        Complete,
        Release,
        bury,
        lambda claim: Retry(claim, 60.0, [], "step-aside"),
        lambda claim: Advance(claim, "next", b"{}", "step-aside"),
    ],
    ids=["done", "release", "bury", "retry", "stage"],
)
async def test_each_end_gives_back_exactly_one(shop: Bench, way: Any) -> None:
    """And a second one that says the same gives back nothing."""
    limited(shop, 2)
    daemon = await fill(shop, "a0", "a1", "a2", "a3")
    claims = await daemon.claim("grouped", *WORKERS)
    settlement = way(claims[0])
    for _ in range(2):
        assert await daemon.exchange("grouped", [settlement], []) == ([], [])
        assert holders(shop) == 1
    assert len(await daemon.claim("grouped", "v1", "v2", "v3")) == 1
    assert holders(shop) == 2


async def test_a_crash_gives_back_exactly_what_it_held(bench: Bench) -> None:
    limited(bench, 3)
    first = await fill(bench, "a0", "a1", "a2", "a3")
    second = await bench.daemon("d2")
    lost = await first.claim("grouped", "w1", "w2")
    kept = await second.claim("grouped", *WORKERS)
    assert (ids(lost), ids(kept)) == (["a0", "a1"], ["a2"])
    bench.with_faults = True
    bench.expire("d1")
    await second.sessions.reap()
    assert holders(bench) == 1
    # Both are quarantined tasks now: one at a time.
    assert ids(await second.claim("grouped", *WORKERS)) == ["a2", "a0"]
    assert ids(await second.claim("grouped", *WORKERS)) == ["a2", "a0"]
    assert bench.judge() == []


async def test_a_stale_settle_gives_back_nothing(bench: Bench) -> None:
    limited(bench, 2)
    first = await fill(bench, "a0", "a1", "a2")
    second = await bench.daemon("d2")
    lost = await first.claim("grouped", *WORKERS)
    first.drop(*lost)
    bench.expire("d1")
    await second.sessions.reap()
    await first.register()
    [claim] = await second.claim("grouped", "w1")
    assert await first.settle(Complete(lost[0]), end=False) == [Complete(lost[0])]
    assert holders(bench) == 1
    assert claim.task.id == "a0"


async def test_the_end_of_one_is_not_that_of_another(bench: Bench) -> None:
    """In any order of their ends."""
    limited(bench, 3)
    daemon = await fill(bench, "a0", "a1", "a2")
    claims = await daemon.claim("grouped", *WORKERS)
    await daemon.complete(claims[2])
    assert bench.judge() == []
    await daemon.complete(claims[0])
    assert bench.judge() == []


async def test_a_status_counts_groups(bench: Bench) -> None:
    """One in which several run is counted once."""
    limited(bench, 2)
    daemon = await fill(bench, "a0", "a1", "a2", "b0")
    await daemon.claim("grouped", *WORKERS)
    status = await bench.status()
    assert (status.running_grouped, status.groups, status.ready) == (3, 2, 0)
    await bench.enqueue(arrival("b1", "b"), arrival("c0", "c"))
    status = await bench.status()
    assert (status.running_grouped, status.groups, status.ready) == (3, 3, 2)


async def test_a_failed_head_that_waits_holds_further_starts(shop: Bench) -> None:
    """What runs beside it goes on to its end."""
    limited(shop, 2)
    daemon = await fill(shop, "a0", "a1", "a2")
    first, second = await daemon.claim("grouped", *WORKERS)
    await daemon.settle(Retry(first, 60.0, []))
    assert await daemon.claim("grouped", "w8") == []
    assert await daemon.settle(Complete(second)) == []
    assert await daemon.claim("grouped", *WORKERS) == []
    assert (await Groups(shop.namespace).why("a")).state == "delayed"


async def test_a_group_is_paused_and_parked_while_several_run(shop: Bench) -> None:
    limited(shop, 2)
    groups = Groups(shop.namespace)
    daemon = await fill(shop, "a0", "a1", "a2", "b0", "b1", "b2")
    claims = await daemon.claim("grouped", "w1", "w2", "w3", "w4")
    a0, a1, b0, b1 = sorted(claims, key=lambda each: each.task.id)
    await groups.pause("a", "me")
    await daemon.settle(bury(b0, park=True))
    assert [(await groups.why(g)).running for g in "ab"] == [2, 1]
    await daemon.complete(a0, a1, b1)
    assert await daemon.claim("grouped", *WORKERS) == []
    assert [(await groups.why(g)).state for g in "ab"] == ["paused", "parked"]
    await groups.resume("a")
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a2"]


async def test_a_claim_without_an_envelope_is_passed_over(shop: Bench) -> None:
    limited(shop, 2)
    daemon = await fill(shop, "a0", "a1", "a2")
    await shop.client.run(Verb.PROMOTE, 1)
    shop.raw.hdel(shop.keys("tasks"), "a0")
    assert ids(await daemon.claim("grouped", "w1")) == []
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a1", "a2"]


async def test_more_may_run_at_once_from_a_reload_on(bench: Bench) -> None:
    """Also of a group whose task runs under a lock."""
    daemon = await fill(bench, "a0", "a1", "a2", "a3")
    claims = await daemon.claim("grouped", *WORKERS)
    limited(bench, 3)
    await daemon.sessions.tell({}, {})
    more = await daemon.claim("grouped", "v1", "v2", "v3")
    assert ids(claims + more) == ["a0", "a1", "a2"]
    assert (await Groups(bench.namespace).why("a")).running == 3
    await daemon.complete(*claims)
    assert ids(await daemon.claim("grouped", "v4", "v5")) == ["a3"]


async def test_fewer_may_run_at_once_from_a_reload_on(bench: Bench) -> None:
    """What runs goes on; nothing starts until few enough do."""
    limited(bench, 3)
    daemon = await fill(bench, "a0", "a1", "a2", "a3", "a4")
    claims = await daemon.claim("grouped", *WORKERS)
    bench.limits = Limits()
    await daemon.sessions.tell({}, {})
    await daemon.complete(*claims[:2])
    assert await daemon.claim("grouped", *WORKERS[3:]) == []
    await daemon.complete(claims[2])
    [a3] = await daemon.claim("grouped", *WORKERS)
    assert bench.raw.exists(bench.keys("lock", "a"))
    assert not bench.raw.exists(bench.keys("limits"))
    await daemon.complete(a3)


async def test_a_daemon_without_a_say_changes_nothing(bench: Bench) -> None:
    limited(bench, 2)
    await fill(bench, "a0", "a1")
    bench.limits = None
    other = await bench.daemon("d2")
    assert len(await other.claim("grouped", *WORKERS)) == 2


@pytest.mark.parametrize("text", ["a", "a0", "0", "0001a", "", "a\x00", "é" * 127, "g" * 512])
async def test_groups_that_look_alike_share_nothing(bench: Bench, text: str) -> None:
    limited(bench, 2)
    groups = [text + end for end in ("", "0", "00", "9", "a", "\x00", "z")]
    bench.concurrency = dict.fromkeys(groups, 2)
    groups = [group for group in groups if 0 < len(group.encode()) <= 512]
    await bench.enqueue(
        *(arrival(f"t{n}.{i}", group) for n, group in enumerate(groups) for i in range(3))
    )
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", *(f"w{n}" for n in range(30)))
    assert sorted(ids(claims)) == sorted(f"t{n}.{i}" for n in range(len(groups)) for i in range(2))
    for n, group in enumerate(groups):
        why = await Groups(bench.namespace).why(group)
        assert (why.running, why.queued, why.head) == (2, 1, f"t{n}.0")


async def test_a_large_message_has_its_limit_too(bench: Bench) -> None:
    """What has to be known of it isn't read from it."""
    limited(bench, 2)
    large = [arrival(f"a{n}", "a") for n in range(3)]
    for each in large:
        each.envelope.body = b"x" * 100_000
    await bench.enqueue(*large)
    daemon = await bench.daemon()
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a0", "a1"]


# Rates


async def test_starts_are_a_time_apart(bench: Bench) -> None:
    """A group over its rate is where no claim looks, and due when its next start is."""
    limited(bench, rate="1/min")
    daemon = await fill(bench, "a0", "a1", "a2")
    claim = await daemon.claim_one()
    assert bench.raw.exists(bench.keys("lock", "a"))  # as daemons know that have no limits
    await daemon.complete(claim)
    assert not bench.raw.exists(bench.keys("ready"))
    assert await daemon.claim("grouped", *WORKERS) == []
    held: Any = bench.raw.zscore(bench.keys("held"), "a")
    assert 59.0 < (held - bench.server_time()) / 1_000_000 <= 60.0
    move_time(bench, 61.0)
    assert await promote(bench) == 1
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a1"]


async def test_a_rate_holds_while_others_of_the_group_run(bench: Bench) -> None:
    limited(bench, 5, "1/min burst 2")
    daemon = await fill(bench, "a0", "a1", "a2", "a3")
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a0", "a1"]
    why = await Groups(bench.namespace).why("a")
    assert (why.state, why.running, why.concurrency) == ("running", 2, 5)
    assert "over its 1/min burst 2 until " in why.reason
    move_time(bench, 61.0)
    await promote(bench)
    assert ids(await daemon.claim("grouped", "v1", "v2")) == ["a2"]


async def test_a_burst_comes_back_with_time(bench: Bench) -> None:
    limited(bench, 9, "1/min burst 3")
    daemon = await fill(bench, *(f"a{n}" for n in range(9)))
    assert len(await daemon.claim("grouped", *WORKERS)) == 3
    move_time(bench, 120.0)
    await promote(bench)
    assert len(await daemon.claim("grouped", "v1", "v2", "v3", "v4")) == 2
    move_time(bench, 3600.0)  # no more than the burst adds up
    await promote(bench)
    assert len(await daemon.claim("grouped", "u1", "u2", "u3", "u4")) == 3


async def test_a_burst_is_no_larger_after_a_long_time(bench: Bench) -> None:
    limited(bench, 9, "1/min burst 3")
    daemon = await fill(bench, "a0")
    await daemon.work_off()
    move_time(bench, 3600.0)
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(1, 9)))
    assert len(await daemon.claim("grouped", *WORKERS)) == 3


async def test_what_was_handed_back_counts_as_started(bench: Bench) -> None:
    limited(bench, rate="1/min")
    daemon = await fill(bench, "a0")
    await daemon.settle(Release(await daemon.claim_one()))
    assert await daemon.claim("grouped", *WORKERS) == []


async def test_a_rate_is_each_groups_own(bench: Bench) -> None:
    limited(bench, rate="1/min")
    daemon = await fill(bench, "a0", "b0", "a1", "b1")
    assert sorted(await daemon.work_off()) == ["a0", "b0"]


async def test_of_a_rate_nothing_is_left_when_it_is_over(bench: Bench) -> None:
    limited(bench, rate="1/s")
    daemon = await fill(bench, "a0", "b0")
    await daemon.work_off()
    assert bench.raw.zcard(bench.keys("rates")) == 2
    move_time(bench, 10.0)
    await promote(bench)
    assert not bench.raw.exists(bench.keys("rates"))
    await daemon.sessions.leave()
    assert bench.judge_drained() == []


async def test_rates_that_are_past_go_with_later_starts(bench: Bench) -> None:
    limited(bench, rate="1/s")
    daemon = await fill(bench, *(f"{group}0" for group in "abcdefgh"))
    await daemon.work_off()
    move_time(bench, 10.0)
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "stuv"))
    await daemon.work_off()
    left: Any = bench.raw.zrange(bench.keys("rates"), 0, -1)
    assert {b"gs", b"gt", b"gu", b"gv"} == set(left)


async def test_a_faster_rate_holds_from_a_reload_on(bench: Bench) -> None:
    limited(bench, 2, rate="1/h")
    daemon = await fill(bench, "a0", "a1", "a2")
    first = await daemon.claim("grouped", *WORKERS)
    limited(bench, 2, rate="1/min")
    await daemon.sessions.tell({}, {})
    held: Any = bench.raw.zscore(bench.keys("held"), "a")
    assert (held - bench.server_time()) / 1_000_000 <= 60.0
    await daemon.complete(*first)


# A handler closes its group


@pytest.mark.parametrize("standing", ["hold", "step-aside"])
async def test_a_handler_closes_its_group(shop: Bench, standing: Any) -> None:
    """Nothing of it starts until then; who runs goes on, and other groups don't notice."""
    daemon = await fill(shop, "a0", "a1", "b0", "b1")
    a0, b0 = await daemon.claim("grouped", *WORKERS)
    await daemon.settle(Retry(a0, 60.0, [], standing, "group"), Complete(b0))
    assert shop.audit() == []
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["b1"]
    why = await Groups(shop.namespace).why("a")
    assert why.state == "delayed"
    assert why.reason.startswith("closed until ")
    move_time(shop, 61.0)
    await promote(shop)
    if standing == "step-aside":
        assert ids(await daemon.claim("grouped", "v1")) == ["a1"]


async def test_a_shorter_time_doesnt_open_what_a_longer_one_closed(shop: Bench) -> None:
    limited(shop, 2)
    daemon = await fill(shop, "a0", "a1", "a2")
    a0, a1 = await daemon.claim("grouped", *WORKERS)
    await daemon.settle(Retry(a0, 600.0, [], "step-aside", "group"))
    await daemon.settle(Retry(a1, 6.0, [], "step-aside", "group"))
    move_time(shop, 60.0)
    await promote(shop)
    assert await daemon.claim("grouped", *WORKERS) == []
    move_time(shop, 600.0)
    await promote(shop)
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a2"]
    assert not shop.raw.exists(shop.keys("closed"))


async def test_a_retry_of_the_task_alone_closes_nothing(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1")
    await daemon.settle(Retry(await daemon.claim_one(), 60.0, [], "step-aside"))
    assert ids(await daemon.claim("grouped", *WORKERS)) == ["a1"]


async def test_many_that_may_not_start_hide_no_other(bench: Bench) -> None:
    """A claim looks at so many and no more; where it finds others that wait, it says so."""
    limited(bench, 1, "1/min")
    daemon = await fill(bench, "a0")
    groups = [f"{n:03d}" for n in range(150)]
    await bench.enqueue(*(arrival(f"t{group}", group) for group in groups))
    for group in groups:
        bench.raw.zadd(bench.keys("closed"), {f"g{group}": bench.server_time() + 60_000_000})
    bench.raw.zadd(bench.keys("ready"), {"a": 9e15})
    async with bench.client.wakes() as wakes:
        await anext(wakes)
        assert await daemon.claim("grouped", "w1") == []
        bench.raw.publish(bench.keys.wake, "over")
        told = [await anext(wakes)]
        while told[-1] != b"over":
            told.append(await anext(wakes))
    assert b"grouped" in told
    [claim] = await daemon.claim("grouped", "w1")
    assert claim.task.id == "a0"


@pytest.mark.parametrize("limited_one", [0, 1])
async def test_nothing_that_has_a_limit_is_of_a_run(bench: Bench, limited_one: int) -> None:
    """Neither the first nor the next one of it: its group may be over its rate by then."""
    limited(bench, rate="1/min")
    tasks = [arrival(f"a{n}", "a") for n in range(2)]
    tasks[1 - limited_one].envelope.rule = "another"
    await bench.enqueue(*tasks)
    daemon = await bench.daemon()
    daemon.claims("grouped").adopt({"rule": 4, "another": 4})
    claim = await daemon.claim_one()
    assert (claim.task.id, ids(claim.run)) == ("a0", [])


@pytest.mark.parametrize("what", ["its rate", "its concurrency", "a closing"])
async def test_a_hop_past_a_limit_writes_nothing(bench: Bench, what: str) -> None:
    """An exchange knows what each may."""
    if what == "its rate":
        limited(bench, rate="1/min")
    daemon = await fill(bench, "a0", "a1")
    claim = await daemon.claim_one()
    if what == "its concurrency":
        limited(bench, 2)
        await daemon.sessions.tell({}, {})
    elif what == "a closing":
        bench.raw.zadd(bench.keys("closed"), {"ga": bench.server_time() + 60_000_000})
    before = bench.dump()
    assert await daemon.hop(claim) is None
    assert bench.dump() == before
    refused, claims = await daemon.exchange("grouped", [Complete(claim)], ["w1"])
    assert (refused, ids(claims)) == ([], ["a1"] if what == "its concurrency" else [])


async def test_a_hop_places_what_may_run_beside_the_next_one(bench: Bench) -> None:
    """Behind two of a serial rule the group has some of which two may run at once."""
    bench.limits = Limits({"wide": Limit(2)})
    tasks = [arrival(f"a{n}", "a") for n in range(5)]
    for each in tasks[2:]:
        each.envelope.rule = "wide"
    await bench.enqueue(*tasks)
    daemon, other = await bench.daemon(), await bench.daemon("d2")
    claim = await daemon.hop(await daemon.claim_one())
    assert claim is not None
    assert bench.audit() == []
    assert ids(await other.claim("grouped", "w1", "w2")) == ["a2"]
    assert await daemon.hop(claim) is None
    bench.events.clear()


async def test_anothers_limit_stops_no_hop(bench: Bench) -> None:
    limited(bench, rate="1/min")
    tasks = [arrival(f"a{n}", "a") for n in range(3)]
    for each in tasks:
        each.envelope.rule = "another"
    await bench.enqueue(*tasks)
    daemon = await bench.daemon()
    following = await daemon.hop(await daemon.claim_one())
    assert following is not None
    assert following.task.id == "a1"
    assert bench.audit() == []
    await daemon.complete(following)
    await daemon.complete(await daemon.claim_one())
    assert bench.judge_drained() == []


async def test_where_another_runs_still_no_hop_goes_past_it(shop: Bench) -> None:
    """One that was redriven in front of the next one, and a limit that came and went."""
    daemon = await fill(shop, "a0", "a1", "a2")
    await daemon.settle(bury(await daemon.claim_one()))
    claim = await daemon.claim_one()
    limited(shop, 2)
    await daemon.sessions.tell({}, {})
    await redrive(shop, "a0")
    other = await shop.daemon("d2")
    assert ids(await other.claim("grouped", "w1")) == ["a0"]
    shop.limits = Limits()
    await daemon.sessions.tell({}, {})
    assert not shop.raw.exists(shop.keys("limits"))
    assert await daemon.hop(claim) is None
    assert await daemon.exchange("grouped", [Complete(claim)], ["w1"]) == ([], [])
