"""hop damaged on purpose, line by line, and the test that sees it."""

from __future__ import annotations

import pytest

from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_hop as hop
from tests.store.damage import Damage, Seen, assert_seen, same


def _damage(name: str, sound: str, broken: str, seen: Seen) -> Damage:
    return Damage(name, Verb.HOP, sound, broken, seen)


def _meanwhile(what: object) -> Seen:
    return same(hop.test_others_go_first, what)


DAMAGES = [
    _damage(
        "past_an_older_one",
        "not has_state(next_one) and",
        "",
        _meanwhile(hop._put_an_older_one_in_front),
    ),
    _damage(
        "without_a_body",
        "if not envelope then",
        "if not next_one then",
        hop.test_where_the_next_ones_body_is_gone_nothing_is_written,
    ),
    _damage(
        "past_the_oldest",
        "call('EXISTS', K.ready, K.quarantined_groups,",
        "call('EXISTS', K.quarantined_groups,",
        same(hop.test_the_oldest_group_goes_first, "b", False),
    ),
    *(
        _damage(f"past_{key}", f", K.{key}", "", _meanwhile(what))
        for key, what in {
            "paused_all": hop._pause_all,
            "recovering": hop._recover,
            "quarantined_groups": hop._quarantined,
        }.items()
    ),
    _damage(
        "past_a_pause_of_its_own", "or is_withheld(group) then", "then", _meanwhile(hop._pause)
    ),
    _damage(
        "without_a_lease", "or 0) < now then", "or 0) < 0 then", _meanwhile(hop._end_the_lease)
    ),
    _damage(
        "of_a_stale_claim",
        "or sub(checkpoint, 2, 17) ~= fence then",
        "then",
        hop.test_a_lost_reply_costs_nothing,
    ),
    _damage(
        "under_the_old_lock",
        "call('SET', K.lock .. group, shown",
        "call('SET', K.lock .. group, fence",
        hop.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "without_a_new_fence",
        "call('INCR', K.fence)",
        "tonumber(fence)",
        hop.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "that_leaves_the_next_one_waiting",
        "call('RPOP', lane)",
        "",
        hop.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "that_forgets_what_it_settled",
        "live(shown, 'S' .. fence,",
        "live(shown, nil,",
        hop.test_a_lost_reply_costs_nothing,
    ),
    _damage(
        "of_another_session",
        "number .. process ~= session",
        "false",
        _meanwhile(hop._replace),
    ),
    *(
        _damage(f"that_does_not_count_{what}", f"'{what}', {by})", f"'{what}', 0)", seen)
        for what, by, seen in (
            ("done", 1, hop.test_a_redelivery_of_what_was_hopped_from_is_a_duplicate),
            ("queued_grouped", -1, hop.test_a_slot_goes_on_in_its_group),
        )
    ),
    _damage(
        "that_leaves_what_is_done",
        "call('HDEL', K.tasks, id)",
        "",
        hop.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "that_says_nothing_in_the_history",
        "call('HSET', K.history_new, id, at .. ARGV[7])",
        "",
        hop.test_a_redelivery_of_what_was_hopped_from_is_a_duplicate,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.name)
async def test_it_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
