"""Runs damaged on purpose, line by line, and the test that sees it."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import AnyVerb, Verb
from tests.store import test_run_reach as reach
from tests.store import test_runs as runs
from tests.store.damage import Damage, Seen, assert_seen, same


def _damage(
    name: str, sound: str, broken: str, seen: Seen, verb: AnyVerb = Verb.EXCHANGE
) -> Damage:
    return Damage(name, verb, sound, broken, seen)


DAMAGES = [
    _damage(
        "an_older_state_settled_again",
        "if fences[i] == fence then return i end",
        "if fences[i] == fence then return 1 end",
        runs.test_what_was_told_before_is_told_again_with_the_rest,
    ),
    _damage(
        "a_stale_run_settled",
        "if not first then return 0, false end",
        "first = first or 1",
        runs.test_a_zombie_settles_nothing_of_its_run,
    ),
    _damage(
        "what_is_done_left_in_the_lane",
        "for i = first + 1, last do leaving[#leaving + 1] = entries[i] end",
        "",
        runs.test_a_run_is_settled_piece_by_piece,
    ),
    _damage(
        "what_runs_left_in_the_lane",
        "if following ~= '' then leaving[#leaving + 1] = next_one end",
        "",
        runs.test_a_run_is_settled_piece_by_piece,
    ),
    _damage(
        "the_head_taken_whatever_it_is",
        "if is_same then return",
        "if true then return",
        runs.test_an_older_task_waits_for_the_end_of_the_run,
    ),
    _damage(
        "under_the_old_lock",
        "call('SET', K.lock .. group, following",
        "call('SET', K.lock .. group, fences[1]",
        runs.test_a_run_is_settled_piece_by_piece,
    ),
    _damage(
        "an_end_that_is_not_known_again",
        "and fences[#fences] or following",
        "and fences[#fences]",
        same(runs.test_an_end_by_something_else_is_answered_again_as_it_was, "release"),
    ),
    _damage(
        "an_end_that_goes_on",
        "or settled_before(checkpoint) == following then",
        "then",
        same(runs.test_an_end_by_something_else_is_answered_again_as_it_was, "release"),
    ),
    _damage(
        "an_end_that_keeps_the_lock",
        "unlock(group, fences[first], now)\n          call('HDEL', K.runs, group)\n",
        "call('HDEL', K.runs, group)\n",
        runs.test_a_run_is_told_as_a_whole_at_its_end,
    ),
    _damage(
        "an_end_that_keeps_the_reach",
        "unlock(group, fences[first], now)\n          call('HDEL', K.runs, group)\n",
        "unlock(group, fences[first], now)\n",
        runs.test_a_run_is_told_as_a_whole_at_its_end,
    ),
    _damage(
        "an_end_that_leaves_the_group_unplaced",
        "freed[#freed + 1], grouped_ended = group, grouped_ended + 1",
        "grouped_ended = grouped_ended + 1",
        runs.test_a_run_may_end_before_its_last_task,
    ),
    _damage(
        "an_end_that_is_not_counted",
        "freed[#freed + 1], grouped_ended = group, grouped_ended + 1",
        "freed[#freed + 1] = group",
        runs.test_a_run_may_end_before_its_last_task,
    ),
    _damage(
        "begun_tasks_that_still_count_as_waiting",
        "'queued_grouped', -begun)",
        "'queued_grouped', 0)",
        runs.test_a_run_is_settled_piece_by_piece,
    ),
    _damage(
        "a_loss_that_nobody_can_see",
        "goes_on and call('INCR', K.fence) or 0",
        "0",
        runs.test_a_server_that_lost_what_a_run_told_is_known,
    ),
    _damage(
        "on_through_a_pause",
        "local should_end = is_withheld(group) or",
        "local should_end =",
        same(runs.test_a_paused_group_has_its_run_end, "a"),
    ),
    _damage(
        "past_an_older_task",
        "or (head and sequence_of(head) < sequence_of(next_one))",
        "",
        runs.test_an_older_task_waits_for_the_end_of_the_run,
    ),
    _damage(
        "a_claim_that_takes_what_has_a_life",
        "if has_state(entries[i]) or",
        "if",
        runs.test_what_has_a_life_ends_a_run,
        Verb.EXCHANGE,
    ),
    _damage(
        "fences_that_are_not_taken",
        "local fence = take_fences(number)",
        "local fence = 1",
        runs.test_a_claim_gives_a_run,
        Verb.EXCHANGE,
    ),
    _damage(
        "a_claim_told_again_that_keeps_the_reach",
        "if claim.group ~= '' then call('HDEL', K.runs, claim.group) end",
        "",
        runs.test_a_claim_told_again_has_no_run,
        Verb.EXCHANGE,
    ),
    _damage(
        "a_take_over_that_keeps_the_reach",
        "if claim.group ~= '' then call('HDEL', K.runs, claim.group) end\n  local pool",
        "local pool",
        same(runs.test_a_crash_puts_all_back_that_is_not_settled, 2),
        Verb.REAP,
    ),
    _damage(
        "a_retry_that_keeps_the_reach",
        "  if group ~= '' then call('HDEL', K.runs, group) end\n  end_quarantine_of",
        "  end_quarantine_of",
        runs.test_a_failure_is_settled_before_anything_else_begins,
        Verb.RETRY,
    ),
    _damage(
        "a_drop_of_what_runs",
        "if group ~= '' and is_of_run(entry) then return false end",
        "",
        runs.test_a_task_of_a_run_is_not_dropped,
        OperatorVerb.DROP_WAITING,
    ),
    _damage(
        "a_run_that_goes_on_past_who_waits",
        "not is_limiting() and not is_beside_others()",
        "true",
        same(reach.test_where_anybody_waits_it_has_no_more, reach.other_group),
    ),
    _damage(
        "a_reach_that_nobody_knows",
        "call('HSET', K.runs, group, digits(fence + number - 1)",
        "call('HGET', K.runs, group, digits(fence + number - 1)",
        reach.test_nobody_drops_what_it_reaches,
    ),
    _damage(
        "fences_that_are_anybodys",
        "local fence = take_fences(number)",
        "local fence = tonumber(call('GET', K.fence))",
        reach.test_a_run_has_what_stands_behind_it,
    ),
    _damage(
        "what_it_has_told_once_more",
        "-most - behind, -1 - behind",
        "-most, -1",
        reach.test_a_run_has_what_stands_behind_it,
    ),
    _damage(
        "past_what_came_between",
        "if has > 0 and call('LINDEX', K.lane .. group, -has) ~= last then return nil end",
        "",
        reach.test_behind_what_came_between_it_has_no_more,
    ),
    _damage(
        "more_than_one_script_tells",
        "math.min(more, room)",
        "more",
        reach.test_runs_together_reach_no_further_than_one_script_tells,
    ),
    _damage(
        "a_place_that_is_anothers",
        "place, found",
        "1, found",
        reach.test_each_run_has_its_own,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.name)
async def test_it_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
