"""Tenants as operators see them: a page of bounded cost, one row for all partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from groupflow.core.limits import HandLimit, Limits, Rate, TenantLimit
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.namespace import Namespace
from groupflow.operate.tenants import TenantRow, list_tenants
from groupflow.store.enqueue import Arrival
from groupflow.store.settlements import Release
from tests.operate.spread import Spread, all_pages
from tests.store.bench import Daemon, arrival


def of(tenant: str, id_: str, group: str | None = None, scope: str = "0a0a0a0a") -> Arrival:
    found = arrival(id_, group)
    found.envelope.tenant, found.envelope.scope = tenant, scope
    return found


async def begin(spread: Spread, limits: Limits) -> list[Daemon]:
    """A daemon in each partition, that brings limits."""
    for bench in spread.benches:
        bench.raw.hset(bench.keys("partitions"), "number", len(spread.benches))
        bench.limits = limits
    return list(await spread.daemons())


async def every(namespace: Namespace, limit: int, name: str = "") -> list[list[TenantRow]]:
    """All pages."""
    ask = partial(list_tenants, namespace, limit=limit, name=name)
    return [page.tenants for page in await all_pages(lambda cursor: ask(cursor=cursor))]


def names(pages: Sequence[Sequence[TenantRow]]) -> list[str]:
    return [row.name for page in pages for row in page]


async def test_one_row_for_all_partitions(spread: Spread) -> None:
    count = len(spread.benches)
    limits = Limits(every_tenant=TenantLimit(concurrency=1), tenants={"free": TenantLimit()})
    daemons = await begin(spread, limits)
    await spread.enqueue(*(of("42", f"t{n}", f"g{n}") for n in range(24)))
    await spread.enqueue(*(of("42", f"p{n}") for n in range(24)))
    await spread.enqueue(*(of("free", f"f{n}", f"f{n}") for n in range(24)))
    for daemon in daemons:
        assert len(await daemon.claim("plain", "w1", "w2")) == 1
    ((row,),) = [page for page in await every(spread.namespace, 50) if page]
    assert (row.name, row.groups, row.plain, row.running) == ("42", 24, 24 - count, count)
    assert (row.concurrency, row.limited_by, row.until) == (count, "concurrency", None)
    assert row.oldest is not None
    assert row.by_hand_until is None
    await LimitsByHand(spread.namespace).begin(HandLimit("tenant", "42", 0, "5/s"), "ada", 60.0)
    ((row,),) = [page for page in await every(spread.namespace, 50) if page]
    assert (row.concurrency, row.rate, row.limited_by) == (0, "5/s", None)
    assert row.by_hand_until is not None


async def test_a_tenant_over_its_rate_stands_until_a_time(spread: Spread) -> None:
    daemons = await begin(spread, Limits(every_tenant=TenantLimit(rate=Rate.parse("1/h"))))
    await spread.enqueue(*(of("42", f"p{n}") for n in range(24)))
    for daemon in daemons:
        assert len(await daemon.claim("plain", "w1", "w2")) == 1
    page = await list_tenants(spread.namespace)
    (row,) = page.tenants
    assert (row.limited_by, (row.until or 0.0) > page.at + 3000) == ("rate", True)


async def test_every_page_is_small_and_all_are_found_once(spread: Spread) -> None:
    """Those at their limits first in each partition; then those that may start, or only run."""
    daemons = await begin(spread, Limits(every_tenant=TenantLimit(concurrency=1)))
    few = [f"at{n}" for n in range(40)]
    await spread.enqueue(*(of(name, f"{name}-{n}") for name in few for n in range(9)))
    for daemon in daemons:
        await daemon.claim("plain", *(f"w{n}" for n in range(400)))
    many = [f"t{n:03}" for n in range(150)]
    await spread.enqueue(*(of(name, f"{name}-{n}", f"{name}-{n}") for name in many for n in "ab"))
    await spread.enqueue(*(of(name, f"{name}-p") for name in many[:40]))  # turns of two kinds
    pages = await every(spread.namespace, 10)
    assert sorted(names(pages)) == sorted([*few, *many])
    assert max(map(len, pages)) <= 150  # Redis gives a small hash as one piece
    begun = names(pages)[:10]
    assert all(name.startswith("at") for name in begun)


async def test_a_name_is_found_in_every_application_that_answers(spread: Spread) -> None:
    await begin(spread, Limits(every_tenant=TenantLimit(concurrency=9)))
    await spread.enqueue(*(of(f"t{n}", f"t{n}", f"g{n}") for n in range(60)))
    await spread.enqueue(of("t7", "another", "another", "1b1b1b1b"))
    found = [row for page in await every(spread.namespace, 50, name="t7") for row in page]
    assert {(row.name, row.scope) for row in found} == {("t7", "0a0a0a0a"), ("t7", "1b1b1b1b")}
    assert len(found) == 2
    lost = spread.without(0)
    there = set(names(await every(lost, 50)))
    assert 0 < len(there) < 60
    assert [each.partition for each in (await list_tenants(lost)).away] == [0]


async def test_what_is_looked_at_has_a_bound(spread: Spread) -> None:
    """A name that no tenant has is sought among so many, and then the rest is for the next page."""
    bench = spread.benches[0]
    bench.raw.zadd(bench.keys("standing"), {f"--------t{n}": n for n in range(10_000)})
    found = await list_tenants(spread.namespace, name="unknown")
    assert (found.tenants, found.looked_at, found.next is None) == ([], 2000, False)
    bench.raw.delete(bench.keys("standing"))


async def test_a_limit_by_hand_is_shared_out(spread: Spread) -> None:
    """As one that is configured: at least one task at once in each partition; a rate is slower."""
    await begin(spread, Limits())
    await spread.put(*(arrival(f"p{n}") for n in range(80)))
    limits = LimitsByHand(spread.namespace)
    for told, share in ((1, 1), (8, 2), (9, 2), (0, 9)):
        await limits.begin(HandLimit("tenant", "42", told), "ada", 3600.0)
        for bench in spread.benches:
            daemon = await bench.daemon()
            claims = (await daemon.exchange("plain", [], [f"w{n}" for n in range(9)]))[1]
            assert len(claims) == share
            await daemon.exchange("plain", [Release(claim) for claim in claims], [])
    await limits.begin(HandLimit("tenant", "42", 0, rate="1/min"), "ada", 3600.0)
    for bench in spread.benches:
        assert len((await (await bench.daemon()).exchange("plain", [], ["w1", "w2"]))[1]) == 1
        rates: Any = bench.raw.zrange(bench.keys("rates"), 0, -1, withscores=True)
        ((_, due),) = rates
        assert 230e6 < due - bench.server_time() <= 240e6
    (one,) = (await limits.every()).limits
    assert (one.name, one.concurrency, one.by) == ("42", 0, "ada")
    assert await limits.end("tenant", "42", "bob")
    assert (await limits.every()).limits == []
