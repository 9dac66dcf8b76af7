"""What counts and bounds what tasks carry, damaged on purpose: `test_carried` sees each damage."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import AnyVerb, Verb
from tests.store import test_carried
from tests.store.damage import Damage, assert_seen, same

ROOM = test_carried.TestRoom()
COUNTS = test_carried.test_stages_contexts_and_errors_count
ENDS = test_carried.test_what_ends_is_taken_off_once


def _end(how: str, verb: AnyVerb, sound: str, broken: str) -> Damage:
    return Damage(f"a task that ends by {how} and counts on", verb, sound, broken, same(ENDS, how))


DAMAGES = [
    Damage("an advance left out of the count", Verb.ADVANCE, "carry(id, tenant)\n", "\n", COUNTS),
    Damage(
        "errors left out of the count",
        Verb.RETRY,
        "carry(id, tenant_named(ARGV[at + 5], ARGV[at + 6]))",
        "",
        COUNTS,
    ),
    Damage(
        "what was carried before, counted twice",
        Verb.ADVANCE,
        "local function carry(id, tenant)\n  put_down(id)",
        "local function carry(id, tenant)",
        COUNTS,
    ),
    Damage(
        "tenants that count as one",
        Verb.ADVANCE,
        "tenant_named(ARGV[12], ARGV[13])",
        "tenant_named('', '')",
        test_carried.test_each_tenant_s_tasks_count_apart,
    ),
    Damage(
        "a tenant whose bytes are never taken off",
        Verb.EXCHANGE,
        "call('HINCRBY', K.carried, whose, -bytes) <= 0",
        "false",
        test_carried.test_each_tenant_s_tasks_count_apart,
    ),
    _end("complete", Verb.EXCHANGE, "put_down(id)\n        lives", "lives"),
    _end(
        "run",
        Verb.EXCHANGE,
        "end_state(id_of(entries[i]))",
        "call('DEL', K.task_state .. id_of(entries[i]))",
    ),
    _end("bury", Verb.BURY, "put_down(id)\n  keep_state", "keep_state"),
    _end("drop", OperatorVerb.DROP_WAITING, "end_state(id)", "call('DEL', K.task_state .. id)"),
    _end("hop", Verb.HOP, "end_state(id)", "call('DEL', K.task_state .. id)"),
    _end("deleted", Verb.EXCHANGE, "if has_state(entry) then put_down(ids[i]) end", ""),
    Damage(
        "what a list removes and counts on",
        Verb.PRUNE,
        "end_state(id)",
        "call('DEL', K.task_state .. id)",
        test_carried.test_what_a_list_removes_from_a_pool_is_taken_off,
    ),
    Damage(
        "a redriven letter that carries and doesn't count",
        OperatorVerb.REDRIVE,
        "carry(id, tenant_named(whose[1], whose[2]))",
        "",
        test_carried.test_what_a_redriven_letter_carries_counts_again,
    ),
    Damage(
        "no bound for all",
        Verb.ADVANCE,
        "all + more <= tonumber(ARGV[15])",
        "true",
        ROOM.test_beyond_it_an_advance_is_a_failed_attempt,
    ),
    Damage(
        "no bound for a tenant",
        Verb.ADVANCE,
        "own + more <= tonumber(ARGV[16])",
        "true",
        ROOM.test_one_tenant_leaves_room_for_others,
    ),
    Damage(
        "a death that becomes a retry",
        Verb.ADVANCE,
        "elseif ARGV[14] == 'retry' then",
        "elseif true then",
        ROOM.test_behind_the_last_attempt_it_is_a_dead_letter,
    ),
    Damage(
        "a refusal of what grows no larger",
        Verb.ADVANCE,
        "if more <= 0 then return true end",
        "",
        ROOM.test_who_carries_no_more_than_before_always_has_room,
    ),
    Damage(
        "a shard that is refused",
        Verb.ADVANCE,
        "if ARGV[14] == '' then return true end",
        "if ARGV[14] == '' then return false end",
        ROOM.test_what_never_ends_is_not_refused,
    ),
    Damage(
        "an advance that is decided again",
        Verb.ADVANCE,
        "if claim == 'live' then",
        "if claim ~= 'lost' then",
        same(ROOM.test_said_again_it_is_what_it_was, False),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
