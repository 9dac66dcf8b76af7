"""What limits set by hand rest on, damaged on purpose: `test_by_hand` sees each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_by_hand as by_hand
from tests.store.damage import Damage, assert_seen, same

DAMAGES = [
    Damage(
        "a claim that knows none",
        Verb.EXCHANGE,
        "if not hand then return limit end",
        "if true then return limit end",
        by_hand.test_a_rate_by_hand_holds_starts_apart,
    ),
    Damage(
        "one that holds on",
        Verb.EXCHANGE,
        "if tonumber(till) <= moment then return nil end",
        "",
        by_hand.test_a_limit_that_is_over_holds_nothing_before_its_removal,
    ),
    Damage(
        "an end that promote passes over",
        Verb.PROMOTE,
        "end_by_hand(over_by_hand, '', now)",
        "",
        by_hand.test_a_group_that_runs_may_run_more_at_once,
    ),
    Damage(
        "an end that promote doesn't wait for",
        Verb.PROMOTE,
        "K.standing, K.by_hand_ends }",
        "K.standing }",
        by_hand.test_the_nearest_end_is_waited_for,
    ),
    Damage(
        "a group that is not looked at again",
        OperatorVerb.LIMIT,
        "      place(sub(whose, 2), now)\n",
        "",
        by_hand.test_a_group_that_runs_may_run_more_at_once,
    ),
    Damage(
        "a group that waits for the start that it would have had",
        OperatorVerb.LIMIT,
        "      call('ZREM', K.held, sub(whose, 2))\n      place(sub(whose, 2), now)\n",
        "",
        same(by_hand.test_what_its_rule_says_holds_again, "ended"),
    ),
    Damage(
        "a claim out of a run under way",
        OperatorVerb.LIMIT,
        "call('HEXISTS', K.runs, group) == 1 then return nil",
        "false then return nil",
        by_hand.test_a_run_ends_soon_under_a_limit_and_its_tasks_wait,
    ),
    Damage(
        "a run that goes on and on",
        Verb.EXCHANGE,
        "or not may_run_on(",
        "or false and not may_run_on(",
        by_hand.test_a_run_ends_soon_under_a_limit_and_its_tasks_wait,
    ),
    Damage(
        "a hop under a limit",
        Verb.HOP,
        "K.limits, K.by_hand,",
        "K.limits,",
        by_hand.test_a_hot_groups_slot_goes_on_no_more,
    ),
    Damage(
        "a hop that counts on",
        Verb.HOP,
        "K.closed, K.charged,",
        "K.closed,",
        by_hand.test_what_was_counted_ends_by_an_exchange_and_counts_no_more,
    ),
    Damage(
        "who ran before doesn't count",
        OperatorVerb.LIMIT,
        "if byte(whose) ~= OF_GROUP then charge_running(sub(whose, 2)) end",
        "",
        by_hand.test_a_tenants_cap_counts_who_runs_already,
    ),
    Damage(
        "a run that counts under a fence that is over",
        Verb.EXCHANGE,
        "if is_limiting() then tenants().recharge(fences[first], following) end",
        "",
        by_hand.test_what_a_tenant_runs_is_counted_under_its_runs_next_fence,
    ),
    Damage(
        "who starts while all may doesn't count",
        Verb.EXCHANGE,
        "limit.interval > 0 or limit.till then return tenant end",
        "limit.interval > 0 then return tenant end",
        by_hand.test_a_tenants_limit_is_lifted_for_a_while,
    ),
    Damage(
        "a tenant that stands on",
        OperatorVerb.LIMIT,
        "if has_tenants then",
        "if false then",
        by_hand.test_a_tenants_limit_is_its_in_every_application,
    ),
    Damage(
        "a batch that waits for what doesn't come",
        Verb.EXCHANGE,
        "limit.concurrency == 1 and limit.interval == 0 and gathers_until(group, head) or 0",
        "gathers_until(group, head)",
        by_hand.test_no_batch_waits_to_be_full,
    ),
    Damage(
        "one that is told again",
        Verb.PROMOTE,
        "call('RPOP', K.by_hand_news, ARGV[1])",
        "call('LRANGE', K.by_hand_news, 0, -1)",
        by_hand.test_a_daemon_is_told_once_what_began_and_ended,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
