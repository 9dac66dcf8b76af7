"""Tenants as operators see them: a page of bounded cost, one row for all partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from groupflow.core.limits import HandLimit, Limits, Rate, TenantLimit
from groupflow.core.routing import scope_of
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.namespace import Namespace
from groupflow.operate.tenants import TenantPage, TenantRow, Tenants
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.enqueue import Arrival
from groupflow.store.settlements import Complete, Release
from tests.operate.spread import Spread, all_pages
from tests.store.bench import Bench, Daemon, arrival


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


async def page_of(namespace: Namespace, **asked: Any) -> TenantPage:
    """A page of counts of its own."""
    tenants = Tenants(namespace)
    return await tenants.page(await tenants.count(), **asked)


async def every(namespace: Namespace, limit: int, name: str = "") -> list[list[TenantRow]]:
    """All pages."""
    ask = partial(page_of, namespace, limit=limit, name=name)
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
    ((row, free),) = await every(spread.namespace, 50)
    assert (free.name, free.waiting, free.groups, free.concurrency) == ("free", 24, 24, 0)
    assert (row.name, row.groups, row.plain, row.running) == ("42", 24, 24 - count, count)
    assert row.waiting == 48 - count
    assert (row.concurrency, row.limited_by, row.until) == (count, "concurrency", None)
    assert (row.oldest is not None, row.by_hand_until) == (True, None)
    await LimitsByHand(spread.namespace).begin(HandLimit("tenant", "42", 0, "5/s"), "ada", 60.0)
    (row,) = (await page_of(spread.namespace, name="42")).tenants
    assert [(each.state, each.waiting) for each in row.shown] == [("ready", 1)] * 20
    assert (row.concurrency, row.rate, row.limited_by) == (0, "5/s", None)
    assert row.by_hand_until is not None


async def test_a_tenant_over_its_rate_stands_until_a_time(spread: Spread) -> None:
    daemons = await begin(spread, Limits(every_tenant=TenantLimit(rate=Rate.parse("1/h"))))
    await spread.enqueue(*(of("42", f"p{n}") for n in range(24)))
    for daemon in daemons:
        assert len(await daemon.claim("plain", "w1", "w2")) == 1
    page = await page_of(spread.namespace)
    (row,) = page.tenants
    assert (row.limited_by, (row.until or 0.0) > page.at + 3000) == ("rate", True)


async def test_what_came_before_the_limit_is_held_too(bench: Bench) -> None:
    """No claim has met it, so it stands in no line of its tenant."""
    bench.limits = Limits(every_tenant=TenantLimit(rate=Rate.parse("1/h")))
    await bench.enqueue(*(of("42", f"p{n}") for n in range(3)))
    daemon = await bench.daemon()
    await daemon.complete(*await daemon.claim("plain", "w1"))
    (row,) = (await page_of(bench.namespace)).tenants
    assert (row.waiting, row.plain, row.limited_by) == (2, 2, "rate")


async def test_a_line_of_quarantined_tasks_alone(bench: Bench) -> None:
    """It is known when the oldest came."""
    bench.limits = Limits(every_tenant=TenantLimit(concurrency=1))
    daemon, now = await bench.daemon("d2"), bench.server_time() / 1e6
    await bench.enqueue(of("42", "p0"))
    await daemon.claim_one("plain")
    await daemon.sessions.leave()
    await bench.daemon()
    (row,) = (await page_of(bench.namespace)).tenants
    assert (row.waiting, row.oldest is not None and row.oldest >= now) == (1, True)


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
    assert [each.partition for each in (await page_of(lost)).away] == [0]


def knowing(bench: Bench) -> Namespace:
    """A namespace whose configuration has a rule of the application crm."""
    settings = Settings(groups=[GroupRule(app="crm", key="{k}")])
    return Namespace([bench.client], settings.router)


async def test_what_is_looked_at_has_a_bound(bench: Bench, monkeypatch: Any) -> None:
    """It says that it left some; by name those are found that wait in a line of their own."""
    monkeypatch.setattr("groupflow.operate.tenants.OF_EACH", 40)
    bench.limits = Limits(every_tenant=TenantLimit(rate=Rate.parse("1/h")))
    daemon, names = await bench.daemon(), {f"t{n}" for n in range(60)}
    for each in [*names] * 2:
        await bench.enqueue(of(each, f"{uuid4()}", scope=scope_of("crm", each)))
    await daemon.settle(*(Complete(claim) for claim in await daemon.claim("plain", *names)))
    found = await page_of(knowing(bench), limit=7)
    assert (found.total, found.looked_at, found.is_whole, found.next) == (40, 41, False, "0.7")
    assert {(row.app, row.limited_by, row.waiting) for row in found.tenants} == {("crm", "rate", 1)}
    for name in names:
        (row,) = (await page_of(knowing(bench), name=name)).tenants
        assert (row.name, row.app, row.plain) == (name, "crm", 1)
    assert (await page_of(knowing(bench), name="t60")).tenants == []


async def test_the_application_is_told_where_it_is_known(bench: Bench) -> None:
    """By a rule that names it, or else by a task; some tasks name none, some are a schedule's."""
    for app in ("crm", "shop", None):
        message = of("7", f"{app}", "g", scope_of(app, "7"))
        message.envelope.body = orjson.dumps({"app_name": app} if app else {})
        await bench.enqueue(message)
    await bench.enqueue(of("7", "tick"))
    daemon = await bench.daemon()
    for app in ("crm", "shop", ""):  # the next task of a group says whose it is
        apps = {row.app for row in (await page_of(knowing(bench))).tenants}
        assert apps == {app, None}
        await daemon.complete(await daemon.claim_one("grouped"))


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
