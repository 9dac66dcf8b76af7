"""The scripts of a task state, damaged on purpose: the tests of that life see each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.operate import test_looks
from tests.store import (
    test_advance,
    test_deaths,
    test_due,
    test_orders,
    test_pauses,
    test_repeats,
    test_retries,
    test_settle,
    test_told,
)
from tests.store.damage import Damage, assert_seen, same

DAMAGES = [
    Damage(
        "a retry that holds lets the group go on",
        Verb.RETRY,
        "ARGV[at + 2] == 'hold'",
        "ARGV[at + 2] == 'never'",
        test_retries.test_a_retry_that_holds_stays_the_head_until_it_is_due,
    ),
    Damage(
        "a retry that steps aside holds its group",
        Verb.RETRY,
        "group ~= '' and ARGV[at + 2] == 'hold'",
        "group ~= ''",
        test_retries.test_a_retry_that_steps_aside_lets_its_group_go_on,
    ),
    Damage(
        "a retry that is due at once",
        Verb.RETRY,
        "digits(now + ARGV[at + 1])",
        "digits(now)",
        test_retries.test_a_plain_retry_simply_waits,
    ),
    Damage(
        "a retry that forgets its errors",
        Verb.RETRY,
        "'errors', ARGV[at + 3], ",
        "",
        test_retries.test_a_retry_that_holds_stays_the_head_until_it_is_due,
    ),
    Damage(
        "a retry that doesn't count its task as waiting",
        Verb.RETRY,
        "write_counts(not is_replaced)",
        "write_counts(false)",
        test_retries.test_a_plain_retry_simply_waits,
    ),
    Damage(
        "a retry that settles with any fence",
        Verb.RETRY,
        "claim == 'live' and try_again",
        "claim and try_again",
        same(test_repeats.test_a_stale_fence_settles_nothing, "retry, hold", "grouped"),
    ),
    Damage(
        "a due time without a wake",
        Verb.EXCHANGE,
        "    wake_at_due(K.held, due)\n",
        "",
        same(test_due.test_a_due_time_is_told_to_promoters, "complete"),
    ),
    *(
        Damage(
            f"an exchange that says {what} of what it leaves to others",
            Verb.EXCHANGE,
            "#idle < number_runs + number_done + number_back",
            broken,
            same(test_told.test_a_daemon_that_claims_as_much_as_it_settles_wakes_no_other, idle),
        )
        for what, broken, idle in (
            ("nothing", "false", 1),
            ("nothing where one slot is idle", "#idle == 0", 1),
            ("too much", "true", 2),
        )
    ),
    Damage(
        "an exchange that counts on slots which hold a claim",
        Verb.EXCHANGE,
        "#idle < number_runs",
        "#ARGV - from_slots + 1 < number_runs",
        test_told.test_a_slot_that_holds_a_claim_is_not_idle,
    ),
    Damage(
        "what is done counted with what goes back",
        Verb.EXCHANGE,
        "  plain_ended, grouped_ended = 0, 0\n",
        "",
        test_settle.test_one_exchange_settles_hands_back_and_claims,
    ),
    Damage(
        "a stage that loses its context",
        Verb.ADVANCE,
        "'context', ARGV[8], ",
        "",
        test_advance.test_a_crash_resumes_at_the_last_stage_with_its_context,
    ),
    Damage(
        "a stage that holds lines up again",
        Verb.ADVANCE,
        "ARGV[9] == 'step-aside'",
        "ARGV[9]",
        test_advance.test_a_stage_that_holds_is_the_next_of_its_group,
    ),
    Damage(
        "a stage that steps aside keeps its place",
        Verb.ADVANCE,
        "waiting = sequence .. '+' .. id",
        "",
        test_advance.test_a_stage_that_steps_aside_lines_up_again,
    ),
    Damage(
        "a stage that goes on counting attempts",
        Verb.ADVANCE,
        "'attempt', 1, ",
        "",
        test_advance.test_a_stage_starts_at_attempt_1_and_keeps_what_failed_before,
    ),
    Damage(
        "a death that doesn't park",
        Verb.BURY,
        "ARGV[at + 2] == 'park'",
        "ARGV[at + 2] == 'never'",
        test_deaths.test_a_parked_group_stands_until_its_death_is_redriven,
    ),
    Damage(
        "a death that doesn't free its group",
        Verb.BURY,
        "if place(group, now) then wake_for(group) end",
        "",
        test_deaths.test_only_its_own_death_lifts_a_park,
    ),
    Damage(
        "a redrive to the back of the line",
        OperatorVerb.REDRIVE,
        "put_back(entry, group, now)",
        "call('LPUSH', K.lane .. group, entry) place(group, now)",
        test_deaths.test_a_death_redriven_while_its_group_runs_is_the_next,
    ),
    Damage(
        "a redrive always to the front of the line",
        OperatorVerb.REDRIVE,
        "put_back(entry, group, now)",
        "call('RPUSH', K.lane .. group, entry) place(group, now)",
        same(
            test_deaths.test_deaths_redriven_in_any_order_end_in_order_of_arrival,
            ("a0", "a2", "a4"),
        ),
    ),
    Damage(
        "a redrive that lifts anybody's park",
        OperatorVerb.REDRIVE,
        "cjson.decode(parked)[1] == id",
        "true",
        test_deaths.test_only_its_own_death_lifts_a_park,
    ),
    Damage(
        "a redrive that keeps the crashes",
        OperatorVerb.REDRIVE,
        ", 'crashes', 0",
        "",
        test_retries.test_a_redrive_forgets_crashes_and_attempts_and_keeps_the_history,
    ),
    Damage(
        "a redrive of what isn't dead",
        OperatorVerb.REDRIVE,
        "if not call('ZSCORE', K.dead, id) then return 0 end",
        "",
        test_deaths.test_only_a_death_can_be_redriven_or_dropped_and_only_once,
    ),
    Damage(
        "a drop that leaves the park",
        OperatorVerb.DROP,
        "unpark(group, id)\n",
        "",
        test_deaths.test_dropping_the_death_frees_the_group,
    ),
    Damage(
        "a drop that leaves the body",
        OperatorVerb.DROP,
        "  call('HDEL', K.tasks, id)\n",
        "",
        test_deaths.test_dropping_the_death_frees_the_group,
    ),
    Damage(
        "a sweep of everything",
        OperatorVerb.SWEEP,
        "digits(now - ARGV[1])",
        "digits(now)",
        test_deaths.test_a_sweep_takes_only_what_is_past_its_retention,
    ),
    Damage(
        "a promotion before its time",
        Verb.PROMOTE,
        "call('ZRANGEBYSCORE', K.delayed, '-inf', digits(now),",
        "call('ZRANGEBYSCORE', K.delayed, '-inf', '+inf',",
        test_retries.test_a_plain_retry_simply_waits,
    ),
    Damage(
        "a promotion that leaves the task aside as well",
        Verb.PROMOTE,
        "call('ZREM', K.delayed, entry)",
        "",
        test_retries.test_tasks_that_stepped_aside_come_back_in_order_of_arrival,
    ),
    Damage(
        "a promotion that doesn't place the group",
        Verb.PROMOTE,
        "  if place(group, now) then wake_for(group) end\n",
        "",
        test_due.test_a_delayed_task_holds_those_behind_it,
    ),
    Damage(
        "a lane that takes everything back in front",
        Verb.PROMOTE,
        "if not head or sequence_of(head) > sequence then",
        "if true then",
        test_retries.test_tasks_that_stepped_aside_come_back_in_order_of_arrival,
    ),
    Damage(
        "a pause that leaves the group ready",
        OperatorVerb.PAUSE,
        "if group ~= '' then place(group, now) end",
        "",
        test_pauses.test_who_was_paused_by_name_stays_so_when_everything_goes_on,
    ),
    Damage(
        "a pause of everything that claims don't obey",
        Verb.EXCHANGE,
        "call('EXISTS', K.paused_all, K.recovering) > 0",
        "call('EXISTS', K.recovering) > 0",
        test_pauses.test_everything_paused_keeps_every_order,
    ),
    Damage(
        "a resume that doesn't place the group",
        OperatorVerb.RESUME,
        "place(ARGV[1], clock())",
        "",
        test_pauses.test_a_paused_group_keeps_its_order_and_what_runs_ends,
    ),
    Damage(
        "a delay that counts for nothing",
        Verb.ENQUEUE,
        "local asked = m.delay ~= '0' and (now + m.delay)",
        "local asked = false",
        test_due.test_a_delayed_plain_task_waits_alone,
    ),
    Damage(
        "a priority that is absolute",
        Verb.ENQUEUE,
        "enter_plain(entry, sequence - m.priority,",
        "enter_plain(entry, 1,",
        same(test_orders.test_endless_urgent_arrivals_starve_no_task, "oldest", "plain"),
    ),
    Damage(
        "a group that loses its turn to a change in it",
        Verb.PROMOTE,
        "'LT', ",
        "",
        same(test_orders.test_fair_leaves_a_ready_group_its_turn_through_changes_in_it, "promote"),
        order="fair",
    ),
    Damage(
        "a large message that has to be read whole",
        Verb.ENQUEUE,
        "'type', facts[1], 'tenant', facts[2]",
        "'kind', facts[1]",
        test_looks.test_a_letter_that_is_none_has_neither_story_nor_body,
    ),
    Damage(
        "a death that doesn't say whose it was",
        Verb.BURY,
        "'type', ARGV[at + 4], 'tenant', ARGV[at + 5]",
        "'type', '', 'tenant', ARGV[at + 5]",
        test_looks.test_a_filter_is_tried_where_the_letters_are,
    ),
    Damage(
        "a death that doesn't say of what kind it was",
        Verb.BURY,
        ", 'kind', ARGV[at + 6]",
        "",
        test_looks.test_a_filter_is_tried_where_the_letters_are,
    ),
    Damage(
        "a kind that is found by its words",
        OperatorVerb.DEAD,
        "string.find(letter.kind, wanted.kind, 1, true)",
        "string.find(letter.reason, wanted.kind, 1, true)",
        test_looks.test_a_filter_is_tried_where_the_letters_are,
    ),
    Damage(
        "a death that forgets how often it was tried",
        Verb.BURY,
        "'attempts', ARGV[at + 3],",
        "",
        test_looks.test_a_filter_is_tried_where_the_letters_are,
    ),
    Damage(
        "a redrive that stays at the door",
        OperatorVerb.REDRIVE,
        ", 'door', 'standing')",
        ", 'standing')",
        test_looks.test_what_died_at_the_door_is_routed_once,
    ),
    Damage(
        "a redrive that tells whose it was before",
        OperatorVerb.REDRIVE,
        ", 'type', ARGV[5], 'tenant', ARGV[6]",
        "",
        test_looks.test_what_died_at_the_door_is_routed_once,
    ),
    Damage(
        "a reason that is a pattern",
        OperatorVerb.DEAD,
        "wanted.reason, 1, true",
        "wanted.reason",
        test_looks.test_a_filter_is_tried_where_the_letters_are,
    ),
    Damage(
        "a page that counts what it has not looked at",
        OperatorVerb.DEAD,
        "if #rows == limit then break end",
        "",
        test_looks.test_a_page_ends_where_it_has_enough,
    ),
    Damage(
        "a body of a task that is no letter",
        OperatorVerb.ENVELOPE,
        "if ARGV[2] == 'dead' and not call('ZSCORE', K.dead, ARGV[1]) then return { '', {} } end",
        "",
        test_looks.test_a_letter_that_is_none_has_neither_story_nor_body,
    ),
    Damage(
        "a crash left out of the count",
        Verb.REGISTER,
        "call('HINCRBY', K.task_state .. id, 'crashes', 1)",
        "call('HINCRBY', K.task_state .. id, 'crashes', 0)",
        same(test_retries.test_crashes_are_counted_apart_from_attempts, "grouped", "a0"),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
