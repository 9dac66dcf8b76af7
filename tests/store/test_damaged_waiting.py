"""The scripts for tasks that wait, damaged on purpose: tests of `test_waiting` see each damage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.operate import test_waiting
from tests.store.damage import Damage, Seen, assert_seen


def _seen(test: Callable[..., Awaitable[None]], *arguments: object) -> Seen:
    """A test with its verbs and its parameters bound."""
    return lambda shop: test(shop, Tasks(shop.namespace), *arguments)


DAMAGES = [
    Damage(
        "a task that is due twice",
        OperatorVerb.RUN_NOW,
        "tonumber(facts[1]) <= now",
        "false",
        _seen(test_waiting.test_a_delayed_task_runs_now, None, True),
    ),
    Damage(
        "a dropped task that still counts as waiting",
        OperatorVerb.DROP_WAITING,
        "call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', -1)",
        "",
        _seen(test_waiting.test_a_group_is_idle_once_its_last_is_dropped),
    ),
    Damage(
        "a task that a younger one, dropped meanwhile, hides",
        OperatorVerb.DROP_WAITING,
        "local from = count_seen()",
        "local from = count_seen() * 3",
        _seen(test_waiting.test_one_is_found_though_younger_ones_are_dropped_meanwhile, None),
    ),
    Damage(
        "a group that stays held for a head that is gone",
        OperatorVerb.DROP_WAITING,
        "call('ZREM', K.held, group)",
        "",
        _seen(test_waiting.test_a_dropped_head_lets_those_behind_it_go),
    ),
    Damage(
        "a group that isn't placed",
        OperatorVerb.DROP_WAITING,
        "if place(group, now) then wake_for(group) end",
        "",
        _seen(test_waiting.test_a_dropped_head_lets_those_behind_it_go),
    ),
    Damage(
        "a task that stands aside is not found",
        OperatorVerb.DROP_WAITING,
        "if call('ZREM', K.delayed, entry) == 1 then return true end",
        "",
        _seen(test_waiting.test_crashed_and_retried_ones_are_found_too, None),
    ),
    Damage(
        "a plain task out of its order is not found",
        OperatorVerb.DROP_WAITING,
        "{ index_of('ordered', pool), index_of('quarantined_plain', pool) }",
        "{}",
        _seen(test_waiting.test_crashed_and_retried_ones_are_found_too, None),
    ),
    Damage(
        "a crash that loses its place in the line",
        Verb.REAP,
        "call('HSET', K.task_state .. id, 'sequence', sub(claim.entry, 1, 16))",
        "",
        _seen(test_waiting.test_crashed_and_retried_ones_are_found_too, None),
    ),
    Damage(
        "a task that runs now and stays aside",
        OperatorVerb.RUN_NOW,
        "if call('ZREM', K.delayed, entry) == 1 then",
        "if false then",
        _seen(test_waiting.test_a_delayed_task_runs_now, "g", True),
    ),
    Damage(
        "a head that runs now in a group that stays held",
        OperatorVerb.RUN_NOW,
        "  place(group, now)",
        "",
        _seen(test_waiting.test_a_delayed_task_runs_now, "g", False),
    ),
    Damage(
        "another group's task among a group's delayed",
        OperatorVerb.DELAYED_OF,
        "and facts[2] == group",
        "",
        _seen(test_waiting.test_some_of_several_groups),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
