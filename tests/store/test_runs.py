"""Runs: a slot goes on in its group, in order, until it is another group's turn."""

from __future__ import annotations

from collections import Counter

import pytest

from groupflow.core.limits import Limits, TenantLimit
from groupflow.store.envelope import Envelope
from groupflow.store.given import NO_REST, Claim, Rest
from groupflow.store.settlements import Complete, Proceed
from tests.store.actors import of
from tests.store.bench import Bench, Daemon, arrival, ids
from tests.store.story import played

test_a_slot_goes_on = played(
    """
    it is settled piece by piece::
        claim a0>a1>a2>a3 | count running_grouped=1 queued_grouped=4 | tell a0 a1 > a2
        lane a3 a4 | count done=2 running_grouped=1 | sound | tell a2 a3 > | count done=4
        gone runs | claim a4
    what was told before is told again with the rest::
        claim a0>a1>a2>a3 | tell a0 > a1 | tell a0 a1 a2 > a3 | count done=3 | tell a0 a1 a2 > a3
        count done=3 | tell a0 a1 a2 a3 > | unchanged tell a0 a1 a2 a3 > | count done=4
    a failure is settled before anything else begins::
        claim a0>a1>a2>a3 | tell a0 > a1 | retry a1 | lane a1 a2 a3 a4 | none | gone runs
    an end by {how} is answered again as it was::
        claim a0>a1>a2>a3 | tell a0 > a1 | {how} a1 | unchanged {how} a1
        unchanged tell a0 > a1 | refused tell a1 > a2
    a zombie settles nothing of it::
        claim a0>a1>a2>a3 | crash | refused unchanged tell a0 a1 > a2
        refused unchanged tell a0 a1 a2 a3 > | drain a0 a1 a2 a3 a4
    its tasks are not dropped::
        claim a0>a1>a2>a3 | drop a0 running | drop a1 running | drop a3 running | drop a4
        tell a0 a1 a2 a3 > | count done=4
    an older task waits for its end::
        runs 1 | claim a0 | bury a0 | runs 3 | claim a1>a2>a3
        redrive a0 | tell a1 > a2 ends | lane a0 a3 a4 | tell a2 > | drain a0 a3 a4
    a pause of its group ends it::
        claim a0>a1>a2>a3 | pause a | tell a0 > a1 ends | tell a1 > | none
    what has more known of it ends it:: take a5+1 a6 | runs 9 | claim a0>a1>a2>a3>a4
    """,
    first="take a0 a1 a2 a3 a4 | runs 4 | ",
    how=("release", "retry"),
)


async def run_of(shop: Bench) -> tuple[Daemon, list[Claim]]:
    """A daemon, and a run of four of five tasks."""
    await shop.enqueue(*(arrival(f"a{n}", "a") for n in range(5)))
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": 4})
    claim = await daemon.claim_one()
    return daemon, [claim, *claim.run]


def proceed(done: list[Claim], following: Claim | None = None) -> Proceed:
    return Proceed([Complete(each) for each in done], following)


async def test_a_claim_gives_a_run(shop: Bench) -> None:
    """Each under a higher fence, by which a server is known that has lost what was told."""
    daemon, run = await run_of(shop)
    fences = [claim.fence for claim in run]
    assert fences == [claim.task.fence for claim in run] == [fences[0] + n for n in range(4)]
    assert {claim.slot for claim in run} == {"w1"}
    assert run[0].last_fence == daemon.session.seen.fence == fences[-1]
    await daemon.exchange("grouped", [proceed(run[:2], run[2])], [])
    assert shop.raw.get(shop.keys("lock", "a")) == f"{fences[2]:016d} d1 w1".encode()
    assert daemon.session.seen.fence > fences[-1]
    assert int(shop.raw.get(shop.keys("fence")) or 0) == daemon.session.seen.fence


async def test_an_end_is_told_again_behind_the_slots_next_claim(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    first, again = [await daemon.exchange("grouped", [proceed(run)], ["w1"]) for _ in range(2)]
    assert first[0] == again[0] == []
    assert ids(first[1]) == ids(again[1]) == ["a4"]
    assert shop.count("done") == 4


async def test_a_claim_told_again_has_no_run(shop: Bench) -> None:
    """Its fences belong to no claim any more; the rest waits as it did."""
    daemon, _ = await run_of(shop)
    claim = await daemon.claim_one()
    assert (claim.task.id, len(claim.run)) == ("a0", 0)
    assert not shop.raw.exists(shop.keys("runs"))
    await daemon.complete(claim)


# Runs of tenants: a run counts as one that runs, and pays for each task that it begins

test_runs_of_tenants = played(
    """
    it counts as one, from its first task to its last::
        tenants 2 | take 1/a0 1/b0 1/c0 1/a1 1/b1 1/c1 1/a2 1/b2 1/c2 | runs 8
        claim a0>a1>a2 b0>b1>b2 | none | tell a0 > a1 | none | sound | tell a1 a2 >
        claim c0>c1>c2 | none
    a failure and a crash give back its one::
        tenants 1 | take 1/a0 1/b0 1/a1 1/b1 1/a2 1/b2 | runs 8 | claim a0>a1>a2 | tell a0 > a1
        retry a1 | sound | claim b0>b1>b2 | tell b0 > b1 | crash | gone charged | claim b1
    where starts are held apart there are none::
        tenants 0 1/h burst 9 | take 1/a0 1/a1 1/a2 | runs 8 | claim a0
    a tenant that is closed meanwhile ends it::
        tenants 5 | take 1/a0 1/a1 1/a2 | runs 8 | claim a0>a1>a2 | take 1/b0 | claim b0
        retry b0 tenant | tell a0 > a1 ends
    it is one tenant's::
        tenants 5 | take 1/a0 1/a1 2/a2 1/a3 | runs 8 | claim a0>a1 | tell a0 a1 > | claim a2
    """,
    orders=["oldest", "tenants"],
)


@pytest.mark.parametrize("order", ["tenants"], indirect=True)
@pytest.mark.parametrize("weight", [1, 3])
async def test_a_run_is_paid_for_task_by_task(shop: Bench, weight: int) -> None:
    """Who has runs of eight gets no more than its weight's share beside one that has none."""
    shop.limits = Limits(tenants={"1": TenantLimit(), "2": TenantLimit(weight=weight)})
    for begin in range(0, 960, 96):
        numbers = range(begin, begin + 96)
        await shop.enqueuer.enqueue([of("1", f"1.{n}", f"1.{n}") for n in numbers])
        await shop.enqueuer.enqueue([of("2", f"2.{n}", f"2.{n % 12}") for n in numbers])
    daemon, ran = await shop.daemon(), Counter[str]()
    daemon.claims("grouped").adopt({"rule": 8})
    while ran.total() < 960:
        claim = await daemon.claim_one()
        run = [claim, *claim.run]
        ran[claim.task.tenant or ""] += len(run)
        told = [proceed(run[:3], run[3]), proceed(run[3:])] if claim.run else [Complete(claim)]
        for each in told:
            assert await daemon.exchange("grouped", [each], []) == ([], [])
    assert ran["2"] / ran["1"] == pytest.approx(weight, rel=0.05)


# What a run has behind its first task: read one by one, when its turn has come


def rest_of(number: int) -> Rest:
    told: list[bytes] = []
    for n in range(number):
        envelope = Envelope("t", "g", None, "rule", {}, b"%d" % n)
        told += [b"%016d.t%d" % (1_000_000 + n * 500_000, n), envelope.pack()]
    return Rest("w1", "g", 7, told, 2_000_000)


def test_a_rest_is_a_list_of_claims() -> None:
    rest = rest_of(4)
    assert (len(rest), rest.last_fence) == (4, 10)
    assert list(rest.waits()) == [1.0, 0.5, 0.0, 0.0]  # a clock that was set back is no wait
    assert rest.bytes == 4 * len(Envelope("t", "g", None, "rule", {}, b"0").pack())
    last = rest[-1]
    assert (last.task.body, last.slot, last.task.group) == (b"3", "w1", "g")
    assert [claim.fence for claim in rest] == [7, 8, 9, 10]
    assert [claim.waited for claim in rest] == list(rest.waits())
    assert ids(rest[1:]) == ["t1", "t2", "t3"]
    with pytest.raises(IndexError):
        rest[4]
    assert (list(NO_REST), NO_REST.last_fence, NO_REST.bytes) == ([], 0, 0)
