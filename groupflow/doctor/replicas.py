"""Whether a fail-over would lose acked messages: how many replicas exist, and how many must."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from redis.exceptions import NoPermissionError

from groupflow.core.checkup import Check
from groupflow.core.urls import split_url
from groupflow.settings.transport import CLUSTER, SENTINEL

Leader: TypeAlias = Literal["cluster", "sentinel"]
"""What promotes another server."""

NAME = "redis.replicas"
_GUARD = "redis.min_replicas"


def judge_replicas(info: Mapping[str, Any], wanted: int, leader: Leader | None) -> list[Check]:
    """What an ``INFO`` means for a fail-over.

    Args:
        info: of the primary, as redis-py parses it.
        wanted: `redis.replicas`.
        leader: what promotes another server; ``None`` where an operator must.
    """
    there = _online(info)
    checks = [_copies(there, wanted, leader is not None)]
    # Where it is set, Redis tells how many replicas are near enough. A cut-off cluster node stops
    # by itself.
    if leader == "sentinel" and "min_slaves_good_slaves" not in info:
        remedy = (
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 5, and the same in "
            "redis.conf, if it shall rather stand than go on alone; see docs/delivery.md."
        )
        found = "min-replicas-to-write 0: a primary that is cut off goes on for those who reach it"
        checks.append(Check(_GUARD, "warn", found, remedy))
    return checks


async def try_wait(redis: Any, ask: Any) -> list[Check]:
    """Whether the user may ask for replicas.

    Raises:
        StoreUnavailable: no answer.
    """
    try:
        await ask(lambda: redis.wait(0, 1))
    except NoPermissionError:
        remedy = "Grant +wait, as deploy/redis/groupflow.acl does; or set redis.replicas = 0."
        return [Check("redis.rights", "fail", "the user may not: WAIT", remedy)]
    return []


def leader_of(url: str) -> Leader | None:
    """What promotes another server, by the scheme of a URL."""
    scheme = split_url(url).scheme
    if scheme.endswith(CLUSTER):
        return "cluster"
    return "sentinel" if scheme.endswith(SENTINEL) else None


def _online(info: Mapping[str, Any]) -> int:
    known = [info.get(f"slave{n}") for n in range(int(info.get("connected_slaves", 0)))]
    return sum(not isinstance(each, dict) or each.get("state") == "online" for each in known)


def _copies(there: int, wanted: int, is_replaced: bool) -> Check:
    found = f"{there} connected, redis.replicas = {wanted}"
    if there < wanted:
        remedy = "Until more of them are connected, intake stands; workers go on."
        return Check(NAME, "warn", found, remedy)
    if not wanted and (there or is_replaced):
        found += ": a fail-over loses what was acked and had not reached the next primary"
    if not wanted and is_replaced:
        remedy = "Set redis.replicas = 1: then no message is acked before a replica has it."
        return Check(NAME, "warn", found, remedy)
    return Check(NAME, "ok", found)
