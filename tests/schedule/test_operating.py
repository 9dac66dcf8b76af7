"""What operators do to schedules: run, pause, resume, drop."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.operate.schedules import (
    NoSchedule,
    Schedules,
    StillOpen,
    TickRefused,
    read_schedules,
)
from tests.schedule.clockwork import GROUPED, Clockwork, begun, let_pass, rule, the, waiting
from tests.store.bench import Bench


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


async def test_what_is_dropped_begins_anew_where_a_daemon_has_it(
    bench: Bench, clock: Clockwork
) -> None:
    schedules = Schedules(bench.namespace)
    task = await schedules.run("nightly")
    await schedules.drop("nightly")
    assert [each.name for each in await read_schedules(bench.namespace)] == ["alone"]
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
