"""Dead letters: what they keep, the groups they park, redriven, dropped, swept."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from groupflow.operate.dead import DeadLetters, Filter, remove_expired
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Bury, Complete, Retry
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import (
    FAILURE,
    HOUR,
    fill,
    found,
    kill,
    letter,
    pass_time,
    promote,
    redrive,
    retry,
    why,
)


async def test_a_dead_letter_keeps_all_there_was(shop: Bench) -> None:
    body = b'\x00\xff\n{"a": 1}\n'
    envelope = Envelope("import", "a", "42", "crm", {"x-one": 1}, body)
    await shop.enqueue(replace(arrival("a0", "a"), envelope=envelope))
    daemon = await shop.daemon()
    await daemon.settle(Bury(await daemon.claim_one(), "no such tenant", FAILURE))
    dead = await letter(shop, "a0")
    assert (dead.type, dead.group, dead.tenant) == ("import", "a", "42")
    assert (dead.reason, dead.attempts, dead.errors) == ("no such tenant", 1, FAILURE)
    assert await DeadLetters(shop.namespace).envelope("a0") == (envelope, None)
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
    assert await DeadLetters(shop.namespace).drop(await letter(shop, "a0"))
    assert await daemon.work_off() == ["a1"]
    assert (await found(shop, "a0")).state == "dropped"
    assert await DeadLetters(shop.namespace).find("a0") is None


async def test_only_its_own_death_lifts_a_park(shop: Bench) -> None:
    """An older death of the same group, redriven or dropped, leaves it where it is."""
    daemon = await fill(shop, "a0", "a1", "a2", "a3")
    await kill(shop, daemon)
    await kill(shop, daemon)
    assert await kill(shop, daemon, park=True) == "a2"
    await redrive(shop, "a0")
    assert await DeadLetters(shop.namespace).drop(await letter(shop, "a1"))
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
    assert await DeadLetters(shop.namespace).redrive(dead, routed)
    claim = await daemon.claim_one()
    assert (claim.task.id, claim.task.group, claim.task.tenant) == ("a0", "a", "42")


async def test_only_a_death_can_be_redriven_or_dropped_and_only_once(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1")
    letters = DeadLetters(shop.namespace)
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
    letters = DeadLetters(shop.namespace)
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
    assert await remove_expired(shop.client, HOUR, 100) == []
    shop.raw.zadd(shop.keys("dead"), {"a1": 1, "p0": 2})
    assert await remove_expired(shop.client, HOUR, 1) == ["a1"]
    assert await remove_expired(shop.client, HOUR, 100) == ["p0"]
    # The park went with the death that had laid it.
    assert await daemon.work_off() == ["a2"]
    assert (await found(shop, "a1")).state == "expired"
    assert (await found(shop, "a0")).state == "dead"
