"""Whether Redis is fit: its version, its memory, its persistence, its clock, its role.

It reads ``INFO``, which a managed Redis allows where it forbids ``CONFIG``. `rights` examines what
a user may do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreUnavailable
from groupflow.doctor.replicas import Leader, judge_replicas, leader_of, try_wait
from groupflow.doctor.rights import examine_rights
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.pool import make_pool
from groupflow.store.refusals import address_of, translated
from groupflow.store.whereabouts import whereabouts_of

OLDEST = (7, 0)  # the first whose scripts carry flags, which settling needs when memory is full
EVICTION = "redis.eviction"
ROLE = "redis.role"
CLUSTER = "redis.cluster"
NEAR_FULL = 0.9  # of maxmemory
MEGABYTE = 1 << 20

_Answer = TypeVar("_Answer")


async def examine_at_start(
    client: StoreClient, lease: float, url: str, replicas: int
) -> list[Check]:
    """What a daemon checks before it works: one ``INFO``.

    Args:
        client: of the server.
        lease: seconds.
        url: as configured.
        replicas: as configured.

    Raises:
        StoreUnavailable: no answer.
        GroupflowError: Redis refused to say.
    """
    before = time.time()
    info = await client.info("default")
    at, leader = (before + time.time()) / 2, leader_of(url)
    judged = judge_info(info, lease, at, in_cluster=leader == "cluster")
    return [*judged, *judge_replicas(info, replicas, leader)]


async def examine_store(
    url: str, keys: Keys, lease: float, timeout: float, replicas: int = 0
) -> list[Check]:
    """Everything about one Redis, as the user of the URL sees it.

    Each question may take `timeout` seconds; `replicas` must hold a batch.

    Raises:
        StoreUnavailable: no answer.
        ServerUnreachable: it refused the credentials.
    """
    where = whereabouts_of(url, keys("count"))
    try:
        node = await where.find(timeout)
    except (RedisError, OSError) as error:
        raise translated(error, address_of(url)) from error
    leader = leader_of(url)
    return await examine_node(node, keys, lease, timeout, replicas=replicas, leader=leader)


async def examine_node(
    node: str,
    keys: Keys,
    lease: float,
    timeout: float,
    *,
    replicas: int = 0,
    leader: Leader | None = None,
) -> list[Check]:
    """The same of a server whose URL is known; see `examine_store`, and `judge_replicas`."""
    address = address_of(node)
    pool = make_pool(node, timeout)
    redis = Redis(connection_pool=pool)

    async def ask(question: Callable[[], Awaitable[_Answer]]) -> _Answer:
        try:
            async with asyncio.timeout(timeout):
                return await question()
        except NoPermissionError:
            raise
        except TimeoutError as error:
            what = f"no answer within {timeout} s"
            raise StoreUnavailable(f"Redis at {address} does not answer: {what}") from error
        except (RedisError, OSError) as error:
            raise translated(error, address) from error

    try:
        checks = await _examine_info(redis, ask, lease, replicas, leader)
        checks += await _examine_files(redis, ask, checks)
        checks += await _examine_rights(redis, ask, keys, checks, leader)
        checks += await try_wait(redis, ask) if replicas else []
    except NoPermissionError as error:
        remedy = "deploy/redis/groupflow.acl has all that the user needs."
        return [Check("redis.rights", "fail", f"it lets the user do nothing: {error}", remedy)]
    except (StoreUnavailable, ServerUnreachable):
        raise
    except GroupflowError as error:
        return [Check("redis.answers", "fail", str(error), "See Redis's own log.")]
    finally:
        await redis.aclose()
        await pool.disconnect()
    return checks


async def _examine_rights(
    redis: Redis, ask: Any, keys: Keys, checks: list[Check], leader: Leader | None
) -> list[Check]:
    """What the user may do, where this Redis can run scripts."""
    if any(check.name in (ROLE, CLUSTER) and check.verdict == "fail" for check in checks):
        return []
    try:
        return await examine_rights(redis, ask, keys, in_cluster=leader == "cluster")
    except StoreUnavailable as error:  # it answered before: it is busy, or can't write its disk
        return [Check("redis.rights", "fail", str(error), "See Redis's own log.")]


async def _examine_info(
    redis: Redis, ask: Any, lease: float, replicas: int, leader: Leader | None
) -> list[Check]:
    await ask(redis.ping)
    try:
        before = time.time()
        info = await ask(lambda: redis.info("default"))
        at = (before + time.time()) / 2
        found = judge_info(info, lease, at, in_cluster=leader == "cluster")
        found += judge_replicas(info, replicas, leader)
    except NoPermissionError:
        remedy = (
            "Grant +info: without it nobody sees an eviction policy that loses tasks, nor that "
            "another server leads, which may have lost claims."
        )
        return [Check("redis.info", "warn", "the user may not run INFO", remedy)]
    return found


async def _examine_files(redis: Redis, ask: Any, checks: list[Check]) -> list[Check]:
    """The persistence that INFO doesn't tell; no check where CONFIG is forbidden."""
    try:
        config: dict[str, str] = await ask(lambda: redis.config_get("appendfsync", "save"))
    except (NoPermissionError, GroupflowError, ResponseError):
        return []
    is_appending = any(
        c.name == "redis.persistence" and "appendonly yes" in c.found for c in checks
    )
    if is_appending and config.get("appendfsync") == "no":
        remedy = "CONFIG SET appendfsync everysec, and the same in redis.conf."
        found = "appendfsync no: a power cut may lose the last 30 s"
        return [Check("redis.fsync", "warn", found, remedy)]
    if is_appending:
        return [Check("redis.fsync", "ok", f"appendfsync {config.get('appendfsync')}")]
    snapshots = config.get("save") or "none"
    return [Check("redis.snapshots", "ok" if snapshots != "none" else "warn", f"save {snapshots}")]


def judge_info(
    info: Mapping[str, Any], lease: float, local: float, *, in_cluster: bool = False
) -> list[Check]:
    """What an ``INFO`` means; `local` is this machine's Unix time at its answer.

    `in_cluster`: whether the URL is a cluster's.
    """
    return [
        _version(info),
        _role(info, in_cluster=in_cluster),
        _eviction(info),
        _persistence(info),
        _memory(info),
        *([_clock(info, lease, local)] if "server_time_usec" in info else []),
    ]


def _version(info: Mapping[str, Any]) -> Check:
    text = str(info.get("redis_version", ""))
    found = f"Redis {text}"
    if "valkey_version" in info:
        found = f"Valkey {info['valkey_version']}"
    numbers = tuple(int(n) for n in text.split(".")[:2] if n.isdecimal())
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Check("redis.version", "fail", found, f"Use Redis {oldest} or newer, or Valkey.")
    return Check("redis.version", "ok", found)


def _role(info: Mapping[str, Any], *, in_cluster: bool) -> Check:
    role = str(info.get("role", "master"))
    if role != "master":
        found = f"a replica of {info.get('master_host')}:{info.get('master_port')}"
        return Check(ROLE, "fail", found, "Give redis.url the address of the primary.")
    if in_cluster and not int(info.get("cluster_enabled", 1)):
        remedy = "Give redis.url as redis://host:port/0; redis+cluster:// is for a Redis Cluster."
        return Check(CLUSTER, "fail", "it is no node of a cluster", remedy)
    if int(info.get("cluster_enabled", 0)) and not in_cluster:
        remedy = "Give redis.url as redis+cluster://, with several of its nodes."
        return Check(ROLE, "warn", "a node of a cluster", remedy)
    return Check(ROLE, "ok", f"a primary{' of a cluster' if in_cluster else ''}")


def _eviction(info: Mapping[str, Any]) -> Check:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return Check(EVICTION, "ok", "maxmemory-policy noeviction")
    if policy == "unknown":
        return Check(EVICTION, "warn", "Redis does not say its maxmemory-policy", "Look it up.")
    return Check(
        EVICTION,
        "fail",
        f"maxmemory-policy {policy}: when memory is full, Redis deletes tasks and locks",
        "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf (or the provider's "
        "console). A cache belongs on another Redis.",
    )


def _persistence(info: Mapping[str, Any]) -> Check:
    name = "redis.persistence"
    if int(info.get("loading", 0)):
        return Check(name, "warn", "it is loading its file", "Wait until it has.")
    failed = [
        what
        for what, key in (
            ("writing the append-only file", "aof_last_write_status"),
            ("rewriting the append-only file", "aof_last_bgrewrite_status"),
            ("saving a snapshot", "rdb_last_bgsave_status"),
        )
        if info.get(key, "ok") != "ok"
    ]
    if failed:
        remedy = "See Redis's log, and whether its disk is full: until then it refuses writes."
        return Check(name, "warn", f"{' and '.join(failed)} failed", remedy)
    if int(info.get("aof_enabled", 0)):
        return Check(name, "ok", "appendonly yes")
    return Check(
        name,
        "warn",
        "appendonly no: a restart of Redis loses what came since its last snapshot, or everything",
        "CONFIG SET appendonly yes with appendfsync everysec, and the same in redis.conf.",
    )


def _memory(info: Mapping[str, Any]) -> Check:
    name = "redis.memory"
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit:
        return Check(
            name,
            "warn",
            f"{used // MEGABYTE} MiB used, maxmemory not set: the kernel kills what grows too far",
            "CONFIG SET maxmemory to what the machine can spare, or set redis.max_memory. At "
            "either limit intake pauses, and what is queued still drains.",
        )
    found = f"{used // MEGABYTE} of {limit // MEGABYTE} MiB used"
    if used >= NEAR_FULL * limit:
        remedy = "Raise maxmemory, add workers, or look for a group that stands: groupflow status."
        return Check(name, "warn", found, remedy)
    return Check(name, "ok", found)


def _clock(info: Mapping[str, Any], lease: float, local: float) -> Check:
    ahead = int(info["server_time_usec"]) / 1e6 - local
    found = f"Redis's clock is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this one"
    if abs(ahead) > lease / 4:
        remedy = (
            "Set both by NTP. Leases and delays go by Redis's clock alone, so nothing breaks, but "
            "times in logs and on the page don't agree."
        )
        return Check("redis.clock", "warn", found, remedy)
    return Check("redis.clock", "ok", found)
