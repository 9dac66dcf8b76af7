"""A task's whole life in the store: retries, stages, delays, priority, dead letters, pauses.

No test waits for a due time. `pass_time` lets a waiting task's time come by rewriting what the
scripts wrote, and the age of one task against another's comes from `count.arrival`, the store's own
last arrival: both are exact, where sleeping would only be likely.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from groupflow.core.errors import StoreFull
from groupflow.operate.dead import DeadLetters, DeadStory, Filter
from groupflow.operate.groups import ALL, Groups, Why
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Found, ListedState, find_task, list_tasks
from groupflow.servers import RedisServer
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.scripts import AnyVerb, Verb
from groupflow.store.settlements import Advance, Bury, Claim, Complete, Release, Retry, Settlement
from tests.store.bench import Bench, Daemon, arrival, bury

Order = Literal["oldest", "fair"]
Standing = Literal["hold", "step-aside"]
HOUR = 3600.0
POOLS: tuple[Pool, Pool] = ("grouped", "plain")
FAILURE = [{"attempt": 1, "error": "ValueError", "message": "no such row"}]


@pytest.fixture(params=["oldest", "fair"])
def order(request: pytest.FixtureRequest) -> Order:
    """Which free group goes first: whatever holds within a group holds for both."""
    chosen: Order = request.param
    return chosen


@pytest.fixture
async def shop(store_server: RedisServer, order: Order) -> AsyncIterator[Bench]:
    """A store; whatever a test has done to it, its structure is sound.

    Not its history: who steps aside does so by leaving the order of arrival.
    """
    bench = Bench(store_server.url, order=order)
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


async def promote(shop: Bench) -> int:
    """One pass of `promote`; how many tasks and groups it promoted."""
    promoted, _ = await shop.client.run(Verb.PROMOTE, 200)
    return int(promoted)


async def pass_time(shop: Bench, *only: str) -> None:
    """Let the time of these waiting tasks (of all, if none is named) have come, and promote."""
    raw, keys = shop.raw, shop.keys
    rows: Any = raw.zrange(keys("delayed"), 0, -1)
    waiting: dict[str, tuple[str, bytes]] = {row[17:].decode(): ("delayed", row) for row in rows}
    groups: Any = raw.zrange(keys("held"), 0, -1)
    for group in groups:
        waiting[shop.lane(group.decode())[0]] = ("held", group)
    for n, id_ in enumerate(only or sorted(waiting), start=1):
        where, member = waiting[id_]
        raw.hset(keys("life", id_), mapping={"due": f"{n:016d}", "order": f"{n:016d}"})
        raw.zadd(keys(where), {member: n})
    await promote(shop)


def retry(claim: Claim, standing: Standing = "hold", after: float = HOUR) -> Retry:
    return Retry(claim, after, FAILURE, standing)


def advance(claim: Claim, stage: str = "two", standing: Standing = "hold") -> Advance:
    return Advance(claim, stage, b'{"rows": 3}', standing)


async def fill(shop: Bench, *named: str) -> Daemon:
    """A daemon, and tasks whose first letter is their group; ``p`` is for plain ones."""
    await shop.enqueue(*(arrival(id_, id_[0] if id_[0] != "p" else None) for id_ in named))
    return await shop.daemon()


async def found(shop: Bench, id_: str) -> Found:
    task = await find_task(shop.client, id_)
    assert task is not None
    return task


async def why(shop: Bench, group: str) -> Why:
    return await Groups(shop.client).why(group)


async def letter(shop: Bench, id_: str) -> DeadStory:
    dead = await DeadLetters(shop.client).get(id_)
    assert dead is not None
    return dead


async def redrive(shop: Bench, *named: str) -> None:
    for id_ in named:
        assert await DeadLetters(shop.client).redrive(await letter(shop, id_))


async def kill(shop: Bench, daemon: Daemon, *, park: bool = False) -> str:
    """Claim the next grouped task and bury it; its id."""
    claim = await daemon.claim_one()
    assert await daemon.settle(bury(claim, park=park)) == []
    return claim.task.id


# Retries


async def test_a_retry_that_holds_stays_the_head_until_it_is_due(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0")
    await daemon.settle(retry(await daemon.claim_one()))
    assert await daemon.work_off() == ["b0"]
    assert shop.lane("a") == ["a0", "a1"]
    assert await promote(shop) == 0
    told = await why(shop, "a")
    assert (told.state, told.head, told.queued) == ("delayed", "a0", 2)
    assert "no such row" in told.reason
    assert (await shop.status()).delayed == 1

    await pass_time(shop)
    again = await daemon.claim_one()
    assert (again.task.id, again.task.attempt, again.errors) == ("a0", 2, FAILURE)
    await daemon.complete(again)
    assert await daemon.work_off() == ["a1"]


async def test_a_retry_that_steps_aside_lets_its_group_go_on(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2")
    await daemon.settle(retry(await daemon.claim_one(), "step-aside"))
    first = await daemon.claim_one()
    assert first.task.id == "a1"
    # Due while another of its group runs: it goes first as soon as that one has ended.
    await pass_time(shop)
    assert shop.lane("a") == ["a0", "a2"]
    assert await daemon.claim("grouped", "w2") == []
    await daemon.complete(first)
    assert await daemon.work_off() == ["a0", "a2"]


async def test_tasks_that_stepped_aside_come_back_in_order_of_arrival(shop: Bench) -> None:
    daemon = await fill(shop, *(f"a{n}" for n in range(6)))
    for _ in range(4):
        await daemon.settle(retry(await daemon.claim_one(), "step-aside"))
    await pass_time(shop, "a2", "a0", "a3", "a1")
    assert shop.lane("a") == [f"a{n}" for n in range(6)]


async def test_a_plain_retry_simply_waits(shop: Bench) -> None:
    daemon = await fill(shop, "p0", "p1")
    await daemon.settle(retry(await daemon.claim_one("plain")))
    assert await daemon.work_off() == ["p1"]
    assert await promote(shop) == 0
    assert (await found(shop, "p0")).state == "delayed"
    await pass_time(shop)
    again = await daemon.claim_one("plain")
    assert (again.task.id, again.task.attempt) == ("p0", 2)


@pytest.mark.parametrize("standing", ["hold", "step-aside"])
async def test_a_retry_at_once_is_due_at_once(shop: Bench, standing: Standing) -> None:
    daemon = await fill(shop, "a0", "a1")
    await daemon.settle(retry(await daemon.claim_one(), standing, after=0))
    await promote(shop)
    again = await daemon.claim_one()
    assert (again.task.id, again.task.attempt) == ("a0", 2)


async def test_a_real_due_time_is_obeyed_and_told(shop: Bench) -> None:
    """The only test that lets real time pass: as long as `promote` itself says."""
    daemon = await fill(shop, "a0", "p0")
    await daemon.settle(retry(await daemon.claim_one(), after=0.2))
    await daemon.settle(retry(await daemon.claim_one("plain"), after=0.3))
    promoted, wait = await shop.client.run(Verb.PROMOTE, 200)
    seen = promoted
    assert 0 < wait <= 200_000
    async with asyncio.timeout(30):
        while wait >= 0:
            await asyncio.sleep(wait / 1_000_000)
            promoted, wait = await shop.client.run(Verb.PROMOTE, 200)
            seen += promoted
    assert seen == 2
    assert sorted(await daemon.work_off()) == ["a0", "p0"]


async def test_promote_takes_no_more_than_it_is_told(shop: Bench) -> None:
    daemon = await fill(shop, *(f"p{n}" for n in range(5)))
    for claim in await daemon.claim("plain", *(f"w{n}" for n in range(5))):
        await daemon.settle(retry(claim, after=0))
    assert [(await shop.client.run(Verb.PROMOTE, 2))[0] for _ in range(4)] == [2, 2, 1, 0]
    assert len(await daemon.work_off()) == 5


ENDINGS: dict[str, Callable[[Claim], Settlement]] = {
    "complete": Complete,
    "bury": bury,
    "step aside": lambda claim: retry(claim, "step-aside", after=2 * HOUR),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_due_time_is_told_to_whoever_promotes(shop: Bench, ending: str) -> None:
    """Also one that comes up only when the task before it has ended."""
    daemon = await fill(shop, "a0")
    await shop.enqueue(arrival("a1", "a", delay=HOUR))
    claim = await daemon.claim_one()
    async with shop.client.wakes() as wakes, asyncio.timeout(10):
        assert await anext(wakes) == b"due"  # it begins with one, for what was missed
        await daemon.settle(ENDINGS[ending](claim))
        shop.raw.publish(shop.keys.wake, "that was all")
        heard = []
        while b"that was all" not in heard:
            heard.append(await anext(wakes))
        assert b"due" in heard
    told = await why(shop, "a")
    assert (told.state, told.head) == ("delayed", "a1")


# Stages


async def test_a_stage_that_holds_is_the_next_of_its_group(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1")
    claim = await daemon.claim_one()
    await daemon.settle(advance(claim))
    assert shop.lane("a") == ["a0", "a1"]
    again = await daemon.claim_one()
    assert (again.task.id, again.task.stage, again.task.context) == ("a0", "two", {"rows": 3})
    assert (again.task.attempt, again.task.crashes) == (1, 0)
    assert again.task.enqueued_at == claim.task.enqueued_at


async def test_a_stage_that_steps_aside_lines_up_again(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2")
    claim = await daemon.claim_one()
    await daemon.settle(advance(claim, standing="step-aside"))
    await shop.enqueue(arrival("a3", "a"))
    assert shop.lane("a") == ["a1", "a2", "a0", "a3"]
    seen = []
    while claims := await daemon.claim("grouped", "w1"):
        seen.append((claims[0].task.id, claims[0].task.stage))
        if claims[0].task.id == "a0":
            # Where it lines up is new; when it came first is not.
            assert claims[0].task.enqueued_at == claim.task.enqueued_at
        await daemon.complete(*claims)
    assert seen == [("a1", None), ("a2", None), ("a0", "two"), ("a3", None)]


async def test_a_plain_stage_gives_the_others_a_turn(shop: Bench) -> None:
    daemon = await fill(shop, "p0", "p1")
    await daemon.settle(advance(await daemon.claim_one("plain")))
    first, second = await daemon.claim_one("plain", "w1"), await daemon.claim_one("plain", "w2")
    assert [first.task.id, second.task.id] == ["p1", "p0"]
    assert (second.task.stage, second.task.context) == ("two", {"rows": 3})


async def test_a_stage_starts_at_attempt_1_and_keeps_what_failed_before(shop: Bench) -> None:
    daemon = await fill(shop, "a0")
    await daemon.settle(retry(await daemon.claim_one()))
    await pass_time(shop)
    await daemon.settle(advance(await daemon.claim_one()))
    third = await daemon.claim_one()
    assert (third.task.attempt, third.task.stage, third.errors) == (1, "two", FAILURE)


async def test_a_crash_resumes_at_the_last_stage_with_its_context(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "p0")
    other = await shop.daemon("d2")
    for pool in POOLS:
        await daemon.settle(advance(await daemon.claim_one(pool, "w1")))
    before = {c.task.id: c for p in POOLS for c in await daemon.claim(p, f"{p}-w")}
    shop.with_faults = True
    shop.expire("d1")
    await other.sessions.reap()
    for pool in POOLS:
        again = await other.claim_one(pool, f"{pool}-w")
        old = before[again.task.id].task
        assert again.task == replace(old, crashes=1, fence=again.fence)
        assert (again.task.stage, again.task.context) == ("two", {"rows": 3})
        await other.complete(again)
    assert await other.work_off() == ["a1"]


# Crashes


@pytest.mark.parametrize(("pool", "id_"), [("grouped", "a0"), ("plain", "p0")])
async def test_crashes_are_counted_apart_from_attempts(shop: Bench, pool: Pool, id_: str) -> None:
    daemon = await fill(shop, "a0", "a1", "p0")
    shop.with_faults = True
    for crashes in range(3):
        claim = await daemon.claim_one(pool)
        assert (claim.task.attempt, claim.task.crashes) == (1, crashes)
        assert (await found(shop, id_)).crashes == crashes
        assert [each.id for each in await daemon.register()] == [id_]
    assert shop.count("crashed") == 3
    claim = await daemon.claim_one(pool)
    await daemon.settle(retry(claim))
    await pass_time(shop)
    assert (await daemon.claim_one(pool)).task.crashes == 3


async def test_a_redrive_forgets_crashes_and_attempts_and_keeps_the_history(shop: Bench) -> None:
    daemon = await fill(shop, "a0")
    shop.with_faults = True
    await daemon.claim_one()
    await daemon.register()
    await daemon.settle(retry(await daemon.claim_one()))
    await pass_time(shop)
    await daemon.settle(Bury(await daemon.claim_one(), "no", FAILURE * 2))
    await redrive(shop, "a0")
    again = await daemon.claim_one()
    assert (again.task.attempt, again.task.crashes, again.errors) == (1, 0, FAILURE * 2)


# Deaths


async def test_a_dead_letter_keeps_all_there_was(shop: Bench) -> None:
    body = b'\x00\xff\n{"a": 1}\n'
    envelope = Envelope("import", "a", "42", "crm", {"x-one": 1}, body)
    await shop.enqueue(replace(arrival("a0", "a"), envelope=envelope))
    daemon = await shop.daemon()
    await daemon.settle(Bury(await daemon.claim_one(), "no such tenant", FAILURE))
    dead = await letter(shop, "a0")
    assert (dead.type, dead.group, dead.tenant) == ("import", "a", "42")
    assert (dead.reason, dead.attempts, dead.errors) == ("no such tenant", 1, FAILURE)
    assert await DeadLetters(shop.client).envelope("a0") == (envelope, None)
    told = await found(shop, "a0")
    assert (told.state, told.reason, told.since) == ("dead", "no such tenant", dead.died_at)
    await redrive(shop, "a0")
    again = await daemon.claim_one()
    assert (again.task.body, again.task.headers) == (body, {"x-one": 1})


async def test_attempts_are_counted_beyond_the_errors_that_are_kept(shop: Bench) -> None:
    """A dead letter of 25 attempts says 25, though it keeps no more than 20 errors."""
    daemon = await fill(shop, "a0")
    claim = await daemon.claim_one()
    claim.task = replace(claim.task, attempt=24)
    kept = [{"attempt": n, "error": "E", "message": ""} for n in range(5, 25)]
    await daemon.settle(Retry(claim, 0, kept))
    await promote(shop)
    last = await daemon.claim_one()
    assert last.task.attempt == 25
    kept = [*kept[1:], {"attempt": 25, "error": "E", "message": ""}]
    await daemon.settle(Bury(last, "no", kept))
    assert (await letter(shop, "a0")).attempts == 25


async def test_a_parked_group_stands_until_its_death_is_redriven(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0")
    assert await kill(shop, daemon, park=True) == "a0"
    await shop.enqueue(arrival("a2", "a"))
    assert await daemon.work_off() == ["b0"]
    told = await why(shop, "a")
    assert (told.state, told.queued, told.head) == ("parked", 2, "a1")
    assert "a0" in told.reason
    assert "broken" in told.reason
    await redrive(shop, "a0")
    assert await daemon.work_off() == ["a0", "a1", "a2"]
    assert (await why(shop, "a")).state == "idle"


async def test_dropping_the_death_frees_the_group(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1")
    await kill(shop, daemon, park=True)
    assert await DeadLetters(shop.client).drop(await letter(shop, "a0"))
    assert await daemon.work_off() == ["a1"]
    assert (await found(shop, "a0")).state == "dropped"
    assert await DeadLetters(shop.client).get("a0") is None


async def test_only_its_own_death_lifts_a_park(shop: Bench) -> None:
    """An older death of the same group, redriven or dropped, leaves it where it is."""
    daemon = await fill(shop, "a0", "a1", "a2", "a3")
    await kill(shop, daemon)
    await kill(shop, daemon)
    assert await kill(shop, daemon, park=True) == "a2"
    await redrive(shop, "a0")
    assert await DeadLetters(shop.client).drop(await letter(shop, "a1"))
    assert (await why(shop, "a")).state == "parked"
    assert await daemon.work_off() == []
    await redrive(shop, "a2")
    assert await daemon.work_off() == ["a0", "a2", "a3"]


@pytest.mark.parametrize("back", list(itertools.permutations(["a0", "a2", "a4"])))
async def test_deaths_redriven_in_any_order_end_in_order_of_arrival(
    shop: Bench, back: tuple[str, ...]
) -> None:
    daemon = await fill(shop, *(f"a{n}" for n in range(8)))
    for n in range(5):
        claim = await daemon.claim_one()
        await daemon.settle(bury(claim) if n % 2 == 0 else Complete(claim))
    await redrive(shop, *back)
    assert shop.lane("a") == ["a0", "a2", "a4", "a5", "a6", "a7"]
    assert await daemon.work_off() == ["a0", "a2", "a4", "a5", "a6", "a7"]


async def test_a_death_redriven_while_its_group_runs_is_the_next(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2")
    await kill(shop, daemon)
    running = await daemon.claim_one()
    await redrive(shop, "a0")
    assert await daemon.claim("grouped", "w2") == []
    await daemon.complete(running)
    assert await daemon.work_off() == ["a0", "a2"]


async def test_a_death_redriven_into_a_waiting_group_goes_before_the_head(shop: Bench) -> None:
    """Also where the head waits for its time: it holds those behind it, not those before it."""
    daemon = await fill(shop, "a0", "a1", "a2")
    await kill(shop, daemon)
    await daemon.settle(retry(await daemon.claim_one()))
    await redrive(shop, "a0")
    assert await daemon.work_off() == ["a0"]
    assert (await why(shop, "a")).state == "delayed"
    await pass_time(shop)
    assert await daemon.work_off() == ["a1", "a2"]


async def test_a_plain_death_is_redriven_at_its_place(shop: Bench) -> None:
    daemon = await fill(shop, "p0", "p1", "p2")
    for _ in range(2):
        await daemon.settle(bury(await daemon.claim_one("plain")))
    await redrive(shop, "p1", "p0")
    assert await daemon.work_off(["w1"]) == ["p0", "p1", "p2"]


async def test_a_message_that_died_at_the_door_is_redriven_with_its_route(shop: Bench) -> None:
    """It came before what is there now, so that is its place."""
    rejected = Envelope("t", None, None, None, {}, b"{}")
    await shop.enqueue(replace(arrival("a0"), envelope=rejected, dead="no tenant"))
    daemon = await fill(shop, "a1")
    dead = await letter(shop, "a0")
    assert dead.died_at_the_door
    assert dead.attempts == 0
    routed = Envelope("t", "a", "42", "crm", {}, b"{}")
    assert await DeadLetters(shop.client).redrive(dead, routed)
    claim = await daemon.claim_one()
    assert (claim.task.id, claim.task.group, claim.task.tenant) == ("a0", "a", "42")


async def test_only_a_death_can_be_redriven_or_dropped_and_only_once(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1")
    letters = DeadLetters(shop.client)
    await kill(shop, daemon)
    dead = await letter(shop, "a0")
    living = replace(dead, id="a1")
    assert not await letters.redrive(living)
    assert not await letters.drop(living)
    assert await letters.redrive(dead)
    assert not await letters.redrive(dead)
    assert not await letters.drop(dead)
    assert shop.lane("a") == ["a0", "a1"]


async def test_dead_letters_are_listed_by_page_and_filter(shop: Bench) -> None:
    from groupflow.operate import dead as dead_module

    count = dead_module.PAGE + 5
    daemon = await fill(shop, *(f"{'ab'[n % 2]}{n}" for n in range(count)))
    for n in range(count):
        claim = await daemon.claim_one()
        await daemon.settle(bury(claim, f"reason {n % 3}"))
    letters = DeadLetters(shop.client)
    everything = [each.id async for each in letters.each()]
    assert len(set(everything)) == len(everything) == count
    died = [each.died_at async for each in letters.each()]
    assert died == sorted(died, reverse=True)
    some = [each async for each in letters.each(Filter(group="a", reason="reason 1"))]
    assert some
    assert all(each.group == "a" and each.reason == "reason 1" for each in some)
    assert [each async for each in letters.each(Filter(type="other"))] == []


async def test_a_sweep_takes_only_what_is_past_its_retention(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2", "p0")
    await kill(shop, daemon)
    await daemon.settle(bury(await daemon.claim_one("plain")))
    assert await kill(shop, daemon, park=True) == "a1"
    letters = DeadLetters(shop.client)
    assert await letters.sweep(HOUR, 100) == []
    shop.raw.zadd(shop.keys("dead"), {"a1": 1, "p0": 2})
    assert await letters.sweep(HOUR, 1) == ["a1"]
    assert await letters.sweep(HOUR, 100) == ["p0"]
    # The park went with the death that had laid it.
    assert await daemon.work_off() == ["a2"]
    assert (await found(shop, "a1")).state == "expired"
    assert (await found(shop, "a0")).state == "dead"


# Pauses


async def test_a_paused_group_keeps_its_order_and_what_runs_ends(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1", "b0"), Groups(shop.client)
    running = await daemon.claim_one()
    assert await groups.pause("a", "ops")
    assert not await groups.pause("a", "somebody else")
    assert (await why(shop, "a")).state == "running"
    await daemon.complete(running)
    await shop.enqueue(arrival("a2", "a"))
    assert await daemon.work_off() == ["b0"]
    told = await why(shop, "a")
    assert (told.state, told.queued, told.head) == ("paused", 2, "a1")
    assert "ops" in told.reason
    assert await groups.resume("a")
    assert not await groups.resume("a")
    assert await daemon.work_off() == ["a1", "a2"]


@pytest.mark.parametrize("how", ["retry", "release", "crash", "advance", "aside"])
async def test_a_task_that_comes_back_into_a_paused_group_waits_in_its_place(
    shop: Bench, how: str
) -> None:
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.client)
    shop.with_faults = True
    running = await daemon.claim_one()
    await groups.pause("a", "ops")
    match how:
        case "retry":
            await daemon.settle(retry(running))
        case "aside":
            await daemon.settle(retry(running, "step-aside"))
            await pass_time(shop)
        case "release":
            await daemon.settle(Release(running))
        case "advance":
            await daemon.settle(advance(running))
        case _:
            await daemon.register()
    assert await daemon.work_off() == []
    assert shop.lane("a") == ["a0", "a1"]
    assert (await why(shop, "a")).state == "paused"
    await groups.resume("a")
    if how == "retry":
        await pass_time(shop)
    assert await daemon.work_off() == ["a0", "a1"]


async def test_everything_paused_keeps_every_order(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1", "b0", "p0", "p1"), Groups(shop.client)
    running = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    assert await groups.pause(ALL, "ops")
    await daemon.complete(*running)
    await shop.enqueue(arrival("b1", "b"), arrival("p2"))
    assert await daemon.work_off() == []
    assert (await why(shop, "a")).state == "paused"
    assert await groups.resume(ALL)
    ran = await daemon.work_off(["w1"])
    for name in "abp":
        assert [id_ for id_ in ran if id_[0] == name] == sorted(
            id_ for id_ in ran if id_[0] == name
        )
    assert len(ran) == 5


async def test_who_was_paused_by_name_stays_so_when_everything_goes_on(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "b0"), Groups(shop.client)
    await groups.pause("a", "ops")
    await groups.pause(ALL, "ops")
    await groups.resume(ALL)
    assert await daemon.work_off() == ["b0"]
    await groups.resume("a")
    assert await daemon.work_off() == ["a0"]


async def test_a_group_that_is_parked_and_paused_needs_both_lifted(shop: Bench) -> None:
    daemon, groups = await fill(shop, "a0", "a1"), Groups(shop.client)
    await kill(shop, daemon, park=True)
    await groups.pause("a", "ops")
    await groups.resume("a")
    assert await daemon.work_off() == []
    await groups.pause("a", "ops")
    await redrive(shop, "a0")
    assert await daemon.work_off() == []
    await groups.resume("a")
    assert await daemon.work_off() == ["a0", "a1"]


# Delays


async def test_a_delayed_task_holds_those_behind_it(shop: Bench) -> None:
    await shop.enqueue(arrival("a0", "a"), arrival("a1", "a", delay=HOUR), arrival("a2", "a"))
    daemon = await shop.daemon()
    assert await daemon.work_off() == ["a0"]
    told = await why(shop, "a")
    assert (told.state, told.head, told.queued) == ("delayed", "a1", 2)
    now = float(shop.raw.time()[0])
    assert now + HOUR / 2 < (told.until or 0) <= now + HOUR + 1
    await pass_time(shop)
    assert await daemon.work_off() == ["a1", "a2"]


async def test_a_delayed_task_may_step_aside(shop: Bench) -> None:
    aside = arrival("a0", "a", delay=HOUR, steps_aside=True)
    await shop.enqueue(aside, arrival("a1", "a"), arrival("a2", "a"))
    daemon = await shop.daemon()
    first = await daemon.claim_one()
    assert first.task.id == "a1"
    assert (await found(shop, "a0")).state == "delayed"
    await pass_time(shop)
    await daemon.complete(first)
    assert await daemon.work_off() == ["a0", "a2"]


async def test_a_delayed_plain_task_waits_alone(shop: Bench) -> None:
    await shop.enqueue(arrival("p0", delay=HOUR), arrival("p1"))
    daemon = await shop.daemon()
    assert await daemon.work_off() == ["p1"]
    assert await list_tasks(shop.client, "delayed", 10) == [("p0", None)]
    await pass_time(shop)
    assert await daemon.work_off() == ["p0"]


# Priority


async def test_priority_decides_between_groups_and_never_within(shop: Bench) -> None:
    await shop.enqueue(
        arrival("a0", "a"),
        arrival("b0", "b", priority=HOUR),
        arrival("c0", "c", priority=2 * HOUR),
        arrival("a1", "a", priority=9 * HOUR),
        arrival("d0", "d", priority=-HOUR),
    )
    daemon = await shop.daemon()
    assert await daemon.work_off(["w1"]) == ["c0", "b0", "a0", "a1", "d0"]


async def test_priority_decides_among_plain_tasks(shop: Bench) -> None:
    await shop.enqueue(
        arrival("p0"),
        arrival("p1", priority=HOUR),
        arrival("p2", priority=-HOUR),
        arrival("p3", priority=2 * HOUR),
        arrival("p4"),
    )
    daemon = await shop.daemon()
    assert await daemon.work_off(["w1"]) == ["p3", "p1", "p0", "p4", "p2"]


async def test_a_retry_is_due_by_its_delay_alone(shop: Bench) -> None:
    """Its priority counts no more: whatever else has one goes before it."""
    await shop.enqueue(arrival("p0", priority=HOUR), arrival("a0", "a", priority=HOUR))
    daemon = await shop.daemon()
    for pool in POOLS:
        await daemon.settle(retry(await daemon.claim_one(pool), after=0))
    await shop.enqueue(arrival("p1", priority=60), arrival("b0", "b", priority=60))
    await promote(shop)
    ran = await daemon.work_off(["w1"])
    assert [id_ for id_ in ran if id_[0] == "p"] == ["p1", "p0"]
    assert [id_ for id_ in ran if id_[0] != "p"] == ["b0", "a0"]


async def test_a_stage_counts_its_priority_anew(shop: Bench) -> None:
    """After each run: now less its priority."""
    await shop.enqueue(arrival("p0", priority=HOUR))
    daemon = await shop.daemon()
    claim = await daemon.claim_one("plain")
    await shop.enqueue(arrival("p1"), arrival("p2", priority=2 * HOUR))
    await daemon.settle(advance(claim))
    assert await daemon.work_off(["w1"]) == ["p2", "p0", "p1"]


# What each order promises. A group's age is `now - count.arrival`, as the store has it.


def age(shop: Bench, seconds: float) -> None:
    """Let the store's last arrival, and so all that comes, be later by some seconds."""
    last = int(shop.raw.hget(shop.keys("count"), "arrival") or 0)
    shop.raw.hset(shop.keys("count"), "arrival", f"{last + round(seconds * 1e6):016d}")


def age_ready(shop: Bench, group: str, seconds: float) -> None:
    """Let a group have been ready for longer by some seconds."""
    shop.raw.zincrby(shop.keys("ready"), -round(seconds * 1e6), group)


@pytest.mark.parametrize("pool", ["plain", "grouped"])
async def test_endless_urgent_arrivals_starve_nobody(shop: Bench, order: Order, pool: Pool) -> None:
    """An ordinary task runs once its age has passed the difference of the priorities.

    Each round one urgent task (10 h) comes and one task is claimed, and one hour passes: the urgent
    ones of the rounds 1 to 10 count as older than the ordinary one, that of round 11 does not. What
    real time passes within the test is no hour, so it decides nothing.
    """
    grouped = pool == "grouped"
    await shop.enqueue(arrival("ordinary", "slow" if grouped else None))
    daemon = await shop.daemon()
    ran: list[str] = []
    for n in range(1, 31):
        group = f"fast{n}" if grouped else None
        if order == "fair" and grouped:
            age_ready(shop, "slow", HOUR)
        else:
            age(shop, HOUR)
        await shop.enqueue(arrival(f"urgent{n:02d}", group, priority=10.5 * HOUR))
        claim = await daemon.claim_one(pool)
        ran.append(claim.task.id)
        await daemon.complete(claim)
        if claim.task.id == "ordinary":
            break
    assert ran == [*(f"urgent{n:02d}" for n in range(1, 11)), "ordinary"]


@pytest.mark.parametrize("order", ["oldest"], indirect=True)
async def test_oldest_serves_the_group_whose_head_came_first(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0", "a2", "b1", "c0")
    assert await daemon.work_off(["w1"]) == ["a0", "a1", "b0", "a2", "b1", "c0"]


@pytest.mark.parametrize("order", ["fair"], indirect=True)
async def test_fair_gives_each_group_its_turn(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "a2", "a3", "b0", "b1", "c0")
    ran = await daemon.work_off(["w1"])
    # Groups that became ready in one batch did so at one instant; then each has its turn.
    assert sorted(ran[:3]) == ["a0", "b0", "c0"]
    assert sorted(ran[3:5]) == ["a1", "b1"]
    assert ran[5:] == ["a2", "a3"]


@pytest.mark.parametrize("order", ["fair"], indirect=True)
async def test_fair_lets_a_newcomer_wait_one_turn_and_not_a_backlog(shop: Bench) -> None:
    """A thousand tasks of one tenant's ten groups are before it, and it is claimed eleventh."""
    await shop.enqueue(*(arrival(f"g{n % 10}-{n}", f"g{n % 10}") for n in range(1000)))
    daemon = await shop.daemon()
    for _ in range(10):
        await daemon.complete(await daemon.claim_one())
    await shop.enqueue(arrival("newcomer", "new"))
    ran = []
    while "newcomer" not in ran:
        claim = await daemon.claim_one()
        ran.append(claim.task.id)
        await daemon.complete(claim)
    assert len(ran) == 11


@pytest.mark.parametrize("order", ["fair"], indirect=True)
@pytest.mark.parametrize("event", ["resume", "redrive", "drop", "promote"])
async def test_fair_leaves_a_ready_group_its_turn_whatever_happens_in_it(
    shop: Bench, event: str
) -> None:
    """Else a group whose tasks keep coming back would stand behind all others for ever."""
    daemon = await fill(shop, "a0", "a1", "a2", "b0")
    letters = DeadLetters(shop.client)
    aside = await daemon.claim_one()
    assert aside.task.id == "a0"
    await daemon.settle(bury(aside) if event in ("redrive", "drop") else retry(aside, "step-aside"))
    age_ready(shop, "a", 1)  # ready for longer than b, whatever the clock's grain
    match event:
        case "resume":
            await Groups(shop.client).resume("a")
        case "redrive":
            await redrive(shop, "a0")
        case "drop":
            await letters.drop(await letter(shop, "a0"))
        case _:
            await pass_time(shop)
    [claim] = await daemon.claim("grouped", "w1")
    assert claim.task.group == "a"
    await daemon.complete(claim)


# Repeats: a call whose reply was lost is made again.


SETTLEMENTS: dict[str, Callable[[Claim], Settlement]] = {
    "retry, hold": retry,
    "retry, aside": lambda claim: retry(claim, "step-aside"),
    "advance, hold": advance,
    "advance, aside": lambda claim: advance(claim, standing="step-aside"),
    "bury": bury,
    "bury, park": lambda claim: bury(claim, park=True),
}


@pytest.mark.parametrize("name", SETTLEMENTS)
@pytest.mark.parametrize("pool", ["plain", "grouped"])
async def test_a_settle_that_is_repeated_changes_nothing(
    shop: Bench, name: str, pool: Pool
) -> None:
    daemon = await fill(shop, "a0", "a1", "p0", "p1")
    settlement = SETTLEMENTS[name](await daemon.claim_one(pool))
    assert await daemon.settle(settlement) == []
    before = shop.dump()
    assert await daemon.settle(settlement) == []
    assert shop.dump() == before


@pytest.mark.parametrize("name", SETTLEMENTS)
@pytest.mark.parametrize("pool", ["plain", "grouped"])
async def test_a_stale_fence_settles_nothing(shop: Bench, name: str, pool: Pool) -> None:
    daemon = await fill(shop, "a0", "a1", "p0", "p1")
    stale = await daemon.claim_one(pool)
    shop.with_faults = True
    await daemon.register()
    await daemon.claim_one(pool)
    before = shop.dump()
    settlement = SETTLEMENTS[name](stale)
    assert await daemon.settle(settlement) == [settlement]
    assert shop.dump() == before


async def test_every_other_verb_may_be_repeated_too(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0", "c0")
    for park in (True, False, True):
        await kill(shop, daemon, park=park)
    await shop.enqueue(arrival("p0", delay=HOUR), arrival("a9", "a"))
    dead, old, _ = [await letter(shop, id_) for id_ in sorted(await _dead(shop))]
    shop.raw.zadd(shop.keys("dead"), {old.id: 1})
    calls: list[tuple[AnyVerb, list[str | int | bytes]]] = [
        (OperatorVerb.PAUSE, ["a", "ops"]),
        (OperatorVerb.PAUSE, ["", "ops"]),
        (OperatorVerb.RESUME, ["a"]),
        (OperatorVerb.RESUME, [""]),
        (Verb.PROMOTE, [200]),
        (OperatorVerb.DROP, [dead.id, '["dropped","t","a",1,0]']),
        (OperatorVerb.SWEEP, [round(HOUR * 1e6), 100, '["expired","",null,0,0]']),
        (Verb.ROLL, [10**12, 10**6]),
    ]
    for verb, arguments in calls:
        await shop.client.run(verb, *arguments)
        before = shop.dump()
        await shop.client.run(verb, *arguments)
        assert shop.dump() == before, verb


async def _dead(shop: Bench) -> list[str]:
    return [each.id async for each in DeadLetters(shop.client).each()]


# Finding


async def test_a_task_is_found_wherever_it_is(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "p0", "p1", "b0", "c0", "d0")
    await shop.enqueue(arrival("e0", "e", delay=HOUR), arrival("p2", delay=HOUR))
    claims = {}
    for pool, count in zip(POOLS, (4, 1), strict=True):
        workers = [f"{pool}-{n}" for n in range(count)]
        for claim in await daemon.claim(pool, *workers):
            claims[claim.task.id] = claim
    await daemon.settle(retry(claims["b0"]))
    await daemon.settle(bury(claims["c0"]))
    await daemon.complete(claims["d0"])
    states = {id_: (await found(shop, id_)).state for id_ in ("a0", "a1", "p0", "p1", "b0")}
    assert states == {
        "a0": "running",
        "a1": "queued",
        "p0": "running",
        "p1": "queued",
        "b0": "delayed",
    }
    states = {id_: (await found(shop, id_)).state for id_ in ("c0", "d0", "e0", "p2")}
    assert states == {"c0": "dead", "d0": "done", "e0": "delayed", "p2": "delayed"}
    for id_ in ("a0", "p0"):
        told = await found(shop, id_)
        claim = claims[id_]
        assert (told.daemon, told.worker, told.fence) == ("d1", claim.slot, claim.fence)
        assert told.since is not None
    assert await find_task(shop.client, "never came") is None
    listed: dict[ListedState, set[str]] = {
        "queued": {"a1", "p1"},
        "running": {"a0", "p0"},
        "delayed": {"b0", "e0", "p2"},
        "done": {"d0"},
    }
    for state, expected in listed.items():
        assert {id_ for id_, _ in await list_tasks(shop.client, state, 100)} == expected
        assert len(await list_tasks(shop.client, state, 1)) == 1


# No memory


async def test_settles_go_through_when_redis_is_full(tmp_path: Path) -> None:
    """What is there drains, fails, dies and is dropped; only what would add is refused."""
    server = RedisServer(tmp_path / "redis")
    await server.start()
    shop = Bench(server.url)
    try:
        daemon = await fill(shop, *(f"{g}{n}" for g in "abcdefgh" for n in range(2)), "p0", "p1")
        claims = await daemon.claim("grouped", *(f"w{n}" for n in range(8)))
        plain = await daemon.claim_one("plain", "w-plain")
        shop.raw.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            await shop.enqueue(arrival("z0", "z"))
        ways = [*SETTLEMENTS.values(), Complete, Release]
        for claim, way in zip(claims, ways, strict=True):
            assert await daemon.settle(way(claim)) == []
        await daemon.settle(retry(plain))
        await pass_time_when_full(shop)
        await Groups(shop.client).pause("a", "ops")
        await Groups(shop.client).resume("a")
        dead = await _dead(shop)
        with pytest.raises(StoreFull):
            await DeadLetters(shop.client).redrive(await letter(shop, dead[0]))
        for id_ in dead:
            assert await DeadLetters(shop.client).drop(await letter(shop, id_))
        ran = await daemon.work_off()
        assert len(ran) == 16 + 2 - len(dead) - 1  # one had been completed
        assert shop.audit() == []
    finally:
        await shop.close()
        await server.stop()


async def pass_time_when_full(shop: Bench) -> None:
    """`pass_time` writes by itself, which a full server refuses; so it has its memory meanwhile."""
    shop.raw.config_set("maxmemory", 0)
    delayed: Any = shop.raw.zrange(shop.keys("delayed"), 0, -1)
    held: Any = shop.raw.zrange(shop.keys("held"), 0, -1)
    for element in delayed:
        shop.raw.zadd(shop.keys("delayed"), {element: 1})
        shop.raw.hset(shop.keys("life", element[17:].decode()), "due", f"{1:016d}")
    for group in held:
        shop.raw.zadd(shop.keys("held"), {group: 1})
        shop.raw.hset(shop.keys("life", shop.lane(group.decode())[0]), "due", f"{1:016d}")
    shop.raw.config_set("maxmemory", 1)
    assert await promote(shop) == len(delayed) + len(held)
