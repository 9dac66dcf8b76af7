"""The quarantine, damaged on purpose: the tests of `test_quarantine` see each damage.

What a damage is, and when it is seen: `tests.store.damage`.
"""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_quarantine
from tests.store.damage import Damage, assert_seen, same

DAMAGES = [
    Damage(
        "quarantined tasks side by side in a pool",
        Verb.EXCHANGE,
        "if quarantine then return nil end",
        "",
        same(test_quarantine.test_a_daemon_runs_one_at_a_time, "plain"),
    ),
    Damage(
        "quarantined tasks side by side in two pools",
        Verb.EXCHANGE,
        "if quarantine then return nil end",
        "",
        test_quarantine.test_one_of_both_pools,
    ),
    *(
        Damage(
            f"a {pool} quarantined without its mark",
            Verb.EXCHANGE,
            "note_quarantined(daemon, claims, now)",
            "",
            same(test_quarantine.test_a_daemon_runs_one_at_a_time, pool),
        )
        for pool in ("plain", "grouped")
    ),
    *(
        Damage(
            f"a mark for what was passed over, {pool}",
            Verb.EXCHANGE,
            "if are_quarantined and number > #passed then",
            "if are_quarantined then",
            same(test_quarantine.test_one_whose_envelope_is_gone_is_passed_over, pool),
        )
        for pool in ("plain", "grouped")
    ),
    Damage(
        "a quarantined with company",
        Verb.EXCHANGE,
        "quarantined and { quarantined } or next_entries(#idle)",
        "next_entries(#idle - (quarantined and 1 or 0))"
        "\nif quarantined then table.insert(entries, 1, quarantined) end",
        same(test_quarantine.test_a_daemon_runs_one_at_a_time, "plain"),
    ),
    Damage(
        "quarantined tasks that come last",
        Verb.EXCHANGE,
        "local quarantined = take_quarantined(",
        "local quarantined = call('ZCARD', K.ready) == 0 and take_quarantined(",
        same(test_quarantine.test_a_daemon_runs_one_at_a_time, "grouped"),
    ),
    *(
        Damage(
            f"a mark that outlives a {ending}",
            verb,
            sound,
            "",
            same(test_quarantine.test_its_end_lets_the_next_one_run, ending),
        )
        for ending, verb, sound in (
            ("complete", Verb.EXCHANGE, "        end_quarantine_of(daemon, fence)\n"),
            ("release", Verb.EXCHANGE, "\n  end_quarantine_of(daemon, fence)\n"),
            ("retry", Verb.RETRY, "\n  end_quarantine_of(daemon, fence)\n"),
            ("advance", Verb.ADVANCE, "\n  end_quarantine_of(daemon, fence)\n"),
            ("bury", Verb.BURY, "\n  end_quarantine_of(daemon, fence)\n"),
        )
    ),
    Damage(
        "an end without a wake",
        Verb.RETRY,
        "elseif call('EXISTS', K.quarantined_plain, K.quarantined_groups) > 0 then\n    wake()",
        "elseif false then\n    wake()",
        same(test_quarantine.test_its_end_lets_the_next_one_run, "retry"),
    ),
    Damage(
        "an end without a wake of the other pool",
        Verb.EXCHANGE,
        "call('EXISTS', K.quarantined_plain, K.quarantined_groups)",
        "call('EXISTS', K.quarantined_groups)",
        same(test_quarantine.test_its_end_lets_the_next_one_run, "complete"),
    ),
    Damage(
        "a mark that anybody's end takes away",
        Verb.EXCHANGE,
        "if not quarantine or sub(quarantine, 1, 16) ~= fence then return end",
        "if not quarantine then return end",
        test_quarantine.test_the_end_of_another_task_changes_nothing,
    ),
    Damage(
        "a mark that any burial takes away",
        Verb.BURY,
        "if not quarantine or sub(quarantine, 1, 16) ~= fence then return end",
        "if not quarantine then return end",
        test_quarantine.test_the_end_of_another_task_changes_nothing,
    ),
    Damage(
        "a mark for ever",
        Verb.RENEW,
        "if since and now - since >= lease then end_quarantine(daemon) end",
        "",
        test_quarantine.test_it_is_none_any_more_when_it_has_run_for_a_lease,
    ),
    Damage(
        "a mark for a moment",
        Verb.RENEW,
        "if since and now - since >= lease then",
        "if since then",
        test_quarantine.test_a_younger_lease_clears_nothing,
    ),
    Damage(
        "a second crash that counts as the first",
        Verb.EXCHANGE,
        "(crashes == 1 and digits(now) or '')",
        "digits(now)",
        test_quarantine.test_who_crashed_twice_stays_one_to_its_end,
    ),
    Damage(
        "a renewal that tells of no quarantined tasks",
        Verb.RENEW,
        "if not quarantine then\n",
        "if false then\n",
        test_quarantine.test_it_is_none_any_more_when_it_has_run_for_a_lease,
    ),
    Damage(
        "a renewal that tells of quarantined tasks which may not be claimed",
        Verb.RENEW,
        "if not quarantine then\n",
        "if true then\n",
        test_quarantine.test_it_is_none_any_more_when_it_has_run_for_a_lease,
    ),
    Damage(
        "a group that is ready for anybody though its head crashed",
        Verb.LEAVE,
        "index_of(is_quarantined and 'quarantined_groups' or 'ready', pool)",
        "index_of('ready', pool)",
        test_quarantine.test_why_it_waits,
    ),
    Damage(
        "a plain task that is for anybody though it crashed",
        Verb.LEAVE,
        "is_quarantined and 'quarantined_plain' or 'ordered'",
        "'ordered'",
        same(test_quarantine.test_a_daemon_runs_one_at_a_time, "plain"),
    ),
    Damage(
        "an advance that forgets the crash",
        Verb.ADVANCE,
        "is_quarantined and 'quarantined_plain' or 'ordered'",
        "'ordered'",
        same(test_quarantine.test_it_stays_one_through_each_settlement, "plain"),
    ),
    Damage(
        "a promotion that forgets the crash",
        Verb.PROMOTE,
        "is_quarantined and 'quarantined_plain' or 'ordered'",
        "'ordered'",
        same(test_quarantine.test_it_stays_one_through_each_settlement, "plain"),
    ),
    Damage(
        "a pause that leaves a quarantined group ready",
        OperatorVerb.PAUSE,
        "  if is_in_quarantine(group) then call('ZREM', K.quarantined_groups, group) end\n",
        "",
        test_quarantine.test_a_pause_holds_it,
    ),
    Damage(
        "a group that stays quarantined behind another head",
        OperatorVerb.REDRIVE,
        "  elseif is_in_quarantine(group) then\n",
        "  elseif false then\n",
        test_quarantine.test_an_older_task_in_front_of_it,
    ),
    Damage(
        "a group that stays ready behind a quarantined head",
        Verb.PROMOTE,
        "elseif is_quarantined then\n    call('ZREM', K.ready, group)\n",
        "elseif is_quarantined then\n",
        test_quarantine.test_it_comes_back_in_front_of_a_group_that_is_ready,
    ),
    Damage(
        "a redrive that keeps the suspicion",
        OperatorVerb.REDRIVE,
        ", 'crashes', 0",
        "",
        test_quarantine.test_a_redrive_makes_it_a_task_like_any_other,
    ),
    Damage(
        "a session that keeps the mark of the one before",
        Verb.REGISTER,
        "call('DEL', K.worker .. daemon, K.daemon .. daemon)",
        "call('DEL', K.worker .. daemon)",
        test_quarantine.test_a_new_session_runs_one_again,
    ),
    Damage(
        "a drop that looks for no quarantined",
        OperatorVerb.DROP_WAITING,
        "{ index_of('ordered', pool), index_of('quarantined_plain', pool) }",
        "{ index_of('ordered', pool) }",
        same(test_quarantine.test_one_that_waits_can_be_dropped, "plain"),
    ),
    Damage(
        "a status that counts no quarantined tasks",
        OperatorVerb.STATUS,
        "count_in(READY)",
        "call('ZCARD', K.ready)",
        test_quarantine.test_views_show_it_waiting_like_the_rest,
    ),
    Damage(
        "a page that starts each index from its beginning",
        OperatorVerb.GROUPS,
        "from = math.max(0, from - size)",
        "from = 0",
        test_quarantine.test_views_show_it_waiting_like_the_rest,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
