"""Examines each node that serves partitions, and the cluster or the Sentinels."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from groupflow.core.checkup import Check, Verdict
from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreUnavailable
from groupflow.doctor.redis import CLUSTER, examine_node, examine_store
from groupflow.store.keys import Keys
from groupflow.store.pool import make_pool
from groupflow.store.refusals import address_of, translated
from groupflow.store.whereabouts import BySentinel, InCluster, whereabouts_of

NODES = "redis.nodes"
PARTITIONS = "redis.partitions"
SENTINELS = "redis.sentinels"
SLOTS = 16384
_UNEVEN = 2  # times the average number of partitions of a node


async def examine_partitions(
    url: str, every: Sequence[Keys], lease: float, timeout: float, replicas: int = 0
) -> list[Check]:
    """Everything about the servers of a namespace, as the user of the URL sees them.

    Args:
        url: the server, or where to ask for it.
        every: the keys of each partition.
        lease: seconds.
        timeout: seconds for each question.
        replicas: that must hold a batch.

    Raises:
        StoreUnavailable: no partition answers.
        ServerUnreachable: the credentials were refused.
    """
    where = whereabouts_of(url, every[0]("count"))
    if isinstance(where, BySentinel):
        return [
            *await examine_store(url, every[0], lease, timeout, replicas),
            await _sentinels(where, timeout),
        ]
    if not isinstance(where, InCluster):
        return await examine_store(url, every[0], lease, timeout, replicas)
    homes, away = await _homes(url, every, timeout)
    nodes: dict[str, list[int]] = defaultdict(list)
    for number, node in homes.items():
        nodes[node].append(number)
    checks = [*judge_answers(await where.told(timeout)), *away]
    for node, numbers in nodes.items():
        keys = every[numbers[0]]
        examination = examine_node(node, keys, lease, timeout, replicas=replicas, leader="cluster")
        found = await _examined(numbers, examination)
        checks += [replace(each, found=f"{address_of(node)}: {each.found}") for each in found]
    told = await asyncio.gather(*(_cluster_info(node, timeout) for node in nodes))
    info = next(filter(None, told), {})
    return [*checks, *judge_cluster(info, [len(numbers) for numbers in nodes.values()])]


def judge_answers(told: Mapping[str, str]) -> list[Check]:
    """Whether the nodes are of one cluster.

    Args:
        told: by address of each node that answered, where it says that the first partition is.
    """
    if len(set(told.values())) <= 1:
        return []
    found = "; ".join(f"{node} says {home}" for node, home in told.items())
    remedy = (
        "Name the nodes of one cluster in redis.url, and of that alone. In the midst of a "
        "fail-over they differ for some seconds: look again."
    )
    return [Check(NODES, "fail", f"they disagree where the first partition is: {found}", remedy)]


async def _homes(
    url: str, every: Sequence[Keys], timeout: float
) -> tuple[dict[int, str], list[Check]]:
    """The node of each partition, and checks of partitions without one.

    Raises:
        StoreUnavailable: none has one.
        ServerUnreachable: the credentials were refused.
    """
    found = await asyncio.gather(
        *(whereabouts_of(url, keys("count")).find(timeout) for keys in every),
        return_exceptions=True,
    )
    homes = {n: node for n, node in enumerate(found) if isinstance(node, str)}
    away = []
    for number, error in enumerate(found):
        if isinstance(error, (RedisError, OSError)):
            reason = translated(error, address_of(url))
            if not homes:
                raise reason from error
            away.append(_away([number], str(reason)))
        elif isinstance(error, BaseException):
            raise error
    return homes, away


async def _examined(numbers: Sequence[int], examination: Awaitable[list[Check]]) -> list[Check]:
    try:
        return await examination
    except (StoreUnavailable, ServerUnreachable) as error:
        return [_away(numbers, str(error))]


def _away(numbers: Sequence[int], why: str) -> Check:
    which = ", ".join(map(str, numbers))
    remedy = "Bring the node back, or let its replica take over; the other partitions go on."
    return Check(PARTITIONS, "fail", f"away: {which} ({why})", remedy)


async def _cluster_info(node: str, timeout: float) -> Mapping[str, str]:
    """What a node says of its cluster; empty where it doesn't say, or doesn't answer."""
    pool = make_pool(node, timeout)
    try:
        async with asyncio.timeout(timeout):
            redis: Any = Redis(connection_pool=pool)
            answer = await redis.execute_command("CLUSTER INFO")
    except (NoPermissionError, RedisError, OSError, GroupflowError):
        return {}
    finally:
        await pool.disconnect()
    if isinstance(answer, bytes):
        answer = dict(line.split(":", 1) for line in answer.decode().split("\r\n") if ":" in line)
    return {str(name): str(value) for name, value in answer.items()}


def judge_cluster(info: Mapping[str, str], served: Sequence[int]) -> list[Check]:
    """What a ``CLUSTER INFO`` means for a namespace.

    Args:
        info: its lines, empty where no node told.
        served: for each node that serves partitions, how many.
    """
    if not info:
        remedy = "Grant +cluster|info: without it nobody sees slots that no node serves."
        return [Check(CLUSTER, "warn", "it doesn't say how it is", remedy)]
    state, primaries = info.get("cluster_state"), int(info.get("cluster_size", 0))
    slots = int(info.get("cluster_slots_ok", 0))
    if state != "ok" or slots < SLOTS:
        found = f"cluster_state {state}, {slots} of {SLOTS} slots are served"
        remedy = "redis-cli --cluster check says which; partitions in the others are away."
        return [Check(CLUSTER, "fail", found, remedy)]
    fine = Check(CLUSTER, "ok", f"cluster_state ok, {primaries} primaries, all slots served")
    return [fine, _spread(primaries, served)]


def _spread(primaries: int, served: Sequence[int]) -> Check:
    """Whether the number of partitions suits that of the nodes."""
    count, used = sum(served), len(served)
    found = f"{count} on {used} of {primaries} primaries"
    remedy = "groupflow repartition to several times the primaries, or move slots."
    if used < primaries:
        return Check(PARTITIONS, "warn", f"{found}: the others serve nothing", remedy)
    if max(served) > _UNEVEN * count / used:
        return Check(PARTITIONS, "warn", f"{found}: one serves {max(served)} of them", remedy)
    return Check(PARTITIONS, "ok", found)


async def _sentinels(where: BySentinel, timeout: float) -> Check:
    said = await where.quorum(timeout)
    wrong = [each for each in said if not each.startswith("OK")]
    if not wrong:
        return Check(SENTINELS, "ok", f"{len(said)} of {len(said)} say: {said[0]}")
    remedy = "Bring them back: without enough of them nobody replaces a primary that is gone."
    # More than half of them must agree before another primary leads.
    verdict: Verdict = "warn" if len(wrong) * 2 < len(said) else "fail"
    return Check(SENTINELS, verdict, "; ".join(wrong), remedy)
