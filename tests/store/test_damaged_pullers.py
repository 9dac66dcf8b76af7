"""The rules of workers that pull, damaged on purpose: tests of `test_pullers` see each."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.scripts import Verb
from tests.store import test_pullers
from tests.store.damage import Damage, assert_seen, same

DAMAGES = [
    Damage(
        "a pool that is never full",
        Verb.POLL,
        "if most > 0 and call('ZCARD', leases) >= most",
        "if false",
        test_pullers.test_a_pool_has_no_more_workers_than_it_may,
    ),
    Damage(
        "a bound for those who are in",
        Verb.POLL,
        "if not session then",
        "if tonumber(ARGV[6]) > 0 and call('ZCARD', leases) > tonumber(ARGV[6]) then "
        "return without('FULL') end if not session then",
        test_pullers.test_a_lower_bound_ends_no_session,
    ),
    Damage(
        "a worker that is in its own way",
        Verb.POLL,
        "hand_over(daemon, now, ends >= now and 'lived' or 'died', MOST_TAKEN)",
        "{}, call('DEL', key)",
        test_pullers.test_a_lower_bound_ends_no_session,
    ),
    Damage(
        "workers in a pool that who reaps doesn't know",
        Verb.POLL,
        "call('HSETNX', K.pools, pool, digits(now)) -- so",
        "-- so",
        same(test_pullers.test_whose_session_ends_makes_room, "is reaped"),
    ),
    Damage(
        "an end left out of the count",
        Verb.EXCHANGE,
        "count_held(daemon, -done)",
        "",
        test_pullers.test_what_is_held_is_counted_through_all_its_ends,
    ),
    Damage(
        "another end left out of the count",
        Verb.RETRY,
        "count_held(daemon, -1)",
        "",
        test_pullers.test_what_is_held_is_counted_through_all_its_ends,
    ),
    Damage(
        "a worker that holds nothing and is counted",
        Verb.POLL,
        "if tonumber(held) <= 0",
        "if false",
        test_pullers.test_what_is_held_is_counted_through_all_its_ends,
    ),
    Damage(
        "a page that goes on by place",
        OperatorVerb.POOL_WORKERS,
        "if call('ZSCORE', leases, last) == ARGV[4] then",
        "if true then",
        test_pullers.test_workers_are_told_by_pages_and_none_is_passed_over,
    ),
    Damage(
        "a page of any size",
        OperatorVerb.POOL_WORKERS,
        "if looked >= MOST_LOOKED_AT then break end",
        "",
        test_pullers.test_a_page_of_workers_looks_at_so_many_slots,
    ),
    Damage(
        "the first pool takes it all",
        Verb.REAP,
        "math.ceil(MOST_TAKEN / #silent)",
        "MOST_TAKEN",
        test_pullers.test_a_crowd_keeps_no_puller_waiting,
    ),
    Damage(
        "a script for all that is over",
        Verb.REAP,
        "left = math.ceil(MOST_TAKEN / #silent), MOST_TAKEN",
        "left = 1e9, 1e9",
        test_pullers.test_a_crowd_keeps_no_puller_waiting,
    ),
    Damage(
        "a session that ends with what is still held",
        Verb.REAP,
        "if #rows < #claims then",
        "if false then",
        same(test_pullers.test_much_that_a_silent_worker_held_goes_back_in_pieces, "reaper"),
    ),
    Damage(
        "pieces that are taken twice",
        Verb.REAP,
        "call('HDEL', K.worker .. daemon, unpack(slots))",
        "",
        same(test_pullers.test_much_that_a_silent_worker_held_goes_back_in_pieces, "reaper"),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_a_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    await assert_seen(redis_server, damage)
