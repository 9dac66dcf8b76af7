"""Whose an id is, damaged on purpose: the tests of `test_ids` see each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_ids
from tests.store.damage import Damage, assert_seen

DAMAGES = [
    Damage(
        "a letter that keeps its id for ever",
        Verb.ENQUEUE,
        "return not died or now - died <= tonumber(ARGV[2])",
        "return true",
        test_ids.test_a_letter_keeps_its_id_for_the_window_only,
    ),
    Damage(
        "a letter that never had its id",
        Verb.ENQUEUE,
        "now - died <= tonumber(ARGV[2])",
        "now - died < 0",
        test_ids.test_a_letter_keeps_its_id_for_the_window_only,
    ),
    Damage(
        "an id that is everybody's",
        Verb.ENQUEUE,
        "return (owner or scope_of(id)) == scope",
        "return true",
        test_ids.test_garbage_takes_no_ones_id,
    ),
    Damage(
        "an id that is everybody's when its task is over",
        Verb.ENQUEUE,
        "return string.match(line, '\"(%x*)\"%]$') == scope",
        "return true",
        test_ids.test_what_was_dropped_or_expired_is_still_its_scope_s,
    ),
    Damage(
        "a derived id that enqueue doesn't look up",
        Verb.ENQUEUE,
        "if newest > 0 and any_derived(scope, id, newest, is_it) then return nil end",
        "",
        test_ids.test_a_repeat_is_one_when_the_plain_id_is_forgotten,
    ),
    Damage(
        "a derived id that enqueue doesn't note",
        Verb.ENQUEUE,
        "call('HSET', K.renamed, family(scope, id), plain_digits(number))",
        "",
        test_ids.test_a_repeat_is_one_when_the_plain_id_is_forgotten,
    ),
    Damage(
        "a derived id without a secret",
        Verb.ENQUEUE,
        "call('HSETNX', K.segments, 'salt', ARGV[3])",
        "call('HSETNX', K.segments, 'salt', 'salt')",
        test_ids.test_a_derived_id_can_not_be_named_beforehand,
    ),
    Damage(
        "derived ids that run out",
        Verb.ENQUEUE,
        "step <= FAMILY and newest + step or now",
        "newest + step",
        test_ids.test_an_id_that_dies_for_ever_is_taken_each_time,
    ),
    Damage(
        "a dropped letter that is everybody's",
        OperatorVerb.DROP,
        """ .. ',"' .. scope_of(id) .. '"]'""",
        " .. ']'",
        test_ids.test_what_was_dropped_or_expired_is_still_its_scope_s,
    ),
    Damage(
        "an expired letter that is everybody's",
        OperatorVerb.SWEEP,
        """ .. ',"' .. scope_of(id) .. '"]'""",
        " .. ']'",
        test_ids.test_what_was_dropped_or_expired_is_still_its_scope_s,
    ),
    Damage(
        "derived ids that are remembered for ever",
        Verb.SWEEP_RENAMED,
        "call('HDEL', K.renamed, page[2][i])",
        "",
        test_ids.test_a_repeat_is_one_when_the_plain_id_is_forgotten,
    ),
    Damage(
        "derived ids that are forgotten while they wait",
        Verb.SWEEP_RENAMED,
        "if not any_derived(scope, id, tonumber(page[2][i + 1]), is_known) then",
        "if true then",
        test_ids.test_a_repeat_is_one_when_the_plain_id_is_forgotten,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
