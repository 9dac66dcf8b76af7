"""Tenants: what each may have, how they share workers, and what none of them costs another."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupflow.core.limits import Limit, Limits, Rate, TenantLimit
from groupflow.operate.groups import Groups
from groupflow.operate.tasks import Tasks
from groupflow.servers import RedisServer
from groupflow.store.enqueue import Arrival
from groupflow.store.scripts import Order
from groupflow.store.settlements import Complete, Release, Retry
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.task_state import promote
from tests.store.test_pools import POOL, Worker

SLOTS = [f"w{n}" for n in range(12)]


@pytest.fixture(params=["oldest", "fair", "tenants"])
async def shop(store_server: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A store of each order; after each test its structure is sound."""
    order: Order = request.param
    bench = Bench(store_server.url, order=order)
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


@pytest.fixture
async def mall(store_server: RedisServer) -> AsyncIterator[Bench]:
    """A store whose tenants share by weight."""
    bench = Bench(store_server.url, order="tenants")
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


def limit(shop: Bench, concurrency: int = 0, rate: str = "", **tenants: TenantLimit) -> None:
    """From the next session on, every tenant has this limit, and some their own."""
    every = TenantLimit(concurrency, Rate.parse(rate))
    shop.limits = Limits(
        every_tenant=every, tenants={name.lstrip("t"): each for name, each in tenants.items()}
    )


def of(
    tenant: str, id_: str, group: str | None = None, pool: str | None = None, **facts: Any
) -> Arrival:
    """A message of a tenant."""
    each = arrival(id_, group, **facts)
    each.envelope.tenant, each.envelope.scope = tenant, f"{int(tenant):08x}"
    each.envelope.named_pool = pool
    return each


async def fill(shop: Bench, *arrivals: Arrival) -> Daemon:
    await shop.enqueuer.enqueue(arrivals)
    return await shop.daemon()


def move_time(shop: Bench, seconds: float) -> None:
    """What limits wait for is so much sooner."""
    for kind in ("rates", "closed", "held", "standing"):
        members: Any = shop.raw.zrange(shop.keys(kind), 0, -1, withscores=True)
        for member, due in members:
            if due < 9e15:
                shop.raw.zadd(shop.keys(kind), {member: due - seconds * 1_000_000})


async def both(daemon: Daemon, *slots: str) -> list[str]:
    """What both pools get; each slot belongs to one of them."""
    grouped = await daemon.claim("grouped", *(f"g{slot}" for slot in slots))
    return ids([*grouped, *await daemon.claim("plain", *(f"p{slot}" for slot in slots))])


async def test_a_tenant_runs_so_many_at_once(shop: Bench) -> None:
    """Of all its groups, and another tenant as many."""
    limit(shop, 2)
    daemon = await fill(
        shop,
        *(of("1", f"a{n}", f"a{n}") for n in range(4)),
        *(of("2", f"b{n}", f"b{n}") for n in range(4)),
    )
    claims = await daemon.claim("grouped", *SLOTS)
    assert sorted(ids(claims)) == ["a0", "a1", "b0", "b1"]
    assert shop.audit() == []
    # What may not start is where no claim looks.
    assert not shop.raw.exists(shop.keys("ready"))
    await daemon.complete(next(claim for claim in claims if claim.task.id == "a1"))
    assert ids(await daemon.claim("grouped", "v1", "v2")) == ["a2"]


async def test_plain_and_grouped_tasks_count_alike(shop: Bench) -> None:
    limit(shop, 2)
    plain = [of("1", f"p{n}") for n in range(3)]
    daemon = await fill(shop, of("1", "a0", "a"), of("1", "b0", "b"), *plain, of("2", "q"))
    [first, *others] = await daemon.claim("plain", "p1", "p2", "p3", "p4")
    assert {first.task.id, *ids(others)} == {"p0", "p1", "q"}
    assert await daemon.claim("grouped", *SLOTS) == []
    await daemon.complete(first if first.task.tenant == "1" else others[0])
    [claim] = await daemon.claim("grouped", *SLOTS)
    assert claim.task.id == "a0"
    assert shop.audit() == []
    await daemon.settle(Retry(claim, 60.0, []))
    assert ids(await daemon.claim("plain", "v1", "v2")) == ["p2"]


async def test_one_of_them_has_its_own_limit(shop: Bench) -> None:
    """And whose limit is 0 has none; nor have tasks without a tenant."""
    limit(shop, 1, t1=TenantLimit(3), t2=TenantLimit(0))
    nobodys = [arrival(f"n{n}") for n in range(3)]
    for each in nobodys:
        each.envelope.tenant = None
    daemon = await fill(
        shop, *nobodys, *(of(tenant, f"{tenant}.{n}") for tenant in "123" for n in range(5))
    )
    claims = await daemon.claim("plain", *(f"w{n}" for n in range(30)))
    assert Counter(claim.task.tenant for claim in claims) == {None: 3, "1": 3, "2": 5, "3": 1}


async def test_the_same_name_in_another_application_is_another_tenant(shop: Bench) -> None:
    limit(shop, 1)
    others = [of("1", f"x{n}") for n in range(2)]
    for each in others:
        each.envelope.scope = "ffffffff"
    daemon = await fill(shop, of("1", "a0"), of("1", "a1"), *others)
    assert sorted(ids(await daemon.claim("plain", *SLOTS))) == ["a0", "x0"]


@pytest.mark.parametrize("group", [None, "a"])
@pytest.mark.parametrize("way", [Complete, Release, bury, lambda claim: Retry(claim, 60.0, [])])
async def test_each_end_gives_back_exactly_one(shop: Bench, way: Any, group: Any) -> None:
    limit(shop, 2)
    daemon = await fill(shop, *(of("1", f"t{n}", group and f"{group}{n}") for n in range(4)))
    pool: Any = "grouped" if group else "plain"
    claims = await daemon.claim(pool, *SLOTS)
    for _ in range(2):
        await daemon.exchange(pool, [way(claims[0])], [])
        assert shop.raw.zcard(shop.keys("charges")) == 1
    assert len(await daemon.claim(pool, "v1", "v2", "v3")) == 1


async def test_a_crash_gives_back_exactly_what_it_held(shop: Bench) -> None:
    limit(shop, 3)
    first = await fill(shop, *(of("1", f"t{n}", f"g{n}") for n in range(3)), of("1", "p0"))
    second = await shop.daemon("d2")
    assert len(await first.claim("grouped", "w1", "w2")) == 2
    assert len(await second.claim("grouped", *SLOTS)) == 1
    assert await second.claim("plain", "p1") == []
    shop.expire("d1")
    await second.sessions.reap()
    assert shop.raw.zcard(shop.keys("charges")) == 1
    assert shop.audit() == []
    # A quarantined task comes alone, also where its tenant may have more.
    assert len(await second.claim("grouped", "v1", "v2", "v3")) == 1
    assert ids(await second.claim("plain", "p1")) == ["p0"]
    assert await second.claim("grouped", "u1") == []


async def test_a_tenants_limit_stops_hops_of_its_own_alone(shop: Bench) -> None:
    """Also where another's task of the same group is done."""
    limit(shop, t1=TenantLimit(3))
    waiting = [of("1", "a0", "a"), of("1", "a1", "a"), of("2", "b0", "b"), of("2", "b1", "b")]
    daemon = await fill(shop, *waiting, of("2", "c0", "c"), of("1", "c1", "c"))
    claims = await daemon.claim("grouped", *SLOTS)
    found = {claim.task.group: await daemon.hop(claim) for claim in claims}
    assert found.keys() == {"a", "b", "c"}
    assert (found["a"], found["c"]) == (None, None)
    assert (found["b"] is None) == (shop.order == "tenants")


async def test_a_tenants_starts_are_a_time_apart(shop: Bench) -> None:
    """Plain and grouped ones alike; no claim looks at the tenant until then."""
    limit(shop, 0, "1/min burst 2")
    daemon = await fill(
        shop, *(of("1", f"a{n}", f"a{n}") for n in range(3)), of("1", "p0"), of("2", "b0", "b")
    )
    claims = await daemon.claim("grouped", *SLOTS)
    assert sorted(ids(claims)) == ["a0", "a1", "b0"]
    assert await both(daemon, "v1") == []
    await daemon.complete(*claims)
    assert await both(daemon, "v1") == []
    assert not shop.raw.exists(shop.keys("ready"), shop.keys("ordered"))
    move_time(shop, 61.0)
    await promote(shop)
    assert len(await both(daemon, "v1")) == 1


async def test_limits_hold_for_what_waits_already(shop: Bench) -> None:
    """From a reload on; and end with another."""
    daemon = await fill(
        shop, *(of("1", f"p{n}") for n in range(5)), *(of("1", f"a{n}", f"a{n}") for n in range(5))
    )
    limit(shop, 2)
    await daemon.sessions.tell({}, {})
    assert len(await both(daemon, "1", "2", "3")) == 2
    assert shop.audit() == []
    limit(shop, 3)
    await daemon.sessions.tell({}, {})
    assert len(await both(daemon, "4", "5", "6")) == 1
    shop.limits = Limits()
    await daemon.sessions.tell({}, {})
    assert len(await both(daemon, *(f"v{n}" for n in range(9)))) == 7


@pytest.mark.parametrize("group", [None, "a"])
async def test_a_handler_closes_its_tenant(shop: Bench, group: Any) -> None:
    """All of it, grouped and plain; also where nothing has a limit."""
    daemon = await fill(
        shop, of("1", "t0", group), of("1", "b0", "b"), of("1", "p1"), of("2", "c0", "c")
    )
    [claim] = await daemon.claim("grouped" if group else "plain", "w0")
    await daemon.settle(Retry(claim, 60.0, [], "step-aside", "tenant"))
    assert await both(daemon, "1", "2", "3") == ["c0"]
    assert shop.audit() == []
    move_time(shop, 61.0)
    await promote(shop)
    assert sorted(await both(daemon, "4", "5", "6")) == ["b0", "p1"]


async def test_a_group_of_two_tenants_waits_for_that_of_its_head(shop: Bench) -> None:
    limit(shop, 1)
    await fill(shop, of("1", "x0", "x"))
    daemon = await fill(shop, of("1", "g0", "g"), of("2", "g1", "g"))
    [x0] = await daemon.claim("grouped", *SLOTS)
    assert x0.task.id == "x0"
    assert await Tasks(shop.namespace).drop("g0") is None
    assert ids(await daemon.claim("grouped", "v1")) == ["g1"]


@pytest.mark.parametrize("group", [None, "g"])
async def test_what_waits_for_a_turn_can_be_dropped_and_held(shop: Bench, group: Any) -> None:
    limit(shop, 1)
    await shop.daemon()
    daemon = await fill(shop, *(of("1", f"t{n}", group and f"{group}{n}") for n in range(4)))
    pool: Any = "grouped" if group else "plain"
    [t0] = await daemon.claim(pool, *SLOTS)
    for id_ in ("t1", "t3"):
        assert await Tasks(shop.namespace).drop(id_) is None
        assert shop.audit() == []
    if group:
        await Groups(shop.namespace).pause("g2", "me")
        await daemon.complete(t0)
        assert await daemon.claim(pool, "v1") == []
        await Groups(shop.namespace).resume("g2")
    else:
        await daemon.complete(t0)
    assert ids(await daemon.claim(pool, "v1")) == ["t2"]


async def test_both_limits_hold(shop: Bench) -> None:
    """That of the group, and that of its tenant."""
    shop.limits = Limits({"rule": Limit(2)}, TenantLimit(3))
    daemon = await fill(shop, *(of("1", f"{g}{n}", g) for g in "abc" for n in range(3)))
    claims = await daemon.claim("grouped", *SLOTS)
    assert len(claims) == 3
    assert max(Counter(claim.task.group for claim in claims).values()) <= 2
    assert shop.audit() == []


# Shares


async def test_a_newcomer_waits_for_one_turn(mall: Bench) -> None:
    """However much another one has waiting."""
    batch = [of("1", f"a{n}", f"a{n % 100}") for n in range(1000)]
    batch += [of("1", f"p{n}") for n in range(1000)]
    daemon = await fill(mall, *batch)
    grouped, plain = await daemon.claim("grouped", "w1"), await daemon.claim("plain", "p1")
    await mall.enqueuer.enqueue([of("2", "b0", "b"), of("2", "q0")])
    await daemon.complete(*grouped, *plain)
    first = await both(daemon, "1", "2")
    assert {"b0", "q0"} <= set(first)


@pytest.mark.parametrize("pool", ["grouped", "plain"])
async def test_weights_are_shares(mall: Bench, pool: Any) -> None:
    """1 to 3, whether one or the other has more that waits."""
    limit(mall, 0, t1=TenantLimit(weight=1), t2=TenantLimit(weight=3))
    daemon = await mall.daemon()
    for tenant in "12":
        group = f"g{tenant}" if pool == "grouped" else None
        await mall.enqueuer.enqueue(
            [of(tenant, f"{tenant}.{n}", group and f"{group}{n % 50}") for n in range(900)]
        )
    shares: Counter[str | None] = Counter()
    settled: list[Any] = []
    for _ in range(100):
        _, claims = await daemon.exchange(pool, settled, SLOTS[:8])
        settled = [Complete(claim) for claim in claims]
        shares.update(claim.task.tenant for claim in claims)
    assert shares["1"] + shares["2"] == 800
    assert shares["1"] == pytest.approx(200, abs=2)


async def test_who_was_away_saved_nothing_up(mall: Bench) -> None:
    """Nor has who comes to make up for what others have had."""
    daemon = await fill(mall, *(of("1", f"a{n}", f"a{n}") for n in range(60)))
    settled: list[Any] = []
    for _ in range(20):
        _, claims = await daemon.exchange("grouped", settled, ["w1"])
        settled = [Complete(claim) for claim in claims]
    await mall.enqueuer.enqueue([of("2", f"b{n}", f"b{n}") for n in range(20)])
    ran = []
    for _ in range(20):
        _, claims = await daemon.exchange("grouped", settled, ["w1"])
        settled = [Complete(claim) for claim in claims]
        ran += [claim.task.tenant for claim in claims]
    assert Counter(ran) == {"1": 10, "2": 10}


async def test_of_shares_nothing_is_left(mall: Bench) -> None:
    """Once no tenant waits."""
    daemon = await fill(mall, *(of(f"{n}", f"t{n}") for n in range(30)))
    await daemon.work_off()
    await promote(mall)
    assert not mall.raw.exists(mall.keys("shares", "p"))


async def test_shares_that_are_past_go_with_later_starts(mall: Bench) -> None:
    """Who ran once, and never comes back, isn't remembered for ever."""
    daemon = await fill(mall, *(of(f"{n}", f"t{n}") for n in range(10, 60)))
    await daemon.work_off()
    await mall.enqueuer.enqueue([of("1", f"u{n}") for n in range(90)])
    await daemon.work_off()
    assert mall.raw.zcard(mall.keys("shares", "p")) == 2


# Seen


async def test_an_end_in_one_pool_is_heard_in_the_other(shop: Bench) -> None:
    limit(shop, 1)
    daemon = await fill(shop, of("1", "p0"))
    [claim] = await daemon.claim("plain", "p1")
    await shop.enqueuer.enqueue([of("1", "a0", "a")])
    assert await daemon.claim("grouped", "w1") == []
    async with shop.client.wakes() as wakes:
        await anext(wakes)
        await daemon.exchange("plain", [Complete(claim)], ["p2"])
        shop.raw.publish(shop.keys.wake, "over")
        told = [await anext(wakes)]
        while told[-1] != b"over":
            told.append(await anext(wakes))
    assert b"ready" in told
    assert ids(await daemon.claim("grouped", "w1")) == ["a0"]


async def test_why_it_waits(shop: Bench) -> None:
    """A group whose tenant may start nothing, and one that only waits for its turn."""
    limit(shop, 1, t2=TenantLimit(rate=Rate.parse("1/h")), t3=TenantLimit(9))
    daemon = await shop.daemon()
    await shop.enqueuer.enqueue(
        [of(tenant, f"{tenant}{n}", f"{tenant}{n}") for tenant in "12" for n in range(3)]
    )
    await daemon.claim("grouped", *SLOTS)
    await shop.enqueuer.enqueue([of("3", f"3{n}", f"3{n}") for n in range(3)])
    groups = Groups(shop.namespace)
    states = {
        group: (await groups.why(group)).state for group in ("10", "11", "21", "30", "31", "32")
    }
    assert states == {
        **{"10": "running", "11": "delayed", "21": "delayed"},
        **dict.fromkeys(("30", "31", "32"), "ready"),
    }
    assert (await groups.why("11")).reason == "tenant 1 runs its 1 of 1; 2 groups wait"
    why = await groups.why("22")
    assert why.reason.startswith("tenant 2 is over its 1/h until ")
    assert why.until is not None
    status = await shop.status()
    assert (status.running_grouped, status.ready, status.delayed) == (2, 3, 4)
    assert (status.groups, status.standing, status.standing_tenants) == (9, 4, 2)


async def test_what_waits_in_a_pool_is_in_no_tenants_line(shop: Bench) -> None:
    """Its workers get it above its tenant's limit, and it counts for no tenant."""
    limit(shop, 1)
    daemon, anna = await shop.daemon(), Worker(shop)
    await shop.enqueue(of("1", "a0", "a"), of("1", "b0", "b"), of("1", "p0"))
    await shop.enqueue(
        *(of("1", id_, id_[0], POOL) for id_ in ("a1", "y0")), of("1", "x0", None, POOL)
    )
    [claim] = await daemon.claim("grouped", *SLOTS)
    assert claim.task.id == "a0"
    held = {each.task.id: each for each in await anna.claim(9)}
    assert held.keys() == {"x0", "y0"}
    assert shop.audit() == []
    await anna.settle(*(Release(each) for each in held.values()))
    assert sorted(ids(await anna.claim(9))) == ["x0", "y0"]
    await daemon.complete(claim)
    assert shop.audit() == []
    assert ids(await daemon.claim("grouped", *SLOTS)) == ["b0"]
    assert await daemon.claim("plain", "p1", "p2") == []
    assert ids(await anna.claim(9)) == ["a1"]
