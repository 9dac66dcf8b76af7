"""hand_on and hop damaged on purpose, line by line, and the test that sees it."""

from __future__ import annotations

import pytest

from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_hand_on as hand_on
from tests.store.bench import Bench
from tests.store.damage import Damage, Seen, assert_seen, same


def _damage(name: str, sound: str, broken: str, seen: Seen) -> Damage:
    async def seen_without_hops(shop: Bench) -> None:
        shop.hops = False
        await seen(shop)

    return Damage(name, Verb.HAND_ON, sound, broken, seen_without_hops)


def _hop(name: str, sound: str, broken: str, seen: Seen) -> Damage:
    return Damage(f"a_hop_{name}", Verb.HOP, sound, broken, seen)


def _meanwhile(what: object) -> Seen:
    return same(hand_on.test_others_go_first, what)


DAMAGES = [
    _damage(
        "without_a_look_at_the_head",
        "call('LINDEX', lane, -1) == next_one and",
        "",
        hand_on.test_an_older_task_that_was_redriven_goes_first,
    ),
    _damage(
        "past_a_dropped_one",
        "call('LINDEX', lane, -1) == next_one and",
        "",
        _meanwhile(hand_on._drop_the_next),
    ),
    _damage(
        "past_the_oldest",
        "tonumber(best[2]) < arrival_of(next_one)",
        "false",
        same(hand_on.test_the_oldest_group_goes_first, "b", False),
    ),
    _damage("past_a_pause", "or is_withheld(group) then", "then", _meanwhile(hand_on._pause)),
    _damage(
        "while_all_is_paused",
        "if call('EXISTS', K.paused_all, K.recovering) > 0 or",
        "if call('EXISTS', K.recovering) > 0 or",
        _meanwhile(hand_on._pause_all),
    ),
    _damage(
        "while_it_recovers",
        "if call('EXISTS', K.paused_all, K.recovering) > 0 or",
        "if call('EXISTS', K.paused_all) > 0 or",
        _meanwhile(hand_on._recover),
    ),
    _damage(
        "past_a_suspect",
        "if not mark and call('EXISTS', K.suspect_groups) == 1",
        "if false",
        _meanwhile(hand_on._suspect),
    ),
    _damage("without_a_lease", ">= now\n", ">= 0\n", _meanwhile(hand_on._end_the_lease)),
    _damage(
        "under_the_old_lock",
        "call('SET', K.lock .. group, following",
        "call('SET', K.lock .. group, fence",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "without_a_new_fence",
        "following = digits(call('INCR', K.fence))",
        "following = fence",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "that_leaves_the_next_one_waiting",
        "call('RPOP', lane)",
        "",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "that_forgets_what_it_settled",
        "live(following, 'S' .. fence,",
        "live(following, nil,",
        hand_on.test_a_lost_reply_costs_nothing,
    ),
    _damage(
        "of_a_stale_claim",
        "if claim == 'lost' then",
        "if false then",
        hand_on.test_a_stale_fence_hands_nothing_on,
    ),
    _damage(
        "that_does_not_count_it_as_begun",
        "'queued_grouped', -1)",
        "'queued_grouped', 0)",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _damage(
        "that_leaves_its_group_unplaced",
        "if place_freed({ group }, now) then wake_for(group) end",
        "",
        same(hand_on.test_the_oldest_group_goes_first, "b", False),
    ),
    _hop(
        "past_an_older_one",
        "if head ~= next_one then",
        "if not head then",
        hand_on.test_an_older_task_that_was_redriven_goes_first,
    ),
    _hop(
        "that_takes_a_head_away",
        "if head then call('RPUSH', lane, head) end",
        "",
        hand_on.test_an_older_task_that_was_redriven_goes_first,
    ),
    _hop(
        "past_the_oldest",
        "call('EXISTS', K.ready, K.suspect_groups,",
        "call('EXISTS', K.suspect_groups,",
        same(hand_on.test_the_oldest_group_goes_first, "b", False),
    ),
    *(
        _hop(f"past_{key}", f", K.{key}", "", _meanwhile(what))
        for key, what in {
            "paused": hand_on._pause,
            "paused_all": hand_on._pause_all,
            "recovering": hand_on._recover,
            "suspect_groups": hand_on._suspect,
        }.items()
    ),
    _hop(
        "without_a_lease", "or 0) < now then", "or 0) < 0 then", _meanwhile(hand_on._end_the_lease)
    ),
    _hop(
        "under_the_old_lock",
        "call('SET', K.lock .. group, shown",
        "call('SET', K.lock .. group, fence",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _hop(
        "without_a_new_fence",
        "call('INCR', K.fence)",
        "tonumber(fence)",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _hop(
        "that_forgets_what_it_settled",
        "live(shown, 'S' .. fence,",
        "live(shown, nil,",
        hand_on.test_a_lost_reply_costs_nothing,
    ),
    _hop(
        "of_another_session",
        "number .. process ~= session",
        "false",
        hand_on.test_a_session_that_is_over_hands_nothing_on,
    ),
    *(
        _hop(f"that_does_not_count_{what}", f"'{what}', {by})", f"'{what}', 0)", seen)
        for what, by, seen in (
            ("done", 1, hand_on.test_a_redelivery_of_what_was_handed_on_is_a_duplicate),
            ("queued_grouped", -1, hand_on.test_a_slot_goes_on_in_its_group),
        )
    ),
    _hop(
        "that_leaves_what_is_done",
        "call('HDEL', K.tasks, id)",
        "",
        hand_on.test_a_slot_goes_on_in_its_group,
    ),
    _hop(
        "that_says_nothing_in_the_history",
        "call('HSET', K.history_new, id, at .. ARGV[7])",
        "",
        hand_on.test_a_redelivery_of_what_was_handed_on_is_a_duplicate,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.name)
async def test_it_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
