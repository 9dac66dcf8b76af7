"""What counts and moves bytes, damaged on purpose: tests of `test_held_bytes` see each damage."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.operate import test_archiving
from tests.store import test_held_bytes
from tests.store.damage import Damage, assert_seen, same

DELAYED, DEAD = test_held_bytes.TestDelayed(), test_held_bytes.TestDead()
BEYOND = DELAYED.test_beyond_the_bound_it_is_a_dead_letter_that_keeps_its_delay

DAMAGES = [
    Damage(
        "a delay left out of the count",
        Verb.ENQUEUE,
        "if m.whose then add_delay(m.id, m.bytes, m.whose, m.last) end",
        "",
        same(DELAYED.test_a_delay_counts_until_it_is_over, "g", True),
    ),
    Damage(
        "a promoted task that still counts as delayed",
        Verb.PROMOTE,
        "do\n  remove_delay(id)\nend",
        "do\n  break\nend",
        same(DELAYED.test_a_promoted_one_counts_no_more),
    ),
    Damage(
        "a claimed task that still counts as delayed",
        Verb.EXCHANGE,
        "remove_delay(ids[i])",
        "",
        same(DELAYED.test_a_delay_ended_by_an_operator_delays_no_task, "drop"),
    ),
    Damage(
        "a task that runs now and counts as delayed",
        OperatorVerb.RUN_NOW,
        "remove_delay(id)\nlocal entry",
        "local entry",
        same(DELAYED.test_a_delay_counts_until_it_is_over, "g", False),
    ),
    Damage(
        "no bound for delays",
        Verb.ENQUEUE,
        "return delayed_bytes + bytes + DELAY_COSTS > most",
        "return false",
        same(BEYOND, "g", True),
    ),
    Damage(
        "no bound for what comes behind a delay",
        Verb.ENQUEUE,
        "= delay_ahead(m.group, now, burst and burst.replaced)",
        "",
        same(DELAYED.test_what_comes_behind_a_delay_in_its_lane_waits_for_it_too),
    ),
    Damage(
        "a letter crowded out behind a delay that has to be read whole",
        Verb.ENQUEUE,
        "call('HSET', task_state, 'type', task_type, 'tenant', tenant, 'scope', m.scope)",
        "",
        same(DELAYED.test_what_is_crowded_out_behind_a_delay_is_known_without_its_body),
    ),
    Damage(
        "a delay that is over and still delays",
        Verb.ENQUEUE,
        "if last and last > now then return",
        "if last then return",
        same(DELAYED.test_a_delay_that_is_over_delays_no_task, False),
    ),
    Damage(
        "what is past due and counts for as long as its group stands",
        Verb.PROMOTE,
        "do\n  remove_delay(id)\nend",
        "do\n  break\nend",
        same(DELAYED.test_a_delay_that_is_over_delays_no_task, True),
    ),
    Damage(
        "a delay that was dropped and still delays",
        OperatorVerb.DROP_WAITING,
        "call('ZREM', K.late, id)",
        "",
        same(DELAYED.test_a_delay_ended_by_an_operator_delays_no_task, "drop"),
    ),
    Damage(
        "a delay of the newest hidden behind an ended one",
        Verb.ENQUEUE,
        "if own and own > now and call('ZSCORE', K.late, id) then return id, own end",
        "",
        same(DELAYED.test_a_delay_ended_by_an_operator_delays_no_task, "drop"),
    ),
    Damage(
        "delayed tasks that pause intake",
        Verb.ENQUEUE,
        " - call('ZCARD', K.late), taken",
        ", taken",
        same(DELAYED.test_what_waits_for_delays_pauses_no_intake, True),
    ),
    Damage(
        "small delayed tasks that count as nothing",
        Verb.ENQUEUE,
        "put_on('delayed_bytes', id, bytes + DELAY_COSTS)",
        "put_on('delayed_bytes', id, bytes)",
        same(DELAYED.test_small_delayed_tasks_count_what_they_take),
    ),
    Damage(
        "a redrive beyond the bound",
        OperatorVerb.REDRIVE,
        "then return -2 end",
        "then return 0 end",
        same(BEYOND, "g", True),
    ),
    Damage(
        "a redrive that forgets the delay",
        OperatorVerb.REDRIVE,
        "if due and due > now then",
        "if false then",
        same(BEYOND, "g", True),
    ),
    Damage(
        "a redriven delay left out of the count",
        OperatorVerb.REDRIVE,
        "add_delay(id, bytes, id, due)",
        "",
        same(BEYOND, None, True),
    ),
    Damage(
        "a death left out of the count",
        Verb.BURY,
        "put_on('dead_bytes', id, bytes)",
        "",
        same(DEAD.test_letters_count_until_they_end),
    ),
    Damage(
        "a dropped letter that still counts",
        OperatorVerb.DROP,
        "  take_off('dead_bytes', id)\n",
        "",
        same(DEAD.test_letters_count_until_they_end),
    ),
    Damage(
        "a redriven letter that still counts",
        OperatorVerb.REDRIVE,
        "  take_off('dead_bytes', id)\n",
        "",
        same(DEAD.test_letters_count_until_they_end),
    ),
    Damage(
        "a redrive of what is left of a letter",
        OperatorVerb.REDRIVE,
        "if archived and archived ~= ARGV[9] then return -1 end",
        "",
        same(DEAD.test_a_body_leaves_once_and_comes_back_by_a_redrive),
    ),
    Damage(
        "a redriven letter that knows a place still",
        OperatorVerb.REDRIVE,
        "call('HDEL', task_state, 'offset', 'archived_as')",
        "",
        same(DEAD.test_a_body_leaves_once_and_comes_back_by_a_redrive),
    ),
    Damage(
        "an archive of another death",
        OperatorVerb.ARCHIVE,
        "if not died or digits(died) ~= digits(ARGV[2]) then return 0 end",
        "if not died then return 0 end",
        same(DEAD.test_another_death_is_not_this_one),
    ),
    Damage(
        "an archive of what is no letter",
        OperatorVerb.ARCHIVE,
        "if not died or digits(died) ~= digits(ARGV[2]) then return 0 end",
        "",
        same(DEAD.test_an_archived_letter_is_dropped_and_swept_like_others),
    ),
    Damage(
        "more bodies at once than were asked for",
        OperatorVerb.BODIES,
        "(i > 1 and size + bytes > tonumber(ARGV[3]))",
        "false",
        same(DEAD.test_the_oldest_beyond_the_bound_are_told),
    ),
    Damage(
        "two that archive at a time",
        OperatorVerb.BODIES,
        "if whose ~= me and is_held() then return rows end",
        "",
        same(test_archiving.test_one_daemon_archives_at_a_time),
    ),
    Damage(
        "a daemon that is dead and still archives",
        OperatorVerb.BODIES,
        "call('HGET', K.daemon .. daemon, 'session') == session",
        "true",
        same(test_archiving.test_one_that_came_back_archives_at_once),
    ),
    Damage(
        "a lease that is over and still archives",
        OperatorVerb.BODIES,
        "(tonumber(call('ZSCORE', K.daemons, daemon) or nil) or 0) > now",
        "true",
        same(test_archiving.test_another_archives_when_the_lease_is_over),
    ),
    Damage(
        "a turn without an end",
        OperatorVerb.BODIES,
        "whose == '' or tonumber(string.sub(archiver, 1, 16)) <= now",
        "whose == ''",
        same(test_archiving.test_a_turn_ends_by_itself),
    ),
    Damage(
        "a turn that the archiver keeps",
        OperatorVerb.BODIES,
        "  call('HDEL', K.segments, 'archiver')\n",
        "",
        same(test_archiving.test_who_has_nothing_to_archive_lets_others),
    ),
    Damage(
        "small letters that count as nothing",
        Verb.ENQUEUE,
        "local bytes = LETTER_COSTS + 4 * #id + ",
        "local bytes = ",
        same(test_archiving.test_small_letters_count_what_they_take),
    ),
    Damage(
        "a context that counts as nothing",
        Verb.BURY,
        "'stage', 'context' }",
        "'stage' }",
        same(test_archiving.test_errors_and_context_count_leave_and_come_back),
    ),
    Damage(
        "errors left out of the archive",
        OperatorVerb.BODIES,
        "kept[2] or '', kept[3] or ''",
        "'', kept[3] or ''",
        same(test_archiving.test_errors_and_context_count_leave_and_come_back),
    ),
    Damage(
        "a context left out of the archive",
        OperatorVerb.BODIES,
        "kept[2] or '', kept[3] or ''",
        "kept[2] or '', ''",
        same(test_archiving.test_errors_and_context_count_leave_and_come_back),
    ),
    Damage(
        "context that stays behind its body",
        OperatorVerb.ARCHIVE,
        "call('HDEL', task_state, 'errors', 'context')",
        "",
        same(test_archiving.test_errors_and_context_count_leave_and_come_back),
    ),
    Damage(
        "a redrive without its context",
        OperatorVerb.REDRIVE,
        "call('HSET', task_state, 'context', ARGV[11])",
        "",
        same(test_archiving.test_errors_and_context_count_leave_and_come_back),
    ),
    Damage(
        "a redrive without its errors",
        OperatorVerb.REDRIVE,
        "call('HSET', task_state, 'errors', ARGV[10])",
        "",
        same(test_archiving.test_errors_and_context_count_leave_and_come_back),
    ),
    Damage(
        "a stub that is kept as a large hash",
        OperatorVerb.ARCHIVE,
        "call('DEL', task_state)",
        "",
        same(test_archiving.test_what_stays_of_an_archived_letter_is_small),
    ),
    Damage(
        "a redrive with what lay elsewhere",
        OperatorVerb.REDRIVE,
        "if archived and archived ~= ARGV[9] then return -1 end",
        "if archived and ARGV[9] == '' then return -1 end",
        same(test_archiving.test_a_redrive_wants_what_lies_where_the_letter_says),
    ),
    Damage(
        "what stays of another death",
        OperatorVerb.STAY,
        "if not died or digits(died) ~= digits(ARGV[2]) then return 0 end",
        "if not died then return 0 end",
        same(test_archiving.test_what_stays_counts_and_is_handed_to_nobody),
    ),
    Damage(
        "what stays and is asked for again",
        OperatorVerb.STAY,
        "call('ZREM', K.bodies, ARGV[1])",
        "",
        same(test_archiving.test_what_stays_counts_and_is_handed_to_nobody),
    ),
    Damage(
        "what stayed of a letter that is gone",
        OperatorVerb.DROP,
        "  call('ZREM', K.staying, id)\n",
        "",
        same(test_archiving.test_what_stays_counts_and_is_handed_to_nobody),
    ),
    Damage(
        "more bodies than are over the bound",
        OperatorVerb.BODIES,
        "over <= 0 or ",
        "",
        same(DEAD.test_the_oldest_beyond_the_bound_are_told),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
