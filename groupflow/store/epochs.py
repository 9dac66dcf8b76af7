"""Epochs: what a daemon remembers of servers, to show it to one that may have lost writes.

An epoch is the time for which one server leads without a restart. Redis names it: `master_replid`
changes whenever a replica is promoted, and at every start. `lua/epochs.lua` and docs/adr/0045 have
the rules; here is what a daemon has to remember for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from redis.exceptions import RedisError

from groupflow.store.wire import Wire, pack

NEVER = "0" * 16  # below any session's number
_ID = re.compile(rb"^master_replid:([0-9a-f]+)", re.MULTILINE)
_ASK = pack("INFO", "replication")


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch that a daemon has a session in."""

    id: str = ""  # as Redis names it; empty where it doesn't
    since: float = 0.0  # when (monotonic) the daemon was told so


@dataclass(slots=True)
class Seen:
    """The highest numbers that a daemon was ever told: none may be given out a second time."""

    fence: int = 0
    sequence: int = 0  # µs
    enrolled: str = NEVER  # number of the newest session, of any daemon


async def ask_epoch(wire: Wire, timeout: float) -> str:
    """The epoch at the other end; it stays the same as long as the connection does.

    The exception is a primary that becomes a replica and a primary again meanwhile.

    Args:
        wire: the connection.
        timeout: seconds.

    Raises:
        redis.exceptions.RedisError: no answer, or Redis doesn't say.
    """
    (reply,) = await wire.call([_ASK], timeout)
    if isinstance(reply, RedisError):
        raise reply
    found = _ID.search(reply)
    return found[1].decode() if found else ""
