"""Ticks of schedules: each once, from any daemon; what overlaps, is missed, paused, asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import StoreFull
from groupflow.core.measures import ScheduleMeasures
from groupflow.core.timing import tick_text
from groupflow.operate.dead import DeadLetters
from groupflow.operate.schedules import (
    NoSchedule,
    Schedules,
    StillOpen,
    TickRefused,
)
from groupflow.schedule import ticker as ticker_module
from groupflow.schedule.deciding import Decision, decide
from groupflow.schedule.table import ScheduleTable, Ticked
from groupflow.schedule.ticker import Ticker
from groupflow.settings.planning import SCHEDULE_HEADER
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Retry, Settlement
from tests.deadlines import deadline
from tests.schedule.clockwork import (
    GROUPED,
    HOUR,
    Clockwork,
    begun,
    defined,
    due_of,
    let_pass,
    names,
    rule,
    the,
    waiting,
)  # fmt: skip
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import letter, pass_time


async def test_a_tick_is_a_task_like_any_other(bench: Bench) -> None:
    """Its facts lie apart from its body where the header makes that large: see the auditor."""
    body = {"kind": "nightly", "text": "x" * 3900}
    facts: dict[str, Any] = {"tenant": 42, "type": "report", "body": body}
    await begun(bench, rule(app="crm", **facts), hours=1)
    daemon = await bench.daemon()
    claim = await daemon.claim_one("grouped")
    task = claim.task
    run = (await the(bench)).runs[0]
    assert task.id == run.task == f"schedule:nightly:{tick_text(round(run.at * 1e6))}"
    assert (task.type, task.tenant, task.group) == ("report", "42", "nightly:42")
    assert task.json() == {**facts["body"], "app_name": "crm", "tenant_id": 42}
    assert task.headers == {SCHEDULE_HEADER: "nightly", "x-tick": task.id.split(":", 2)[2]}
    await daemon.complete(claim)


async def test_a_late_tick_waits_for_no_thread_of_a_handler() -> None:
    (definition,), may_end = defined(rule()), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, may_end.wait)
    ticker = Ticker(cast(Any, None), [], ScheduleMeasures())
    try:
        async with asyncio.timeout(deadline(10.0)):
            assert (await ticker._decide(definition, HOUR, 3 * HOUR)).missed > 0
    finally:
        may_end.set()


async def test_a_late_tick_needs_no_thread() -> None:
    """The process may be at its limit: that ends no daemon."""
    (definition,), refused = defined(rule()), RuntimeError("can't start new thread")
    ticker = Ticker(cast(Any, None), [], ScheduleMeasures())
    with (
        patch.object(ticker_module, "_DECIDING", ThreadPoolExecutor(1)),
        patch.object(threading.Thread, "start", side_effect=refused),
    ):
        assert (await ticker._decide(definition, HOUR, 3 * HOUR)).missed > 0


async def test_who_comes_second_changes_nothing(bench: Bench) -> None:
    (definition,) = defined(rule())
    clock, table = await begun(bench, rule()), ScheduleTable(bench.client, "d2")
    let_pass(bench, 3)
    due, now = due_of(bench), bench.server_time()
    await clock.look()
    schedule = bench.keys("schedule", "nightly")
    before, noted = bench.dump(), bench.raw.hgetall(schedule)
    (late,) = await table.tick([(definition, due, decide(definition, due, now))])
    assert (late.verdict, late.ids) == ("PASSED", [])
    assert late.due > now
    assert bench.raw.hgetall(schedule) == noted
    name = schedule.encode()  # of a large hash Redis may dump the same fields in another order
    assert bench.dump() | {name: b""} == before | {name: b""}


async def test_what_is_not_due_by_redis_clock_is_not_made(bench: Bench) -> None:
    """A daemon whose clock is ahead is told so, and changes nothing."""
    (definition,) = defined(rule())
    await begun(bench, rule())
    table, due, before = ScheduleTable(bench.client, "d2"), due_of(bench), bench.dump()
    (early,) = await table.tick([(definition, due, decide(definition, due, due + 5))])
    assert early.verdict == "EARLY"
    assert bench.dump() == before
    let_pass(bench, 1)
    last = Decision([due], due, due + 1, 0)  # the one that is due, and one that isn't yet
    (early,) = await table.tick([(definition, due - HOUR, last)])
    assert early.verdict == "EARLY"
    assert waiting(bench) == []


async def test_strangers_can_not_take_a_tick_away(bench: Bench) -> None:
    clock = await begun(bench, rule())
    let_pass(bench, 1)
    taken = f"schedule:nightly:{tick_text(due_of(bench))}"
    await bench.enqueue(arrival(taken))
    await clock.look()
    (run,) = (await the(bench)).runs
    assert run.task.startswith(f"{taken}~")
    assert waiting(bench) == [taken, run.task]


async def test_overlap_skip_makes_none_while_the_last_one_is_open(bench: Bench) -> None:
    """While it waits, runs or is to be tried again; a dead letter is over, as what is done."""
    one = rule(overlap="skip")
    (definition,) = defined(one)
    await begun(bench, one)
    let_pass(bench, 100)
    table, daemon = ScheduleTable(bench.client, "d1"), await bench.daemon()

    async def tick() -> Ticked:
        """Its next one, an hour behind the last."""
        due = due_of(bench)
        return (await table.tick([(definition, due, Decision([due], due, due + HOUR, 0))]))[0]

    assert (await tick()).ids
    steps: list[tuple[str | None, Callable[[Claim], Settlement] | None]] = [
        ("queued", None),
        ("running", Complete),
        (None, None),
        ("queued", lambda claim: Retry(claim, 3600.0, [])),
        ("delayed", None),
    ]
    for skipped, settled in steps:
        ticked = await tick()
        assert (ticked.skipped, bool(ticked.ids)) == (int(skipped is not None), skipped is None)
        assert (await the(bench)).last_outcome == (skipped or "queued")
        if skipped == "queued":
            claim = await daemon.claim_one("plain")
        if settled:
            await daemon.settle(settled(claim))
    await pass_time(bench)
    await daemon.settle(bury(await daemon.claim_one("plain")))
    assert (await the(bench)).last_outcome == "dead"
    assert (await tick()).ids
    found = await the(bench)
    assert (found.skipped_total, found.ticks_total, found.missed_total) == (4, 3, 0)


async def test_all_that_were_missed_are_one_where_they_must_not_overlap(bench: Bench) -> None:
    clock = await begun(bench, rule("all", overlap="skip", missed="all"), hours=5)
    found = await the(bench, "all")
    assert (found.ticks_total, found.skipped_total, clock.measures.skipped) == (1, 4, 4)


async def test_the_last_twenty_runs_are_remembered(bench: Bench) -> None:
    await begun(bench, rule(missed="all"), hours=23)
    found = await the(bench)
    assert (found.ticks_total, len(found.runs)) == (23, 20)
    assert found.last_task == found.runs[0].task == waiting(bench)[-1]


async def test_what_became_of_runs(bench: Bench) -> None:
    clock = await begun(bench, rule(missed="all"), hours=4)
    daemon = await bench.daemon()
    claims = await daemon.claim("plain", "w1", "w2", "w3")
    await daemon.settle(Complete(claims[0]), bury(claims[1]))
    found = await the(bench)
    assert [run.outcome for run in reversed(found.runs)] == ["done", "dead", "queued", "queued"]
    assert found.last_outcome == "queued"
    await clock.look()  # writes down what it finds, before the history rolls away
    bench.raw.delete(bench.keys("history_new"))
    found = await the(bench)
    assert [run.outcome for run in reversed(found.runs)] == ["done", "dead", "queued", "queued"]
    await daemon.complete(claims[2])
    bench.raw.delete(bench.keys("history_new"))
    assert (await the(bench)).runs[1].outcome == "over"


async def test_full_memory_makes_no_tick_and_loses_none(bench: Bench) -> None:
    clock = await begun(bench, rule())
    let_pass(bench, 1)
    with bench.full():
        with pytest.raises(StoreFull):
            await clock.look()
        assert waiting(bench) == []
    await clock.look()
    assert len(waiting(bench)) == 1


async def test_ticks_of_a_rule_that_debounces_replace_each_other(bench: Bench) -> None:
    quiet = GROUPED | {"debounce": 60}
    facts = rule(missed="all", app="crm", tenant=1, body={"kind": "k"})
    clock = await begun(bench, facts, groups=(quiet,), hours=3)
    found = await the(bench)
    assert [run.outcome for run in reversed(found.runs)] == ["superseded", "superseded", "delayed"]
    assert bench.count("superseded") == 2
    await clock.look()
    bench.raw.delete(bench.keys("history_new"))
    assert (await the(bench)).runs[1].outcome == "superseded"


async def test_a_tick_whose_group_is_full_is_missed_and_a_letter(bench: Bench) -> None:
    """It is told, and a redrive brings it back; the schedule goes on."""
    small = GROUPED | {"max_queued": 2}
    facts = rule(missed="all", app="crm", tenant=1, body={"kind": "k"})
    with capture_logs() as logs:
        clock = await begun(bench, facts, groups=(small,), hours=3)
    found = await the(bench)
    assert [run.outcome for run in reversed(found.runs)] == ["queued", "queued", "dead"]
    refused = found.runs[0].task
    missed = clock.measures.missed
    assert (clock.measures.made, found.ticks_total, found.missed_total) == (2, 3, missed)
    [told] = [each for each in logs if each["event"] == "schedule.group_full"]
    assert (told["log_level"], told["dead"], told["group"]) == ("warning", [refused], "k:1")
    letters = DeadLetters(bench.namespace)
    dead = await letter(bench, refused)
    assert dead.reason == "its group is full"
    daemon = await bench.daemon()
    assert len(await daemon.work_off()) == 2
    assert await letters.redrive(dead, max_queued={"groups[0]": 2})
    assert await daemon.work_off() == [refused]


# What operators do to schedules: run, pause, resume, drop


@pytest.fixture
async def clock(bench: Bench) -> Clockwork:
    """A daemon with two schedules."""
    return await begun(bench, rule(), rule("alone", overlap="skip"))


async def test_run_makes_one_more(bench: Bench, clock: Clockwork) -> None:
    schedules = Schedules(bench.namespace)
    due = (await the(bench)).next_at
    task = await schedules.run("nightly")
    assert task in waiting(bench)
    found = await the(bench)
    assert (found.next_at, found.ticks_total, found.missed_total) == (due, 1, 0)
    assert [(run.task, run.kind) for run in found.runs] == [(task, "now")]
    let_pass(bench, 1)
    await clock.look()
    assert [run.kind for run in (await the(bench)).runs] == ["tick", "now"]


async def test_run_overlaps_nothing_that_must_not_overlap(bench: Bench, clock: Clockwork) -> None:
    schedules = Schedules(bench.namespace)
    task = await schedules.run("alone")
    with pytest.raises(StillOpen, match=task):
        await schedules.run("alone")
    daemon = await bench.daemon()
    await daemon.complete(await daemon.claim_one("plain"))
    assert await schedules.run("alone") != task
    assert clock.measures.made == 0


async def test_what_is_paused_passes_by(bench: Bench, clock: Clockwork) -> None:
    schedules = Schedules(bench.namespace)
    assert await schedules.pause("nightly", "anna")
    assert not await schedules.pause("nightly", "ben")
    let_pass(bench, 5)
    await clock.look()
    found = await the(bench)
    assert (found.paused, found.paused_by, found.overdue) == (True, "anna", 0)
    assert (found.ticks_total, found.missed_total, found.skipped_total) == (0, 0, 0)
    assert clock.measures.missed == 0
    await schedules.run("nightly")
    assert await schedules.resume("nightly")
    assert not await schedules.resume("nightly")
    let_pass(bench, 1)
    await clock.look()
    assert (await the(bench)).ticks_total == 2


async def test_a_dropped_one_begins_again_by_a_daemon(bench: Bench, clock: Clockwork) -> None:
    schedules = Schedules(bench.namespace)
    task = await schedules.run("nightly")
    await schedules.drop("nightly")
    assert await names(bench) == ["alone"]
    assert waiting(bench) == [task]
    await clock.look()
    assert (await the(bench)).ticks_total == 0


async def test_what_is_not_there(bench: Bench) -> None:
    schedules: Any = Schedules(bench.namespace)
    for act in (schedules.run, schedules.resume, schedules.drop):
        with pytest.raises(NoSchedule, match="no schedule has the name 'x'"):
            await act("x")


async def test_run_says_that_the_group_is_full(bench: Bench) -> None:
    """What was made of it is a dead letter; asked again in the same instant it is the same."""
    facts = rule(app="crm", tenant=1, body={"kind": "k"})
    await begun(bench, facts, groups=(GROUPED | {"max_queued": 1},))
    schedules = Schedules(bench.namespace)
    task = await schedules.run("nightly")
    with pytest.raises(TickRefused, match="is full"):
        await schedules.run("nightly")
    found = await the(bench)
    assert [(run.kind, run.outcome) for run in found.runs] == [("now", "dead"), ("now", "queued")]
    assert found.runs[1].task == task


async def test_a_reload_while_it_asks_is_heeded_at_once(bench: Bench) -> None:
    clock = Clockwork(bench)
    clock.load(rule("before"))
    present = ScheduleTable.present

    async def reloading(table: ScheduleTable, schedules: Any, **facts: Any) -> Any:
        if schedules:
            clock.load(rule("behind"))
        return await present(table, schedules, **facts)

    with patch.object(ScheduleTable, "present", reloading):
        assert await clock.go_on() == 0.0
    await clock.go_on()
    assert await names(bench) == ["before", "behind"]
