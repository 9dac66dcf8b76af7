"""Asks Redis: each node that serves partitions, and the cluster or the Sentinels around it.

``INFO`` is allowed by a managed Redis that forbids ``CONFIG``.

Whether the user may do what groupflow does takes a harmless try of each command, in a script. Redis
checks a script's commands against the user's rights before their arguments. So a command on a key
of the wrong type tells whether it is permitted, and changes nothing. The tries write one key of
their own only, which is deleted afterwards (and expires where even that is forbidden).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import uuid4

import orjson
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreUnavailable
from groupflow.doctor.table import SLOTS, judge
from groupflow.settings import transport
from groupflow.settings.model import Settings
from groupflow.settings.transport import address_of, split_url
from groupflow.store.keys import Keys
from groupflow.store.node import make_pool
from groupflow.store.partitions import keys_of
from groupflow.store.refusals import translated
from groupflow.store.topology import BySentinel, InCluster, topology_of

Leader: TypeAlias = Literal["cluster", "sentinel"]
"""What promotes another server."""

_CHECKS_OF_INFO = (
    *("redis.version", "redis.role", "redis.cluster", "redis.eviction", "redis.persistence"),
    *("redis.memory", "redis.clock", "redis.replicas", "redis.min_replicas"),
)

_MEBIBYTE = 1 << 20
_WRITES = {
    "aof_last_write_status": "writing the append-only file",
    "aof_last_bgrewrite_status": "rewriting the append-only file",
    "rdb_last_bgsave_status": "saving a snapshot",
}
_UNTOLD: dict[str, Any] = {
    **{"redis_version": "", "role": "master", "master_host": None, "master_port": None},
    **{"maxmemory_policy": "unknown", "maxmemory": 0, "used_memory": 0, "loading": 0},
    **{"aof_enabled": 0, "connected_slaves": 0, "min_slaves_good_slaves": None},
    **{"server_time_usec": 0, **dict.fromkeys(_WRITES, "ok")},
}
"""What counts where an ``INFO`` doesn't say it."""
_Answer = TypeVar("_Answer")


async def examine_redis(settings: Settings) -> list[Check]:
    """Everything about the servers of a namespace, as the configured user sees them.

    Raises:
        ConfigError: the way to them isn't safe.
        StoreUnavailable: no partition answers.
        ServerUnreachable: the credentials were refused.
    """
    url, timeout = settings.redis_url(), settings.redis.timeout
    every = keys_of(settings.redis.namespace, settings.redis.partitions)
    where = topology_of(url, every[0]("count"))
    if isinstance(where, InCluster):
        return await _examine_cluster(where, every, settings)
    try:
        node = await where.find(timeout)
    except (RedisError, OSError) as error:
        raise translated(error, address_of(url)) from error
    checks = await _examine_node(node, every[0], settings)
    if isinstance(where, BySentinel):
        said = await where.quorum(timeout)
        wrong = [each for each in said if not each.startswith("OK")]
        shown = "; ".join(wrong or said[:1])
        checks += judge("redis.sentinels", wrong=len(wrong), count=len(said), said=shown)
    return checks


async def _examine_cluster(
    where: InCluster, every: Sequence[Keys], settings: Settings
) -> list[Check]:
    url, timeout = settings.redis_url(), settings.redis.timeout
    told = await where.told(timeout)
    said = "; ".join(f"{node} says {home}" for node, home in told.items())
    checks = judge("redis.nodes", count=len(set(told.values())), said=said)
    finding = (topology_of(url, keys("count")).find(timeout) for keys in every)
    found = await asyncio.gather(*finding, return_exceptions=True)
    nodes: dict[str, list[int]] = defaultdict(list)
    for number, node in enumerate(found):
        if isinstance(node, str):
            nodes[node].append(number)
    for number, error in enumerate(found):
        if isinstance(error, (RedisError, OSError)):
            reason = translated(error, address_of(url))
            if not nodes:
                raise reason from error
            checks += judge("redis.partitions away", which=number, why=reason)
        elif isinstance(error, BaseException):
            raise error
    for node, numbers in nodes.items():
        try:
            of_node = await _examine_node(node, every[numbers[0]], settings)
            checks += [replace(each, found=f"{address_of(node)}: {each.found}") for each in of_node]
        except (StoreUnavailable, ServerUnreachable) as error:
            checks += judge("redis.partitions away", which=", ".join(map(str, numbers)), why=error)
    infos = await asyncio.gather(*(_cluster_info(node, timeout) for node in nodes))
    return checks + judge_cluster(next(filter(None, infos), {}), [*map(len, nodes.values())])


async def _cluster_info(node: str, timeout: float) -> Mapping[str, str]:
    """What a node says of its cluster; empty where it doesn't say, or doesn't answer."""
    pool = make_pool(node, timeout)
    try:
        async with asyncio.timeout(timeout):
            redis: Any = Redis(connection_pool=pool)
            return dict(await redis.execute_command("CLUSTER INFO"))
    except (RedisError, OSError):
        return {}
    finally:
        await pool.disconnect()


def judge_cluster(info: Mapping[str, str], served: Sequence[int]) -> list[Check]:
    """What a ``CLUSTER INFO`` means for a namespace.

    Args:
        info: its lines, empty where no node told.
        served: for each node that serves partitions, how many.
    """
    state, slots = info.get("cluster_state"), int(info.get("cluster_slots_ok", 0))
    return judge(
        "redis.cluster as a whole",
        "redis.partitions",
        state=state,
        slots=slots,
        is_whole=state == "ok" and slots >= SLOTS,
        primaries=int(info.get("cluster_size", 0)),
        count=sum(served),
        used=len(served),
        most=max(served),
    )


async def _examine_node(node: str, keys: Keys, settings: Settings) -> list[Check]:
    """Everything about one server whose URL is known; each question has its time.

    Raises:
        StoreUnavailable: no answer.
        ServerUnreachable: it refused the credentials.
    """
    address, timeout = address_of(node), settings.redis.timeout
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
        return await _ask_all(redis, ask, keys, settings)
    except NoPermissionError as error:
        return judge("redis.rights", step="any", words=error)
    except (StoreUnavailable, ServerUnreachable):
        raise
    except GroupflowError as error:
        return judge("redis.answers", words=error)
    finally:
        await redis.aclose()
        await pool.disconnect()


async def _ask_all(redis: Redis, ask: Any, keys: Keys, settings: Settings) -> list[Check]:
    wanted, leader = settings.redis.replicas, leader_of(settings.redis_url())
    await ask(redis.ping)
    before = time.time()
    try:
        info = await ask(lambda: redis.info("default"))
        at = (before + time.time()) / 2
        lease, most = settings.workers.lease, settings.redis.max_memory
        checks = judge_info(info, lease, at, wanted, leader, max_memory=most)
    except NoPermissionError:
        info, checks = {}, judge("redis.info")
    failed = {check.name for check in checks if check.verdict == "fail"}
    try:
        config = await ask(lambda: redis.config_get("appendfsync", "save"))
    except (NoPermissionError, GroupflowError):  # it is forbidden, and needed for nothing else
        config = {}
    if info and config:
        fsync, save = config.get("appendfsync"), config.get("save")
        facts = {"is_appending": bool(info.get("aof_enabled")), "appendfsync": fsync, "save": save}
        checks += judge("redis.fsync", "redis.snapshots", **facts)
    if failed & {"redis.version", "redis.role", "redis.cluster"}:
        return checks  # it can't run our scripts
    try:
        checks += await examine_rights(redis, ask, keys, in_cluster=leader == "cluster")
        if wanted:
            await ask(lambda: redis.wait(0, 1))
    except NoPermissionError:
        checks += judge("redis.rights", step="wait")
    except StoreUnavailable as error:
        checks += judge("redis.rights", step="busy", words=error)
    except GroupflowError as error:
        checks += judge("redis.answers", words=error)
    return checks


def judge_info(
    info: Mapping[str, Any],
    lease: float,
    local: float,
    wanted: int,
    leader: Leader | None,
    *,
    max_memory: int = 0,
) -> list[Check]:
    """What an ``INFO`` means.

    Args:
        info: of a server, as redis-py parses it.
        lease: seconds.
        local: this machine's Unix time at the answer.
        wanted: `redis.replicas`.
        leader: what promotes another server; ``None`` where an operator must.
        max_memory: `redis.max_memory`, 0 for none.
    """
    told = {**_UNTOLD, **info}
    version, is_valkey = told["redis_version"], "valkey_version" in info
    ahead = told["server_time_usec"] / 1e6 - local
    known = [info.get(f"slave{n}") for n in range(told["connected_slaves"])]
    most = min(filter(None, (told["maxmemory"], max_memory)), default=0)
    facts = told | {
        "product": f"Valkey {info['valkey_version']}" if is_valkey else f"Redis {version}",
        "version": tuple(int(n) for n in str(version).split(".")[:2] if n.isdecimal()),
        "is_node": info.get("cluster_enabled", leader == "cluster"),
        "failed": " and ".join(what for key, what in _WRITES.items() if told[key] != "ok"),
        "used": told["used_memory"] // _MEBIBYTE,
        "most": most,
        "limit": most // _MEBIBYTE,
        "apart": abs(ahead),
        "side": "ahead of" if ahead > 0 else "behind",
        "lease": lease,
        "there": sum(not isinstance(each, dict) or each.get("state") == "online" for each in known),
        "wanted": wanted,
        "leader": leader,
    }
    return judge(*_CHECKS_OF_INFO, **facts)


def leader_of(url: str) -> Leader | None:
    """What promotes another server, by the scheme of a URL."""
    scheme = split_url(url).scheme
    if scheme.endswith(transport.CLUSTER):
        return "cluster"
    return "sentinel" if scheme.endswith(transport.SENTINEL) else None


# ARGV: one command a list, as JSON. Returns, one a command, its error or ''.
_TRY = """#!lua flags=allow-oom
local replies = {}
for i, command in ipairs(ARGV) do
  local reply = redis.pcall(unpack(cjson.decode(command)))
  replies[i] = type(reply) == 'table' and reply.err or ''
end
return replies
"""

_NO_COMMAND = re.compile(r"can't run this command|no permissions to run")
_NO_TARGET = re.compile(
    r"can't access at least one|permissions to access a key"
    r"|can't publish|permissions to access a channel"
)
# How to try each command of scripts but SET. `KEY` is a string, `NONE` doesn't exist, `WAKE` is the
# channel.
_TABLE = """
DEL NONE · EXISTS KEY · GET KEY · HDEL KEY f · HEXISTS KEY f · HGET KEY f · HGETALL KEY ·
HINCRBY KEY f 1 · HKEYS KEY · HLEN KEY · HMGET KEY f · HSCAN KEY 0 · HSET KEY f v · HSETNX KEY f v ·
HSTRLEN KEY f · HVALS KEY · INCR KEY · INCRBY KEY 1 · LINDEX KEY 0 · LINSERT KEY AFTER a b ·
LLEN KEY · LPOP KEY · LPUSH KEY a · LRANGE KEY 0 0 · LREM KEY 1 a · LSET KEY 0 a ·
MSET KEY v · MSETNX KEY v · PUBLISH WAKE doctor · RENAME NONE NONE · RPOP KEY · RPUSH KEY a ·
SETNX KEY v · TIME · UNLINK NONE · ZADD KEY XX 1 a · ZCARD KEY · ZCOUNT KEY 0 0 ·
ZLEXCOUNT KEY - + · ZMSCORE KEY a · ZRANGE KEY 0 0 · ZRANGEBYSCORE KEY 0 0 · ZRANK KEY a ·
ZREM KEY a · ZREMRANGEBYRANK KEY 0 0 · ZSCAN KEY 0 · ZSCORE KEY a
"""
TRIES = {name: words for name, *words in map(str.split, _TABLE.split("·"))}


async def examine_rights(
    redis: Redis, ask: Any, keys: Keys, *, in_cluster: bool = False
) -> list[Check]:
    """Try everything, as the user of this connection; in a cluster wakes go by slot.

    Raises:
        StoreUnavailable: no answer.
    """
    step = "load"
    try:
        sha = await ask(lambda: redis.script_load(_TRY))
        step = "run"
        denied = await _try_all(redis, ask, keys, sha, in_cluster=in_cluster)
    except NoPermissionError as error:
        words = f"{keys('*')}: {error}" if step == "run" else error
        return judge("redis.rights", step=step, words=words)
    try:
        together = redis.pipeline(transaction=True)
        together.exists(keys("doctor"))
        await ask(together.execute)
    except NoPermissionError as error:
        denied.append(f"MULTI and EXEC ({error})")
    pubsub = redis.pubsub()
    try:
        subscribe = pubsub.ssubscribe if in_cluster else pubsub.subscribe
        await ask(lambda: subscribe(keys.wake))
        await ask(lambda: pubsub.get_message(timeout=1.0))  # a refusal comes as an answer
    except NoPermissionError as error:
        denied.append(f"{'S' * in_cluster}SUBSCRIBE to {keys.wake} ({error})")
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]
    if denied:
        return judge("redis.rights", step="denied", words=", ".join(denied))
    return judge("redis.rights", step="done", words=keys("*"))


async def _try_all(redis: Redis, ask: Any, keys: Keys, sha: str, *, in_cluster: bool) -> list[str]:
    """What is denied: a command, or a command on a key."""
    token = uuid4().hex
    key, none = keys("doctor", token), keys("doctor", f"{token}-none")
    names = {"KEY": key, "NONE": none, "WAKE": keys.wake}

    async def try_these(commands: Sequence[tuple[str, ...]]) -> list[str]:
        arguments = [orjson.dumps(command) for command in commands]
        replies = await ask(lambda: redis.evalsha(sha, 1, keys.front, *arguments))
        return [reply.decode() for reply in replies]

    (refusal,) = await try_these([("SET", key, "doctor", "PX", "5000")])
    if refusal:
        # Without it the other tries would not be harmless, and nothing works anyway.
        return [_denial("SET", key, refusal) or f"SET ({refusal})"]
    sent = {"PUBLISH": "SPUBLISH"} if in_cluster else {}
    tries = [
        (sent.get(name, name), *(names.get(word, word) for word in words))
        for name, words in TRIES.items()
    ]
    # On every kind of key (where strangers name keys, one that doesn't exist): a read, and a write
    # without effect.
    every = [f"{name}{token}" if name.endswith(":") else name for _, name in keys.every()]
    tries += [("EXISTS", each) for each in every]
    tries += [("HDEL", each, token) for each in every]
    tries.append(("DEL", key))
    replies = zip(tries, await try_these(tries), strict=True)
    denied = [_denial(name, " ".join(target[:1]), reply) for (name, *target), reply in replies]
    return list(dict.fromkeys(filter(None, denied)))


def _denial(command: str, target: str, reply: str) -> str:
    """What a reply denies, or nothing: any other error shows that the command was permitted."""
    if _NO_COMMAND.search(reply):
        return command
    return f"{command} on {target}" if _NO_TARGET.search(reply) else ""
