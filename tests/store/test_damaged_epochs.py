"""The rules of epochs, damaged on purpose: tests of `test_epochs` and `test_witnesses` see each."""

from __future__ import annotations

import pytest

from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_epochs, test_witnesses
from tests.store.damage import Damage, assert_seen

DAMAGES = [
    *(
        Damage(
            f"a claim of {what} during a recovery",
            Verb.EXCHANGE,
            "call('EXISTS', K.paused_all, K.recovering) > 0",
            "call('EXISTS', K.paused_all) > 0",
            seen,
        )
        for what, seen in (
            ("groups", test_epochs.test_a_lost_claim_is_given_out_again),
            ("plain tasks", test_epochs.test_no_plain_task_is_given_during_a_recovery),
        )
    ),
    Damage(
        "an old server's claim that is given again",
        Verb.EXCHANGE,
        "if claim and tonumber(claim.fence) <= found then",
        "if false then",
        test_epochs.test_a_claim_whose_settle_was_lost_goes_back,
    ),
    Damage(
        "a recovery that nothing begins",
        Verb.RENEW,
        "if ends > now then",
        "if false then",
        test_epochs.test_a_lost_claim_is_given_out_again,
    ),
    Damage(
        "tasks that come before any epoch",
        Verb.ENQUEUE,
        "note_first_epoch(now) end",
        "end",
        test_epochs.test_the_first_of_all_registrations_may_be_lost_too,
    ),
    Damage(
        "a recovery that the first who comes ends",
        Verb.RENEW,
        "tonumber(state[1]) <= 0 and",
        "true and",
        test_epochs.test_a_lost_claim_is_given_out_again,
    ),
    Damage(
        "a recovery that ends with the last daemon, in doubt or not",
        Verb.RENEW,
        "and state[2] == '0'",
        "",
        test_epochs.test_a_lost_registration_costs_a_lease,
    ),
    Damage(
        "a recovery that never ends",
        Verb.RENEW,
        "if now < tonumber(ends) and not is_whole then",
        "if not is_whole then",
        test_epochs.test_a_lost_registration_costs_a_lease,
    ),
    Damage(
        "a recovery that waits for a lease after all have come",
        Verb.RENEW,
        "if now < tonumber(ends) and not is_whole then",
        "if now < tonumber(ends) then",
        test_epochs.test_where_nothing_was_lost_all_goes_on_once_all_have_come,
    ),
    Damage(
        "a session that goes on without all of its claims",
        Verb.RENEW,
        "and shown.fence <= epoch.fence",
        "",
        test_epochs.test_a_lost_claim_is_given_out_again,
    ),
    Damage(
        "a session that goes on in another history",
        Verb.RENEW,
        "shown.epoch == epoch.before and",
        "",
        test_epochs.test_a_daemon_that_knows_a_lost_epoch_opens_a_new_session,
    ),
    Damage(
        "a session that never goes on",
        Verb.RENEW,
        "shown.epoch == epoch.before and",
        "false and",
        test_epochs.test_where_nothing_was_lost_all_goes_on_once_all_have_come,
    ),
    Damage(
        "a lost registration that isn't missed",
        Verb.RENEW,
        "and shown.enrolled <= epoch.enrolled",
        "",
        test_epochs.test_a_lost_registration_costs_a_lease,
    ),
    Damage(
        "a proof by who slept",
        Verb.RENEW,
        "and lease >= now",
        "",
        test_epochs.test_who_slept_over_its_lease_proves_nothing,
    ),
    Damage(
        "a run that goes on behind its lease",
        Verb.RENEW,
        "(has_come and may_have_lost_a_run(daemon, now))",
        "false",
        test_epochs.test_whose_lease_was_over_drops_its_runs,
    ),
    Damage(
        "a proof by a new process",
        Verb.REGISTER,
        "arrive(is_own and proves(daemon, shown, now))",
        "arrive(true)",
        test_epochs.test_a_new_process_of_a_known_name_proves_nothing,
    ),
    Damage(
        "a proof by who has left",
        Verb.LEAVE,
        "arrive(false)",
        "arrive(true)",
        test_epochs.test_who_left_before_it_was_asked_proves_nothing,
    ),
    Damage(
        "a proof without a daemon",
        Verb.REGISTER,
        "or awaited == 0",
        "",
        test_epochs.test_where_no_daemon_is_known_a_lease_passes,
    ),
    Damage(
        "doubts that end with their epoch",
        Verb.RENEW,
        "has_doubt = call('ZCARD', K.daemons), call('EXISTS', K.recovering) == 1",
        "has_doubt = call('ZCARD', K.daemons), false",
        test_epochs.test_an_epoch_that_was_cut_short_leaves_its_doubts_to_the_next,
    ),
    Damage(
        "reaping during a recovery",
        Verb.REAP,
        "if waits >= 0 then",
        "if false then",
        test_epochs.test_no_daemon_is_reaped_before_all_could_come,
    ),
    Damage(
        "the lease of who comes first",
        Verb.RENEW,
        "+ longest_lease(lease)",
        "+ lease",
        test_epochs.test_the_longest_lease_counts,
    ),
    Damage(
        "a server whose age doesn't count",
        Verb.RENEW,
        "return now - ((tonumber",
        "return now + 0 * ((tonumber",
        test_epochs.test_a_server_that_runs_for_longer_than_a_lease_has_lost_nothing,
    ),
    Damage(
        "fences that go on where the server stands",
        Verb.REGISTER,
        "if now > fence then call('INCRBY', K.fence, now - fence) end",
        "",
        test_epochs.test_no_fence_comes_twice_though_all_who_saw_it_are_gone,
    ),
    Damage(
        "fences that go on below what a daemon has seen",
        Verb.REGISTER,
        "if behind > 0 then call('INCRBY', K.fence, behind) end\n  if shown.sequence",
        "if shown.arrival",
        test_epochs.test_no_fence_comes_twice_though_the_clock_has_gone_back,
    ),
    Damage(
        "arrivals that go on below what a daemon has seen",
        Verb.RENEW,
        "call('HSET', K.count, 'sequence', digits(shown.sequence))",
        "",
        test_epochs.test_arrivals_go_on_above_what_was_seen,
    ),
    Damage(
        "a witness that would not be missed itself",
        Verb.RENEW,
        "if own <= seen and",
        "if",
        test_witnesses.test_who_comes_beside_others_waits_until_they_know,
    ),
    Damage(
        "a witness that only was told",
        Verb.RENEW,
        "shown.enrolled > seen then seen = shown.enrolled",
        "enrolled > seen then seen = enrolled",
        test_witnesses.test_who_comes_beside_others_waits_until_they_know,
    ),
    Damage(
        "a registration that needs no witness",
        Verb.REGISTER,
        "if is_missed then",
        "if true then",
        test_witnesses.test_who_comes_beside_others_waits_until_they_know,
    ),
    Damage(
        "a known name that needs a witness",
        Verb.REGISTER,
        "(session and session <= witnessed) or",
        "",
        test_witnesses.test_a_name_that_is_known_needs_no_witness,
    ),
    Damage(
        "a name that is known and would not be missed",
        Verb.REGISTER,
        "session <= witnessed) or",
        "true) or",
        test_witnesses.test_a_name_that_no_daemon_would_miss_needs_one,
    ),
    Damage(
        "a crash of a process that lives",
        Verb.REGISTER,
        "hand_over(daemon, now, is_own and 'lived' or 'died')",
        "hand_over(daemon, now, 'died')",
        test_epochs.test_what_a_daemon_drops_by_itself_is_no_crash,
    ),
    Damage(
        "an old session that waits for a witness for ever",
        Verb.RENEW,
        "(shown.is_old or is_alone)",
        "is_alone",
        test_witnesses.test_a_session_that_is_a_lease_old_needs_no_witness,
    ),
    Damage(
        "a session that is alone and waits for a witness",
        Verb.RENEW,
        "(shown.is_old or is_alone)",
        "shown.is_old",
        test_witnesses.test_who_is_left_alone_needs_no_witness,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
