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
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.keys import Keys
from groupflow.store.scripts import Scripts, Verb

NAME = "redis.rights"
CLIENT_COMMANDS = (
    *("PING", "INFO", "SCRIPT LOAD", "EVALSHA", "MULTI", "EXEC"),
    *("SUBSCRIBE", "UNSUBSCRIBE", "WAIT"),
)
"""Commands that the client sends itself; all others run in scripts."""

_REMEDY = "deploy/redis/groupflow.acl has all that the user needs."

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
_NO_KEY = re.compile(r"can't access at least one|permissions to access a key")
_NO_CHANNEL = re.compile(r"can't publish|permissions to access a channel")
_CALLED = re.compile(r"\bcall\('?([A-Z]{2,})\b")  # the quoteless one is a constant of that name

# How to try each command. `KEY` is a string, `NONE` doesn't exist, `WAKE` is the channel.
_KEY, _NONE, _WAKE = "KEY", "NONE", "WAKE"
_TABLE = """
DEL NONE · EXISTS KEY · GET KEY · HDEL KEY f · HEXISTS KEY f · HGET KEY f · HGETALL KEY ·
HINCRBY KEY f 1 · HKEYS KEY · HLEN KEY · HMGET KEY f · HSCAN KEY 0 · HSET KEY f v ·
HSETNX KEY f v · HSTRLEN KEY f · HVALS KEY · INCR KEY · INCRBY KEY 1 · LINDEX KEY 0 ·
LINSERT KEY AFTER a b · LLEN KEY · LPUSH KEY a · LRANGE KEY 0 0 · LREM KEY 1 a · LSET KEY 0 a ·
MSETNX KEY v · PUBLISH WAKE doctor · RENAME NONE NONE · RPOP KEY · RPUSH KEY a · SETNX KEY v ·
TIME · UNLINK NONE · ZADD KEY XX 1 a · ZCARD KEY · ZCOUNT KEY 0 0 · ZLEXCOUNT KEY - + ·
ZRANGE KEY 0 0 · ZRANGEBYSCORE KEY 0 0 · ZRANK KEY a · ZREM KEY a · ZREMRANGEBYRANK KEY 0 0 ·
ZSCAN KEY 0 · ZSCORE KEY a
"""
_TRIES = {name: words for name, *words in map(str.split, _TABLE.split("·"))}


def script_commands() -> set[str]:
    scripts = Scripts("oldest")
    every = (scripts[verb].text for verb in (*Verb, *OperatorVerb))
    return {command for text in every for command in _CALLED.findall(text)}


def tried_commands() -> set[str]:
    return {"SET", *_TRIES}


async def examine_rights(
    redis: Redis, ask: Any, keys: Keys, *, in_cluster: bool = False
) -> list[Check]:
    """Try everything, as the user of this connection; in a cluster wakes go by slot.

    Raises:
        StoreUnavailable: no answer.
    """
    try:
        sha = await ask(lambda: redis.script_load(_TRY))
    except NoPermissionError as error:
        return [Check(NAME, "fail", f"scripts can't be loaded: {error}", _REMEDY)]
    try:
        denied = await _try_all(redis, ask, keys, sha, in_cluster=in_cluster)
    except NoPermissionError as error:
        return [Check(NAME, "fail", f"scripts can't be run on {keys('*')}: {error}", _REMEDY)]
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
        return [Check(NAME, "fail", f"the user may not: {', '.join(denied)}", _REMEDY)]
    return [Check(NAME, "ok", f"the user may do all that scripts need on {keys('*')}")]


async def _try_all(redis: Redis, ask: Any, keys: Keys, sha: str, *, in_cluster: bool) -> list[str]:
    """What is denied: a command, or a command on a key."""
    token = uuid4().hex
    names = {_KEY: keys("doctor", token), _NONE: keys("doctor", f"{token}-none"), _WAKE: keys.wake}

    async def try_these(commands: Sequence[tuple[str, ...]]) -> list[str]:
        arguments = [orjson.dumps(command) for command in commands]
        replies = await ask(lambda: redis.evalsha(sha, 1, keys.front, *arguments))
        return [reply.decode() for reply in replies]

    denied: list[str] = []
    (refusal,) = await try_these([("SET", names[_KEY], "doctor", "PX", "5000")])
    if refusal:
        # Without it the other tries would not be harmless, and nothing works anyway.
        return [_denial("SET", names[_KEY], refusal) or f"SET ({refusal})"]
    wanted = sorted(script_commands() & set(_TRIES))
    sent = {"PUBLISH": "SPUBLISH"} if in_cluster else {}
    tries = [
        (sent.get(name, name), *(names.get(word, word) for word in _TRIES[name])) for name in wanted
    ]
    # On every kind of key: a read, and a write without effect.
    every = _all_kinds(keys, token)
    tries += [("EXISTS", key) for key in every]
    tries += [("HDEL", key, token) for key in every]
    tries.append(("DEL", names[_KEY]))
    for command, reply in zip(tries, await try_these(tries), strict=True):
        found = _denial(command[0], command[1] if len(command) > 1 else "", reply)
        if found and found not in denied:
            denied.append(found)
    return denied


def _all_kinds(keys: Keys, token: str) -> list[str]:
    """A key of every kind; where strangers name keys, one that doesn't exist."""
    return [f"{key}{token}" if key.endswith(":") else key for _, key in keys.every()]


def _denial(command: str, target: str, reply: str) -> str:
    """What a reply denies, or nothing: any other error shows that the command was permitted."""
    if _NO_COMMAND.search(reply):
        return command
    if _NO_KEY.search(reply) or _NO_CHANNEL.search(reply):
        return f"{command} on {target}"
    return ""
