"""What the doctor makes of what servers say."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.broker.topology import Difference, parse_difference
from groupflow.core.checkup import Check
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


def info(wanted: int = 0, leader: Any = None, /, **facts: Any) -> list[Check]:
    return judge_info({**SOUND, **facts}, 8.0, NOW, wanted, leader)


def led(leaders: list[str], online: list[str]) -> list[Check]:
    return judge_leaders(
        [
            Queue(name=f"jobs.{n}", leader=leader, members=NODES, online=online)
            for n, leader in enumerate(leaders)
        ]
    )


A, B, C = NODES = ["rabbit@a", "rabbit@b", "rabbit@c"]
WHOLE = {"cluster_state": "ok", "cluster_size": "3", "cluster_slots_ok": "16384"}
ONE = {"connected_slaves": 1}
ROWS: list[tuple[list[Check], str, str, str]] = [
    (info(redis_version="6.2.14"), "redis.version", "fail", "Redis 6.2.14"),
    (info(redis_version="7.2.4", valkey_version="9.1.2"), "redis.version", "ok", "Valkey 9.1.2"),
    (info(redis_version="10.0.0"), "redis.version", "ok", "Redis 10.0.0"),
    (info(role="slave", master_host="h"), "redis.role", "fail", "a replica of h"),
    (info(cluster_enabled=1), "redis.role", "warn", "cluster"),
    (info(maxmemory_policy="volatile-lru"), "redis.eviction", "fail", "volatile-lru"),
    (info(maxmemory_policy="allkeys-lru"), "redis.eviction", "fail", "deletes"),
    (info(maxmemory_policy="unknown"), "redis.eviction", "warn", "does not say"),
    (info(aof_enabled=0), "redis.persistence", "warn", "appendonly no"),
    (info(loading=1), "redis.persistence", "warn", "loading"),
    (info(aof_last_write_status="err"), "redis.persistence", "warn", "append-only file failed"),
    (info(rdb_last_bgsave_status="err"), "redis.persistence", "warn", "saving a snapshot failed"),
    (info(maxmemory=0), "redis.memory", "warn", "not set"),
    (info(used_memory=1 << 30), "redis.memory", "warn", "1024 of 1024 MiB"),
    (judge_info({**SOUND, "maxmemory": 0}, 8.0, NOW, 0, None, max_memory=1 << 29),
     "redis.memory", "ok", "1 of 512 MiB"),
    (info(server_time_usec=int((NOW + 2.1) * 1e6)), "redis.clock", "warn", "2.100 s ahead"),
    (info(server_time_usec=int((NOW - 2.1) * 1e6)), "redis.clock", "warn", "2.100 s behind"),
    (info(server_time_usec=int((NOW + 1.9) * 1e6)), "redis.clock", "ok", "ahead"),
    (info(), "redis.replicas", "ok", "0 connected"),
    (info(connected_slaves=2), "redis.replicas", "ok", "2 connected, redis.replicas = 0: a fail-"),
    (info(0, "cluster", **ONE), "redis.replicas", "warn", "a fail-over loses"),
    (info(0, "sentinel", min_slaves_good_slaves=1), "redis.replicas", "warn", "a fail-over loses"),
    (info(1, "cluster", **ONE, slave0={"state": "online"}), "redis.replicas", "ok", "1 connected"),
    (info(1, None, **ONE, slave0={"state": "wait_bgsave"}), "redis.replicas", "warn", "0 conn"),
    (info(2, "cluster", **ONE), "redis.replicas", "warn", "1 connected, redis.replicas = 2"),
    (judge_cluster(WHOLE, [4, 4, 4]), "redis.cluster", "ok", "3 primaries, all slots served"),
    (judge_cluster(WHOLE, [4, 4, 4]), "redis.partitions", "ok", "12 on 3 of 3 primaries"),
    (judge_cluster(WHOLE, [2, 2]), "redis.partitions", "warn",
     "4 on 2 of 3 primaries: the others serve nothing"),
    (judge_cluster(WHOLE, [9, 2, 1]), "redis.partitions", "warn", "one serves 9 of them"),
    (judge_cluster(WHOLE | {"cluster_state": "fail", "cluster_slots_ok": "10922"}, [2]),
     "redis.cluster", "fail", "cluster_state fail, 10922 of 16384 slots"),
    (judge_cluster(WHOLE | {"cluster_slots_ok": "10922"}, [2]),
     "redis.cluster", "fail", "10922 of 16384 slots"),
    (judge_cluster({}, [2]), "redis.cluster", "warn", "doesn't say"),
    (led(NODES, NODES), "rabbitmq.leaders", "ok",
     "rabbit@a leads 1, rabbit@b leads 1, rabbit@c leads 1 of 3"),
    (led([A, A, B], NODES), "rabbitmq.leaders", "ok", "rabbit@a leads 2, rabbit@b leads 1 of 3"),
    (led([A, A, A], NODES), "rabbitmq.leaders", "warn", "all on one node: rabbit@a leads 3"),
    (led([A, A, B], [A, B]), "rabbitmq.leaders", "warn", "copies are away: on rabbit@c"),
    (led([A, "", A], [A]), "rabbitmq.leaders", "fail", "no node leads jobs.1"),
    (led([A], NODES), "rabbitmq.leaders", "ok", "rabbit@a leads 1 of 1"),
]  # fmt: skip


@pytest.mark.parametrize(("checks", "name", "verdict", "words"), ROWS)
def test_a_verdict(checks: list[Check], name: str, verdict: str, words: str) -> None:
    """Of one check; all others are well, and only they need no remedy."""
    found = {check.name: check for check in checks}
    assert found[name].verdict == verdict
    assert words in found[name].found
    assert [each.name for each in checks if each.verdict != "ok"] == [name] * (verdict != "ok")
    assert [each.name for each in checks if each.remedy] == [name] * (verdict != "ok")


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
