"""What the doctor makes of what servers say."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.broker.topology import Difference, parse_difference
from groupflow.doctor.rabbitmq import Queue, judge_leaders, judge_queue
from groupflow.doctor.redis import judge_cluster, judge_info, leader_of
from groupflow.doctor.table import TABLE

NOW = 1_700_000_000.0
SOUND: dict[str, Any] = {
    "redis_version": "7.0.15",
    "server_time_usec": int(NOW * 1e6),
    "role": "master",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "used_memory": 1 << 20,
    "maxmemory": 1 << 30,
}


def judge(**facts: Any) -> dict[str, tuple[str, str, str]]:
    found = judge_info({**SOUND, **facts}, 8.0, NOW, 0, None)
    for check in found:
        assert bool(check.remedy) == (check.verdict != "ok"), check
    return {check.name: (check.verdict, check.found, check.remedy) for check in found}


@pytest.mark.parametrize(
    ("facts", "name", "verdict", "words"),
    [
        ({"redis_version": "6.2.14"}, "version", "fail", "Redis 6.2.14"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "version", "ok", "Valkey 9.1.2"),
        ({"redis_version": "10.0.0"}, "version", "ok", "Redis 10.0.0"),
        ({"role": "slave", "master_host": "h"}, "role", "fail", "a replica of h"),
        ({"cluster_enabled": 1}, "role", "warn", "cluster"),
        ({"maxmemory_policy": "volatile-lru"}, "eviction", "fail", "volatile-lru"),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction", "fail", "deletes"),
        ({"maxmemory_policy": "unknown"}, "eviction", "warn", "does not say"),
        ({"aof_enabled": 0}, "persistence", "warn", "appendonly no"),
        ({"loading": 1}, "persistence", "warn", "loading"),
        ({"aof_last_write_status": "err"}, "persistence", "warn", "append-only file failed"),
        ({"rdb_last_bgsave_status": "err"}, "persistence", "warn", "saving a snapshot failed"),
        ({"maxmemory": 0}, "memory", "warn", "not set"),
        ({"used_memory": 1 << 30}, "memory", "warn", "1024 of 1024 MiB"),
        ({"server_time_usec": int((NOW + 2.1) * 1e6)}, "clock", "warn", "2.100 s ahead"),
        ({"server_time_usec": int((NOW - 2.1) * 1e6)}, "clock", "warn", "2.100 s behind"),
        ({"server_time_usec": int((NOW + 1.9) * 1e6)}, "clock", "ok", "ahead"),
    ],
)
def test_redis(facts: dict[str, Any], name: str, verdict: str, words: str) -> None:
    found = judge(**facts)
    assert found[f"redis.{name}"][0] == verdict
    assert words in found[f"redis.{name}"][1]
    assert [key for key, each in found.items() if each[0] != "ok"] == (
        [f"redis.{name}"] if verdict != "ok" else []
    )


WHOLE = {"cluster_state": "ok", "cluster_size": "3", "cluster_slots_ok": "16384"}


@pytest.mark.parametrize(
    ("info", "served", "name", "verdict", "words"),
    [
        (WHOLE, [4, 4, 4], "cluster", "ok", "3 primaries, all slots served"),
        (WHOLE, [4, 4, 4], "partitions", "ok", "12 on 3 of 3 primaries"),
        (WHOLE, [2, 2], "partitions", "warn", "4 on 2 of 3 primaries: the others serve nothing"),
        (WHOLE, [9, 2, 1], "partitions", "warn", "one serves 9 of them"),
        ({**WHOLE, "cluster_state": "fail", "cluster_slots_ok": "10922"}, [2], "cluster", "fail",
         "cluster_state fail, 10922 of 16384 slots"),
        ({**WHOLE, "cluster_slots_ok": "10922"}, [2], "cluster", "fail", "10922 of 16384 slots"),
        ({}, [2], "cluster", "warn", "doesn't say"),
    ],
)  # fmt: skip
def test_cluster(
    info: dict[str, str], served: list[int], name: str, verdict: str, words: str
) -> None:
    found = {check.name: check for check in judge_cluster(info, served)}
    check = found[f"redis.{name}"]
    assert (check.verdict, bool(check.remedy)) == (verdict, verdict != "ok")
    assert words in check.found


@pytest.mark.parametrize(
    ("facts", "wanted", "leader", "verdict", "words"),
    [
        ({}, 0, None, "ok", "0 connected"),
        ({"connected_slaves": 2}, 0, None, "ok", "2 connected, redis.replicas = 0: a fail-over"),
        ({"connected_slaves": 1}, 0, "cluster", "warn", "a fail-over loses"),
        ({}, 0, "sentinel", "warn", "a fail-over loses"),
        ({"connected_slaves": 1, "slave0": {"state": "online"}}, 1, "cluster", "ok", "1 connected"),
        ({"connected_slaves": 1, "slave0": {"state": "wait_bgsave"}}, 1, None, "warn", "0 conn"),
        ({"connected_slaves": 1}, 2, "cluster", "warn", "1 connected, redis.replicas = 2"),
    ],
)
def test_replicas(
    facts: dict[str, Any], wanted: int, leader: Any, verdict: str, words: str
) -> None:
    checks = {check.name: check for check in judge_info(facts, 8.0, NOW, wanted, leader)}
    found = checks["redis.replicas"]
    assert (found.verdict, bool(found.remedy)) == (verdict, verdict == "warn")
    assert words in found.found


def test_who_promotes_and_a_primary_that_may_go_on_alone() -> None:
    """Redis tells only where it may not; a node of a cluster stops by itself."""
    assert all(row.remedy for rows in TABLE.values() for row in rows if row.verdict == "fail")
    for url, leader, facts, number in (
        ("redis+sentinel://h/m", "sentinel", {}, 1),
        ("redis+sentinel://h/m", "sentinel", {"min_slaves_good_slaves": 1}, 0),
        ("rediss+cluster://h", "cluster", {"cluster_enabled": 1}, 0),
        ("redis://h", None, {}, 0),
    ):
        assert leader_of(url) == leader
        found = judge_info({**SOUND, **facts}, 8.0, NOW, 0, leader_of(url))
        assert [check.name for check in found].count("redis.min_replicas") == number
        roles = [check.found for check in found if check.name == "redis.role"]
        assert (roles == ["a primary of a cluster"]) is (leader == "cluster")


@pytest.mark.parametrize(
    ("argument", "words", "value"),
    [
        ("durable", "received 'true' but current is 'false'", False),
        ("x-queue-type", "received 'quorum' but current is 'classic'", "classic"),
        ("x-single-active-consumer",
         "received the value 'true' of type 'bool' but current is none", None),
        ("x-max-length", "received none but current is the value '5' of type 'byte'", 5),
        ("x-delivery-limit", "received the value '-1' of type 'byte' but current is the value "
         "'20' of type 'signedint'", 20),
        ("x-overflow", "received none but current is the value 'drop-head' of type 'longstr'",
         "drop-head"),
    ],
)  # fmt: skip
def test_a_refused_declaration(argument: str, words: str, value: Any) -> None:
    text = f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'q' in vhost '/': "
    assert parse_difference(text + words) == Difference(argument, value)
    assert parse_difference("PRECONDITION_FAILED - something else") is None


@pytest.mark.parametrize(
    ("differences", "verdicts"),
    [
        ([], ["ok"]),
        ([Difference("durable", False)], ["fail"]),
        ([Difference("x-queue-type", "classic")], ["warn"]),
        ([Difference("x-queue-type", "stream")], ["fail"]),
        ([Difference("x-single-active-consumer", None)], ["fail"]),
        ([Difference("x-max-length", 5)], ["fail"]),
        ([Difference("x-max-length", 5), Difference("x-overflow", "reject-publish")], ["ok", "ok"]),
        ([Difference("x-quorum-initial-group-size", 3)], ["ok"]),
        ([Difference("x-delivery-limit", 3)], ["ok"]),  # it has a check of its own
    ],
)
def test_a_queue(differences: list[Difference], verdicts: list[str]) -> None:
    *found, deliveries = judge_queue("q", differences, is_limited=False)
    assert [check.verdict for check in found] == verdicts
    is_limited = Difference("x-delivery-limit", 3) in differences
    assert deliveries.verdict == ("warn" if is_limited else "ok")


A, B, C = nodes = ["rabbit@a", "rabbit@b", "rabbit@c"]


@pytest.mark.parametrize(
    ("leaders", "online", "verdict", "said"),
    [
        ([A, B, C], nodes, "ok", "rabbit@a leads 1, rabbit@b leads 1, rabbit@c leads 1 of 3"),
        ([A, A, B], nodes, "ok", "rabbit@a leads 2, rabbit@b leads 1 of 3"),
        ([A, A, A], nodes, "warn", "all on one node: rabbit@a leads 3"),
        ([A, A, B], [A, B], "warn", "copies are away: on rabbit@c"),
        ([A, "", A], [A], "fail", "no node leads jobs.1"),
        ([A], nodes, "ok", "rabbit@a leads 1 of 1"),
    ],
)
def test_who_leads(leaders: list[str], online: list[str], verdict: str, said: str) -> None:
    queues = [
        Queue(name=f"jobs.{n}", leader=leader, members=nodes, online=online)
        for n, leader in enumerate(leaders)
    ]
    [check] = judge_leaders(queues)
    assert check.verdict == verdict
    assert said in check.found
