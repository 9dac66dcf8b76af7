"""Debounce: of a group's waiting tasks of one type the newest replaces the older ones.

After each test the auditor has looked whether each task that may be replaced waits, and whether
what was replaced says by which, of its group and type.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from groupflow.core.limits import Debounce
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.operate.listing import list_tasks
from groupflow.operate.tasks import Tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.history import rotate_history
from groupflow.store.settlements import Advance, Complete, Release
from tests.deadlines import deadline
from tests.history.held_bytes import DELAY_COSTS
from tests.store.bench import Bench, arrival, bury, ids
from tests.store.task_state import HOUR, Standing, dead_ids, found, pass_time, redrive, retry, why
from tests.store.test_limits import limited
from tests.store.test_pools import POOL, Worker

QUIET, MOST = 60.0, 600.0
MICROSECONDS = 1_000_000
SECOND = 1.0  # by which the clock may go on within a test's look at it


def changed(
    id_: str, group: str | None = "g", type_: str = "changed", pool: str = "", **facts: Any
) -> Arrival:
    """A message of a rule that debounces."""
    plain = arrival(id_, group, **facts)
    envelope = replace(plain.envelope, type=type_, named_pool=pool or None)
    return replace(plain, envelope=envelope, debounce=Debounce(QUIET, MOST))


def task_state(bench: Bench, id_: str) -> dict[str, str]:
    """What is noted of a task."""
    noted: Any = bench.raw.hgetall(bench.keys("task_state", id_))
    return {name.decode(): value.decode() for name, value in noted.items()}


def age_bursts(bench: Bench, seconds: float) -> None:
    """All bursts began so much earlier."""
    bursts: Any = bench.raw.hgetall(bench.keys("debouncing"))
    for name, value in bursts.items():
        since = int(value[:16]) - round(seconds * MICROSECONDS)
        bench.raw.hset(bench.keys("debouncing"), name, b"%016d" % since + value[16:])


def wait_of(bench: Bench, id_: str) -> float:
    """Seconds from now until a task is due; 0 where it is."""
    due = int(task_state(bench, id_).get("due", 0))
    return max(0.0, (due - bench.server_time()) / MICROSECONDS)


async def superseded(bench: Bench, *named: str) -> list[str | None]:
    """By which tasks these were replaced."""
    tasks = [await found(bench, id_) for id_ in named]
    assert {task.state for task in tasks} <= {"superseded"}
    assert bench.count("superseded") >= len(named)
    return [task.superseded_by for task in tasks]


async def test_a_burst_runs_once_with_the_newest(bench: Bench) -> None:
    """After so much quiet; what it replaced is over, is counted, and is known."""
    batch = [changed("c1"), changed("c2"), changed("c3")]
    assert await bench.enqueue(*batch[:2]) == [True, True]
    assert await bench.enqueue(batch[2]) == [True]
    assert await superseded(bench, "c1", "c2") == ["c2", "c3"]
    ended = await found(bench, "c1")
    assert (ended.attempt, ended.crashes) == (1, 0)
    assert bench.lane("g") == ["c3"]
    assert QUIET - SECOND < wait_of(bench, "c3") <= QUIET
    status = await bench.status()
    assert (status.queued_grouped, status.delayed, status.superseded_total) == (1, 1, 2)
    assert await bench.enqueue(*batch) == [False] * 3  # delivered again
    assert bench.lane("g") == ["c3"]
    daemon = await bench.daemon()
    assert await daemon.work_off() == []
    await pass_time(bench)
    assert await daemon.work_off() == ["c3"]
    assert await bench.enqueue(*batch) == [False] * 3
    await rotate_history(bench.client, keep=HOUR, size=1)
    assert await superseded(bench, "c1") == ["c2"]
    await daemon.sessions.leave()
    assert bench.judge_drained() == []


async def test_a_burst_ends_at_its_most(bench: Bench) -> None:
    await bench.enqueue(changed("c1"))
    age_bursts(bench, MOST - 10)
    await bench.enqueue(changed("c2"))
    assert 10 - SECOND < wait_of(bench, "c2") <= 10
    age_bursts(bench, 10)
    await bench.enqueue(changed("c3"))
    assert wait_of(bench, "c3") == 0
    assert bench.count("delayed_bytes") == 0
    daemon = await bench.daemon()
    assert await daemon.work_off() == ["c3"]
    await bench.enqueue(changed("c4"))
    assert wait_of(bench, "c4") > QUIET - SECOND  # of a burst of its own


async def test_it_is_said_what_is_waited_for(bench: Bench) -> None:
    """Until when, and until when at the latest; not of what waits for something else."""
    await bench.enqueue(changed("c1"), changed("d1", "h", delay=HOUR), changed("c2"))
    story = await why(bench, "g")
    words = r"waits for quiet until \d\d:\d\d:\d\d, at \d\d:\d\d:\d\d at the latest"
    assert re.fullmatch(words, story.reason)
    assert (story.state, story.head) == ("delayed", "c2")
    task = await found(bench, "c2")
    assert (task.state, task.reason, task.until) == ("delayed", story.reason, story.until)
    assert (await found(bench, "d1")).reason is None
    assert "delayed for another" in (await why(bench, "h")).reason
    await pass_time(bench)
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2")
    await daemon.settle(*map(retry, claims))
    assert "ValueError" in (await why(bench, "g")).reason
    assert (await found(bench, "c2")).reason is None
    rows = (await list_tasks(bench.namespace, "superseded", 10)).rows
    assert [(row.id, row.type, row.group) for row in rows] == [("c1", "changed", "g")]
    assert (await list_tasks(bench.namespace, "done", 10)).rows == []


async def test_a_messages_own_delay_holds_where_it_is_longer(bench: Bench) -> None:
    await bench.enqueue(changed("c1"))
    await bench.enqueue(changed("c2", delay=HOUR))
    assert wait_of(bench, "c2") > HOUR - SECOND
    await bench.enqueue(changed("c3", delay=1.0))
    assert QUIET - SECOND < wait_of(bench, "c3") <= QUIET
    assert await superseded(bench, "c1", "c2") == ["c2", "c3"]
    late: Any = bench.raw.zscore(bench.keys("late"), "c3")
    assert late == int(task_state(bench, "c3")["due"])


@pytest.mark.parametrize("aside", [False, True])
async def test_it_takes_its_own_place(shop: Bench, aside: bool) -> None:
    """Behind what came before it, and as any delayed task it holds what comes behind it, or not."""
    await shop.enqueue(changed("c1", steps_aside=aside), arrival("b", "g"))
    await shop.enqueue(changed("c2", steps_aside=aside), arrival("d", "g"))
    daemon = await shop.daemon()
    assert await daemon.work_off() == (["b", "d"] if aside else ["b"])
    assert (await found(shop, "c2")).state == "delayed"
    assert await superseded(shop, "c1") == ["c2"]
    await shop.enqueue(changed("c3", steps_aside=aside))  # where it stood aside, or was the head
    assert await daemon.work_off() == ([] if aside else ["d"])
    await pass_time(shop)
    assert await daemon.work_off() == ["c3"]
    assert shop.count("delayed_bytes") == 0


async def test_one_that_stood_aside_is_replaced_where_it_waits_now(shop: Bench) -> None:
    """Its time has come, and its group runs another task."""
    await shop.enqueue(arrival("a", "g"), changed("c1", steps_aside=True))
    daemon = await shop.daemon()
    claim = await daemon.claim_one()
    await pass_time(shop)
    assert shop.lane("g") == ["c1"]
    await shop.enqueue(changed("c2", steps_aside=True))
    assert await superseded(shop, "c1") == ["c2"]
    await daemon.complete(claim)
    assert await daemon.work_off() == []
    await pass_time(shop)
    assert await daemon.work_off() == ["c2"]


async def test_a_group_that_was_ready_for_it_is_not_any_more(shop: Bench) -> None:
    await shop.enqueue(changed("c1", steps_aside=True))
    await pass_time(shop)
    assert (await why(shop, "g")).state == "ready"
    await shop.enqueue(changed("c2", steps_aside=True))
    assert (await why(shop, "g")).state == "idle"


async def test_who_was_held_behind_it_goes_on_at_once(bench: Bench) -> None:
    await bench.enqueue(changed("c1"), arrival("b", "g"))
    assert (await why(bench, "g")).state == "delayed"
    daemon = await bench.daemon("d2")
    async with bench.client.wakes() as wakes, asyncio.timeout(deadline()):
        await anext(wakes)  # it begins with one, for what was missed
        await bench.enqueue(changed("c2"))
        bench.raw.publish(bench.keys.wake, "that was all")
        assert await anext(wakes) == b"grouped"
    assert await daemon.work_off() == ["b"]
    assert (await why(bench, "g")).head == "c2"


async def test_groups_and_types_are_apart(bench: Bench) -> None:
    """Also such as look alike when they are written one behind the other."""
    kinds = [("g", "changed"), ("g", "gone"), ("gc", "hanged"), ("h", "changed"), ("0", "1g")]
    kinds += [("0004g", "x"), ("0005", "gx")]
    for n, (group, type_) in enumerate(kinds):
        await bench.enqueue(changed(f"c{n}", group, type_))
    assert bench.count("superseded") == 0
    for n, (group, type_) in enumerate(kinds):
        await bench.enqueue(changed(f"d{n}", group, type_))
    named = [f"{n}" for n in range(len(kinds))]
    assert await superseded(bench, *(f"c{n}" for n in named)) == [f"d{n}" for n in named]


async def test_a_task_replaces_none_of_another_scope_or_tenant(bench: Bench) -> None:
    """Where applications or tenants have a group in common."""

    def of(id_: str, scope: str) -> Arrival:
        made = changed(id_)
        return replace(made, envelope=replace(made.envelope, scope=scope))

    await bench.enqueue(of("c1", "0a0a0a0a"), of("c2", "1b1b1b1b"), of("c3", ""))
    assert bench.lane("g") == ["c1", "c2", "c3"]
    await bench.enqueue(of("d1", "0a0a0a0a"), of("d3", ""))
    assert await superseded(bench, "c1", "c3") == ["d1", "d3"]
    assert bench.lane("g") == ["c2", "d1", "d3"]
    for n in range(3):
        await pass_time(bench)
        assert len(await (await bench.daemon(f"d{n}")).work_off()) == 1
    assert bench.raw.exists(bench.keys("debouncing")) == 0


async def test_without_a_group_nothing_is_replaced(bench: Bench) -> None:
    await bench.enqueue(changed("p1", None), changed("p2", None))
    assert await (await bench.daemon()).work_off() == ["p1", "p2"]


async def test_other_rules_are_as_ever(bench: Bench) -> None:
    """Of the same group and type: what doesn't debounce replaces nothing, and nothing it."""
    plain = [replace(changed(f"n{n}", delay=HOUR * n), debounce=None) for n in range(2)]
    await bench.enqueue(plain[0], changed("c1"), plain[1])
    await bench.enqueue(changed("c2"))
    assert bench.lane("g") == ["n0", "n1", "c2"]


async def test_what_runs_is_not_replaced(bench: Bench) -> None:
    """The tasks that come meanwhile are a burst of their own, and run behind it."""
    await bench.enqueue(changed("c1"))
    await pass_time(bench)
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    await bench.enqueue(changed("c2"), changed("c3"))
    assert await superseded(bench, "c2") == ["c3"]
    await daemon.settle(Complete(claim))
    assert (await found(bench, "c1")).state == "done"
    await pass_time(bench)
    assert await daemon.work_off() == ["c3"]


@pytest.mark.parametrize("standing", ["hold", "step-aside"])
async def test_a_retry_is_replaced_by_what_comes_after_it(shop: Bench, standing: Standing) -> None:
    """Which is another task: its attempts begin again at 1, and so does its burst."""
    await shop.enqueue(changed("c1"))
    await pass_time(shop)
    daemon = await shop.daemon()
    await daemon.settle(retry(await daemon.claim_one(), standing))
    assert "latest" not in task_state(shop, "c1")
    shop.raw.hset(shop.keys("task_state", "c1"), "crashes", 3)
    await shop.enqueue(changed("c2"))
    assert await superseded(shop, "c1") == ["c2"]
    ended = await found(shop, "c1")
    assert (ended.attempt, ended.crashes) == (2, 3)
    assert QUIET - SECOND < wait_of(shop, "c2") <= QUIET
    await pass_time(shop)
    claim = await daemon.claim_one()
    assert (claim.task.id, claim.task.attempt) == ("c2", 1)
    await daemon.complete(claim)
    assert shop.count("retried") == 1


async def test_who_asks_for_a_retry_gives_way_to_what_came_after_it(bench: Bench) -> None:
    await bench.enqueue(changed("c1"), arrival("b", "g"))
    await pass_time(bench)
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    await bench.enqueue(changed("c2"))
    await daemon.settle(retry(claim))
    await daemon.settle(retry(claim), end=False)  # told again
    del bench.events[-1]
    assert await superseded(bench, "c1") == ["c2"]
    assert bench.count("superseded") == 1
    assert bench.count("retried") == 0
    assert await daemon.work_off() == ["b"]
    assert wait_of(bench, "c2") > QUIET - SECOND


@pytest.mark.parametrize("older_first", [True, False])
async def test_of_two_retries_the_newer_one_stays(bench: Bench, older_first: bool) -> None:
    limited(bench, 2)
    bench.concurrency = {"g": 2}
    daemon = await bench.daemon()
    await bench.enqueue(changed("c1"))
    await pass_time(bench)
    claims = [await daemon.claim_one()]
    await bench.enqueue(changed("c2"))
    await pass_time(bench)
    claims.append(await daemon.claim_one(worker="w2"))
    for claim in claims if older_first else reversed(claims):
        await daemon.settle(retry(claim))
    assert await superseded(bench, "c1") == ["c2"]
    await bench.enqueue(changed("c3"))
    assert await superseded(bench, "c2") == ["c3"]


async def test_a_later_stage_is_not_replaced(shop: Bench) -> None:
    """It has done something of its work: it goes on to its end, by itself."""
    await shop.enqueue(changed("c1"))
    await pass_time(shop)
    daemon = await shop.daemon()
    await daemon.settle(Advance(await daemon.claim_one(), "two", b"1"))
    await shop.enqueue(changed("c2"))
    claim = await daemon.claim_one()
    assert (claim.task.id, claim.task.stage) == ("c1", "two")
    await daemon.settle(retry(claim))
    await shop.enqueue(changed("c3"))
    assert await superseded(shop, "c2") == ["c3"]
    await pass_time(shop)
    assert await daemon.work_off() == ["c1"]


async def test_what_is_handed_back_runs_once_more(bench: Bench) -> None:
    """Nothing tells how far it had come: it replaces nothing, and nothing it."""
    await bench.enqueue(changed("c1"))
    await pass_time(bench)
    daemon = await bench.daemon()
    await daemon.settle(Release(await daemon.claim_one()))
    await bench.enqueue(changed("c2"))
    claim = await daemon.claim_one()
    bench.expire("d1")
    daemon.drop(claim)
    await daemon.sessions.reap()
    await bench.enqueue(changed("c3"))
    assert await superseded(bench, "c2") == ["c3"]
    await daemon.register()
    assert await daemon.work_off() == ["c1"]
    assert bench.lane("g") == ["c3"]


@pytest.mark.parametrize("again", [False, True])
async def test_a_redriven_one_replaces_nothing(shop: Bench, again: bool) -> None:
    """It came first; where it asks for a retry, it gives way."""
    await shop.enqueue(changed("c1"))
    await pass_time(shop)
    daemon = await shop.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    await shop.enqueue(changed("c2"))
    await redrive(shop, "c1")
    assert shop.lane("g") == ["c1", "c2"]
    claim = await daemon.claim_one()
    assert claim.task.id == "c1"
    await daemon.settle(retry(claim) if again else Complete(claim))
    assert (await found(shop, "c1")).state == ("superseded" if again else "done")
    await shop.enqueue(changed("c3"))
    assert "c3" in await superseded(shop, "c2")


async def test_with_the_newest_its_burst_is_dropped(bench: Bench) -> None:
    await bench.enqueue(changed("c1"), changed("c2"))
    assert await Tasks(bench.namespace).drop("c2") is None
    assert bench.raw.exists(bench.keys("debouncing")) == 0
    await bench.enqueue(changed("c3"))
    assert bench.count("superseded") == 1
    assert await superseded(bench, "c1") == ["c2"]


async def test_a_drop_of_another_one_leaves_the_burst_alone(bench: Bench) -> None:
    await bench.enqueue(changed("c1"))
    await pass_time(bench)
    daemon = await bench.daemon()
    await daemon.settle(Release(await daemon.claim_one()))
    await bench.enqueue(changed("c2"))
    assert await Tasks(bench.namespace).drop("c1") is None
    await bench.enqueue(changed("c3"))
    assert await superseded(bench, "c2") == ["c3"]


@pytest.mark.parametrize("aside", [False, True])
async def test_who_is_to_run_now_is_due_and_so_is_what_replaces_it(
    shop: Bench, aside: bool
) -> None:
    await shop.enqueue(changed("c1", steps_aside=aside))
    assert await Tasks(shop.namespace).run_now("c1") is None
    assert wait_of(shop, "c1") == 0
    await shop.enqueue(changed("c2", steps_aside=aside))
    assert await superseded(shop, "c1") == ["c2"]
    daemon = await shop.daemon()
    assert await daemon.work_off() == ["c2"]
    await shop.enqueue(changed("c3", steps_aside=aside))
    assert wait_of(shop, "c3") > QUIET - SECOND


async def test_a_group_that_is_held_stays_held(bench: Bench) -> None:
    await bench.enqueue(changed("c1"))
    await Groups(bench.namespace).pause("g", "me")
    await bench.enqueue(changed("c2"), arrival("b", "g"), changed("c3"))
    assert await superseded(bench, "c1", "c2") == ["c2", "c3"]
    daemon = await bench.daemon()
    assert await daemon.work_off() == []
    await Groups(bench.namespace).resume("g")
    assert await daemon.work_off() == ["b"]


async def test_a_dead_letter_from_the_door_replaces_nothing(bench: Bench) -> None:
    await bench.enqueue(changed("c1"))
    await bench.enqueue(changed("c2", dead="broken"))
    assert bench.count("superseded") == 0
    assert bench.lane("g") == ["c1"]


async def test_a_pools_tasks_debounce_too(bench: Bench) -> None:
    await bench.enqueue(changed("c1", pool=POOL), changed("c2", pool=POOL))
    assert await superseded(bench, "c1") == ["c2"]
    worker = Worker(bench)
    assert await worker.claim(5) == []
    await pass_time(bench)
    [claim] = await worker.claim(5)
    await bench.enqueue(changed("c3", pool=POOL))
    await worker.settle(retry(claim))
    assert await superseded(bench, "c2") == ["c3"]
    await pass_time(bench)
    assert ids(await worker.claim(5)) == ["c3"]
    bench.events.clear()


class TestRoom:
    """Quiet is a delay, and delays are bounded in bytes: no task dies of one not its own."""

    async def test_it_replaces_within_the_room_of_what_it_replaces(self, bench: Bench) -> None:
        room = DELAY_COSTS + len(changed("c1").envelope.pack())
        for n in range(1, 4):
            await bench.enqueuer.enqueue([changed(f"c{n}")], room)
            assert wait_of(bench, f"c{n}") > QUIET - SECOND
        assert bench.count("delayed_bytes") == room

    async def test_room_is_counted_within_a_batch(self, bench: Bench) -> None:
        room = DELAY_COSTS + len(changed("c1").envelope.pack())
        batch = [changed(f"c{n}") for n in range(3)]
        assert not (await bench.enqueuer.enqueue(batch, room)).crowded_out
        assert wait_of(bench, "c2") > QUIET - SECOND
        await bench.enqueuer.enqueue([changed("d1", "h"), changed("d2", "h")], 2 * room)
        assert wait_of(bench, "d2") > QUIET - SECOND
        assert bench.count("delayed_bytes") == 2 * room

    async def test_without_room_it_waits_for_no_quiet(self, bench: Bench) -> None:
        taken = await bench.enqueuer.enqueue([changed("c1"), changed("c2")], 0)
        assert (taken.taken, taken.crowded_out, taken.queued) == ([True] * 2, frozenset(), 1)
        assert await superseded(bench, "c1") == ["c2"]
        assert await (await bench.daemon()).work_off() == ["c2"]

    async def test_without_room_what_waits_behind_quiet_is_no_letter(self, bench: Bench) -> None:
        room = DELAY_COSTS + len(changed("c1").envelope.pack())
        batch = [changed("c1"), arrival("b", "g"), changed("d1", "g", "other")]
        taken = await bench.enqueuer.enqueue(batch, room)
        assert (taken.crowded_out, taken.queued) == (frozenset(), 2)
        assert bench.lane("g") == ["c1", "b", "d1"]
        await bench.enqueuer.enqueue([changed("c2")])
        assert (await why(bench, "g")).state == "ready"

    async def test_without_room_for_its_own_delay_the_older_one_stays(self, bench: Bench) -> None:
        await bench.enqueue(changed("c1"))
        batch = [changed("c2", delay=HOUR), changed("c3")]
        taken = await bench.enqueuer.enqueue(batch, 10)
        assert taken.crowded_out == frozenset({0})
        assert await dead_ids(bench) == ["c2"]
        assert await superseded(bench, "c1") == ["c3"]
        letters = DeadLetters(bench.namespace)
        [kept] = [each async for each in letters.each()]
        assert await letters.redrive(kept, delayed_memory=10_000)
        assert bench.lane("g") == ["c2", "c3"]
        assert wait_of(bench, "c2") > HOUR - SECOND
        bench.events.clear()  # c2 came before c3, and was put back in front of it

    async def test_behind_a_delay_that_was_asked_for_it_is_a_letter(self, bench: Bench) -> None:
        delayed = arrival("a", "g", delay=HOUR)
        room = DELAY_COSTS + len(delayed.envelope.pack())
        taken = await bench.enqueuer.enqueue([delayed, changed("c1")], room)
        assert taken.crowded_out == frozenset({1})
        assert bench.raw.exists(bench.keys("debouncing")) == 0
