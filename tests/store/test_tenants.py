"""Tenants: what each may have, how they share workers, and what none of them costs another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from groupflow.core.limits import Limits, Rate, TenantLimit
from groupflow.operate.busy import read_tops
from groupflow.operate.groups import Groups
from groupflow.operate.statistics import find_longest
from groupflow.store.settlements import Complete
from tests.deadlines import deadline
from tests.store.actors import of
from tests.store.bench import Bench, arrival
from tests.store.story import named, play, played
from tests.store.task_state import promote

SLOTS = [f"w{n}" for n in range(12)]
ORDERS = pytest.mark.parametrize("order", ["oldest", "tenants"], indirect=True)
SHARED = pytest.mark.parametrize("order", ["tenants"], indirect=True)

LIMITS = named(
    """
    it runs so many of all its groups, and another as many::
        tenants 2 | take 1/a0 1/b0 1/c0 1/d0 2/e0 2/f0 2/g0 | every a0 b0 e0 f0 | sound | gone ready
        done b0 | all c0
    plain and grouped tasks count alike::
        tenants 2 | take 1/a0 1/b0 1/p0 1/p1 1/p2 | claim p0 p1 | none | done p0 | claim a0 | sound
        retry a0 | claim p2
    a plain task says that its tenant's limit holds it::
        tenants 2 | take 1/p0 1/p1 1/p2 | claim p0 p1
        task p2 queued: waits for its tenant's limit: tenant 1 runs its 2 of 2 | done p0
        task p2 queued: waits for a worker
    one has its own limit, one none::
        tenants 1 1=3 2=0 | take 1/p0 1/p1 1/p2 1/p3 2/q0 2/q1 2/q2 3/a0 3/b0 | claim a0
        every p0 p1 p2 q0 q1 q2
    a crash gives back what it held::
        tenants 3 | take 1/a0 1/b0 1/c0 1/p0 | open d2 | claim a0 b0 | d2: all c0 | lose d1 a0 b0
        size charges=1 | sound | d2: all a0*1 p0 | d2: none
    starts are a time apart, plain and grouped; no claim looks at the tenant::
        tenants 0 1/min burst 2 | take 1/a0 1/b0 1/c0 1/p0 2/d0 | every a0 b0 d0 | none
        done a0 b0 d0 | none | gone ready ordered | later 61 | claim c0 | none
    a reload holds for what waits already, and ends it::
        take 1/p0 1/p1 1/p2 1/p3 1/p4 | open d1 | tenants 2 | reload | all p0 p1 | sound
        tenants 3 | reload | all p2 | limits | reload | all p3 p4
    one that a reload brings counts what runs already::
        take 1/a0 1/b0 1/p0 | claim a0 b0 p0 | tenants 2 | reload | take 1/c0 1/p1 | none
        done a0 | sound | none | done p0 | claim c0 | none | done b0 | claim p1 | sound
    a group of two tenants waits for that of its head::
        tenants 1 | take 1/x0 | take 1/g0 2/g1 | claim x0 | none | drop g0 | all g1
    what waits for a turn can be dropped::
        tenants 1 | take 1/p0 1/p1 1/p2 1/a0 1/b0 1/c0 | claim p0 | none | drop p1 | sound
        drop a0 | sound | pause b | done p0 | claim c0 | none | done c0 | resume b | claim b0
        done b0 | all p2
    what waits in a pool is in no tenant's line::
        open anna | tenants 1 | open d1 | take 1/a0 1/b0 1/p0 | take 1/a1= 1/y0= 1/q0= | claim a0
        none | anna: all y0 q0 | sound | release y0 q0 | anna: all y0 q0 | done a0 | sound | all b0
        anna: all a1
    an end in one pool is heard in the other::
        tenants 1 | take 1/p0 | claim p0 | take 1/a0 | none | hears ready swap p0 | all a0
    a handler closes its tenant, grouped and plain::
        take 1/a0 1/b0 1/p1 2/c0 | claim a0 | retry a0 aside tenant | all c0 | sound
        later 3601 | all b0 p1
    """
)
LIMITS |= {
    f"{way} of {tasks.split()[0]} gives back one, said twice too": f"""
        tenants 2 | take {" ".join(f"1/{id_}" for id_ in tasks.split())}
        claim {tasks[:5]} | {way} {tasks[:2]} | size charges=1 | unchanged {way} {tasks[:2]}
        claim {tasks[:2] if way == "release" else tasks[6:8]} | none
    """
    for way in ("done", "release", "bury", "retry")
    for tasks in ("a0 b0 c0 d0", "p0 p1 p2 p3")
}
test_limits_of_tenants = ORDERS(played(LIMITS))


# In order of names; those without a tenant are left out unless tenants take turns.
test_tenants_are_counted = played(
    """
    wherever its tasks wait or run::
        take 1/a0 1/a1 2/b0 3/p0 3/p1 4/p2= 4/c0= | counted 1=2+0 2=1+0 3=2+0 4=2+0
        claim a0 b0 p0 | anna: claim p2 | counted 1=1+1 2=0+1 3=1+1 4=1+1
        retry a0 | retry p0 | done b0 | take 5/e0 5/e1 6/f0 6/q0@ | release p2 | pause f
        claim e0 | park e0 | counted 1=2+0 3=2+0 4=2+0 5=1+0 6=2+0
        take 7/g0 7/g1 | claim g0 | retry g0 aside | counted 1=2+0 3=2+0 4=2+0 5=1+0 6=2+0 7=2+0
    by a limit alone, or with all that waits behind one task that runs::
        tenants 0 8=1 9=2 | open d1 | counted 8=0+0 9=0+0 | take 8/a0 8/a1 8/a2 | claim a0
        counted 8=2+1 9=0+0 | hand tenant 7 3 | counted 7=0+0 8=2+1 9=0+0 | bury a0
        tenants 0 8=1 9=1 | reload | claim a1 | take 8/b0 8/p0 8/p1 | none
        counted 7=0+0 8=4+1 9=0+0
    in the line of a type::
        types v=1 | open d1 | take 1/a0:v 1/b0:v 2/p0:v 2/p1:v 3/c0:v | claim a0
        counted 1=1+1 2=2+0 3=1+0 | done a0 | counted 1=1+0 2=2+0 3=1+0
    """,
    orders=["oldest", "tenants"],
)


@ORDERS
async def test_whose_tasks_are_no_tenants_and_whose_are_anothers(shop: Bench) -> None:
    """None has no limit; the same name in another application is another tenant."""
    others = [arrival("p0"), arrival("p1"), of("1", "p2"), of("1", "p3")]
    for each in others[:2]:
        each.envelope.tenant = None
    for each in others[2:]:
        each.envelope.scope = "ffffffff"
    await shop.enqueue(*others)
    await play(shop, "tenants 1 | take 1/q0 1/q1 | every p0 p1 p2 q0 | none")


@ORDERS
async def test_why_it_waits(shop: Bench) -> None:
    """A group whose tenant may start nothing, and one that only waits for its turn."""
    paced, wide = TenantLimit(rate=Rate.parse("1/h")), TenantLimit(9)
    shop.limits = Limits({}, TenantLimit(1), {"2": paced, "3": wide})
    await play(
        shop,
        """open d1 | take 1/a0 1/b0 1/c0 2/d0 2/e0 2/f0 | every a0 d0 | take 3/g0 3/h0 3/i0
        why a running | why b delayed: tenant 1 runs its 1 of 1; 2 groups wait
        why e delayed: tenant 2 is over its 1/h until | why g ready | why h ready | why i ready
        status running_grouped=2 ready=3 delayed=4 groups=9 standing=4 standing_tenants=2
        status standing_plain=0 | take 2/p0 2/p1 | status standing=4 standing_plain=2""",
    )
    status = await shop.status()
    assert (status.standing_names, status.waited_plain) == (["2", "1"], 0.0)
    assert 0.0 < status.standing_waited < deadline()
    assert (await Groups(shop.namespace).why("f")).until is not None
    await find_longest(shop.client)
    tops = await read_tops(shop.namespace)
    held = {"b": "delayed", "e": "delayed", "h": "ready"}
    for found in ({top.group: top.state for top in each} for each in (tops.slowest, tops.longest)):
        assert found.items() >= held.items()


# Shares


async def share(shop: Bench, pool: Any, slots: int, turns: int) -> Counter[str | None]:
    """How many tasks of each tenant start, in so many turns of so many slots."""
    daemon, settled = await shop.daemon(), list[Any]()
    shares: Counter[str | None] = Counter()
    for _ in range(turns):
        _, claims = await daemon.exchange(pool, settled, SLOTS[:slots])
        settled = [Complete(claim) for claim in claims]
        shares.update(claim.task.tenant for claim in claims)
    await daemon.exchange(pool, settled, [])
    return shares


@SHARED
@pytest.mark.parametrize("pool", ["grouped", "plain"])
async def test_weights_are_shares(shop: Bench, pool: Any) -> None:
    """1 to 3, whether one or the other has more that waits."""
    shop.limits = Limits(tenants={"1": TenantLimit(weight=1), "2": TenantLimit(weight=3)})
    for tenant in "12":
        group = f"g{tenant}" if pool == "grouped" else None
        await shop.enqueuer.enqueue(
            [of(tenant, f"{tenant}.{n}", group and f"{group}{n % 50}") for n in range(900)]
        )
    shares = await share(shop, pool, 8, 100)
    assert shares["1"] + shares["2"] == 800
    assert shares["1"] == pytest.approx(200, abs=2)


@SHARED
async def test_who_was_away_saved_nothing_up(shop: Bench) -> None:
    """Nor has who comes to make up for what others have had."""
    await shop.enqueuer.enqueue([of("1", f"a{n}", f"a{n}") for n in range(60)])
    await share(shop, "grouped", 1, 20)
    await shop.enqueuer.enqueue([of("2", f"b{n}", f"b{n}") for n in range(20)])
    assert await share(shop, "grouped", 1, 20) == {"1": 10, "2": 10}


@SHARED
async def test_of_shares_nothing_is_left(shop: Bench) -> None:
    """Once no tenant waits; and who ran once isn't remembered while others start."""
    daemon = await shop.daemon()
    await shop.enqueuer.enqueue([of(f"{n}", f"t{n}") for n in range(10, 60)])
    await daemon.work_off()
    await shop.enqueuer.enqueue([of("1", f"u{n}") for n in range(90)])
    await daemon.work_off()
    assert shop.raw.zcard(shop.keys("shares", "p")) == 2
    await promote(shop)
    assert not shop.raw.exists(shop.keys("shares", "p"))
