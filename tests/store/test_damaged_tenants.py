"""What holds tenants to limits and turns, damaged on purpose: `test_tenants` sees each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Release
from tests.store import test_tenant_runs, test_tenants
from tests.store.damage import Damage, assert_seen, same

DAMAGES = [
    Damage(
        "a run that its tenant isn't charged for",
        Verb.EXCHANGE,
        "tenants().run_on(fences[first], taken, now)",
        "",
        same(test_tenant_runs.test_a_run_is_paid_for_task_by_task, 1),
        order="tenants",
    ),
    Damage(
        "a run that leaves its charge behind",
        Verb.EXCHANGE,
        "tenants().recharge(fences[first], following)",
        "",
        test_tenant_runs.test_a_run_counts_as_one_of_its_tenant,
    ),
    Damage(
        "a run that goes on past a closing",
        Verb.EXCHANGE,
        "or not may_run_on(",
        "or false and not may_run_on(",
        test_tenant_runs.test_a_tenant_that_is_closed_meanwhile_ends_its_run,
    ),
    Damage(
        "a run past a rate",
        Verb.EXCHANGE,
        "(not tenant or tenants().is_unpaced(tenant, now))",
        "true",
        test_tenant_runs.test_where_starts_are_held_apart_there_are_no_runs,
    ),
    Damage(
        "a run of two tenants",
        Verb.EXCHANGE,
        "and tenants().of(entry) == tenant",
        "",
        test_tenant_runs.test_a_run_is_one_tenants,
    ),
    *(
        Damage(
            f"what a pool has in its tenant's line, by {verb}",
            verb,
            " and call('HGET', K.task_state .. id_of(entry), 'pool') then return nil end",
            " and false then return nil end",
            test_tenants.test_what_waits_in_a_pool_is_in_no_tenants_line,
        )
        for verb in (Verb.ENQUEUE, Verb.EXCHANGE)
    ),
    Damage(
        "one more than a tenant may",
        Verb.EXCHANGE,
        "T.running(tenant) >= limit.concurrency then return nil end",
        "T.running(tenant) > limit.concurrency then return nil end",
        test_tenants.test_a_tenant_runs_so_many_at_once,
    ),
    Damage(
        "plain tasks that ask for nothing",
        Verb.EXCHANGE,
        "if not tenant or tenants().may_start(tenant, now) then",
        "if true then",
        test_tenants.test_plain_and_grouped_tasks_count_alike,
    ),
    Damage(
        "grouped tasks that ask for nothing",
        Verb.EXCHANGE,
        "and (not tenant or tenants().may_start(tenant, now))",
        "",
        test_tenants.test_a_tenant_runs_so_many_at_once,
    ),
    Damage(
        "plain tasks that count for no tenant",
        Verb.EXCHANGE,
        "if tenant then tenants().start(tenant, fence, 'p', now) end",
        "",
        test_tenants.test_plain_and_grouped_tasks_count_alike,
    ),
    Damage(
        "grouped tasks that count for no tenant",
        Verb.EXCHANGE,
        "if tenant then tenants().start(tenant, fence, 'g', now) end",
        "",
        test_tenants.test_a_tenant_runs_so_many_at_once,
    ),
    *(
        Damage(
            f"a {name} of a {pool} task that gives nothing back",
            Verb.EXCHANGE,
            "  tenants().let_go(fence, now)\n",
            "",
            same(test_tenants.test_each_end_gives_back_exactly_one, way, group),
        )
        for name, way in (("complete", Complete), ("release", Release))
        for pool, group in (("plain", None), ("grouped", "a"))
    ),
    Damage(
        "a crash that gives nothing back",
        Verb.REAP,
        "  unlock(claim.group, claim.fence, now)\n",
        "  if claim.group ~= '' then limits().let_go(claim.group, claim.fence) end\n",
        test_tenants.test_a_crash_gives_back_exactly_what_it_held,
    ),
    Damage(
        "an end that counts down and not off",
        Verb.EXCHANGE,
        "    call('HDEL', K.charged, fence)\n",
        "",
        same(test_tenants.test_each_end_gives_back_exactly_one, Complete, None),
    ),
    Damage(
        "a name that is one tenant in all applications",
        Verb.EXCHANGE,
        "(scope and scope ~= '' and scope or NO_SCOPE) .. (name or '')",
        "NO_SCOPE .. name",
        test_tenants.test_the_same_name_in_another_application_is_another_tenant,
    ),
    Damage(
        "everybody has what all have",
        Verb.EXCHANGE,
        "(call('HGET', K.limits, 't' .. name) or call('HGET', K.limits, 't'))",
        "call('HGET', K.limits, 't')",
        test_tenants.test_one_of_them_has_its_own_limit,
    ),
    Damage(
        "who has no tenant is one",
        Verb.EXCHANGE,
        "local text = name ~= '' and (",
        "local text = (",
        test_tenants.test_one_of_them_has_its_own_limit,
        "tenants",
    ),
    Damage(
        "a rate that costs nothing",
        Verb.EXCHANGE,
        "    if limit.interval > 0 then L.advance('t' .. tenant, limit, now) end\n",
        "",
        test_tenants.test_a_tenants_starts_are_a_time_apart,
    ),
    Damage(
        "a tenant that isn't brought back",
        Verb.PROMOTE,
        "    for _, tenant in ipairs(due) do T.turn(tenant, now) end\n",
        "",
        test_tenants.test_a_tenants_starts_are_a_time_apart,
    ),
    Damage(
        "a turn that stays when the tenant may start no more",
        Verb.EXCHANGE,
        "      local next_turn = may_start and best[1]\n",
        "      local next_turn = best[1]\n",
        test_tenants.test_a_tenant_runs_so_many_at_once,
    ),
    Damage(
        "a drop that leaves its group with its old tenant",
        OperatorVerb.DROP_WAITING,
        "    if before and before ~= place then T.leave(group, now) end\n",
        "",
        test_tenants.test_a_group_of_two_tenants_waits_for_that_of_its_head,
    ),
    Damage(
        "a drop that looks for no task that waits for a turn",
        OperatorVerb.DROP_WAITING,
        "if where == 'line' then return false, 'turns', '' end",
        "",
        same(test_tenants.test_what_waits_for_a_turn_can_be_dropped_and_held, None),
    ),
    Damage(
        "a pause that leaves a group its turn",
        OperatorVerb.PAUSE,
        "  if is_limiting() then tenants().leave(group, now) end\n",
        "",
        same(test_tenants.test_what_waits_for_a_turn_can_be_dropped_and_held, "g"),
    ),
    Damage(
        "a tenant that stays open",
        Verb.RETRY,
        "    if #tenant > 8 then tenants().close(tenant, due, now) end\n",
        "",
        same(test_tenants.test_a_handler_closes_its_tenant, "a"),
    ),
    Damage(
        "what is closed has no limit, and is managed no more",
        Verb.EXCHANGE,
        "return call('ZSCORE', K.closed, 't' .. tenant) and tenant or nil",
        "return nil",
        same(test_tenants.test_a_handler_closes_its_tenant, "a"),
    ),
    Damage(
        "a reload that leaves standing who may start",
        Verb.TELL,
        "    tenants().turn(tenant, now)\n",
        "",
        test_tenants.test_limits_hold_for_what_waits_already,
    ),
    Damage(
        "all have the same share",
        Verb.EXCHANGE,
        "share + STRIDE / limit.weight",
        "share + STRIDE",
        same(test_tenants.test_weights_are_shares, "grouped"),
        "tenants",
    ),
    Damage(
        "a share that is never used up",
        Verb.EXCHANGE,
        "share + STRIDE / limit.weight",
        "share",
        same(test_tenants.test_weights_are_shares, "plain"),
        "tenants",
    ),
    Damage(
        "who comes has all to make up for",
        Verb.EXCHANGE,
        "tonumber(call('ZSCORE', K.shares .. pool, '=') or now)",
        "0",
        test_tenants.test_who_was_away_saved_nothing_up,
        "tenants",
    ),
    Damage(
        "turns by age",
        Verb.EXCHANGE,
        "ORDER == 'tenants' and share_of(POOL[kind], tenant, now) or best[2]",
        "best[2]",
        same(test_tenants.test_weights_are_shares, "grouped"),
        "tenants",
    ),
    Damage(
        "shares that pile up",
        Verb.EXCHANGE,
        "      if #past > 0 then call('ZREM', shares, unpack(past)) end\n",
        "",
        test_tenants.test_shares_that_are_past_go_with_later_starts,
        "tenants",
    ),
    Damage(
        "shares that stay",
        Verb.PROMOTE,
        "call('DEL', K.shares .. 'g', K.shares .. 'p')",
        "",
        test_tenants.test_of_shares_nothing_is_left,
        "tenants",
    ),
    Damage(
        "a tenant that goes on without a wake",
        Verb.EXCHANGE,
        "elseif call('ZREM', K.standing, tenant) == 1 and does_wait then",
        "elseif call('ZREM', K.standing, tenant) == 2 then",
        test_tenants.test_an_end_in_one_pool_is_heard_in_the_other,
    ),
    Damage(
        "a why that sees no tenant",
        OperatorVerb.WHY,
        "by_hand = limit.till, tenant = tenant,\n",
        "",
        test_tenants.test_why_it_waits,
    ),
    Damage(
        "a status that calls ready what stands",
        OperatorVerb.STATUS,
        "lined_up = lined_up - standing",
        "",
        test_tenants.test_why_it_waits,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
