"""The rules of who has a daemon's name, damaged on purpose: tests of `test_sessions` see each."""

from __future__ import annotations

import pytest

from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_sessions
from tests.store.damage import Damage, assert_seen

DAMAGES = [
    Damage(
        "a name that is taken back from who came since",
        Verb.REGISTER,
        "if session and process < known[2]",
        "if false",
        test_sessions.test_a_process_that_lost_its_session_does_not_take_the_name_back,
    ),
    Damage(
        "a process known by what it tells",
        Verb.REGISTER,
        "known[2] == process",
        "call('HGET', key, 'info') == ARGV[3]",
        test_sessions.test_a_late_registration_takes_nothing_from_the_living,
    ),
    Damage(
        "a name that the earlier process keeps",
        Verb.REGISTER,
        "process < known[2]",
        "not is_own and session >= last",
        test_sessions.test_of_two_with_one_name_the_later_has_it_everywhere,
    ),
    Damage(
        "a birth that is as high as the last one",
        Verb.START,
        "tonumber(last) + 1",
        "tonumber(last)",
        test_sessions.test_a_birth_is_above_all_that_have_registered,
    ),
    Damage(
        "a birth that Redis's clock has no part in",
        Verb.START,
        "math.max(clock(), ",
        "math.max(0, ",
        test_sessions.test_a_birth_is_redis_clock,
    ),
    Damage(
        "a birth that isn't noted",
        Verb.REGISTER,
        "if birth > (",
        "if false and birth > (",
        test_sessions.test_a_birth_is_above_all_that_have_registered,
    ),
    Damage(
        "a birth that falls",
        Verb.REGISTER,
        "if birth > (",
        "if birth ~= (",
        test_sessions.test_a_birth_is_above_all_that_have_registered,
    ),
    Damage(
        "a late registration that takes the claims of the living",
        Verb.REGISTER,
        "if not is_own or session <= last then",
        "if true then",
        test_sessions.test_a_late_registration_takes_nothing_from_the_living,
    ),
    Damage(
        "a registration whose number never becomes known",
        Verb.REGISTER,
        "if not is_own or session <= last then",
        "if true then",
        test_sessions.test_own_registration_is_no_replacement,
    ),
    Damage(
        "a session that is found again and not renewed",
        Verb.REGISTER,
        "call('ZADD', K.daemons, digits(now + ARGV[2]), daemon)",
        "call('ZADD', K.daemons, 'NX', digits(now + ARGV[2]), daemon)",
        test_sessions.test_own_registration_is_no_replacement,
    ),
    Damage(
        "a number that a process has twice",
        Verb.REGISTER,
        "if behind > 0 then call('INCRBY', K.fence, behind) end",
        "",
        test_sessions.test_a_session_that_redis_lost_is_opened_again,
    ),
    *(
        Damage(
            f"any session found there replaces, by {verb}",
            verb,
            "sub(session, 17) < process and",
            "sub(session, 17) ~= process and",
            test_sessions.test_of_two_with_one_name_the_later_has_it_everywhere,
        )
        for verb in (Verb.RENEW, Verb.EXCHANGE)
    ),
    *(
        Damage(
            f"the higher number replaces, by {verb}",
            verb,
            "sub(session, 17) < process and",
            "sub(session, 1, 16) < number and",
            test_sessions.test_of_two_with_one_name_the_later_has_it_everywhere,
        )
        for verb in (Verb.RENEW, Verb.EXCHANGE)
    ),
    Damage(
        "no process is replaced",
        Verb.RENEW,
        "and 'REPLACED' or 'EXPIRED'",
        "and 'EXPIRED' or 'EXPIRED'",
        test_sessions.test_name_taken_over,
    ),
    Damage(
        "a session known by its number alone",
        Verb.RENEW,
        "number .. process ~= session",
        "number ~= sub(session, 1, 16)",
        test_sessions.test_who_came_since_redis_lost_a_session_has_the_name,
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
