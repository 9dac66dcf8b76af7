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
        "and ARGV[4] == 'again'",
        "and false",
        test_sessions.test_a_process_that_lost_its_session_does_not_take_the_name_back,
    ),
    Damage(
        "a process known by what it tells",
        Verb.REGISTER,
        "known[2] == process",
        "call('HGET', key, 'info') == ARGV[3]",
        test_sessions.test_a_process_that_lost_its_session_does_not_take_the_name_back,
    ),
    Damage(
        "a name that whoever came before keeps",
        Verb.REGISTER,
        "and session >= last",
        "",
        test_sessions.test_a_session_that_redis_lost_is_opened_again,
    ),
    Damage(
        "a name that is taken back from a namesake in number",
        Verb.REGISTER,
        "session >= last",
        "session > last",
        test_sessions.test_who_came_since_redis_lost_a_session_has_the_name,
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
            f"who came before replaces who came since, by {verb}",
            verb,
            "(is_older or is_own) and",
            "is_own and",
            test_sessions.test_a_session_that_redis_lost_is_opened_again,
        )
        for verb in (Verb.RENEW, Verb.CLAIM_GROUPED)
    ),
    *(
        Damage(
            f"a process that replaces itself, by {verb}",
            verb,
            "(is_older or is_own) and",
            "is_older and",
            test_sessions.test_own_registration_is_no_replacement,
        )
        for verb in (Verb.RENEW, Verb.CLAIM_GROUPED)
    ),
    Damage(
        "nobody is replaced",
        Verb.RENEW,
        "and 'EXPIRED' or 'REPLACED'",
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
