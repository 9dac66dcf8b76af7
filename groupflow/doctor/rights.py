"""Whether the user may do what groupflow does: a harmless try of each command, in a script.

Redis checks a script's commands against the user's rights before their arguments. So a command on a
key of the wrong type tells whether it is permitted, and changes nothing. The tries write one key of
their own only, which is deleted afterwards (and expires where even that is forbidden).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import orjson
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from groupflow.core.checkup import Check
from groupflow.doctor.table import judge
from groupflow.store.keys import Keys

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
LLEN KEY · LPUSH KEY a · LRANGE KEY 0 0 · LREM KEY 1 a · LSET KEY 0 a · MSET KEY v · MSETNX KEY v ·
PUBLISH WAKE doctor · RENAME NONE NONE · RPOP KEY · RPUSH KEY a · SETNX KEY v · TIME · UNLINK NONE ·
ZADD KEY XX 1 a · ZCARD KEY · ZCOUNT KEY 0 0 · ZLEXCOUNT KEY - + · ZRANGE KEY 0 0 ·
ZRANGEBYSCORE KEY 0 0 · ZRANK KEY a · ZREM KEY a · ZREMRANGEBYRANK KEY 0 0 · ZSCAN KEY 0 ·
ZSCORE KEY a
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
