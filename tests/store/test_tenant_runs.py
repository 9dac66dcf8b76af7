"""Tenants and runs: a run counts as one that runs, and pays for each task that it begins."""

from __future__ import annotations

from collections import Counter

import pytest

from groupflow.core.limits import TenantLimit
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Retry
from tests.store.bench import Bench, Daemon, ids
from tests.store.test_tenants import fill, limit, mall, of, shop

__all__ = ["mall", "shop"]  # fixtures


async def run_of(daemon: Daemon, slot: str = "w1") -> list[Claim]:
    """The claims of one slot's run."""
    [claim] = await daemon.claim("grouped", slot)
    return [claim, *claim.run]


async def tell(daemon: Daemon, done: list[Claim], following: Claim | None = None) -> None:
    """So much of a run is done."""
    told = Proceed([Complete(each) for each in done], following)
    assert await daemon.exchange("grouped", [told], []) == ([], [])


async def test_a_run_counts_as_one_of_its_tenant(shop: Bench) -> None:
    """From its first task to its last one, with any of them told."""
    limit(shop, 2)
    tasks = [of("1", f"{g}{n}", g) for n in range(3) for g in "abc"]
    daemon = await fill(shop, *tasks)
    daemon.claims("grouped").adopt({"rule": 8})
    first, second = await run_of(daemon), await run_of(daemon, "w2")
    assert (ids(first), ids(second)) == (["a0", "a1", "a2"], ["b0", "b1", "b2"])
    assert await daemon.claim("grouped", "w3") == []
    await tell(daemon, first[:1], first[1])
    assert await daemon.claim("grouped", "w3") == []
    assert shop.audit() == []
    await tell(daemon, first[1:])
    assert ids(await run_of(daemon, "w3")) == ["c0", "c1", "c2"]
    assert await daemon.claim("grouped", "w4") == []
    assert shop.audit() == []


async def test_a_run_that_ends_early_gives_back_its_one(shop: Bench) -> None:
    """By a failure behind its first tasks, and by a crash."""
    limit(shop, 1)
    daemon = await fill(shop, *(of("1", f"{g}{n}", g) for n in range(3) for g in "ab"))
    daemon.claims("grouped").adopt({"rule": 8})
    run = await run_of(daemon)
    told = Proceed([Complete(run[0])], run[1])
    failed = Retry(run[1], 60.0, [])
    assert await daemon.exchange("grouped", [told, failed], []) == ([], [])
    assert shop.audit() == []
    run = await run_of(daemon)
    assert ids(run) == ["b0", "b1", "b2"]
    await tell(daemon, run[:1], run[1])
    shop.with_faults = True
    daemon.drop(run[1])
    await daemon.register()
    assert shop.audit() == []
    assert not shop.raw.exists(shop.keys("charged"))
    assert ids(await run_of(daemon)) == ["b1"]


async def test_where_starts_are_held_apart_there_are_no_runs(shop: Bench) -> None:
    limit(shop, rate="1/h burst 9")
    daemon = await fill(shop, *(of("1", f"a{n}", "a") for n in range(3)))
    daemon.claims("grouped").adopt({"rule": 8})
    assert ids(await run_of(daemon)) == ["a0"]


async def test_a_tenant_that_is_closed_meanwhile_ends_its_run(shop: Bench) -> None:
    limit(shop, 5)
    daemon = await fill(shop, *(of("1", f"a{n}", "a") for n in range(4)))
    daemon.claims("grouped").adopt({"rule": 8})
    run = await run_of(daemon)
    await shop.enqueuer.enqueue([of("1", "b0", "b")])
    [b0] = await daemon.claim("grouped", "w2")
    await daemon.exchange("grouped", [Retry(b0, 60.0, [], scope="tenant")], [])
    answer = await daemon.claims("grouped").exchange([Proceed([Complete(run[0])], run[1])], [])
    assert answer.ending == {"w1"}


async def test_a_run_is_one_tenants(shop: Bench) -> None:
    """Where a group is common to several, each counts for its own."""
    limit(shop, 5)
    named = [of("1", "a0", "a"), of("1", "a1", "a"), of("2", "a2", "a"), of("1", "a3", "a")]
    daemon = await fill(shop, *named)
    daemon.claims("grouped").adopt({"rule": 8})
    run = await run_of(daemon)
    assert ids(run) == ["a0", "a1"]
    await tell(daemon, run)
    assert ids(await run_of(daemon)) == ["a2"]


@pytest.mark.parametrize("weight", [1, 3])
async def test_a_run_is_paid_for_task_by_task(mall: Bench, weight: int) -> None:
    """Who has runs of eight gets no more than its weight's share beside one that has none."""
    limit(mall, t1=TenantLimit(weight=1), t2=TenantLimit(weight=weight))
    for begin in range(0, 960, 96):
        numbers = range(begin, begin + 96)
        await mall.enqueuer.enqueue([of("1", f"1.{n}", f"1.{n}") for n in numbers])
        await mall.enqueuer.enqueue([of("2", f"2.{n}", f"2.{n % 12}") for n in numbers])
    daemon = await mall.daemon()
    daemon.claims("grouped").adopt({"rule": 8})
    ran = Counter[str]()
    while ran.total() < 960:
        run = await run_of(daemon)
        ran[run[0].task.tenant or ""] += len(run)
        if len(run) > 1:
            await tell(daemon, run[:3], run[3])
            await tell(daemon, run[3:])
        else:
            await daemon.complete(*run)
    assert ran["2"] / ran["1"] == pytest.approx(weight, rel=0.05)
