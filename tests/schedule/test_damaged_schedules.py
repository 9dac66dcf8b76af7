"""Scripts of schedules with one line gone wrong: a test, or the auditor, sees each."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import AnyVerb
from tests.schedule import test_definitions, test_operating, test_ticks
from tests.schedule.clockwork import Line, begun, rule
from tests.store.bench import Bench
from tests.store.damage import Damage, Seen, assert_seen


async def overlaps(bench: Bench) -> None:
    line = Line(bench, rule(overlap="skip"))
    await line.begin()
    assert (await line.next()).ids
    assert (await line.next()).skipped == 1


async def missed_at_once(bench: Bench) -> None:
    await test_ticks.TestOverlap().test_all_that_were_missed_are_one(bench)


async def paused(bench: Bench) -> None:
    await test_operating.test_what_is_paused_passes_by(bench, await test_operating.started(bench))


async def run_by_hand(bench: Bench) -> None:
    clock = await test_operating.started(bench)
    await test_operating.test_run_overlaps_nothing_that_must_not_overlap(bench, clock)


async def two_ticks(bench: Bench) -> None:
    await begun(bench, rule(missed="all"), hours=2)


async def dead(bench: Bench) -> None:
    line = Line(bench, rule(overlap="skip"))
    await line.begin()
    assert (await line.next()).ids
    await test_ticks.TestOverlap().test_a_dead_letter_is_over(bench, line)


TICK, PRESENT, DEFINE = ScheduleVerb.TICK, ScheduleVerb.PRESENT, ScheduleVerb.DEFINE
TOO_EARLY = "if due > now or tonumber(ARGV[9]) > now then"
# Each: what goes wrong, in which script, the line as it is and as it is then, and what sees it.
DAMAGES: tuple[tuple[str, AnyVerb, str, str, Seen], ...] = (
    ("a tick is made by each who comes", TICK, "if digits(due) ~= ARGV[8] then", "if false then",
     test_ticks.test_who_comes_second_changes_nothing),  # as where an answer was lost
    ("the clock of whoever asks decides", TICK, TOO_EARLY, "if false then",
     test_ticks.test_what_is_not_due_by_redis_clock_is_not_made),
    ("only the first of them is compared with the clock", TICK, TOO_EARLY, "if due > now then",
     test_ticks.test_what_is_not_due_by_redis_clock_is_not_made),
    ("what is made stays due", TICK, "call('ZADD', K.schedules, digits(ARGV[10]), name)", "",
     two_ticks),
    ("ticks overlap", TICK, "or is_open(runs[1])", "", overlaps),
    ("those that were missed overlap", TICK, "(#ticks > 0 or is_open(runs[1]))",
     "is_open(runs[1])", missed_at_once),
    ("what is paused is made", TICK, "if is_paused == 0 then", "if true then", paused),
    ("runs are forgotten", TICK, "keep_runs(row, runs)", "", test_ticks.test_what_became_of_runs),
    ("all runs are remembered", TICK, "while #runs > RUNS do runs[#runs] = nil end", "RUNS = 99",
     test_ticks.test_the_last_twenty_runs_are_remembered),
    ("a dead letter isn't over", TICK, "and not call('ZSCORE', K.dead, run[2])", "", dead),
    ("an older configuration wins", DEFINE,
     "if not may_take(row, definition, loaded, now) then", "if false then",
     test_definitions.test_a_definition_that_comes_too_late_is_refused),
    ("a definition outlives whoever had it", PRESENT, "or tonumber(known[3]) < now - OUTLIVED", "",
     test_definitions.test_an_older_one_counts_where_nobody_has_the_newer_one),
    ("what is due is forgotten with each change", DEFINE, "or known[2] ~= timing then",
     "or true then", test_definitions.test_what_is_due_stays_due_where_only_the_rest_changes),
    ("nothing ever ends", PRESENT, "forget_schedule(name)", "",
     test_definitions.test_it_ends_where_nobody_has_it_for_long),
    ("a tick has no due time beside its row", DEFINE,
     "call('ZADD', K.schedules, digits(ARGV[6]), name)", "", two_ticks),
    ("by hand they overlap", OperatorVerb.SCHEDULE_RUN,
     "if known[3] == 'skip' and is_open(runs[1]) then", "if false then", run_by_hand),
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=[name for name, *_ in DAMAGES])
async def test_it_is_seen(
    redis_server: RedisServer, damage: tuple[str, AnyVerb, str, str, Seen]
) -> None:
    await assert_seen(redis_server, Damage(*damage))
