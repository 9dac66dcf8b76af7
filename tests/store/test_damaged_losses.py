"""The rules of lost leases, damaged on purpose: tests of `test_lost_leases` see each."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_lost_leases
from tests.store.damage import Damage, assert_seen, same

DAMAGES = [
    Damage(
        "a lost lease that is a death at once",
        Verb.REAP,
        "call('HINCRBY', K.task_state .. id, 'lost_leases', 1)",
        "",
        same(test_lost_leases.test_it_is_no_crash_and_costs_no_time, "grouped"),
    ),
    Damage(
        "a process that comes back and was dead all the same",
        Verb.REGISTER,
        "if loser == process then",
        "if false then",
        same(test_lost_leases.test_the_same_process_comes_back, "plain"),
    ),
    Damage(
        "a name that comes back and tells nothing",
        Verb.REGISTER,
        "judge_loss(daemon, process)\nif not",
        "if not",
        same(test_lost_leases.test_another_process_comes_under_the_name, "plain"),
    ),
    Damage(
        "an earlier process that tells of a later one",
        Verb.REGISTER,
        "loser ~= 'died' and loser < process",
        "loser ~= 'died'",
        test_lost_leases.test_an_earlier_process_under_the_name_proves_nothing,
    ),
    Damage(
        "silence that goes on for ever",
        Verb.REAP,
        "if silent then count_deaths(silent, MOST_DEATHS) end",
        "",
        same(test_lost_leases.test_nothing_comes_of_it_for_ten_leases, "grouped"),
    ),
    Damage(
        "silence that lasts no time",
        Verb.REAP,
        "now + SILENT_LEASES * lease",
        "now",
        same(test_lost_leases.test_nothing_comes_of_it_for_ten_leases, "grouped"),
    ),
    Damage(
        "a goodbye that isn't heard",
        Verb.LEAVE,
        "if loser == sub(ARGV[2], 17) then",
        "if false then",
        test_lost_leases.test_a_goodbye_is_a_sign_of_life,
    ),
    Damage(
        "a first lost lease that makes its task wait",
        Verb.REAP,
        "if ends < 2 then",
        "if ends < 1 then",
        same(test_lost_leases.test_each_further_one_waits_longer, "grouped"),
    ),
    Damage(
        "a wait that grows without end",
        Verb.REAP,
        "math.min(lease * 2 ^ (ends - 2), SILENT_LEASES * lease)",
        "lease * 2 ^ (ends - 2)",
        same(test_lost_leases.test_each_further_one_waits_longer, "plain"),
    ),
    Damage(
        "a plain task that doesn't wait",
        Verb.REAP,
        "if due and claim.group == ''",
        "if false",
        same(test_lost_leases.test_each_further_one_waits_longer, "plain"),
    ),
    Damage(
        "what blocked the loop and is none the worse",
        Verb.REAP,
        "blocks == claim.fence .. id",
        "false",
        test_lost_leases.test_what_blocked_the_loop_crashed_and_nothing_else,
    ),
    Damage(
        "all of a daemon's tasks, for one that blocked it",
        Verb.REAP,
        "blocks == 'all' or",
        "blocks or",
        test_lost_leases.test_what_blocked_the_loop_crashed_and_nothing_else,
    ),
    Damage(
        "a block that nothing ends",
        Verb.RENEW,
        "call('HDEL', K.daemon .. daemon, 'blocks')",
        "",
        test_lost_leases.test_a_block_that_ended_in_time_is_forgotten,
    ),
    Damage(
        "a death of a task that is another one since",
        Verb.REGISTER,
        "if tonumber(call('HGET', task_state, 'lost_leases') or 0) > 0 then",
        "if true then",
        test_lost_leases.test_what_ended_meanwhile_stays_ended,
    ),
    Damage(
        "all deaths in one script",
        Verb.REGISTER,
        "count_deaths(daemon, MOST_DEATHS)",
        "count_deaths(daemon, 1000000)",
        test_lost_leases.test_many_are_counted_in_bounded_steps,
    ),
    Damage(
        "a redrive that keeps lost leases",
        OperatorVerb.REDRIVE,
        "'attempts', 'lost_leases', ",
        "'attempts', ",
        test_lost_leases.test_a_redrive_begins_with_none,
    ),
    Damage(
        "a shard that went well and keeps lost leases",
        Verb.ADVANCE,
        "'crashes', 'lost_leases')",
        "'crashes')",
        test_lost_leases.test_a_shard_that_went_well_has_none,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
