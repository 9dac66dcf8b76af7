"""What replaces waiting tasks, damaged on purpose: `test_debounce` sees each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_debounce
from tests.store.damage import Damage, assert_seen, same

ROOM = test_debounce.TestRoom()

DAMAGES = [
    Damage(
        "a task that goes without a line",
        Verb.ENQUEUE,
        "call('HSET', K.history_new, id, digits(now) .. line)",
        "",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "a task left out of the count",
        Verb.ENQUEUE,
        "call('HINCRBY', K.count, 'superseded', 1)",
        "",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "a task that counts on as waiting",
        Verb.ENQUEUE,
        "    call('HINCRBY', K.count, 'queued_grouped', -1)\n",
        "",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "an envelope that stays",
        Verb.ENQUEUE,
        "    call('HDEL', K.tasks, id)\n    end_state(id)\n",
        "    end_state(id)\n",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "a delay that is counted for ever",
        Verb.ENQUEUE,
        "    remove_delay(id)\n    call('HDEL', K.tasks, id)",
        "  call('HDEL', K.tasks, id)",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "who is said to have replaced itself",
        Verb.ENQUEUE,
        "died, by,",
        "died, id,",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "nothing is replaced",
        Verb.ENQUEUE,
        "burst.replaced and bursts().supersede_waiting",
        "false",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "the newest is not known",
        Verb.ENQUEUE,
        "    bursts().enter(burst.name, burst.since, m.entry)\n",
        "",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "no quiet",
        Verb.ENQUEUE,
        "if burst and burst.quiet > (asked or now) then m.due = burst.quiet end",
        "",
        test_debounce.test_a_burst_runs_once_with_the_newest,
    ),
    Damage(
        "a burst that never ends",
        Verb.ENQUEUE,
        "quiet = math.min(now + m.facts[5], latest)",
        "quiet = now + m.facts[5]",
        test_debounce.test_a_burst_ends_at_its_most,
    ),
    Damage(
        "each message begins a burst",
        Verb.ENQUEUE,
        "local since = newest and sub(newest, 1, 16) or bursts().NONE",
        "local since = bursts().NONE",
        test_debounce.test_a_burst_ends_at_its_most,
    ),
    Damage(
        "a burst that outlives its run",
        Verb.EXCHANGE,
        "      leave_burst(entry)\n",
        "",
        test_debounce.test_a_burst_ends_at_its_most,
    ),
    Damage(
        "a quiet that cuts a message's own delay short",
        Verb.ENQUEUE,
        "burst.quiet > (asked or now)",
        "burst.quiet > now",
        test_debounce.test_a_messages_own_delay_holds_where_it_is_longer,
    ),
    Damage(
        "who stands aside is not found",
        Verb.ENQUEUE,
        "return call('ZREM', K.delayed, entry) == 1 or call",
        "return call",
        same(test_debounce.test_it_takes_its_own_place, True),
    ),
    Damage(
        "who is in its lane is not found",
        Verb.ENQUEUE,
        "== 1 or call('LREM', K.lane .. group, 1, entry) == 1",
        "== 1",
        same(test_debounce.test_it_takes_its_own_place, False),
    ),
    Damage(
        "a group that is held for a task that is gone",
        Verb.ENQUEUE,
        "    call('ZREM', K.held, group)\n    return true",
        "  return true",
        ROOM.test_without_room_what_waits_behind_quiet_is_no_letter,
    ),
    Damage(
        "a group not placed behind it",
        Verb.ENQUEUE,
        "local may_start = is_head or has_replaced or",
        "local may_start = is_head or",
        test_debounce.test_who_was_held_behind_it_goes_on_at_once,
    ),
    Damage(
        "a group not placed beside it",
        Verb.ENQUEUE,
        "return m.has_replaced and place(group, now)",
        "return false",
        test_debounce.test_a_group_that_was_ready_for_it_is_not_any_more,
    ),
    Damage(
        "one that waits behind what is gone",
        Verb.ENQUEUE,
        "if leaving and newest == leaving then newest",
        "if false then newest",
        test_debounce.test_a_messages_own_delay_holds_where_it_is_longer,
    ),
    Damage(
        "types that are one",
        Verb.ENQUEUE,
        "group .. scope .. ' ' .. task_type",
        "group .. scope",
        test_debounce.test_groups_and_types_are_apart,
    ),
    Damage(
        "groups and types that look alike",
        Verb.ENQUEUE,
        "return format('%04d', #group) .. group",
        "return '0001' .. group",
        test_debounce.test_groups_and_types_are_apart,
    ),
    Damage(
        "tenants that are one",
        Verb.ENQUEUE,
        "group .. scope .. ' ' .. task_type",
        "group .. ' ' .. task_type",
        test_debounce.test_a_task_replaces_none_of_another_scope_or_tenant,
    ),
    Damage(
        "tasks without a group are one group",
        Verb.ENQUEUE,
        "m.facts[5] and m.group ~= '' and burst_met",
        "m.facts[5] and burst_met",
        test_debounce.test_without_a_group_nothing_is_replaced,
    ),
    Damage(
        "every task that is special debounces",
        Verb.ENQUEUE,
        "burst = m.facts and m.facts[5] and m.group",
        "burst = m.facts and m.group",
        test_debounce.test_other_rules_are_as_ever,
    ),
    Damage(
        "what runs is replaced",
        Verb.EXCHANGE,
        "if name then call('HDEL', K.debouncing, name) end",
        "",
        test_debounce.test_what_runs_is_not_replaced,
    ),
    Damage(
        "a retry that nothing replaces",
        Verb.RETRY,
        "bursts().enter(name, bursts().NONE, waiting)",
        "",
        same(test_debounce.test_a_retry_is_replaced_by_what_comes_after_it, "hold"),
    ),
    Damage(
        "a retry whose burst goes on from where it began",
        Verb.RETRY,
        "bursts().enter(name, bursts().NONE, waiting)",
        "bursts().enter(name, bursts().OVER, waiting)",
        same(test_debounce.test_a_retry_is_replaced_by_what_comes_after_it, "hold"),
    ),
    Damage(
        "a retry that waits in front of what came after it",
        Verb.RETRY,
        "is_replaced = other and",
        "is_replaced = false and",
        test_debounce.test_who_asks_for_a_retry_gives_way_to_what_came_after_it,
    ),
    Damage(
        "a retry that is counted though there is none",
        Verb.RETRY,
        "if not is_replaced then call('HINCRBY', K.count, 'retried', 1) end",
        "call('HINCRBY', K.count, 'retried', 1)",
        test_debounce.test_who_asks_for_a_retry_gives_way_to_what_came_after_it,
    ),
    Damage(
        "a newer one that gives way to an older",
        Verb.RETRY,
        "sequence_of(other) > sequence_of(entry)",
        "true",
        same(test_debounce.test_of_two_retries_the_newer_one_stays, True),
    ),
    Damage(
        "an older one that replaces a newer",
        Verb.RETRY,
        "sequence_of(other) > sequence_of(entry)",
        "false",
        same(test_debounce.test_of_two_retries_the_newer_one_stays, False),
    ),
    Damage(
        "an older one that stays beside a newer",
        Verb.RETRY,
        "if other then bursts().supersede_waiting(other, group, id, now) end",
        "",
        same(test_debounce.test_of_two_retries_the_newer_one_stays, True),
    ),
    Damage(
        "a later stage that is replaced",
        Verb.RETRY,
        "task_state[1] and not task_state[5] and B.name",
        "task_state[1] and B.name",
        test_debounce.test_a_later_stage_is_not_replaced,
    ),
    Damage(
        "a drop that leaves the burst",
        OperatorVerb.DROP_WAITING,
        "    if is_gone then leave_burst(entry) end\n",
        "",
        test_debounce.test_with_the_newest_its_burst_is_dropped,
    ),
    Damage(
        "a drop that takes another's burst",
        OperatorVerb.DROP_WAITING,
        "if newest and sub(newest, 17) == entry then",
        "if newest then",
        test_debounce.test_a_drop_of_another_one_leaves_the_burst_alone,
    ),
    Damage(
        "a claim that takes another's burst",
        Verb.EXCHANGE,
        "if newest and sub(newest, 17) == entry then",
        "if newest then",
        test_debounce.test_what_is_handed_back_runs_once_more,
    ),
    Damage(
        "a run-now that is forgotten",
        OperatorVerb.RUN_NOW,
        "if burst then bursts().enter(burst, bursts().OVER, entry) end\n",
        "",
        same(test_debounce.test_who_is_to_run_now_is_due_and_so_is_what_replaces_it, False),
    ),
    Damage(
        "a letter that replaces",
        Verb.ENQUEUE,
        "if m.reason ~= '' then return end",
        "",
        test_debounce.test_a_dead_letter_from_the_door_replaces_nothing,
    ),
    Damage(
        "a letter without room that replaces",
        Verb.ENQUEUE,
        "if m.burst and not m.is_crowded_out then",
        "if m.burst then",
        ROOM.test_without_room_for_its_own_delay_the_older_one_stays,
    ),
    Damage(
        "no room where there is some",
        Verb.ENQUEUE,
        "has_no_room(m.bytes - (burst and burst.room or 0), most_delayed)",
        "has_no_room(m.bytes, most_delayed)",
        ROOM.test_it_replaces_within_the_room_of_what_it_replaces,
    ),
    Damage(
        "room that is used up by what is gone",
        Verb.ENQUEUE,
        "    if m.has_replaced then delayed_bytes = delayed_bytes - burst.room end\n",
        "",
        ROOM.test_room_is_counted_within_a_batch,
    ),
    Damage(
        "a death of quiet",
        Verb.ENQUEUE,
        "m.is_crowded_out = asked or (ahead and",
        "m.is_crowded_out = not ahead or (ahead and",
        ROOM.test_without_room_it_waits_for_no_quiet,
    ),
    Damage(
        "a death of another's quiet",
        Verb.ENQUEUE,
        "(ahead and not waits_for_quiet(ahead))",
        "ahead",
        ROOM.test_without_room_what_waits_behind_quiet_is_no_letter,
    ),
    Damage(
        "no death of another's delay",
        Verb.ENQUEUE,
        "(ahead and not waits_for_quiet(ahead))",
        "false",
        ROOM.test_behind_a_delay_that_was_asked_for_it_is_a_letter,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
