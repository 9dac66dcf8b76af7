"""Retries, stages and dead letters: what becomes of a task, of its place, and of its group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupflow.operate.dead import DeadLetters, sweep_letters
from groupflow.store.envelope import Envelope
from groupflow.store.keys import split_entry
from groupflow.store.settlements import Advance, Bury, Retry
from tests.store.bench import Bench, arrival
from tests.store.story import play, played
from tests.store.task_state import FAILURE, HOUR, fill, found, letter, pass_time, redrive

test_failures = played(
    """
    one that holds stays the head until it is due::
        take a0 a1 b0 | claim a0 | retry a0 | drain b0 | lane a0 a1 | promote 0
        why a delayed head=a0 queued=2 : no such row | status delayed=1
        time | claim a0/2 | done a0 | drain a1
    a redrive forgets crashes and attempts::
        take a0 | claim a0 | crash | claim a0*1 | retry a0 | time | claim a0/2*1 | bury a0
        redrive a0 | claim a0/1*0
    one that steps aside lets its group go on::
        take a0 a1 a2 | claim a0 | retry a0 aside | claim a1
        time | lane a0 a2 | none | done a1 | drain a0 a2
    # Stages
    it starts at attempt 1::
        take a0 | claim a0 | retry a0 | time | claim a0/2#None | advance a0 | claim a0/1#two
    one that steps aside lines up again::
        take a0 a1 a2 | claim a0 | advance a0 aside | take a3 | lane a1 a2 a0 a3
        claim a1#None | done a1 | claim a2#None | done a2 | claim a0#two | done a0 | claim a3#None
    # Deaths
    a parked group stands until its death is redriven::
        take a0 a1 b0 | claim a0 | park a0 | take a2 | drain b0
        why a parked head=a1 queued=2 : a0 | why a parked: broken
        redrive a0 | drain a0 a1 a2 | why a idle
    only its own death lifts a park::
        take a0 a1 a2 a3 | claim a0 | bury a0 | claim a1 | bury a1 | claim a2 | park a2
        redrive a0 | drop a1 | why a parked | none | redrive a2 | drain a0 a2 a3
    a corrected one has its old place, and no attempts::
        take a0 a1 a2 | claim a0 | retry a0 | time | claim a0/2 | bury a0 | claim a1 | correct a0
        none | done a1 | claim a0/1 | bury a0 | correct a0 | drain a0 a2
    a parked group goes on with the corrected one::
        take a0 a1 | claim a0 | park a0 | correct a0 | drain a0 a1
    """
)


async def test_what_a_stage_keeps(shop: Bench) -> None:
    """Its context, the errors before it, and when its message came; through a crash as well."""
    daemon, other = await fill(shop, "a0", "p0"), await shop.daemon("d2")
    claim = await daemon.claim_one()
    await daemon.settle(Retry(claim, HOUR, FAILURE))
    await pass_time(shop)
    context = b'{"rows": 3}'
    await daemon.settle(Advance(await daemon.claim_one(), "two", context, "step-aside"))
    await daemon.settle(Advance(await daemon.claim_one("plain"), "two", context, "step-aside"))
    before = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    assert [(each.task.stage, each.task.context) for each in before] == [("two", {"rows": 3})] * 2
    assert before[0].errors == FAILURE
    assert before[0].task.enqueued_at == claim.task.enqueued_at
    assert not shop.raw.hexists(shop.keys("task_state", "p0"), "enqueued"), "it has no line"
    shop.expire("d1")
    await other.sessions.reap()
    for pool, old in zip(("grouped", "plain"), before, strict=True):
        again = await other.claim_one(pool)  # type: ignore[arg-type]
        assert again.task == replace(old.task, crashes=1, lost_leases=1, fence=again.fence)
        await other.complete(again)


async def test_a_stage_lines_up_behind_all_however_late_the_clock_is(shop: Bench) -> None:
    """Arrivals rise even where Redis's clock went back: at a stage as at an enqueue."""
    ahead = shop.server_time() + 3_600_000_000
    shop.raw.hset(shop.keys("count"), "sequence", f"{ahead:016d}")
    await play(shop, "take a0 a1 | claim a0 | advance a0 aside | lane a1 a0 | take a2")
    lane: Any = shop.raw.lrange(shop.keys("lane", "a"), 0, -1)
    assert [split_entry(entry)[0] - ahead for entry in lane] == [4, 3, 2]


async def test_a_dead_letter_keeps_all_there_was(shop: Bench) -> None:
    body = b'\x00\xff\n{"a": 1}\n'
    envelope = Envelope("import", "a", "42", "crm", {"x-one": 1}, body)
    await shop.enqueue(replace(arrival("a0", "a"), envelope=envelope))
    daemon = await shop.daemon()
    await daemon.settle(Bury(await daemon.claim_one(), "no such tenant", FAILURE * 2))
    dead = await letter(shop, "a0")
    assert (dead.type, dead.group, dead.tenant) == ("import", "a", "42")
    assert (dead.reason, dead.attempts, dead.errors) == ("no such tenant", 2, FAILURE * 2)
    assert await DeadLetters(shop.namespace).envelope("a0") == (envelope, None)
    told = await found(shop, "a0")
    assert (told.state, told.reason, told.since) == ("dead", "no such tenant", dead.died_at)
    await redrive(shop, "a0")
    again = await daemon.claim_one()
    assert (again.task.body, again.task.headers, again.errors) == (body, {"x-one": 1}, FAILURE * 2)


async def test_only_a_death_can_be_redriven_or_dropped_and_only_once(shop: Bench) -> None:
    await play(shop, "take a0 a1 | claim a0 | bury a0")
    letters, dead = DeadLetters(shop.namespace), await letter(shop, "a0")
    for act in (letters.redrive, letters.drop):
        assert not await act(replace(dead, id="a1"))
    assert await letters.redrive(dead)
    for act in (letters.redrive, letters.drop):
        assert not await act(dead)
    assert shop.lane("a") == ["a0", "a1"]


async def test_a_sweep_takes_only_what_is_past_its_retention(shop: Bench) -> None:
    told = await play(shop, "take a0 a1 a2 p0 | claim a0 p0 | bury a0 p0 | claim a1 | park a1")
    assert await sweep_letters(shop.client, HOUR, 100) == []
    shop.raw.zadd(shop.keys("dead"), {"a1": 1, "p0": 2})
    assert await sweep_letters(shop.client, HOUR, 1) == ["a1"]
    assert await sweep_letters(shop.client, HOUR, 100) == ["p0"]
    await told.go_on("drain a2 | task a1 swept | task a0 dead")  # the park went with its death
