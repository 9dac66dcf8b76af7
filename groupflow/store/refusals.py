"""What Redis answers in place of a result, as our errors."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    OutOfMemoryError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreFull, StoreUnavailable

# First words of answers of a server that is up but can't serve for now: it loads its file, is busy
# with a script, fails to write its disk, has too few replicas, or no longer has the keys. The last
# has no word of its own.
_PASSING = (
    *("LOADING", "BUSY", "MISCONF", "NOREPLICAS", "READONLY", "MASTERDOWN"),
    *("CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"),
    "NOSCRIPT",  # restarted once more, behind the load of its scripts
    "UNBLOCKED",  # it waited for replicas, and has become one
)
# How a server answers whose disk is full. From Redis 7.0 on, and in Valkey, a write of which only a
# part got through may leave a hole in the append-only file, which the next start can't read:
# `openNewIncrAofForAppend` doesn't open it to append.
_FULL_DISK = "Errors writing to the AOF file"
_REWRITE = ". Once it writes again, run BGREWRITEAOF, or it may not load its file at a restart"
# The same of a server that takes no more connections: its first word says nothing.
_CROWDED = "ERR max number of clients reached"
# Answers of a node that has given its keys away; nothing ran.
_MOVED = ("MOVED", "READONLY", "MASTERDOWN")


def translated(error: Exception, address: str) -> Exception:
    """Our error for one of redis-py's; never with the URL, which may hold a password."""
    if isinstance(error, OutOfMemoryError) or str(error).startswith("OOM"):
        return StoreFull(f"Redis at {address} is out of memory: {error}")
    if isinstance(error, AuthenticationError) or _first_word(error) in ("NOAUTH", "WRONGPASS"):
        return ServerUnreachable("Redis", address, f"it refused the credentials ({error})")
    # What is no reply of a Redis comes from another program at its port, for a while or for good.
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError)):
        return StoreUnavailable(f"Redis at {address} does not answer: {error}")
    if isinstance(error, ResponseError) and (
        _first_word(error) in _PASSING or str(error) == _CROWDED
    ):
        remedy = _REWRITE if _FULL_DISK in str(error) else ""
        return StoreUnavailable(f"Redis at {address} can't serve now: {error}{remedy}")
    return GroupflowError(f"Redis at {address} refused a script: {error}")


def _first_word(error: object) -> str:
    """Which refusal it is; redis-py takes the words that it knows off the text."""
    return getattr(error, "status_code", None) or str(error).split(" ", 1)[0]


def is_unknown_script(reply: object) -> bool:
    """Whether Redis doesn't know the script: it was restarted."""
    return isinstance(reply, ResponseError) and _first_word(reply) == "NOSCRIPT"


def has_moved(reply: object) -> bool:
    """Whether another node has the keys now."""
    return isinstance(reply, ResponseError) and _first_word(reply) in _MOVED
