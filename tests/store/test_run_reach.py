"""proceed: where nobody waits, a run reaches further, as far as it is asked to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from groupflow.core.limits import Limit, Limits
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.tasks import Tasks
from groupflow.store.claims import ExchangeReply
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Retry
from tests.store.bench import Bench, Daemon, arrival, ids
from tests.store.task_state import redrive

RUN = 4


async def run_of(shop: Bench, number: int = 12) -> tuple[Daemon, list[Claim]]:
    """A daemon, and a run of the first tasks of a group."""
    await shop.enqueue(*(arrival(f"a{n:02}", "a") for n in range(number)))
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": RUN})
    claim = await daemon.claim_one()
    return daemon, [claim, *claim.run]


async def tell(daemon: Daemon, run: Sequence[Claim], done: int, more: int = RUN) -> ExchangeReply:
    """So many of a run are done, and it goes on, with more if that may be."""
    settled = [Complete(each) for each in run[:done]]
    behind = run[done + 1 :]
    proceed = Proceed(settled, run[done], more, len(behind), run[-1].entry)
    answer = await daemon.claims("grouped").exchange([proceed], [])
    assert answer.refused == []
    return answer


def further(answer: ExchangeReply) -> list[Claim]:
    """What the run of the first worker has more."""
    return list(answer.further.get("w1", ()))


async def test_a_run_has_what_stands_behind_it(shop: Bench) -> None:
    """In order, under higher fences, while it stays in its lane; and goes on with it."""
    daemon, run = await run_of(shop)
    told = further(await tell(daemon, run, 2, more=3))
    assert ids(told) == ["a04", "a05", "a06"]
    assert run[-1].fence < told[0].fence < told[1].fence < told[2].fence
    assert {(claim.slot, claim.task.group) for claim in told} == {("w1", "a")}
    assert shop.lane("a") == [f"a{n:02}" for n in range(3, 12)]
    assert (shop.count("running_grouped"), shop.count("queued_grouped")) == (1, 9)
    assert daemon.session.seen.fence >= told[-1].fence
    reach = f"{told[-1].fence:016d}".encode() + told[-1].entry[:16]
    assert shop.raw.hget(shop.keys("runs"), "a") == reach
    assert shop.audit() == []
    whole = [*run[2:], *told]
    again = further(await tell(daemon, whole, 4, more=2))
    assert ids(again) == ["a07", "a08"]
    assert shop.audit() == []
    rest = [*whole[4:], *again]
    refused, _ = await daemon.exchange("grouped", [Proceed([Complete(c) for c in rest], None)], [])
    assert refused == []
    assert shop.count("done") == 9
    assert await daemon.work_off() == ["a09", "a10", "a11"]
    assert shop.audit() == []


async def test_at_its_last_task_too(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    assert ids(further(await tell(daemon, run, 3))) == ["a04", "a05", "a06", "a07"]
    assert shop.audit() == []


async def test_who_asks_for_no_more_gets_none(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    assert further(await tell(daemon, run, 2, more=0)) == []
    reach = b"%016d" % run[-1].fence + run[-1].entry[:16]
    assert shop.raw.hget(shop.keys("runs"), "a") == reach


async def test_where_nothing_is_behind_it_there_is_no_more(shop: Bench) -> None:
    daemon, run = await run_of(shop, number=4)
    assert further(await tell(daemon, run, 2)) == []


async def test_an_answer_that_was_lost_is_told_anew(shop: Bench) -> None:
    """Also where more is done by then; what was told before is forgotten."""
    daemon, run = await run_of(shop)
    lost = further(await tell(daemon, run, 2))
    again = further(await tell(daemon, run, 2))
    later = further(await tell(daemon, run, 3))
    assert ids(lost) == ids(again) == ids(later) == ["a04", "a05", "a06", "a07"]
    assert lost[-1].fence < again[0].fence <= again[-1].fence < later[0].fence
    assert further(await tell(daemon, [run[3], *later], 1, more=0)) == []
    assert shop.count("done") == 4
    assert shop.audit() == []


async def other_group(shop: Bench, _: Daemon) -> None:
    await shop.enqueue(arrival("b", "b"))


async def paused_elsewhere(shop: Bench, _: Daemon) -> None:
    await Groups(shop.namespace).pause("b", "me")


async def suspected(shop: Bench, _: Daemon) -> None:
    shop.raw.hset(shop.keys("task_state", "s"), mapping={"crashes": 1})
    shop.raw.zadd(shop.keys("quarantined_groups"), {"b": 1})


async def limited(shop: Bench, daemon: Daemon) -> None:
    shop.limits = Limits(rules={"other": Limit(concurrency=2)})
    await shop.daemon("d2")


@pytest.mark.parametrize("wait", [other_group, paused_elsewhere, limited])
async def test_where_anybody_waits_it_has_no_more(
    shop: Bench, wait: Callable[[Bench, Daemon], Awaitable[None]]
) -> None:
    """A group that is ready, or anything else that would have to be looked into."""
    daemon, run = await run_of(shop)
    await wait(shop, daemon)
    answer = await tell(daemon, run, 2)
    assert (further(answer), list(answer.ending)) == ([], [])


async def test_asuspect_goes_before(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    await suspected(shop, daemon)
    assert further(await tell(daemon, run, 2)) == []
    shop.raw.delete(shop.keys("task_state", "s"), shop.keys("quarantined_groups"))


@pytest.mark.parametrize("what", ["a", ALL])
async def test_a_pause_ends_it(shop: Bench, what: str) -> None:
    daemon, run = await run_of(shop)
    await Groups(shop.namespace).pause(what, "me")
    answer = await tell(daemon, run, 2)
    assert (further(answer), list(answer.ending)) == ([], ["w1"])


async def test_a_lost_run_has_no_more(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    await daemon.register()
    before = shop.dump()
    late = Proceed([Complete(run[0])], run[1], 2, 2, run[-1].entry)
    answer = await daemon.claims("grouped").exchange([late], [])
    assert (answer.refused, dict(answer.further)) == ([late], {})
    assert shop.dump() == before


async def test_each_run_has_its_own(shop: Bench) -> None:
    """The first of them asks for none."""
    for group in "ab":
        await shop.enqueue(*(arrival(f"{group}{n}", group) for n in range(6)))
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": 2})
    claims = await daemon.claim("grouped", "w1", "w2")
    proceeds = [
        Proceed([Complete(claim)], claim.run[0], more, 0, claim.run[0].entry)
        for claim, more in zip(claims, (0, 2), strict=True)
    ]
    answer = await daemon.claims("grouped").exchange(proceeds, [])
    assert {slot: ids(rest) for slot, rest in answer.further.items()} == {"w2": ["b2", "b3"]}
    assert shop.audit() == []


async def test_what_has_a_life_is_not_in_it(shop: Bench) -> None:
    await shop.enqueue(*(arrival(f"a{n:02}", "a") for n in range(5)))
    await shop.enqueue(arrival("a05", "a", priority=1.0), arrival("a06", "a"))
    daemon, run = await run_of(shop, number=0)
    assert ids(further(await tell(daemon, run, 2))) == ["a04"]


async def test_behind_what_came_between_it_has_no_more(shop: Bench) -> None:
    """A letter from the door is redriven to where it would have stood."""
    await shop.enqueue(*(arrival(f"a{n:02}", "a") for n in range(3)))
    await shop.enqueue(arrival("x", "a", dead="no"))
    daemon, run = await run_of(shop, number=0)
    await shop.enqueue(arrival("a03", "a"), arrival("a04", "a"))
    assert ids(run) == ["a00", "a01", "a02"]
    await redrive(shop, "x")
    assert ids(further(await tell(daemon, run, 1, more=1))) == []  # it has a task state
    told = await tell(daemon, [*run, run[-1]], 1)  # as one that had more of it
    assert further(told) == []
    assert await daemon.settle(Proceed([Complete(claim) for claim in run], None)) == []
    assert await daemon.work_off() == ["x", "a03", "a04"]


async def test_nobody_drops_what_it_reaches(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    await tell(daemon, run, 2, more=2)
    waiting = Tasks(shop.namespace)
    assert [await waiting.drop(f"a{n:02}") for n in (4, 5, 6)] == ["running", "running", None]
    assert shop.audit() == []


async def test_a_crash_takes_nothing_along(shop: Bench) -> None:
    """What it reached was never away."""
    daemon, run = await run_of(shop)
    await tell(daemon, run, 2)
    other = await shop.daemon("d2")
    shop.expire("d1")
    await other.sessions.reap()
    assert await other.work_off() == [f"a{n:02}" for n in range(2, 12)]
    assert shop.audit() == []


async def test_a_failure_ends_it(shop: Bench) -> None:
    daemon, run = await run_of(shop)
    told = further(await tell(daemon, run, 2))
    whole = [*run[2:], *told]
    done = Proceed([Complete(each) for each in whole[:3]], whole[3])
    await daemon.exchange("grouped", [done, Retry(whole[3], 60.0, [])], [])
    assert not shop.raw.exists(shop.keys("runs"))
    assert shop.lane("a") == [f"a{n:02}" for n in range(5, 12)]
    assert shop.audit() == []


async def test_runs_together_reach_no_further_than_one_script_tells(shop: Bench) -> None:
    for group in "abc":
        await shop.enqueue(*(arrival(f"{group}{n:03}", group) for n in range(400)))
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": 2})
    runs = {claim.slot: [claim, *claim.run] for claim in await daemon.claim("grouped", *"123")}
    proceeds = [Proceed([Complete(run[0])], run[1], 300, 0, run[1].entry) for run in runs.values()]
    answer = await daemon.claims("grouped").exchange(proceeds, [])
    assert sorted(map(len, answer.further.values())) == [200, 300]
    for slot, rest in answer.further.items():
        group = runs[slot][0].task.group
        assert ids(rest) == [f"{group}{n:03}" for n in range(2, 2 + len(rest))]
    assert shop.audit() == []
