"""What holds groups to their limits, damaged on purpose: `test_limits` sees each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store import settlements
from groupflow.store.scripts import Verb
from tests.store import test_batch_wait, test_limits, test_tenants
from tests.store.bench import bury
from tests.store.damage import Damage, assert_seen, same

_WAYS: tuple[tuple[str, Verb, Any], ...] = (
    ("complete", Verb.EXCHANGE, settlements.Complete),
    ("release", Verb.EXCHANGE, settlements.Release),
    ("bury", Verb.BURY, bury),
    ("retry", Verb.RETRY, lambda claim: settlements.Retry(claim, 60.0, [], "step-aside")),
)

DAMAGES = [
    Damage(
        "one more than may",
        Verb.EXCHANGE,
        "if L.running(group) >= limit.concurrency then",
        "if L.running(group) > limit.concurrency then",
        test_limits.test_so_many_of_a_group_run_at_once,
    ),
    Damage(
        "a batch that waits for nothing",
        Verb.ENQUEUE,
        "return sequence_of(head) + wait",
        "return 0",
        test_batch_wait.test_fewer_wait_and_the_last_one_ends_it,
    ),
    Damage(
        "a full batch that waits",
        Verb.EXCHANGE,
        "if call('LLEN', K.lane .. group) >= tonumber(batch) then return 0 end",
        "",
        test_batch_wait.test_fewer_wait_and_the_last_one_ends_it,
    ),
    Damage(
        "a batch that fills unseen",
        Verb.ENQUEUE,
        "return may_gather and call('ZSCORE', K.held, group)",
        "return false",
        test_batch_wait.test_fewer_wait_and_the_last_one_ends_it,
    ),
    Damage(
        "what a pool's workers pull waits for a batch",
        Verb.ENQUEUE,
        "call('HEXISTS', K.task_state .. id_of(head), 'pool') == 1",
        "false",
        test_batch_wait.test_in_a_pool_nothing_waits,
    ),
    Damage(
        "a reload that leaves what is held",
        Verb.TELL,
        "call('ZRANGE', K.held, 0, 999)",
        "{}",
        test_batch_wait.test_a_reload_takes_it_over,
    ),
    Damage(
        "one a claim",
        Verb.EXCHANGE,
        "    place(group, now)\n    if count == 0",
        "    if count == 0",
        test_limits.test_so_many_of_a_group_run_at_once,
    ),
    Damage(
        "a lock that isn't counted",
        Verb.EXCHANGE,
        "return shared + call('EXISTS', K.lock .. group)",
        "return shared",
        test_limits.test_more_may_run_at_once_from_a_reload_on,
    ),
    *(
        Damage(
            f"a {name} that gives nothing back",
            verb,
            "call('ZREM', K.sharing, member)",
            "",
            same(test_limits.test_each_end_gives_back_exactly_one, way),
        )
        for name, verb, way in _WAYS
    ),
    Damage(
        "a crash that gives nothing back",
        Verb.REAP,
        "call('ZREM', K.sharing, member)",
        "",
        test_limits.test_a_crash_gives_back_exactly_what_it_held,
    ),
    Damage(
        "a crash that gives a lock back that isn't there",
        Verb.REAP,
        "unlock(claim.group, claim.fence, now)",
        "call('DEL', K.lock .. claim.group)",
        test_limits.test_a_crash_gives_back_exactly_what_it_held,
    ),
    Damage(
        "an end that gives back another's",
        Verb.EXCHANGE,
        "local front = front_of(group) .. fence",
        "local front = front_of(group)",
        test_limits.test_the_end_of_one_is_not_that_of_another,
    ),
    Damage(
        "groups that are one where they begin alike",
        Verb.EXCHANGE,
        "return format('%04d', #group) .. group end",
        "return '0001' .. group end",
        same(test_limits.test_groups_that_look_alike_share_nothing, "a"),
    ),
    Damage(
        "an envelope that is gone, and its holder isn't",
        Verb.EXCHANGE,
        "    unlock(group, claims.fences[at], now)\n",
        "",
        test_limits.test_a_claim_without_an_envelope_is_passed_over,
    ),
    Damage(
        "a reload without a wake",
        Verb.TELL,
        "if claim and claim.group ~= '' and place(claim.group, now) then wake_for(claim.group) end",
        "",
        test_limits.test_more_may_run_at_once_from_a_reload_on,
    ),
    Damage(
        "limits that stay for ever",
        Verb.TELL,
        "  call('DEL', K.limits)\n",
        "",
        test_limits.test_fewer_may_run_at_once_from_a_reload_on,
    ),
    Damage(
        "a group without limits that goes on beside its lock",
        Verb.EXCHANGE,
        "    if limit.concurrency > 1 then",
        "    if true then",
        test_limits.test_starts_are_a_time_apart,
    ),
    Damage(
        "a large message whose rule isn't noted",
        Verb.ENQUEUE,
        "if facts[3] and facts[3] ~= '' then call('HSET', task_state, 'rule', facts[3]) end",
        "",
        test_limits.test_a_large_message_has_its_limit_too,
    ),
    Damage(
        "a start that costs nothing",
        Verb.EXCHANGE,
        "math.max(next_start(whose, limit, now), now) + limit.interval",
        "math.max(next_start(whose, limit, now), now)",
        test_limits.test_starts_are_a_time_apart,
    ),
    Damage(
        "starts that are saved up for ever",
        Verb.EXCHANGE,
        "math.max(next_start(whose, limit, now), now) + limit.interval",
        "next_start(whose, limit, now) + limit.interval",
        test_limits.test_a_burst_is_no_larger_after_a_long_time,
    ),
    Damage(
        "a burst that is none",
        Verb.EXCHANGE,
        "math.ceil(next_start(whose, limit, now) - limit.tolerance)",
        "math.ceil(next_start(whose, limit, now))",
        test_limits.test_a_burst_comes_back_with_time,
    ),
    Damage(
        "a rate that ends with the attempt",
        Verb.EXCHANGE,
        "    due = math.max(due, free)\n",
        "",
        test_limits.test_starts_are_a_time_apart,
    ),
    Damage(
        "one rate for all groups",
        Verb.EXCHANGE,
        "'g' .. group",
        "'g'",
        test_limits.test_a_rate_is_each_groups_own,
    ),
    Damage(
        "rates that pile up",
        Verb.EXCHANGE,
        "    L.forget_rates(now, EXPIRED)\n",
        "",
        test_limits.test_rates_that_are_past_go_with_later_starts,
    ),
    Damage(
        "rates that stay",
        Verb.PROMOTE,
        "  limits().forget_rates(now, ARGV[1])\n",
        "",
        test_limits.test_of_a_rate_nothing_is_left_when_it_is_over,
    ),
    Damage(
        "an old rate that holds on",
        Verb.TELL,
        "return math.min(due, now + limit.tolerance + limit.interval)",
        "return due",
        test_limits.test_a_faster_rate_holds_from_a_reload_on,
    ),
    Damage(
        "a group that stays open",
        Verb.RETRY,
        "if group ~= '' and ARGV[at + 4] == 'group' then limits().close('g' .. group, due) end",
        "",
        same(test_limits.test_a_handler_closes_its_group, "step-aside"),
    ),
    Damage(
        "a task that closes its group unasked",
        Verb.RETRY,
        "and ARGV[at + 4] == 'group' then",
        "then",
        test_limits.test_a_retry_of_the_task_alone_closes_nothing,
    ),
    Damage(
        "the last word closes",
        Verb.RETRY,
        "call('ZADD', K.closed, 'GT', digits(till), whose)",
        "call('ZADD', K.closed, digits(till), whose)",
        test_limits.test_a_shorter_time_doesnt_open_what_a_longer_one_closed,
    ),
    Damage(
        "a closing that is noticed by the next script only",
        Verb.RETRY,
        "    may_limit = true\n",
        "",
        same(test_limits.test_a_handler_closes_its_group, "step-aside"),
    ),
    Damage(
        "what was closed stays noted",
        Verb.PROMOTE,
        "  if #open > 0 then call('ZREM', K.closed, unpack(open)) end\n",
        "",
        test_limits.test_a_shorter_time_doesnt_open_what_a_longer_one_closed,
    ),
    Damage(
        "many that may not start hide the rest",
        Verb.EXCHANGE,
        "  if looks == 0 then tell('grouped') end -- there may be more\n",
        "",
        test_limits.test_many_that_may_not_start_hide_no_other,
    ),
    *(
        Damage(f"a hop past {name}", Verb.HOP, sound, broken, seen)
        for name, sound, broken, seen in (
            (
                "its rate",
                "limit.concurrency <= 1 and limit.interval == 0\n",
                "limit.concurrency <= 1\n",
                same(test_limits.test_a_hop_past_a_limit_writes_nothing, "its rate"),
            ),
            (
                "a closing",
                "and not call('ZSCORE', K.closed, 'g' .. group) and",
                "and",
                same(test_limits.test_a_hop_past_a_limit_writes_nothing, "a closing"),
            ),
            (
                "a closing where nothing has limits",
                "K.rates, K.closed,",
                "K.rates,",
                same(test_limits.test_a_hop_past_a_limit_writes_nothing, "a closing"),
            ),
            (
                "a batch",
                "and call('HEXISTS', K.limits, 'b' .. L.facts_of(head)) == 0",
                "",
                same(test_batch_wait.test_no_hop_takes_a_task_out_of_a_batch, 3),
            ),
            (
                "what may run beside it",
                "if is_limiting() and place(group, now)",
                "if false",
                test_limits.test_a_hop_places_what_may_run_beside_the_next_one,
            ),
            (
                "a tenant's limit",
                "tenants().of(next_one) or ",
                "",
                test_tenants.test_a_tenants_limit_stops_hops_of_its_own_alone,
            ),
            (
                "what runs there still",
                "K.by_hand, K.sharing,",
                "K.by_hand,",
                test_limits.test_where_another_runs_still_no_hop_goes_past_it,
            ),
        )
    ),
    Damage(
        "a run behind one with a limit",
        Verb.EXCHANGE,
        "if run and may_follow(entry) then",
        "if run then",
        same(test_limits.test_nothing_that_has_a_limit_is_of_a_run, 0),
    ),
    Damage(
        "a run of what has a limit",
        Verb.EXCHANGE,
        " or not may_follow(entries[i]) then",
        " then",
        same(test_limits.test_nothing_that_has_a_limit_is_of_a_run, 1),
    ),
    Damage(
        "a why that sees one of many",
        OperatorVerb.WHY,
        "running = #running",
        "running = 1",
        test_limits.test_a_group_is_paused_and_parked_while_several_run,
    ),
    Damage(
        "a status that counts a group for each of its tasks",
        OperatorVerb.STATUS,
        "    if not is_counted then running_groups = running_groups + 1 end",
        "    running_groups = running_groups + 1",
        test_limits.test_a_status_counts_groups,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
