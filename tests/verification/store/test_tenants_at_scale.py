"""How tenants share, at the size for which it is promised; `make long` runs it.

No auditor at the end, which would read a hundred thousand tasks one by one: `test_tenants` has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupflow.core.limits import Limits, TenantLimit
from groupflow.servers import RedisServer
from groupflow.store.settlements import Complete
from tests.store.bench import Bench, Daemon
from tests.store.test_tenants import of

SLOTS = [f"w{n}" for n in range(16)]
AT_ONCE = 1000


@pytest.fixture
async def mall(store_server: RedisServer) -> AsyncIterator[Bench]:
    """A store whose tenants share by weight."""
    bench = Bench(store_server.url, order="tenants")
    try:
        yield bench
    finally:
        await bench.close()


async def fill(shop: Bench, tenant: str, tasks: int, groups: int) -> None:
    """Tasks of a tenant in groups of its own."""
    for first in range(0, tasks, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, tasks))
        await shop.enqueuer.enqueue(
            [of(tenant, f"{tenant}.{n}", f"{tenant}.g{n % groups}") for n in numbers]
        )


async def go_on(daemon: Daemon, settled: list[Any], slots: list[str]) -> list[Any]:
    """Settle, and claim for as many."""
    refused, claims = await daemon.exchange("grouped", settled, slots)
    assert refused == []
    return claims


async def test_who_has_a_hundred_thousand_delays_a_newcomer_by_one_turn(mall: Bench) -> None:
    await fill(mall, "1", 100_000, 1000)
    daemon = await mall.daemon()
    running = await go_on(daemon, [], SLOTS)
    assert {claim.task.tenant for claim in running} == {"1"}
    await mall.enqueuer.enqueue([of("2", "new", "a group of its own")])
    turns = []
    for claim in running[:2]:
        found = await go_on(daemon, [Complete(claim)], [claim.slot])
        turns += [each.task.id for each in found]
    assert "new" in turns


async def test_over_ten_thousand_tasks_shares_are_one_to_three(mall: Bench) -> None:
    """Within 5 %."""
    mall.limits = Limits(tenants={"1": TenantLimit(weight=1), "2": TenantLimit(weight=3)})
    for tenant in "12":
        await fill(mall, tenant, 10_000, 100)
    daemon = await mall.daemon()
    shares: Counter[str | None] = Counter()
    settled: list[Any] = []
    while shares.total() < 10_000:
        claims = await go_on(daemon, settled, SLOTS)
        assert len(claims) == len(SLOTS)
        shares.update(claim.task.tenant for claim in claims)
        settled = [Complete(claim) for claim in claims]
    assert shares["1"] == pytest.approx(2500, rel=0.05)
    assert shares["2"] == pytest.approx(7500, rel=0.05)
