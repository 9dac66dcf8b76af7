"""Runs: their tasks are settled in order, behind their ends, and nobody else has them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from groupflow.operate.groups import ALL, Groups
from groupflow.operate.tasks import Tasks
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Release, Retry, Settlement
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.task_state import redrive


async def _run(bench: Bench, number: int = 5, run: int = 4) -> tuple[Daemon, list[Claim]]:
    """A daemon, and the claims of a run: `run` of so many tasks of one group."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(number)))
    daemon = await bench.daemon()
    daemon.claims("grouped").adopt({"rule": run})
    claim = await daemon.claim_one()
    return daemon, [claim, *claim.run]


def _proceed(done: Sequence[Claim], following: Claim | None = None) -> Proceed:
    return Proceed([Complete(each) for each in done], following)


async def _tell(daemon: Daemon, *settlements: Settlement) -> list[Settlement]:
    return (await daemon.exchange("grouped", settlements, []))[0]


async def test_a_claim_gives_a_run(shop: Bench) -> None:
    """In order, each under a higher fence; only the first counts as running."""
    _, run = await _run(shop)
    assert ids(run) == ["a0", "a1", "a2", "a3"]
    fences = [claim.fence for claim in run]
    assert fences == sorted(set(fences))
    assert [claim.task.fence for claim in run] == fences
    assert {claim.slot for claim in run} == {"w1"}
    assert (shop.count("running_grouped"), shop.count("queued_grouped")) == (1, 4)
    assert shop.audit() == []


@pytest.mark.parametrize("rules", [{}, {"rule": 1}, {"other": 4}])
async def test_a_rule_without_a_run_has_none(shop: Bench, rules: dict[str, int]) -> None:
    await shop.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt(rules)
    assert not (await daemon.claim_one()).run
    assert not shop.raw.exists(shop.keys("runs"))


async def test_a_run_is_settled_piece_by_piece(shop: Bench) -> None:
    daemon, run = await _run(shop)
    assert await _tell(daemon, _proceed(run[:2], run[2])) == []
    assert shop.lane("a") == ["a3", "a4"]
    assert shop.raw.get(shop.keys("lock", "a")) == f"{run[2].fence:016d} d1 w1".encode()
    assert (shop.count("done"), shop.count("running_grouped")) == (2, 1)
    assert shop.audit() == []
    assert await _tell(daemon, _proceed(run[2:])) == []
    assert shop.count("done") == 4
    assert ids(await daemon.claim("grouped", "w2")) == ["a4"]
    assert shop.audit() == []


async def test_a_run_is_told_as_a_whole_at_its_end(shop: Bench) -> None:
    daemon, run = await _run(shop, number=4)
    assert await _tell(daemon, _proceed(run)) == []
    assert not shop.raw.exists(shop.keys("runs"))
    assert (await daemon.work_off()) == []
    assert shop.audit() == []


@pytest.mark.parametrize("how", ["release", "retry"])
async def test_an_end_by_something_else_is_answered_again_as_it_was(shop: Bench, how: str) -> None:
    """It was said of a run that it goes on, and behind that how its next task ended."""
    daemon, run = await _run(shop)
    end = Release(run[1]) if how == "release" else Retry(run[1], 60.0, [])
    told = [_proceed(run[:1], run[1]), end]
    for _ in range(2):
        assert await _tell(daemon, *told) == []
    before = shop.dump()
    reaches = Proceed([Complete(run[0])], run[1], more=4, behind=2, last=run[3].entry)
    assert await _tell(daemon, reaches) == []
    assert shop.dump() == before, "a call that comes late lets an ended run reach nowhere"
    stale = _proceed(run[1:2], run[2])
    assert await _tell(daemon, stale) == [stale]
    assert shop.audit() == []
    shop.events.clear()  # retries are the model's business


async def test_what_was_told_before_is_told_again_with_the_rest(shop: Bench) -> None:
    """The reply was lost, and more has ended since."""
    daemon, run = await _run(shop)
    assert await _tell(daemon, _proceed(run[:1], run[1])) == []
    assert await _tell(daemon, _proceed(run[:3], run[3])) == []
    assert shop.count("done") == 3
    before = shop.dump()
    assert await _tell(daemon, _proceed(run[:3], run[3])) == []
    after = shop.dump()
    fence = shop.keys("fence").encode()
    assert before.pop(fence) != after.pop(fence)
    assert before == after
    assert await _tell(daemon, _proceed(run)) == []
    before = shop.dump()
    assert await _tell(daemon, _proceed(run)) == []
    assert shop.dump() == before
    assert shop.audit() == []


async def test_an_end_is_told_again_behind_the_slots_next_claim(shop: Bench) -> None:
    daemon, run = await _run(shop, number=6)
    first = await daemon.exchange("grouped", [_proceed(run)], ["w1"])
    again = await daemon.exchange("grouped", [_proceed(run)], ["w1"])
    assert first[0] == again[0] == []
    assert ids(first[1]) == ids(again[1]) == ["a4"]
    assert shop.count("done") == 4
    assert shop.audit() == []


async def test_a_failure_is_settled_before_anything_else_begins(shop: Bench) -> None:
    """Those before it are done, those behind it wait at their places, and the group holds."""
    daemon, run = await _run(shop)
    retry = Retry(run[1], after=3600.0, errors=[])
    assert await _tell(daemon, _proceed(run[:1], run[1]), retry) == []
    assert shop.lane("a") == ["a1", "a2", "a3", "a4"]
    assert await daemon.claim("grouped", "w2") == []
    assert not shop.raw.exists(shop.keys("runs"))
    assert shop.audit() == []


async def test_what_is_cut_off_goes_back_to_its_place(shop: Bench) -> None:
    daemon, run = await _run(shop)
    assert await _tell(daemon, _proceed(run[:2], run[2]), Release(run[2])) == []
    assert shop.lane("a") == ["a2", "a3", "a4"]
    assert await daemon.work_off() == ["a2", "a3", "a4"]
    assert shop.audit() == []


async def test_a_run_may_end_before_its_last_task(shop: Bench) -> None:
    daemon, run = await _run(shop)
    assert await _tell(daemon, _proceed(run[:2])) == []
    assert await daemon.work_off() == ["a2", "a3", "a4"]
    assert not shop.raw.exists(shop.keys("runs"))
    assert shop.audit() == []


@pytest.mark.parametrize("told", [0, 2])
async def test_a_crash_puts_all_back_that_is_not_settled(shop: Bench, told: int) -> None:
    """In order; the first of them is one crash richer, and a quarantined task: it comes alone."""
    daemon, run = await _run(shop)
    if told:
        assert await _tell(daemon, _proceed(run[:told], run[told])) == []
    other = await shop.daemon("d2")
    other.claims("grouped").adopt({"rule": 4})
    shop.expire("d1")
    await other.sessions.reap()
    assert shop.lane("a") == [f"a{n}" for n in range(told, 5)]
    assert not shop.raw.exists(shop.keys("runs"))
    claim = await other.claim_one()
    assert (claim.task.id, claim.task.crashes, len(claim.run)) == (f"a{told}", 1, 0)
    assert shop.audit() == []


async def test_a_zombie_settles_nothing_of_its_run(shop: Bench) -> None:
    daemon, run = await _run(shop)
    await daemon.register()
    before = shop.dump()
    for late in (_proceed(run[:2], run[2]), _proceed(run)):
        assert await _tell(daemon, late) == [late]
    assert shop.dump() == before
    assert await daemon.work_off() == [f"a{n}" for n in range(5)]


async def test_a_task_of_a_run_is_not_dropped(shop: Bench) -> None:
    """It may have begun. What is behind the run may be."""
    daemon, run = await _run(shop)
    waiting = Tasks(shop.namespace)
    assert [await waiting.drop(f"a{n}") for n in range(5)] == ["running"] * 4 + [None]
    assert await _tell(daemon, _proceed(run)) == []
    assert shop.count("done") == 4
    assert shop.audit() == []


async def test_an_older_task_waits_for_the_end_of_the_run(shop: Bench) -> None:
    """It is redriven while the run goes on: the run is told to end, and it goes next."""
    await shop.enqueue(*(arrival(f"a{n}", "a") for n in range(6)))
    daemon = await shop.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    claims = daemon.claims("grouped")
    claims.adopt({"rule": 4})
    claim = await daemon.claim_one()
    run = [claim, *claim.run]
    await redrive(shop, "a0")
    answer = await claims.exchange([_proceed(run[:1], run[1])], [])
    assert answer.refused == []
    assert answer.ending == {"w1"}
    assert shop.lane("a") == ["a0", "a3", "a4", "a5"]
    assert await _tell(daemon, _proceed(run[1:2])) == []
    assert await daemon.work_off() == ["a0", "a3", "a4", "a5"]
    assert shop.audit() == []


@pytest.mark.parametrize("group", ["a", ALL])
async def test_a_paused_group_has_its_run_end(shop: Bench, group: str) -> None:
    daemon, run = await _run(shop)
    await Groups(shop.namespace).pause(group, "me")
    answer = await daemon.claims("grouped").exchange([_proceed(run[:1], run[1])], [])
    assert answer.refused == []
    assert answer.ending == {"w1"}
    assert await _tell(daemon, _proceed(run[1:2])) == []
    assert await daemon.claim("grouped", "w2") == []
    assert shop.audit() == []


async def test_a_claim_told_again_has_no_run(shop: Bench) -> None:
    """Its fences are nobody's any more; the rest waits as it did."""
    daemon, _ = await _run(shop)
    claim = await daemon.claim_one()
    assert (claim.task.id, len(claim.run)) == ("a0", 0)
    assert not shop.raw.exists(shop.keys("runs"))
    await daemon.complete(claim)
    assert shop.audit() == []


async def test_a_server_that_lost_what_a_run_told_is_known(shop: Bench) -> None:
    """Each time that something is told, a fence is taken that an older state doesn't have."""
    daemon, run = await _run(shop)
    seen = daemon.session.seen.fence
    assert seen == run[-1].fence
    await _tell(daemon, _proceed(run[:1], run[1]))
    assert daemon.session.seen.fence > seen
    assert int(shop.raw.get(shop.keys("fence")) or 0) == daemon.session.seen.fence


async def test_what_has_a_life_ends_a_run(shop: Bench) -> None:
    await shop.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("a2", "a", priority=1.0))
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": 9})
    assert ids((await daemon.claim_one()).run) == ["a1"]
