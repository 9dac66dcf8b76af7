"""How tenants share, at the size for which it is promised; `make long` runs it.

No auditor at the end, which would read a hundred thousand tasks one by one: `test_tenants` has it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from groupflow.core.limits import Limits, TenantLimit
from groupflow.servers import RedisServer
from groupflow.store.settlements import Complete, Settlement
from tests.store.actors import of
from tests.store.bench import Bench

SLOTS = [f"w{n}" for n in range(16)]


async def fill(shop: Bench, tenant: str, tasks: int, groups: int) -> None:
    """Tasks of a tenant in groups of its own."""
    for first in range(0, tasks, 1000):
        numbers = range(first, first + 1000)
        await shop.enqueuer.enqueue(
            [of(tenant, f"{tenant}.{n}", f"{tenant}.g{n % groups}") for n in numbers]
        )


async def test_shares_at_scale(store_server: RedisServer) -> None:
    """Over ten thousand tasks they are one to three, and a newcomer waits for one turn."""
    mall = Bench(store_server.url, order="tenants")
    mall.limits = Limits(tenants={"1": TenantLimit(weight=1), "2": TenantLimit(weight=3)})
    try:
        await fill(mall, "1", 100_000, 1000)
        await fill(mall, "2", 10_000, 100)
        daemon = await mall.daemon()
        shares: Counter[str | None] = Counter()
        settled: list[Settlement] = []
        while shares.total() < 10_000:
            refused, claims = await daemon.exchange("grouped", settled, SLOTS)
            assert (refused, len(claims)) == ([], len(SLOTS))
            shares.update(claim.task.tenant for claim in claims)
            settled = [Complete(claim) for claim in claims]
        assert shares["1"] == pytest.approx(2500, rel=0.05)
        await mall.enqueuer.enqueue([of("3", "new", "a group of its own")])
        turns = []
        for claim in claims[:2]:
            _, found = await daemon.exchange("grouped", [Complete(claim)], [claim.slot])
            turns += [each.task.id for each in found]
        assert "new" in turns
    finally:
        await mall.close()
